//! The store by itself: order, conflicts, history, and what is left after a restart.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use redb::{Database, StorageBackend, TableDefinition, backends::FileBackend};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::server::OpenError;

const RESOURCE: &str = "widgets.example.test";

fn memory(history: usize) -> Store {
    Store::start(Log::Memory, log::Loaded::default(), history)
}

fn disk(path: &Path) -> Store {
    let (log, loaded) = Log::open(path).unwrap();
    Store::start(log, loaded, 100)
}

fn write(name: &str, expected: Expected, change: Change) -> Write {
    Write {
        resource: RESOURCE.into(),
        key: Key::new("default", name),
        expected,
        change,
        needs: None,
    }
}

fn object(name: &str, size: i64) -> Value {
    json!({
        "apiVersion": "example.test/v1",
        "kind": "Widget",
        "metadata": { "name": name, "uid": format!("uid-of-{name}") },
        "size": size,
    })
}

async fn put(store: &Store, name: &str, expected: Expected, size: i64) -> Result<Stored, CommitError> {
    store
        .commit(write(name, expected, Change::Put(object(name, size))))
        .await
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .objects
        .iter()
        .map(|(key, _)| key.name.as_str())
        .collect()
}

#[tokio::test]
async fn one_counter_numbers_every_change() {
    let store = memory(100);
    let a = put(&store, "a", Expected::Absent, 1).await.unwrap();
    let b = put(&store, "b", Expected::Absent, 1).await.unwrap();
    let again = put(&store, "a", Expected::Version(a.revision), 2).await.unwrap();
    assert_eq!((a.revision, b.revision, again.revision), (1, 2, 3));
    assert_eq!(again.object["metadata"]["resourceVersion"], "3");
    assert_eq!(store.revision(), 3);
    assert_eq!(store.get(RESOURCE, &Key::new("default", "a")), Some(again));
}

#[tokio::test]
async fn only_the_expected_state_is_changed() {
    let store = memory(100);
    let needs = Some(("namespaces".into(), Key::new("", "default")));
    let lost = Write {
        needs,
        ..write("a", Expected::Absent, Change::Put(object("a", 1)))
    };
    assert_eq!(store.commit(lost).await, Err(CommitError::Missing));
    put(&store, "a", Expected::Absent, 1).await.unwrap();
    assert_eq!(
        put(&store, "a", Expected::Absent, 2).await,
        Err(CommitError::Conflict)
    );
    assert_eq!(
        put(&store, "a", Expected::Version(7), 2).await,
        Err(CommitError::Conflict)
    );
    assert_eq!(
        put(&store, "b", Expected::Version(1), 2).await,
        Err(CommitError::Conflict)
    );
    assert_eq!(store.revision(), 1, "a refused write takes no number");
}

#[tokio::test]
async fn of_many_writers_of_one_version_one_wins() {
    let store = memory(1000);
    put(&store, "a", Expected::Absent, 0).await.unwrap();
    let tries = (0..50).map(|size| put(&store, "a", Expected::Version(1), size));
    let won = futures::future::join_all(tries)
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    assert_eq!((won, store.revision()), (1, 2));
}

#[tokio::test]
async fn watchers_see_every_change_once_and_in_order() {
    let store = memory(100);
    let mut watcher = store.watch(Some(RESOURCE.into()), 0).unwrap();
    put(&store, "a", Expected::Absent, 1).await.unwrap();
    let other = Write {
        resource: "others".into(),
        ..write("x", Expected::Absent, Change::Put(object("x", 1)))
    };
    store.commit(other).await.unwrap();
    put(&store, "a", Expected::Version(1), 2).await.unwrap();
    let gone = store.get(RESOURCE, &Key::new("default", "a")).unwrap();
    store
        .commit(write(
            "a",
            Expected::Version(3),
            Change::Delete(Value::clone(&gone.object)),
        ))
        .await
        .unwrap();
    let mut seen = Vec::new();
    while let Some(event) = watcher.try_next().unwrap() {
        seen.push((
            event.revision,
            event.kind,
            event.previous.map(|stored| stored.revision),
        ));
    }
    assert_eq!(
        seen,
        [
            (1, EventKind::Added, None),
            (3, EventKind::Modified, Some(1)),
            (4, EventKind::Deleted, Some(3))
        ]
    );
    assert_eq!(watcher.position(), Some(4));
    store.close().await;
    assert!(
        watcher.next().await.unwrap().is_none(),
        "a closed store ends its watches"
    );
    assert_eq!(
        put(&store, "b", Expected::Absent, 1).await,
        Err(CommitError::Closed)
    );
}

