//! `kaos export`: the objects of a data folder as manifests.

use std::io::{Write, stdout};

use anyhow::{Context, Result, bail};

use crate::{
    args::Global,
    exit::{Coded, NOTHING_RUNS},
    target::{data_dir, shown},
};

/// Prints YAML documents; fails after them where the store is damaged.
pub(crate) fn export(global: &Global) -> Result<()> {
    let data_dir = data_dir(global)?;
    if !data_dir.exists() {
        let message = format!("{} is not there; `kaos up` makes it", shown(&data_dir));
        return Err(Coded::telling(NOTHING_RUNS, message));
    }
    let exported = kaos_local::export(&data_dir)
        .with_context(|| format!("there is nothing to export in {}", shown(&data_dir)))?;
    let mut out = stdout().lock();
    for object in &exported.objects {
        writeln!(out, "---\n{}", serde_saphyr::to_string(object)?.trim_end())?;
    }
    out.flush()?;
    if let Some(damage) = exported.damage {
        bail!(
            "the store in {} is damaged: {damage}; {} objects could be read. Some may be missing, and some may be \
             there that were deleted: look through them. `kaos up --fresh FILE` begins with them alone",
            shown(&data_dir),
            exported.objects.len()
        );
    }
    Ok(())
}
