//! A folder of `node_modules` with the client libraries and servers that judge our wire formats.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Tool, build_once};
use crate::process;
use crate::workspace::{Workspace, short_hash};

/// Installs the packages of a folder's `package-lock.json`, and returns the folder that holds `node_modules`.
pub(crate) fn modules(workspace: &Workspace, folder: &str) -> Result<Tool<PathBuf>> {
    for program in ["node", "npm"] {
        if !process::exists(program, "--version") {
            return Ok(Tool::Missing(format!("there is no `{program}` in PATH")));
        }
    }
    let folder = workspace.root.join(folder);
    let files = ["package.json", "package-lock.json"];
    let texts = files.map(|name| {
        let path = folder.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    });
    let [package, lock] = texts;
    let hash = short_hash([package?.as_slice(), &lock?]);
    let place = workspace.cache.join("tools").join(format!("node-{hash}"));
    build_once(&place, "a folder of Node.js packages", |partial| {
        for name in files {
            fs::copy(folder.join(name), partial.join(name))?;
        }
        // Nothing that is installed runs while it is.
        let arguments = [
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ];
        process::run(Command::new("npm").args(arguments).current_dir(partial))
    })?;
    Ok(Tool::Ready(place))
}
