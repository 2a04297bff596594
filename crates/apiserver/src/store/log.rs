//! The durable side of the store: one redb file with a format version.
//!
//! The file holds the latest state of each object and the resource-version counter, both written in one
//! transaction. History is not kept: a watch from before a restart is told to start over.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use redb::{
    CommitError, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, StorageError,
    TableDefinition, TableError, TransactionError, backends::FileBackend,
};
use serde_json::Value;

use super::{Key, Stored};
use crate::{BoxError, server::OpenError};

/// The format this program writes. A change of the tables or their content raises it.
pub(super) const FORMAT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Resource, namespace and name to the object's JSON.
const OBJECTS: TableDefinition<'_, (&str, &str, &str), &[u8]> = TableDefinition::new("objects");

/// Pages kept by redb. Reads are served from our own memory, so that little is enough.
const CACHE_BYTES: usize = 4 << 20;

/// Where acknowledged writes go.
#[derive(Clone, Debug)]
pub(crate) enum Log {
    /// Nowhere.
    Memory,
    /// A redb file.
    Disk(Arc<Disk>),
}

/// How a data file is opened.
pub(super) type Open = fn(&Path) -> Result<Database, OpenError>;

/// An open data file.
#[derive(Debug)]
pub(crate) struct Disk {
    path: PathBuf,
    open: Open,
    /// Closed after a write that failed, since redb refuses every later one; the next write opens it again.
    database: Mutex<Option<Database>>,
}

impl Disk {
    fn write(&self, revision: u64, entries: &[Entry]) -> Result<(), BoxError> {
        let mut place = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match place.take() {
            Some(database) => database,
            None => (self.open)(&self.path).map_err(|error| match error {
                OpenError::Storage { source, .. } | OpenError::Damaged { source, .. } => source,
                other => other.into(),
            })?,
        };
        write(&database, revision, entries)?;
        *place = Some(database);
        Ok(())
    }
}

/// What a log held when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(super) revision: u64,
    pub(super) objects: Vec<(Arc<str>, Key, Stored)>,
}

/// One object's change, ready for the disk.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) resource: Arc<str>,
    pub(super) key: Key,
    /// `None` removes the object.
    pub(super) json: Option<Vec<u8>>,
}

impl Log {
    /// Opens the file, creating it where it is missing (readable by its owner only), and reads it whole.
    pub(crate) fn open(path: &Path) -> Result<(Self, Loaded), OpenError> {
        Self::open_by(path, database)
    }

    /// [`Log::open`], by other means.
    pub(super) fn open_by(path: &Path, open: Open) -> Result<(Self, Loaded), OpenError> {
        let database = open(path)?;
        let unreadable = |error| unusable(path, error);
        prepare(&database).map_err(unreadable)?;
        let found = format(&database).map_err(unreadable)?;
        if found > FORMAT {
            return Err(OpenError::NewerFormat {
                path: PathBuf::from(path),
                found,
                supported: FORMAT,
            });
        }
        let loaded = load(&database).map_err(unreadable)?;
        let disk = Disk {
            path: path.to_owned(),
            open,
            database: Mutex::new(Some(database)),
        };
        Ok((Self::Disk(Arc::new(disk)), loaded))
    }

    /// Writes the entries in one durable transaction.
    pub(super) async fn commit(&self, revision: u64, entries: Vec<Entry>) -> Result<(), BoxError> {
        match self {
            Self::Memory => Ok(()),
            Self::Disk(disk) => {
                let disk = disk.clone();
                tokio::task::spawn_blocking(move || disk.write(revision, &entries)).await?
            }
        }
    }
}

/// Opens the file, creating it where it is missing.
pub(super) fn database(path: &Path) -> Result<Database, OpenError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| unusable(path, error.into()))?;
    let in_use_or_broken = |error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse {
            path: path.to_owned(),
        },
        other => unusable(path, other.into()),
    };
    let backend = FileBackend::new(file).map_err(in_use_or_broken)?;
    with_backend(backend).map_err(in_use_or_broken)
}

