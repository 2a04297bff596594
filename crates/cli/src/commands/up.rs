//! `kaos up`: everything on this machine, until Ctrl-C.

use std::{
    collections::BTreeSet,
    io::{Write, stdout},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kaos_api::v1alpha1::Agent;
use kaos_local::{
    Applied, Begin, Change, Changes, ENV_SECRET, Findings, GatewayOptions, Gone, Instance, Manifest, Options,
    ResourceState, RouteAddresses,
};
use kaos_seams::Seams;
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::Instant;

use crate::{
    args::{Global, UpArgs},
    commands::{chat::service_of, detach, interrupted},
    output::{Progress, resource_name},
    target::{data_dir, shown},
};

/// An annotation of an Agent: what to ask it first.
const TRY: &str = "kaos.tools/try";

/// The files of a project.
struct Project<'a> {
    args: &'a UpArgs,
    namespace: &'a str,
}

impl Project<'_> {
    /// Reads them: manifests, and the env file as the Secrets that it becomes.
    fn load(&self) -> Result<Vec<Manifest>, Findings> {
        let mut manifests = kaos_local::load(&self.args.paths)?;
        if let Some(file) = &self.args.env_file {
            let namespaces: BTreeSet<String> = manifests
                .iter()
                .filter_map(|manifest| manifest.object.metadata.namespace.clone())
                .chain([self.namespace.to_owned()])
                .collect();
            let secrets = kaos_local::env_secrets(file, namespaces.iter().map(String::as_str))?;
            // First, so that what refers to them finds them.
            manifests.splice(0..0, secrets);
        }
        Ok(manifests)
    }

    /// Applies them, and says what came of it.
    async fn bring(&self, instance: &Instance, manifests: &[Manifest]) -> Result<Vec<Applied>> {
        let gone = match (self.args.paths.is_empty(), self.args.prune) {
            (true, _) => Gone::Keep,
            (false, true) => Gone::Prune,
            (false, false) => Gone::List,
        };
        let client = instance.client();
        if manifests.is_empty() {
            return Ok(Vec::new());
        }
        let brought = kaos_local::bring(client, instance.data(), manifests, self.namespace, gone).await?;
        for one in &brought.applied {
            eprintln!("{}", line(one));
        }
        for one in &brought.gone {
            let file = shown(&one.file);
            match gone {
                Gone::Prune => eprintln!("{} pruned", one.label()),
                Gone::List | Gone::Keep => eprintln!(
                    "{} is in none of these files (it was in {file}): it goes on; --prune removes it",
                    one.label()
                ),
            }
        }
        Ok(brought.applied)
    }

    /// Applies them again after a change. A mistake is told, and what ran goes on.
    async fn bring_again(&self, instance: &Instance) {
        let brought = match self.load() {
            Ok(manifests) => self.bring(instance, &manifests).await,
            Err(findings) => Err(findings.into()),
        };
        let applied = match brought {
            Ok(applied) => applied,
            Err(error) => {
                eprintln!("error: {error:#}\nwhat ran before the change goes on");
                return;
            }
        };
        let secrets = applied.iter().filter(|one| {
            one.change == Change::Configured
                && (one.resource.kind.as_str(), one.name.as_str()) == ("Secret", ENV_SECRET)
        });
        for secret in secrets {
            let namespace = secret.namespace.as_deref().unwrap_or_default();
            match kaos_local::restart_readers(instance.client(), namespace).await {
                Ok(restarted) => restarted
                    .iter()
                    .for_each(|name| eprintln!("deployment/{name} restarted, to take the new values")),
                Err(error) => eprintln!("error: pods that read {ENV_SECRET} cannot be restarted: {error}"),
            }
        }
    }

    /// The changes of the files, where they are to be followed.
    fn changes(&self) -> Option<Changes> {
        let files = || {
            self.args
                .paths
                .iter()
                .chain(&self.args.env_file)
                .cloned()
                .collect()
        };
        self.args.watch.then(|| Changes::of(files()))
    }
}

/// Starts an instance, applies the manifests, shows progress, and runs until interrupted.
pub(crate) async fn up(global: &Global, args: UpArgs) -> Result<()> {
    if global.kubeconfig.is_some() || global.context.is_some() {
        bail!("`kaos up` runs everything on this machine; for a cluster, apply the manifests with kubectl");
    }
    let project = Project {
        args: &args,
        namespace: global.namespace.as_deref().unwrap_or("default"),
    };
    // Before they are read: a change while they are is not missed.
    let changes = project.changes();
    // Files are read before anything starts: a typo costs no running process.
    let manifests = project.load()?;
    if args.detach && !detach::is_detached() {
        return detach::detach(global, Duration::from_secs(args.timeout)).await;
    }
    if detach::is_detached() {
        detach::leave_terminal()?;
    }
    let begun = Instant::now();
    let instance = Instance::start(Options {
        data_dir: data_dir(global)?,
        begin: if args.fresh { Begin::Fresh } else { Begin::Resume },
        api_port: args.port,
        gateway: GatewayOptions {
            port: args.gateway_port,
            allow_origins: args.gateway_allow_origin.clone(),
        },
        program: std::env::current_exe().context("failed to find this program's own file")?,
        launch: vec!["launch".to_owned()],
        log_level: "INFO".to_owned(),
        seams: Seams::system(),
    })
    .await?;
    eprintln!(
        "API: local instance in {} (https://{})",
        shown(instance.data().path()),
        instance.api()
    );
    let worked = work(&instance, &project, &manifests, changes, begun).await;
    eprintln!("stopping");
    // The first error is the one to tell: what follows it is often its consequence.
    let stopped = instance.stop().await;
    worked?;
    stopped?;
    Ok(())
}

