//! `kaos convert`: older spellings rewritten as today's.

use std::{
    fs,
    io::{Write, stdout},
    path::PathBuf,
};

use anyhow::{Context, Result};

/// Prints, or writes, the files with today's spellings.
pub(crate) fn convert(paths: &[PathBuf], write: bool) -> Result<()> {
    let mut converted = Vec::new();
    for file in kaos_local::manifest_files(paths)? {
        let one = kaos_local::convert_file(&file)?;
        converted.push((file, one));
    }
    let mut first = true;
    for (file, one) in converted {
        for change in &one.changes {
            eprintln!("{}", change.to_string().replace(": warning: ", ": "));
        }
        if one.lost_comments > 0 {
            eprintln!(
                "{}: {} comment lines of changed documents are not in the new text",
                file.display(),
                one.lost_comments
            );
        }
        if !write {
            if !first && !one.text.trim_start().starts_with("---") {
                writeln!(stdout(), "---")?;
            }
            first = false;
            write!(stdout(), "{}", one.text)?;
        } else if !one.changes.is_empty() {
            // Beside it first: a full disk leaves the old text.
            let draft = file.with_extension("kaos-convert");
            fs::write(&draft, &one.text)
                .and_then(|()| fs::rename(&draft, &file))
                .with_context(|| format!("failed to write {}", file.display()))?;
        }
    }
    Ok(())
}