#[tokio::test]
async fn history_is_bounded() {
    let store = memory(3);
    let mut slow = store.watch(None, 0).unwrap();
    for index in 0..5 {
        put(&store, &format!("w{index}"), Expected::Absent, 1)
            .await
            .unwrap();
    }
    assert_eq!(slow.try_next().unwrap_err(), Compacted { oldest: 2 });
    assert_eq!(store.watch(None, 1).unwrap_err(), Compacted { oldest: 2 });
    assert!(store.watch(None, 2).is_ok());
    store.compact();
    assert_eq!(store.watch(None, 4).unwrap_err(), Compacted { oldest: 5 });
}

#[tokio::test]
async fn a_list_shows_the_past_as_it_was() {
    let store = memory(100);
    put(&store, "a", Expected::Absent, 1).await.unwrap();
    put(&store, "b", Expected::Absent, 1).await.unwrap();
    put(&store, "a", Expected::Version(1), 2).await.unwrap();
    store
        .commit(write("b", Expected::Version(2), Change::Delete(object("b", 1))))
        .await
        .unwrap();
    put(&store, "c", Expected::Absent, 1).await.unwrap();
    let at = |revision| store.list_at(RESOURCE, None, revision).unwrap();
    assert_eq!(names(&at(1)), ["a"]);
    assert_eq!(names(&at(2)), ["a", "b"]);
    assert_eq!(at(2).objects[0].1.object["size"], 1);
    assert_eq!(at(3).objects[0].1.object["size"], 2);
    assert_eq!(names(&at(4)), ["a"]);
    assert_eq!(names(&store.list(RESOURCE, Some("default"))), ["a", "c"]);
    assert!(store.list(RESOURCE, Some("other")).objects.is_empty());
}

#[tokio::test]
async fn a_reopened_file_has_the_same_objects_and_goes_on_counting() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    let store = disk(&path);
    put(&store, "a", Expected::Absent, 1).await.unwrap();
    put(&store, "b", Expected::Absent, 1).await.unwrap();
    let last = put(&store, "a", Expected::Version(1), 2).await.unwrap();
    store
        .commit(write("b", Expected::Version(2), Change::Delete(object("b", 1))))
        .await
        .unwrap();
    store.close().await;

    let store = disk(&path);
    assert_eq!(store.revision(), 4);
    assert_eq!(
        store.list(RESOURCE, None).objects,
        [(Key::new("default", "a"), last)]
    );
    assert_eq!(
        store.watch(None, 3).unwrap_err(),
        Compacted { oldest: 4 },
        "history is gone"
    );
    assert_eq!(put(&store, "c", Expected::Absent, 1).await.unwrap().revision, 5);
    store.close().await;
}

#[tokio::test]
async fn what_was_acknowledged_is_in_the_file_before_anything_is_closed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    let store = disk(&path);
    let writes = (0..100).map(|index| {
        let store = store.clone();
        async move {
            put(&store, &format!("w{index:02}"), Expected::Absent, index)
                .await
                .unwrap()
        }
    });
    futures::future::join_all(writes).await;
    // As after kill -9: the file is read while its writer never closed it.
    let copy = dir.path().join("copy.redb");
    std::fs::copy(&path, &copy).unwrap();
    let (_, loaded) = Log::open(&copy).unwrap();
    assert_eq!((loaded.revision, loaded.objects.len()), (100, 100));
    store.close().await;
}

#[tokio::test]
async fn a_file_is_opened_by_one_at_a_time_and_only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt;

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    let store = disk(&path);
    assert!(matches!(Log::open(&path), Err(OpenError::InUse { .. })));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    store.close().await;
    assert!(Log::open(&path).is_ok());
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    drop(Log::open(&path).unwrap());
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    transaction
        .open_table(meta)
        .unwrap()
        .insert("format", log::FORMAT + 1)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Log::open(&path).unwrap_err();
    assert!(
        matches!(error, OpenError::NewerFormat { found, supported, .. } if found == supported + 1),
        "{error}"
    );
    assert!(error.to_string().contains("use the newer program"), "{error}");
}

#[tokio::test]
async fn a_file_of_something_else_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    std::fs::write(&path, "not a database at all").unwrap();
    let error = Log::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

/// Opens a file as the server does: a panic is a damage.
fn opened(path: &Path) -> Result<Log, OpenError> {
    std::panic::catch_unwind(|| Log::open(path))
        .unwrap_or_else(|_| {
            Err(OpenError::Damaged {
                path: path.to_owned(),
                source: "a panic".into(),
            })
        })
        .map(|(log, _)| log)
}

