//! `kaos up`: everything on this machine, until Ctrl-C.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kaos_api::v1alpha1::Agent;
use kaos_local::{
    Applied, Change, GatewayOptions, Instance, Manifest, Options, ResourceState, RouteAddresses,
};
use kaos_seams::Seams;
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::Instant;

use crate::{
    args::Global,
    commands::{chat::service_of, interrupted},
    output::{Progress, resource_name},
    target::{data_dir, shown},
};

/// An annotation of an Agent: what to ask it first.
const TRY: &str = "kaos.tools/try";

/// Starts an instance, applies the manifests, shows progress, and runs until interrupted.
pub(crate) async fn up(
    global: &Global,
    paths: &[PathBuf],
    port: Option<u16>,
    gateway: GatewayOptions,
) -> Result<()> {
    if global.kubeconfig.is_some() || global.context.is_some() {
        bail!("`kaos up` runs everything on this machine; for a cluster, apply the manifests with kubectl");
    }
    // Files are read before anything starts: a typo costs no running process.
    let manifests = kaos_local::load(paths)?;
    let begun = Instant::now();
    let instance = Instance::start(Options {
        data_dir: data_dir(global)?,
        api_port: port,
        gateway,
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
    let worked = work(global, &instance, &manifests, begun).await;
    eprintln!("stopping");
    // The first error is the one to tell: what follows it is often its consequence.
    let stopped = instance.stop().await;
    worked?;
    stopped?;
    Ok(())
}

async fn work(global: &Global, instance: &Instance, manifests: &[Manifest], begun: Instant) -> Result<()> {
    let namespace = global.namespace.as_deref().unwrap_or("default");
    let mut interrupt = std::pin::pin!(interrupted());
    let applied = tokio::select! {
        applied = kaos_local::apply(instance.client(), manifests, namespace) => applied?,
        ended = &mut interrupt => return ended,
    };
    for one in &applied {
        eprintln!("{}", line(one));
    }

    let mut progress = Progress::new();
    let mut told_ready = false;
    let mut states = std::pin::pin!(kaos_local::follow(instance.client().clone(), instance.started()));
    loop {
        tokio::select! {
            ended = &mut interrupt => return ended,
            () = instance.failed() => bail!("a part of the instance has ended; its message follows"),
            Some(now) = states.next() => {
                progress.show(&now);
                let all = !now.is_empty() && now.iter().all(|state| state.ready);
                if all && !told_ready {
                    progress.leave();
                    ready(instance, &now, begun).await?;
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
    format!("{}/{} {change}", applied.kind.to_lowercase(), applied.name)
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
