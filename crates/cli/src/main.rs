//! The `kaos` binary: parses the command line and hands over to the crate that does the work.

mod args;
mod commands;
mod exit;
mod output;
mod target;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        // What a container runs passes here first: no runtime, no logging, nothing but the new program.
        Command::Launch { arguments } => return commands::serve::launch(arguments),
        Command::Version => commands::info::version(),
        Command::Crds => commands::info::crds(),
        Command::Reference => commands::info::reference(),
        Command::Completions { shell } => commands::info::completions(shell),
        command => commands::run(&cli.global, command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough (`kaos logs … | head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes are part of the sentence: "failed to read x: permission denied".
            if !exit::is_told(&error) {
                eprintln!("error: {error:#}");
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
