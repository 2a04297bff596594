//! `kaos doctor`: whether this machine has what local mode needs.

use std::{
    io::{Write, stdout},
    path::PathBuf,
};

use anyhow::{Result, bail};
use kaos_local::{Examined, Outcome};
use kube::Client;

use crate::{
    args::{Format, Global},
    output::{print, table},
    target::{data_dir, of_instance},
};

/// Prints what was found; fails where something has to be mended.
pub(crate) async fn doctor(global: &Global, paths: &[PathBuf], output: Option<Format>) -> Result<()> {
    let data_dir = data_dir(global)?;
    let manifests = kaos_local::load(paths)?;
    let client = match kaos_local::running(&data_dir) {
        Some(_) => Some(Client::try_from(of_instance(&data_dir).await?)?),
        None => None,
    };
    let python = std::env::var_os("KAOS_PYTHON").unwrap_or_else(|| "python3".into());
    let checks = kaos_local::examine(Examined {
        data_dir: &data_dir,
        python: python.into(),
        manifests: &manifests,
        client,
    })
    .await;
    if let Some(format) = output {
        print(format, &checks)?;
    } else {
        let rows: Vec<Vec<String>> = checks
            .iter()
            .map(|check| {
                let outcome = match check.outcome {
                    Outcome::Ok => "ok",
                    Outcome::Warning => "warning",
                    Outcome::Failed => "FAILED",
                };
                vec![check.name.clone(), outcome.to_owned(), check.message.clone()]
            })
            .collect();
        writeln!(stdout(), "{}", table(&["CHECK", "RESULT", "FOUND"], &rows))?;
    }
    let failed = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Failed)
        .count();
    if failed > 0 {
        bail!("{failed} of {} checks failed", checks.len());
    }
    Ok(())
}