/// Opens a database on any storage.
pub(super) fn with_backend(backend: impl StorageBackend) -> Result<Database, DatabaseError> {
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        // A flipped bit is found here, and not by whoever trusts it later.
        .set_check_integrity_on_open(true)
        .create_with_backend(backend)
}

/// Why a file is of no use: the operating system refuses something, such as a permission, or the file is damaged.
fn unusable(path: &Path, source: BoxError) -> OpenError {
    let path = path.to_owned();
    if refusal_of_the_system(&*source).is_some() {
        OpenError::Storage { path, source }
    } else {
        OpenError::Damaged { path, source }
    }
}

/// What the operating system refused, such as space or a permission.
pub(super) fn refusal_of_the_system<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a io::Error> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    // redb has an error for each of its steps, and none of them names its source.
    let storage = |cause: &'a (dyn std::error::Error + 'static)| match (
        cause.downcast_ref(),
        cause.downcast_ref(),
        cause.downcast_ref(),
        cause.downcast_ref(),
    ) {
        (Some(DatabaseError::Storage(error)), ..)
        | (_, Some(TransactionError::Storage(error)), ..)
        | (_, _, Some(TableError::Storage(error)), _)
        | (_, _, _, Some(CommitError::Storage(error))) => Some(error),
        _ => cause.downcast_ref::<StorageError>(),
    };
    let mut io = causes.filter_map(|cause| match storage(cause) {
        Some(StorageError::Io(io)) => Some(io),
        _ => cause.downcast_ref::<io::Error>(),
    });
    io.find(|io| io.raw_os_error().is_some())
}

/// Creates the tables of a new file and marks its format.
fn prepare(database: &Database) -> Result<(), BoxError> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        if meta.get("format")?.is_none() {
            meta.insert("format", FORMAT)?;
            meta.insert("revision", 0)?;
            transaction.open_table(OBJECTS)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn format(database: &Database) -> Result<u64, BoxError> {
    let transaction = database.begin_read()?;
    let format = transaction
        .open_table(META)?
        .get("format")?
        .map(|value| value.value());
    format.ok_or_else(|| "the file says no format".into())
}

pub(super) fn load(database: &Database) -> Result<Loaded, BoxError> {
    let transaction = database.begin_read()?;
    let revision = transaction
        .open_table(META)?
        .get("revision")?
        .map(|value| value.value())
        .unwrap_or_default();
    let mut objects = Vec::new();
    let mut last: Option<Arc<str>> = None;
    for row in transaction.open_table(OBJECTS)?.iter()? {
        let (key, json) = row?;
        let (resource, namespace, name) = key.value();
        let object: Value = serde_json::from_slice(json.value())?;
        let stored = Stored {
            revision: revision_of(&object).ok_or_else(|| {
                io::Error::other(format!("{resource} {namespace}/{name} has no resource version"))
            })?,
            object: Arc::new(object),
        };
        // Rows come sorted, so that objects of one resource share its name.
        let resource = match last.take() {
            Some(same) if &*same == resource => same,
            _ => Arc::from(resource),
        };
        last = Some(resource.clone());
        objects.push((resource, Key::new(namespace, name), stored));
    }
    Ok(Loaded { revision, objects })
}

fn write(database: &Database, revision: u64, entries: &[Entry]) -> Result<(), BoxError> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for Entry { resource, key, json } in entries {
            let row = (&**resource, key.namespace.as_str(), key.name.as_str());
            match json {
                Some(json) => objects.insert(row, json.as_slice())?,
                None => objects.remove(row)?,
            };
        }
        transaction.open_table(META)?.insert("revision", revision)?;
    }
    transaction.commit()?;
    Ok(())
}

pub(super) fn revision_of(object: &Value) -> Option<u64> {
    object
        .get("metadata")?
        .get("resourceVersion")?
        .as_str()?
        .parse()
        .ok()
}
