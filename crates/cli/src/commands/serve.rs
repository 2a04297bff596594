//! `kaos serve …`: the roles that pods run, and the hidden `launch` that becomes a container's process.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use kaos_seams::Seams;
use kaos_telemetry::{Export, Telemetry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Global, Listen, OperatorFlags, Role},
    commands::interrupted,
};

/// Runs a role until SIGTERM, then lets it finish what it has begun.
pub(crate) async fn serve(global: &Global, role: Role) -> Result<()> {
    let seams = Seams::system();
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        if let Err(error) = interrupted().await {
            tracing::error!(%error, "signals cannot be received");
        }
        stop.cancel();
    });
    // A wrong configuration is told before the port is taken: no readiness probe sees a half-started role.
    match role {
        Role::Operator(flags) => operator(global, &flags, seams, shutdown).await?,
        Role::Agent { listen } => {
            let config = kaos_agent::Config::from_env(variables())?;
            let telemetry = telemetry(&seams)?;
            let listener = bind(&listen).await?;
            let served = kaos_agent::serve(config, listener, seams, telemetry.clone(), shutdown).await;
            telemetry.shutdown().await;
            served?;
        }
        Role::Tools { listen } => {
            let config = kaos_mcp::server::ToolServerConfig::from_env(variables())?;
            let telemetry = telemetry(&seams)?;
            let server = tokio::select! {
                server = kaos_mcp::server::ToolServer::load(config, seams) => server?,
                () = shutdown.cancelled() => return Ok(()),
            };
            let server = server.with_telemetry(telemetry.clone());
            let served = server.serve(bind(&listen).await?, shutdown).await;
            telemetry.shutdown().await;
            served?;
        }
        Role::Bridge { listen, command } => {
            let config = kaos_mcp::bridge::BridgeConfig::from_env(command, variables())?;
            let telemetry = telemetry(&seams)?;
            let bridge = tokio::select! {
                bridge = kaos_mcp::bridge::Bridge::start(config, seams) => bridge?,
                () = shutdown.cancelled() => return Ok(()),
            };
            let bridge = bridge.with_telemetry(telemetry.clone());
            let served = bridge.serve(bind(&listen).await?, shutdown).await;
            telemetry.shutdown().await;
            served?;
        }
        Role::Proxy { config, listen } => {
            let config = kaos_proxy::Config::load(&config, variables())?;
            let telemetry = telemetry(&seams)?;
            let listener = bind(&listen).await?;
            let served = kaos_proxy::serve(config, listener, seams, telemetry.clone(), shutdown).await;
            telemetry.shutdown().await;
            served?;
        }
        Role::ModelPull {
            model,
            ollama,
            listen,
        } => {
            let ollama = kaos_ollama::Ollama::new(&ollama, seams.dialer.clone())?;
            kaos_ollama::serve(model, ollama, bind(&listen).await?, seams, shutdown).await;
        }
    }
    Ok(())
}

async fn operator(
    global: &Global,
    flags: &OperatorFlags,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<()> {
    let mut refusals = flags.former.refusals();
    if global.namespace.is_some() {
        refusals.push("--namespace: the operator looks after all namespaces; remove it");
    }
    ensure!(refusals.is_empty(), "{}", refusals.join("\n       "));
    let settings = kaos_operator::settings(variables())?;
    let source = kaos_operator::Source {
        kubeconfig: global.kubeconfig.clone(),
        context: global.context.clone(),
    };
    let connection = kaos_operator::Connection::open(&source).await?;
    let options = kaos_operator::Options {
        leader_elect: flags.leader_elect,
        probes: flags.health_probe_bind_address.bind().await?,
    };
    Ok(kaos_operator::run(connection, settings, options, seams, shutdown).await?)
}

/// Where a role tells what it does, as its environment says.
fn telemetry(seams: &Seams) -> Result<Telemetry> {
    let export = Export::from_env(variables())?;
    Ok(Telemetry::start(export.as_ref(), seams)?)
}

async fn bind(listen: &Listen) -> Result<TcpListener> {
    let address = listen
        .listen
        .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port)));
    TcpListener::bind(address).await.with_context(|| {
        format!("failed to listen on {address}; choose another port with --port or KAOS_LISTEN")
    })
}

/// Becomes a container's process.
pub(crate) fn launch(arguments: Vec<OsString>) -> ExitCode {
    // Returns only where it could not; its code is one that shells use.
    ExitCode::from(u8::try_from(kaos_node::launcher::main(arguments)).unwrap_or(u8::MAX))
}

/// The environment, without what is not text: no variable of ours is.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use kaos_api::v1alpha1::NATIVE_PROVIDERS;

    #[test]
    fn a_manifest_may_name_the_providers_that_the_proxy_has_and_no_others() {
        let mut has: Vec<_> = kaos_proxy::providers().collect();
        has.sort_unstable();
        assert_eq!(has, NATIVE_PROVIDERS);
    }
}
