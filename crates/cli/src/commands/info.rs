//! `version`, `crds`, `completions` and the hidden `reference`: what the binary says of itself, without a runtime.

use std::io::{Write, stdout};

use anyhow::Result;
use clap::CommandFactory;

use crate::args::Cli;

/// Prints the version.
pub(crate) fn version() -> Result<()> {
    writeln!(stdout(), "kaos {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}

/// Prints the CustomResourceDefinitions.
pub(crate) fn crds() -> Result<()> {
    let mut out = stdout().lock();
    for definition in kaos_api::crds() {
        writeln!(out, "---\n{}", serde_saphyr::to_string(&definition)?.trim_end())?;
    }
    Ok(())
}

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kaos", &mut script);
    stdout().write_all(&script)?;
    Ok(())
}

/// Prints the command line reference.
pub(crate) fn reference() -> Result<()> {
    writeln!(stdout(), "{}", clap_markdown::help_markdown::<Cli>().trim_end())?;
    Ok(())
}