async fn work(
    instance: &Instance,
    project: &Project<'_>,
    manifests: &[Manifest],
    mut changes: Option<Changes>,
    begun: Instant,
) -> Result<()> {
    let mut interrupt = std::pin::pin!(interrupted());
    tokio::select! {
        brought = project.bring(instance, manifests) => drop(brought?),
        ended = &mut interrupt => return ended,
    };
    let mut waits = detach::is_detached();
    if waits && !kaos_local::has_resources(instance.client()).await? {
        let _ = writeln!(stdout(), "Started. There is nothing to wait for.");
        detach::let_go();
        waits = false;
    }

    let mut progress = Progress::new();
    let mut told_ready = false;
    let mut states = std::pin::pin!(kaos_local::follow(instance.client().clone(), instance.started()));
    loop {
        let changed = async {
            match &mut changes {
                Some(changes) => changes.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut interrupt => return ended,
            () = instance.failed() => bail!("a part of the instance has ended; its message follows"),
            () = changed => {
                progress.leave();
                project.bring_again(instance).await;
            }
            Some(now) = states.next() => {
                progress.show(&now);
                let all = !now.is_empty() && now.iter().all(|state| state.ready);
                if all && !told_ready {
                    progress.leave();
                    ready(instance, &now, begun).await?;
                    if std::mem::take(&mut waits) {
                        detach::let_go();
                    }
                }
                told_ready = all;
            }
        }
    }
}

fn line(applied: &Applied) -> String {
    let change = match applied.change {
        Change::Created => "created",
        Change::Configured => "configured",
        Change::Unchanged => "unchanged",
    };
    format!(
        "{}/{} {change}",
        applied.resource.kind.to_lowercase(),
        applied.name
    )
}

/// Says that all is ready and what to do with it, in lines that work when pasted.
async fn ready(instance: &Instance, states: &[ResourceState], begun: Instant) -> Result<()> {
    let pods = Api::<Pod>::all(instance.client().clone())
        .list_metadata(&ListParams::default())
        .await?;
    let mut lines = vec![format!(
        "\nReady in {:.1} s: {} resources, {} pods. Ctrl-C stops them; their objects stay.\n",
        begun.elapsed().as_secs_f64(),
        states.len(),
        pods.items.len(),
    )];
    let program = program();
    let routes = kaos_local::route_addresses(instance.client()).await?;
    let mut addresses = Vec::new();
    for state in states.iter().filter(|state| state.kind == "Agent") {
        let namespace = match state.namespace.as_str() {
            "default" => String::new(),
            other => format!(" -n {other}"),
        };
        let agent = Api::<Agent>::namespaced(instance.client().clone(), &state.namespace)
            .get(&state.name)
            .await;
        match agent {
            Ok(agent) => {
                let question = agent
                    .annotations()
                    .get(TRY)
                    .map_or("What can you do?", String::as_str);
                lines.push(format!(
                    "  {program} chat{namespace} {} {}",
                    state.name,
                    quoted(question)
                ));
                addresses.extend(openai_address(instance, &routes, &agent));
            }
            Err(error) => tracing::warn!(%error, agent = resource_name(state), "cannot be read"),
        }
    }
    if on_path("kubectl").is_some() {
        let kubeconfig = shown(&instance.data().kubeconfig());
        lines.push(format!(
            "  kubectl --kubeconfig {} get agents",
            quoted(&kubeconfig)
        ));
    }
    lines.extend(addresses.into_iter().map(|address| format!("\n{address}")));
    // The instance goes on when nobody reads this.
    let _ = writeln!(stdout(), "{}\n", lines.join("\n"));
    Ok(())
}

/// Where an agent's OpenAI API is reached on this machine, for SDKs that take a base URL: by its route, whose
/// path is the same on a cluster, or else by its Service.
fn openai_address(instance: &Instance, routes: &RouteAddresses, agent: &Agent) -> Option<String> {
    let (namespace, name) = (agent.namespace()?, agent.name_any());
    let routed = routes.get(&("Agent".to_owned(), namespace.clone(), name.clone()));
    let base = match routed {
        Some(address) => address.clone(),
        None => {
            let (service, port) = service_of(agent.status.as_ref()?.endpoint.as_deref()?)?;
            format!("http://{}", instance.service(&namespace, &service, port)?)
        }
    };
    Some(format!("{name} speaks the OpenAI API at {base}/v1"))
}

/// How this program is called from the shell it was started in.
fn program() -> String {
    let this = std::env::current_exe()
        .ok()
        .and_then(|path| path.canonicalize().ok());
    let same = |path: PathBuf| path.canonicalize().ok() == this;
    match this.clone() {
        Some(path) if !on_path("kaos").is_some_and(same) => quoted(&relative(&path)),
        _ => "kaos".to_owned(),
    }
}

/// A program's path from here; one directly in this folder needs its `./` for a shell to find it.
fn relative(path: &Path) -> String {
    match shown(path) {
        bare if !bare.contains('/') => format!("./{bare}"),
        path => path,
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// A word as a POSIX shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.contains(['"', '$', '`', '\\', '!']) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        format!("\"{word}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for (word, expected) in [
            (".kaos/kubeconfig", ".kaos/kubeconfig"),
            ("What is 2 times 3?", "\"What is 2 times 3?\""),
            ("it's $5", r"'it'\''s $5'"),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(word), expected);
            let echoed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {expected}")])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(echoed.stdout).unwrap(), word);
        }
    }
}
