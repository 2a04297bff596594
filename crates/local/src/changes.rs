//! Changes of files, seen by looking at them several times a second.
//!
//! Notifications of the kernel would wake us less often. But they are not sent for folders of another system
//! (Windows drives under WSL, network shares), and editors replace files in ways that end a notification. A look
//! at the few files of a project costs microseconds.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::manifest;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(200);

/// What tells one state of a file from another without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    file: u64,
}

/// Files and folders that are looked at.
#[derive(Debug)]
pub struct Changes {
    paths: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Option<Stamp>>,
}

impl Changes {
    /// Looks at `paths`, and at the manifests in those that are folders, from now on.
    pub fn of(paths: Vec<PathBuf>) -> Self {
        let mut changes = Self {
            paths,
            seen: BTreeMap::new(),
        };
        changes.seen = changes.look();
        changes
    }

    /// Waits until something has changed and is at rest again: editors and programs write in several steps.
    pub async fn next(&mut self) {
        loop {
            tokio::time::sleep(EVERY).await;
            let now = self.look();
            if now == self.seen {
                continue;
            }
            let mut last = now;
            loop {
                tokio::time::sleep(EVERY).await;
                let now = self.look();
                if now == last {
                    break;
                }
                last = now;
            }
            // What has come back to what it was is no change.
            if last != self.seen {
                self.seen = last;
                return;
            }
        }
    }

    fn look(&self) -> BTreeMap<PathBuf, Option<Stamp>> {
        let files = self.paths.iter().flat_map(|path| {
            let files = manifest::files(path).unwrap_or_default();
            // A file that is gone for a moment is still one of those looked at.
            if files.is_empty() {
                vec![path.clone()]
            } else {
                files
            }
        });
        files.map(|file| (file.clone(), stamp(&file))).collect()
    }
}

fn stamp(file: &std::path::Path) -> Option<Stamp> {
    let metadata = fs::metadata(file).ok()?;
    Some(Stamp {
        modified: metadata.modified().ok(),
        length: metadata.len(),
        file: metadata.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_a_new_file_and_a_replaced_one_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.yaml"), "a").unwrap();
        fs::write(path("notes.txt"), "a").unwrap();
        let mut changes = Changes::of(vec![folder.path().to_owned()]);
        let mut expect = async |what: &str, change: &dyn Fn()| {
            change();
            let seen = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
            assert!(seen.is_ok(), "{what}");
        };
        expect("written", &|| fs::write(path("a.yaml"), "longer").unwrap()).await;
        expect("new", &|| fs::write(path("b.yml"), "b").unwrap()).await;
        expect("replaced", &|| {
            fs::write(path("draft"), "longer").unwrap();
            fs::rename(path("draft"), path("a.yaml")).unwrap();
        })
        .await;
        expect("removed", &|| fs::remove_file(path("b.yml")).unwrap()).await;
        fs::write(path("notes.txt"), "another").unwrap();
        let quiet = tokio::time::timeout(EVERY * 4, changes.next()).await;
        assert!(quiet.is_err(), "no manifest");
    }
}
