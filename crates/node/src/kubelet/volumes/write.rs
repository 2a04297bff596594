//! Files of a volume that change all at once, as a kubelet's do: each set of files is a folder of its own, the
//! link `..data` leads to the one that counts, and what is seen in the volume are links through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::FileContent;
use crate::files::{create_private_dir, replace};

/// The link to the set of files that counts.
const DATA: &str = "..data";
/// The next such link, until it takes the other's place.
const NEXT: &str = "..data_tmp";

/// Makes `folder` hold exactly `files`, by their paths in it. A reader sees the files as they were before or as
/// they are after, never some of both.
pub(super) fn write(folder: &Path, files: &BTreeMap<PathBuf, FileContent>) -> io::Result<()> {
    let data = folder.join(DATA);
    let current = fs::read_link(&data).ok();
    if current.is_some() && is_same(&data, files)? {
        return Ok(());
    }
    let set = unused(folder)?;
    let new = folder.join(&set);
    create_private_dir(&new)?;
    for (path, file) in files {
        let full = new.join(path);
        if let Some(parent) = full.parent() {
            create_private_dir(parent)?;
        }
        replace(&full, &file.bytes, file.mode)?;
    }
    let next = folder.join(NEXT);
    remove(&next)?;
    symlink(&set, &next)?;
    fs::rename(&next, &data)?;

    let names: BTreeSet<PathBuf> = files
        .keys()
        .filter_map(|path| path.components().next())
        .map(|first| PathBuf::from(first.as_os_str()))
        .collect();
    for name in &names {
        let link = folder.join(name);
        if fs::read_link(&link).is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in fs::read_dir(folder)? {
        let name = PathBuf::from(entry?.file_name());
        if !names.contains(&name) && name != Path::new(DATA) && name != Path::new(&set) {
            remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The name of a set that is not there.
fn unused(folder: &Path) -> io::Result<String> {
    for number in 0_u64.. {
        let name = format!("..{number}");
        match fs::symlink_metadata(folder.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(name),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Err(io::Error::other("no name is left"))
}

/// Whether the set at `data` is `files`, with their modes.
fn is_same(data: &Path, files: &BTreeMap<PathBuf, FileContent>) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    for (path, file) in files {
        let full = data.join(path);
        let mode = match fs::metadata(&full) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        // One that may not be read was written by us, with nobody to change it.
        if mode != file.mode || fs::read(&full).is_ok_and(|bytes| bytes != file.bytes) {
            return Ok(false);
        }
    }
    Ok(count(data)? == files.len())
}

/// How many files there are in a folder and those below it.
fn count(folder: &Path) -> io::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        found += match entry.file_type()?.is_dir() {
            true => count(&entry.path())?,
            false => 1,
        };
    }
    Ok(found)
}

/// Removes a link, a file or a folder, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}
