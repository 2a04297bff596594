//! Files that are whole or not there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Writes `content` beside `path` and moves it there; readable by this user only.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    write_beside(path, content, 0o600, true)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// As [`write_atomically`] with a mode, for files that need not survive a power cut.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_beside(path, content, mode, false)
}

fn write_beside(path: &Path, content: &[u8], mode: u32, durable: bool) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(content)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&new, path)
}

/// Makes a folder and those above it, for this user only.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
