//! A Python with the client libraries that judge our wire formats.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Tool, build_once};
use crate::process;
use crate::workspace::{Workspace, short_hash};

/// Makes a virtual environment with the packages of a requirements file.
pub(crate) fn environment(workspace: &Workspace, requirements: &str) -> Result<Tool<PathBuf>> {
    if !process::exists("python3", "--version") {
        return Ok(Tool::Missing("there is no `python3` in PATH".into()));
    }
    let requirements = workspace.root.join(requirements);
    let text = fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    // The environment points at the Python it was made with.
    let python = process::output(Command::new("python3").args([
        "-c",
        "import sys; print(sys.version); print(sys._base_executable)",
    ]))?;
    let hash = short_hash([text.as_slice(), python.as_bytes()]);
    let place = workspace.cache.join("tools").join(format!("python-{hash}"));
    build_once(&place, "a Python environment", |partial| {
        process::run(Command::new("python3").args(["-m", "venv"]).arg(partial))?;
        process::run(
            Command::new(partial.join("bin/python"))
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--requirement",
                ])
                .arg(&requirements),
        )
    })?;
    Ok(Tool::Ready(place.join("bin/python")))
}
