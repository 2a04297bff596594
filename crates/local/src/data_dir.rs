//! The data folder: who may use it, and what lies in it.
//!
//! ```text
//! .kaos/            mode 0700
//!   format          the number of this arrangement
//!   lock            held by the running instance
//!   instance.json   the running instance: process and API address
//!   kubeconfig      for kubectl and for every kaos command
//!   identity.json   certificate, key and token of the API
//!   applied.json    what `kaos up` applied, and from which file
//!   store.redb      the objects
//!   up.log          what a detached `kaos up` prints
//!   node/           processes, logs and volumes of the pods
//! ```

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::inventory;

/// What went wrong with the data folder.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another instance holds the folder.
    #[error(
        "{} is in use by a running kaos{}; stop it with `kaos down`, or choose another folder with --data-dir",
        .path.display(),
        .process.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process that holds it, where it says so.
        process: Option<u32>,
    },
    /// A file in it cannot be used.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A newer program wrote it.
    #[error(
        "{} has format {found}, and this kaos ({}) reads up to {supported}: use the newer one, or another folder with \
         --data-dir",
        .path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    NewerFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: usize,
        /// The newest that this program knows.
        supported: usize,
    },
    /// A file in it is not what this program wrote.
    #[error("{} is damaged: {reason}; move it away and start again", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
}

/// What a running instance tells about itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its process.
    pub pid: u32,
    /// Where its API listens.
    pub api_port: u16,
    /// The port of its gateway, chosen at the first start on the folder and kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_port: Option<u16>,
}

/// A locked data folder. The lock ends with the process, however that ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Opens the folder for this process alone, making it where it does not exist.
    ///
    /// # Errors
    /// When another process holds it, or it cannot be made or made private.
    pub fn lock(path: &Path) -> Result<Self, DataDirError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| DataDirError::Io { path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io(path))?;
        let path = path.canonicalize().map_err(io(path))?;
        // The folder may have been made by somebody else, with other rights: it holds a token and Secrets.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(io(&path))?;
        let lock_path = path.join("lock");
        let lock = open_lock(&lock_path).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let process = read_record(&path).map(|record| record.pid);
                Err(DataDirError::InUse { path, process })
            }
            Err(TryLockError::Error(source)) => Err(DataDirError::Io {
                path: lock_path,
                source,
            }),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the embedded store.
    pub fn store(&self) -> PathBuf {
        store_path(&self.path)
    }

    /// The folder that the node owns.
    pub fn node(&self) -> PathBuf {
        self.path.join("node")
    }

    /// Removes every object and everything that pods left behind. The address and the token of the API stay, so
    /// that a kubeconfig stays valid, and so does the port of the gateway.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(crate) fn clear(&self) -> Result<(), DataDirError> {
        for path in [self.store(), inventory::path(&self.path)] {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(DataDirError::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The kubeconfig of the instance.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// What the last instance on this folder said of itself.
    pub fn last_record(&self) -> Option<Record> {
        read_record(&self.path)
    }

    /// Says who runs here.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_record(&self, record: &Record) -> Result<(), DataDirError> {
        let text = serde_json::to_vec_pretty(record).unwrap_or_default();
        self.write_private("instance.json", &text)
    }

    /// Writes a file that only this user reads, whole or not at all.
    pub(crate) fn write_private(&self, name: &str, contents: &[u8]) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        let draft = self.path.join(format!("{name}.new"));
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&draft)?;
            file.write_all(contents)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        };
        write().map_err(|source| DataDirError::Io {
            path: path.clone(),
            source,
        })
    }

    /// Reads a file of the folder; `None` where it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DataDirError::Io { path, source }),
        }
    }
}

/// The file of the store in a data folder.
pub(crate) fn store_path(path: &Path) -> PathBuf {
    path.join("store.redb")
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// What the last instance on a folder said of itself, whether it runs or not.
pub(crate) fn last_record(path: &Path) -> Option<Record> {
    read_record(path)
}

fn read_record(path: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(path.join("instance.json")).ok()?).ok()
}

/// The instance that runs on a data folder, if one does. A record that a killed instance left behind does
/// not count: only the lock, which ends with its process, does.
pub fn running(path: &Path) -> Option<Record> {
    let lock = File::open(path.join("lock")).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read_record(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_user_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let held = DataDir::lock(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        held.write_record(&Record {
            pid: 42,
            api_port: 1,
            gateway_port: None,
        })
        .unwrap();
        let error = DataDir::lock(&path).unwrap_err().to_string();
        assert!(
            error.contains("process 42") && error.contains("kaos down"),
            "{error}"
        );
        assert_eq!(running(&path).map(|record| record.pid), Some(42));
        drop(held);
        assert!(running(&path).is_none(), "a record without a lock is history");
        DataDir::lock(&path).unwrap();
    }

    #[test]
    fn private_files_are_private_and_whole() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::lock(parent.path()).unwrap();
        data.write_private("secret", b"one").unwrap();
        data.write_private("secret", b"two").unwrap();
        assert_eq!(data.read("secret").unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(data.read("nothing").unwrap(), None);
        let mode = fs::metadata(data.path().join("secret"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
