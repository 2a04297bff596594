//! Whether this machine has what local mode needs: what `kaos doctor` says.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kaos_api::v1alpha1::{ModelAPI, ModelApiMode};
use kaos_apiserver::{ApiServer, Options, Storage};
use kaos_seams::Seams;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;
use tokio::{process::Command, time::timeout};

use crate::{
    data_dir::{DataDir, running},
    format,
    manifest::Manifest,
};

/// How long a program or a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Below this a full disk is near.
const LITTLE_SPACE: u64 = 200 << 20;
/// The port of a gateway that has none yet.
const GATEWAY_PORT: u16 = 8888;

/// What a look at one thing said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is as it should be.
    Ok,
    /// It works, or is needed by some only.
    Warning,
    /// `kaos up` will not work before it is mended.
    Failed,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// How it is.
    pub outcome: Outcome,
    /// What was found, and the fix.
    pub message: String,
}

fn check(name: &str, outcome: Outcome, message: impl Into<String>) -> Check {
    Check {
        name: name.to_owned(),
        outcome,
        message: message.into(),
    }
}

/// What is to be looked at.
pub struct Examined<'a> {
    /// The data folder.
    pub data_dir: &'a Path,
    /// The Python that tools run with: a path, or a name on the path.
    pub python: PathBuf,
    /// Manifests whose providers are asked.
    pub manifests: &'a [Manifest],
    /// A client of the running instance, whose providers are asked too.
    pub client: Option<Client>,
}

/// Looks at everything. It changes nothing, and sends providers no key.
pub async fn examine(examined: Examined<'_>) -> Vec<Check> {
    let mut checks = vec![python(&examined.python).await];
    checks.extend(data_folder(examined.data_dir).await);
    checks.push(gateway_port(examined.data_dir));
    checks.extend(programs());
    checks.extend(providers(&examined).await);
    checks
}

async fn python(python: &Path) -> Check {
    let name = "python";
    let shown = python.display();
    let fix = "tools in Python need 3.9 or newer; install it, or set KAOS_PYTHON to its path";
    let asked = Command::new(python)
        .args(["-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match timeout(PATIENCE, asked).await {
        Ok(Ok(output)) if output.status.success() => output,
        Ok(Ok(output)) => {
            return check(
                name,
                Outcome::Failed,
                format!("{shown} ended with {}; {fix}", output.status),
            );
        }
        Ok(Err(error)) => {
            return check(
                name,
                Outcome::Failed,
                format!("{shown} cannot be started ({error}); {fix}"),
            );
        }
        Err(_) => return check(name, Outcome::Failed, format!("{shown} does not answer; {fix}")),
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    if numbers.as_slice() >= [3, 9].as_slice() {
        check(name, Outcome::Ok, format!("{shown} is Python {version}"))
    } else {
        check(
            name,
            Outcome::Failed,
            format!("{shown} is Python {version}; {fix}"),
        )
    }
}

async fn data_folder(path: &Path) -> Vec<Check> {
    let (name, shown) = ("data folder", path.display());
    if !path.exists() {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let writable = rustix::fs::access(above, rustix::fs::Access::WRITE_OK).is_ok();
        return vec![if writable {
            check(
                name,
                Outcome::Ok,
                format!("{shown} is not there yet; `kaos up` makes it"),
            )
        } else {
            let fix = "choose another place with --data-dir";
            check(
                name,
                Outcome::Failed,
                format!(
                    "{shown} cannot be made: {} is not writable; {fix}",
                    above.display()
                ),
            )
        }];
    }
    let mut checks = Vec::new();
    if let Ok(space) = rustix::fs::statvfs(path) {
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < LITTLE_SPACE {
            let message = format!(
                "{} MB are free where {shown} is; writes fail when none are",
                free >> 20
            );
            checks.push(check("disk", Outcome::Warning, message));
        }
    }
    if let Some(record) = running(path) {
        let message = format!("{shown} is in use by a running kaos (process {})", record.pid);
        checks.push(check(name, Outcome::Ok, message));
        return checks;
    }
    let data = match DataDir::lock(path) {
        Ok(data) => data,
        Err(error) => {
            checks.push(check(name, Outcome::Failed, error.to_string()));
            return checks;
        }
    };
    checks.push(match format::found(&data) {
        Ok(found) if found > format::FORMAT => {
            let fix = "use the newer kaos, or another folder with --data-dir";
            check(
                name,
                Outcome::Failed,
                format!(
                    "{shown} has format {found}, this program reads up to {}; {fix}",
                    format::FORMAT
                ),
            )
        }
        Ok(found) if found < format::FORMAT => {
            let message = format!(
                "{shown} has format {found}; `kaos up` copies it and brings it to {}",
                format::FORMAT
            );
            check(name, Outcome::Warning, message)
        }
        Ok(found) => check(name, Outcome::Ok, format!("{shown} can be used (format {found})")),
        Err(error) => check(name, Outcome::Failed, error.to_string()),
    });
    if data.store().exists() {
        checks.push(store(&data).await);
    }
    checks
}

/// Opens a copy: opening repairs what a power cut left, and a look changes nothing.
async fn store(data: &DataDir) -> Check {
    let name = "store";
    let path = data.store();
    let copy = data.path().join("store.doctor");
    let opened = match fs::copy(&path, &copy) {
        Ok(_) => ApiServer::open(Options {
            storage: Storage::Disk(copy.clone()),
            seams: Seams::system(),
            faults: None,
        })
        .await
        .map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default()).replace("store.doctor", "store.redb")
        }),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    let result = match opened {
        Ok(server) => {
            server.shutdown().await;
            check(name, Outcome::Ok, format!("{} can be read", path.display()))
        }
        Err(why) => {
            let fix = "save what can be read with `kaos export > saved.yaml`; `kaos up --fresh` begins without objects";
            check(name, Outcome::Failed, format!("{why}; {fix}"))
        }
    };
    // It is a copy; what is left of it is only space.
    let _ = fs::remove_file(&copy);
    result
}

