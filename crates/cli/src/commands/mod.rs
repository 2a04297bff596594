//! One file for each command; here only the way into them.

pub(crate) mod chat;
pub(crate) mod convert;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod export;
pub(crate) mod info;
pub(crate) mod logs;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod up;
pub(crate) mod validate;

use anyhow::Result;
use kaos_telemetry::{LogFormat, Logging};
use tokio::runtime;

use crate::args::{Command, Global, Role};

/// Sets up logging and the runtime, and runs `command` in it.
pub(crate) fn run(global: &Global, command: Command) -> Result<()> {
    // A pod's level comes by the variables that KAOS images have always read.
    let serving = matches!(command, Command::Serve { .. });
    let of_the_pod = serving.then(|| {
        let set = |variable| std::env::var(variable).ok().filter(|level| !level.is_empty());
        let level = set("LOG_LEVEL").or_else(|| set("AGENT_LOG_LEVEL"));
        level.unwrap_or_else(|| "info".to_owned())
    });
    let format = match std::env::var("LOG_FORMAT") {
        Ok(format) if serving && !format.is_empty() => format.parse()?,
        _ => LogFormat::Text,
    };
    kaos_telemetry::init(&Logging {
        filter: global.log.clone().or(of_the_pod),
        format,
    })?;
    let runtime = runtime(&command).enable_all().build()?;
    let result = runtime.block_on(async {
        match command {
            Command::Up(args) => up::up(global, args).await,
            Command::Validate { paths, output } => validate::validate(global, &paths, output).await,
            Command::Render { paths, output } => validate::render(global, &paths, output).await,
            Command::Convert { paths, write } => convert::convert(&paths, write),
            Command::Doctor { paths, output } => doctor::doctor(global, &paths, output).await,
            Command::Export => export::export(global),
            Command::Down => down::down(global).await,
            Command::Status {
                all_namespaces,
                output,
            } => status::status(global, all_namespaces, output).await,
            Command::Logs {
                resource,
                follow,
                tail,
                previous,
            } => {
                let options = logs::Options {
                    follow,
                    tail,
                    previous,
                };
                logs::logs(global, &resource, &options).await
            }
            Command::Chat { agent, message } => chat::chat(global, &agent, message).await,
            Command::Serve { role } => serve::serve(global, role).await,
            // Answered by `main`, without a runtime.
            Command::Crds
            | Command::Completions { .. }
            | Command::Version
            | Command::Reference
            | Command::Launch { .. } => Ok(()),
        }
    });
    // A read of a terminal's standard input cannot be cancelled: do not wait for its thread.
    runtime.shutdown_background();
    result
}

/// What runs a command. Two threads serve a laptop's load; more of them only cost memory in each of many small
/// processes. The operator waits for the API server nearly always, and one thread needs no other to be woken.
fn runtime(command: &Command) -> runtime::Builder {
    let is_operator = matches!(
        command,
        Command::Serve {
            role: Role::Operator { .. }
        }
    );
    if is_operator {
        return runtime::Builder::new_current_thread();
    }
    let mut threads = runtime::Builder::new_multi_thread();
    threads.worker_threads(2);
    threads
}

/// Ends at Ctrl-C, at SIGTERM, and when the terminal goes away.
pub(crate) async fn interrupted() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signals = [
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ];
    let [interrupt, terminate, hangup] = &mut signals;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
