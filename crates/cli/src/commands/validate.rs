//! `kaos validate` and `kaos render`: what manifests are worth, and what they become, without a cluster.

use std::{
    io::{Write, stdout},
    path::PathBuf,
};

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::{Format, Global},
    exit::{Coded, REFUSED},
    output::print,
};

/// The namespace of manifests that name none.
fn namespace(global: &Global) -> &str {
    global.namespace.as_deref().unwrap_or("default")
}

/// Prints what is wrong; fails where something is.
pub(crate) async fn validate(global: &Global, paths: &[PathBuf], output: Option<Format>) -> Result<()> {
    let validated = kaos_local::validate(paths, namespace(global)).await?;
    let findings = &validated.findings;
    match output {
        Some(format) => print(format, findings)?,
        None => {
            for finding in findings {
                writeln!(stdout(), "{finding}")?;
            }
        }
    }
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    eprintln!(
        "{}: {}, {}",
        counted(validated.objects, "object"),
        counted(errors, "error"),
        counted(findings.len() - errors, "warning"),
    );
    if errors > 0 {
        return Err(Coded::told(REFUSED));
    }
    Ok(())
}

/// `1 error`, `2 errors`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Prints the objects that manifests become.
pub(crate) async fn render(global: &Global, paths: &[PathBuf], output: Format) -> Result<()> {
    let rendered = kaos_local::render(paths, namespace(global)).await?;
    if output == Format::Json {
        let items: Vec<&Value> = rendered.iter().map(|one| &one.object).collect();
        return print(output, &List::of(items));
    }
    let mut out = stdout().lock();
    for one in &rendered {
        writeln!(out, "---\n# {} of {}", one.of, one.place)?;
        writeln!(out, "{}", serde_saphyr::to_string(&one.object)?.trim_end())?;
    }
    Ok(())
}

/// A list as kubectl reads it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    items: Vec<&'a Value>,
}

impl<'a> List<'a> {
    fn of(items: Vec<&'a Value>) -> Self {
        Self {
            api_version: "v1",
            kind: "List",
            metadata: json!({}),
            items,
        }
    }
}