fn gateway_port(data_dir: &Path) -> Check {
    let name = "gateway port";
    if let Some(port) = running(data_dir).and_then(|record| record.gateway_port) {
        return check(
            name,
            Outcome::Ok,
            format!("{port}, in use by the running instance"),
        );
    }
    let kept = crate::data_dir::last_record(data_dir).and_then(|record| record.gateway_port);
    let port = kept.unwrap_or(GATEWAY_PORT);
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => check(name, Outcome::Ok, format!("{port} is free")),
        Err(error) => {
            let message = format!(
                "{port} cannot be used ({error}); `kaos up` takes the next that is free, or the one of --gateway-port"
            );
            check(name, Outcome::Warning, message)
        }
    }
}

/// Programs that only some manifests need.
fn programs() -> Vec<Check> {
    [
        ("kubectl", "only for those who want to look closer"),
        ("ollama", "only for ModelAPIs of mode Hosted"),
        (
            "uv",
            "only to install the packages that tools name faster than pip does",
        ),
        ("npx", "only for tool servers that are packages of npm"),
    ]
    .into_iter()
    .map(|(program, needed)| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file());
        match found {
            Some(file) => check(program, Outcome::Ok, file.display().to_string()),
            None => check(
                program,
                Outcome::Warning,
                format!("not on the path; needed {needed}"),
            ),
        }
    })
    .collect()
}

async fn providers(examined: &Examined<'_>) -> Vec<Check> {
    let mut addresses = BTreeMap::new();
    let given = examined
        .manifests
        .iter()
        .filter(|manifest| manifest.gvk().kind == "ModelAPI");
    for manifest in given {
        let value = serde_json::to_value(&manifest.object).unwrap_or_default();
        if let Ok(model_api) = serde_json::from_value::<ModelAPI>(value) {
            addresses.extend(provider(&model_api));
        }
    }
    if let Some(client) = &examined.client
        && let Ok(model_apis) = Api::<ModelAPI>::all(client.clone())
            .list(&ListParams::default())
            .await
    {
        addresses.extend(model_apis.iter().filter_map(provider));
    }
    let client = match reqwest::Client::builder().timeout(PATIENCE).build() {
        Ok(client) => client,
        Err(error) => {
            return vec![check(
                "providers",
                Outcome::Failed,
                format!("no HTTP client: {error}"),
            )];
        }
    };
    let asked = addresses.into_iter().map(|(address, user)| {
        let client = client.clone();
        async move {
            let name = format!("provider of modelapi/{user}");
            match client.get(&address).send().await {
                // Any answer is one: without a key it is a refusal.
                Ok(answer) => check(
                    &name,
                    Outcome::Ok,
                    format!("{address} answers ({})", answer.status().as_u16()),
                ),
                Err(error) => {
                    let why = cause(&error);
                    let fix = "check the address, the network and HTTPS_PROXY";
                    check(
                        &name,
                        Outcome::Failed,
                        format!("{address} cannot be reached: {why}; {fix}"),
                    )
                }
            }
        }
    });
    futures::future::join_all(asked).await
}

/// The innermost cause: the outer ones repeat the address.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

/// Where the models of a ModelAPI come from, and the ModelAPI's name.
fn provider(model_api: &ModelAPI) -> Option<(String, String)> {
    if model_api.spec.mode != ModelApiMode::Proxy {
        return None;
    }
    let proxy = model_api.spec.proxy_config.as_ref()?;
    let own = match proxy.provider.as_deref() {
        Some("openai") => Some("https://api.openai.com/v1"),
        Some("anthropic") => Some("https://api.anthropic.com"),
        Some("gemini") => Some("https://generativelanguage.googleapis.com"),
        _ => None,
    };
    let address = proxy.api_base.as_deref().or(own)?;
    Some((address.to_owned(), model_api.name_any()))
}
