//! The objects: one resource-version counter, an in-memory state for reads, history for watches, and a
//! durable log behind them.
//!
//! Reads look at memory and never wait for the disk. Writes are compare-and-set on one object; a single task
//! applies them in order and commits many together. A write is acknowledged, and visible to readers and
//! watchers, only after the log has it on disk: nobody ever sees what a power cut could take back.
//!
//! The store knows objects as JSON with a `metadata.resourceVersion`. It does not know kinds, schemas or
//! subresources.

mod log;
mod salvage;
mod state;
mod watcher;
mod writer;

use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use log::Log;
pub use salvage::{Salvaged, salvage};
use serde_json::Value;
pub(crate) use state::{Compacted, Event, EventKind, Snapshot, Stored};
use tokio::sync::{mpsc, oneshot, watch};
pub(crate) use watcher::Watcher;

use self::{
    state::State,
    writer::{Command, Writer},
};

/// Where an object is within its resource. Ordered as lists are: by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Empty for objects outside of namespaces.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Write {
    /// The name that the resource is stored under.
    pub(crate) resource: Arc<str>,
    pub(crate) key: Key,
    /// What must be stored now for the change to happen.
    pub(crate) expected: Expected,
    pub(crate) change: Change,
    /// Another object that must exist for the change to happen: the namespace of a new object.
    pub(crate) needs: Option<(Arc<str>, Key)>,
}

/// What must be stored before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nothing.
    Absent,
    /// The object at exactly this resource version.
    Version(u64),
}

/// What a write does. The store sets the resource version in either case.
#[derive(Debug)]
pub(crate) enum Change {
    /// Stores the object.
    Put(Value),
    /// Removes it; the value is the last state that watchers see.
    Delete(Value),
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommitError {
    /// The stored object is not the expected one: read it again and decide again.
    #[error("the object changed since it was read")]
    Conflict,
    /// The object that the write needs does not exist.
    #[error("a needed object does not exist")]
    Missing,
    /// The store is closed.
    #[error("the server is shutting down")]
    Closed,
    /// The disk refused. Nothing is stored.
    #[error("cannot write to the data file, so that nothing is changed: {0}")]
    Log(String),
    /// The disk is full. Nothing is stored.
    #[error("cannot write to the data file, so that nothing is changed: {0}; free some space and try again")]
    Full(String),
}

/// A handle to the store. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    state: Arc<RwLock<State>>,
    commands: mpsc::Sender<Command>,
    /// The latest visible resource version.
    visible: watch::Receiver<u64>,
}

/// How many writes wait in line before writers wait themselves.
const QUEUE: usize = 1024;

impl Store {
    /// Opens the store on a log and starts its writer on the current runtime. At most `history` past events
    /// are kept for watches that start behind.
    pub(crate) fn start(log: Log, loaded: log::Loaded, history: usize) -> Self {
        let state = Arc::new(RwLock::new(State::new(loaded.revision, loaded.objects, history)));
        let (commands, receiver) = mpsc::channel(QUEUE);
        let (visible_sender, visible) = watch::channel(loaded.revision);
        tokio::spawn(Writer::new(state.clone(), log, visible_sender).run(receiver));
        Self {
            state,
            commands,
            visible,
        }
    }

    /// The object as it is now.
    pub(crate) fn get(&self, resource: &str, key: &Key) -> Option<Stored> {
        self.read(|state| state.get(resource, key))
    }

    /// The objects of a resource, in one namespace or all, as they are now.
    pub(crate) fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        self.read(|state| state.list(resource, namespace))
    }

    /// The objects as they were at an older resource version.
    ///
    /// # Errors
    /// Where history does not reach back so far.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Snapshot, Compacted> {
        self.read(|state| state.list_at(resource, namespace, revision))
    }

    /// The names of the resources that have objects.
    pub(crate) fn resources(&self) -> Vec<Arc<str>> {
        self.read(State::resources)
    }

    /// The latest visible resource version.
    pub(crate) fn revision(&self) -> u64 {
        self.read(|state| state.revision())
    }

    /// The oldest resource version that a watch can start from and a list can show.
    pub(crate) fn compacted(&self) -> u64 {
        self.read(|state| state.compacted())
    }

    /// Events after `revision`, of one resource or of all.
    ///
    /// # Errors
    /// Where history does not reach back so far.
    pub(crate) fn watch(&self, resource: Option<Arc<str>>, revision: u64) -> Result<Watcher, Compacted> {
        self.read(|state| state.check(revision))?;
        Ok(Watcher::new(
            self.state.clone(),
            self.visible.clone(),
            resource,
            revision,
        ))
    }

    /// Makes one change. Returns the object with its new resource version.
    pub(crate) async fn commit(&self, write: Write) -> Result<Stored, CommitError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(Command::Write(Box::new(write), reply))
            .await
            .map_err(|_| CommitError::Closed)?;
        answer.await.map_err(|_| CommitError::Closed)?
    }

    /// Forgets history: watches and lists of older resource versions are told to start over.
    pub(crate) fn compact(&self) {
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .compact();
    }

    /// Finishes the writes in line, closes the log and ends the watches. Later writes fail.
    pub(crate) async fn close(&self) {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Close(reply)).await.is_ok() {
            // An error means that the writer is gone already, which is what was asked for.
            let _ = answer.await;
        }
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
