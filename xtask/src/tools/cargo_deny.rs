//! cargo-deny: licences, sources, banned and duplicated crates.

use std::path::PathBuf;

use anyhow::Result;

use super::build_once;
use crate::process;
use crate::workspace::Workspace;

const VERSION: &str = "0.20.2";

/// Builds cargo-deny from its crate.
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<PathBuf> {
    let place = workspace
        .cache
        .join("tools")
        .join(format!("cargo-deny-{VERSION}"));
    build_once(&place, "cargo-deny", |partial| {
        let build = partial.join("build");
        process::run(
            workspace
                .cargo()
                .args([
                    "install",
                    "cargo-deny",
                    "--locked",
                    "--version",
                    VERSION,
                    "--root",
                ])
                .arg(partial)
                .env("CARGO_TARGET_DIR", &build),
        )?;
        Ok(std::fs::remove_dir_all(build)?)
    })?;
    Ok(place.join("bin/cargo-deny"))
}
