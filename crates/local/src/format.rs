//! The format of the data folder: what lies in it and under which name.
//!
//! The file `format` holds its number. A folder of an older format is backed up and brought up to date one format
//! after the other; one of a newer format is refused. What the store writes into its own file has a number of its
//! own, there.

use std::{fs, io, path::Path};

use crate::data_dir::{DataDir, DataDirError};

const FILE: &str = "format";

/// The format that this program writes.
pub(crate) const FORMAT: usize = 1;

/// What brings a folder from one format to the next.
type Step = fn(&DataDir) -> Result<(), DataDirError>;

/// The first entry from format 0 to 1, and so on.
const STEPS: [Step; FORMAT] = [
    // A folder without a number has everything that format 1 has but the list of applied objects, and that may be
    // missing: objects that were applied before are found in no list, and so are never pruned.
    |_| Ok(()),
];

/// The format of the folder; that of a new one is the present one.
pub(crate) fn found(data: &DataDir) -> Result<usize, DataDirError> {
    match data.read(FILE)? {
        Some(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            text.trim().parse().map_err(|_| DataDirError::Damaged {
                path: data.path().join(FILE),
                reason: format!("it holds {:?} and no number", text.trim()),
            })
        }
        // Before there were numbers, a used folder had a store.
        None if data.store().exists() => Ok(0),
        None => Ok(FORMAT),
    }
}

/// Makes the folder one of the present format.
pub(crate) fn migrate(data: &DataDir) -> Result<(), DataDirError> {
    let found = found(data)?;
    if found > FORMAT {
        return Err(DataDirError::NewerFormat {
            path: data.path().to_owned(),
            found,
            supported: FORMAT,
        });
    }
    if found < FORMAT {
        back_up(data, found)?;
        for step in &STEPS[found..] {
            step(data)?;
        }
    }
    data.write_private(FILE, format!("{FORMAT}\n").as_bytes())
}

/// Copies everything but what the node keeps (logs, and volumes that begin empty) into a folder beside it.
fn back_up(data: &DataDir, found: usize) -> Result<(), DataDirError> {
    let name = format!("backup-of-format-{found}");
    let target = data.path().join(&name);
    let copied = copy_files(data.path(), &target);
    copied.map_err(|source| DataDirError::Io {
        path: target.clone(),
        source,
    })?;
    tracing::warn!(
        "the data folder was of format {found}; it is of format {FORMAT} now, and a copy of what it was lies in {}",
        target.display()
    );
    Ok(())
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    // A copy that an earlier attempt began is not whole.
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir(to)?,
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "lock" {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_number_is_backed_up_and_gets_one() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::lock(parent.path()).unwrap();
        fs::write(data.store(), "objects").unwrap();
        data.write_private("identity.json", b"{}").unwrap();
        migrate(&data).unwrap();
        assert_eq!(data.read(FILE).unwrap().as_deref(), Some(&b"1\n"[..]));
        let backup = parent.path().join("backup-of-format-0");
        assert_eq!(fs::read_to_string(backup.join("store.redb")).unwrap(), "objects");
        assert!(backup.join("identity.json").exists() && !backup.join("lock").exists());
        fs::remove_dir_all(&backup).unwrap();
        migrate(&data).unwrap();
        assert!(!backup.exists(), "once");
    }

    #[test]
    fn a_new_folder_has_the_number_and_no_backup() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::lock(parent.path()).unwrap();
        migrate(&data).unwrap();
        assert_eq!(data.read(FILE).unwrap().as_deref(), Some(&b"1\n"[..]));
        assert!(!parent.path().join("backup-of-format-1").exists());
    }

    #[test]
    fn a_newer_or_damaged_number_is_refused_and_nothing_is_touched() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::lock(parent.path()).unwrap();
        for (number, expected) in [("2\n", "format 2"), ("one", "damaged")] {
            data.write_private(FILE, number.as_bytes()).unwrap();
            let error = migrate(&data).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(data.read(FILE).unwrap().as_deref(), Some(number.as_bytes()));
        }
    }
}