#[tokio::test]
async fn a_damaged_file_is_told_and_what_it_still_has_is_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    let store = disk(&path);
    let puts = (0..200).map(|index| {
        let store = &store;
        async move { put(store, &format!("w{index:03}"), Expected::Absent, index).await }
    });
    let first = futures::future::try_join_all(puts).await.unwrap();
    let latest = put(&store, "w007", Expected::Version(first[7].revision), 7000)
        .await
        .unwrap();
    store.close().await;
    let whole = std::fs::read(&path).unwrap();
    let salvaged = salvage(&path).unwrap();
    assert_eq!((salvaged.objects.len(), salvaged.damage), (200, None));

    let text = |bytes: &[u8], text: &str| {
        bytes
            .windows(text.len())
            .position(|found| found == text.as_bytes())
    };
    let at = text(&whole, "\"w150\"").unwrap();
    let mut flipped = whole.clone();
    flipped[at + 2] ^= 0xff;
    let mut zeroed = whole.clone();
    let page = at / 4096 * 4096;
    zeroed[page..page + 4096].fill(0);
    for (name, damaged) in [
        ("flipped", flipped),
        ("zeroed", zeroed),
        ("truncated", whole[..whole.len() * 2 / 3].to_vec()),
        ("no header", [&[0; 4096], &whole[4096..]].concat()),
    ] {
        std::fs::write(&path, &damaged).unwrap();
        let error = opened(&path).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{name}: {error}");
        std::fs::write(&path, &damaged).unwrap();
        let salvaged = salvage(&path).unwrap();
        assert!(salvaged.damage.is_some(), "{name}");
        assert!(!salvaged.objects.is_empty(), "{name}");
        let found = salvaged
            .objects
            .iter()
            .find(|object| object["metadata"]["name"] == "w007");
        if let Some(found) = found {
            assert_eq!(*found, *latest.object, "{name}");
        }
    }
    for nothing in ["", "not a database at all {\"a\": 1}"] {
        std::fs::write(&path, nothing).unwrap();
        let salvaged = salvage(&path).unwrap();
        assert_eq!(salvaged.objects, Vec::<Value>::new());
        assert!(salvaged.damage.is_some());
    }
    assert!(matches!(
        salvage(&dir.path().join("none")),
        Err(OpenError::Storage { .. })
    ));
}

/// Set while the disk of [`on_a_disk_that_fills`] is full.
static FULL: AtomicBool = AtomicBool::new(false);

/// A file on a disk that may be full.
#[derive(Debug)]
struct Filling(FileBackend);

impl Filling {
    fn has_space() -> io::Result<()> {
        if FULL.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(28)); // ENOSPC
        }
        Ok(())
    }
}

impl StorageBackend for Filling {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::has_space()?;
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::has_space()?;
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Self::has_space()?;
        self.0.write(offset, data)
    }
}

fn on_a_disk_that_fills(path: &Path) -> Result<Database, OpenError> {
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    log::with_backend(Filling(FileBackend::new(file).unwrap())).map_err(|error| OpenError::Storage {
        path: path.to_owned(),
        source: error.into(),
    })
}

#[tokio::test]
async fn a_full_disk_refuses_a_change_whole_and_is_written_again_once_it_has_space() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("objects.redb");
    let (log, loaded) = Log::open_by(&path, on_a_disk_that_fills).unwrap();
    let store = Store::start(log, loaded, 100);
    let kept = put(&store, "kept", Expected::Absent, 1).await.unwrap();
    let mut watcher = store.watch(None, kept.revision).unwrap();

    FULL.store(true, Ordering::SeqCst);
    for (name, expected) in [
        ("kept", Expected::Version(kept.revision)),
        ("new", Expected::Absent),
    ] {
        let error = put(&store, name, expected, 2).await.unwrap_err();
        assert!(matches!(error, CommitError::Full(_)), "{error:?}");
        assert!(error.to_string().contains("No space left on device"), "{error}");
    }
    assert_eq!(
        store.list(RESOURCE, None).objects,
        [(Key::new("default", "kept"), kept.clone())]
    );
    assert_eq!(store.revision(), kept.revision);

    FULL.store(false, Ordering::SeqCst);
    let later = put(&store, "later", Expected::Absent, 3).await.unwrap();
    assert_eq!(
        watcher.next().await.unwrap().unwrap().revision,
        later.revision,
        "nothing was seen of the others"
    );
    store.close().await;
    let (_, loaded) = Log::open(&path).unwrap();
    let names: Vec<&str> = loaded
        .objects
        .iter()
        .map(|(_, key, _)| key.name.as_str())
        .collect();
    assert_eq!(names, ["kept", "later"]);
    assert_eq!(loaded.objects[0].2, kept);
}
