//! The one task that changes the state: it takes writes in order, checks each against what is stored, and
//! commits all that wait together in one transaction of the log.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Change, CommitError, Expected, Key, Log, Stored, Write,
    log::{Entry, refusal_of_the_system},
    state::{Event, EventKind, State},
};

pub(super) type Reply = oneshot::Sender<Result<Stored, CommitError>>;

#[derive(Debug)]
pub(super) enum Command {
    Write(Box<Write>, Reply),
    Close(oneshot::Sender<()>),
}

/// The most writes of one transaction: a bound on how long the first of them waits for the others.
const BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Writer {
    state: Arc<RwLock<State>>,
    log: Log,
    visible: watch::Sender<u64>,
    /// What rows of a transaction that failed were before. The log may have them all the same, where it was the last
    /// step that failed; the next transaction sets them right.
    unsettled: Vec<Entry>,
}

/// Writes decided on but not yet durable.
#[derive(Default)]
struct Batch {
    /// What the batch makes of each object it touches; later writes of the batch build on it.
    pending: HashMap<(Arc<str>, Key), Option<Stored>>,
    events: Vec<Event>,
    entries: Vec<Entry>,
    replies: Vec<(Reply, Stored)>,
    revision: u64,
}

impl Writer {
    pub(super) fn new(state: Arc<RwLock<State>>, log: Log, visible: watch::Sender<u64>) -> Self {
        Self {
            state,
            log,
            visible,
            unsettled: Vec::new(),
        }
    }

    /// Runs until closed, or until every handle is gone.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut waiting = Vec::with_capacity(BATCH);
        while commands.recv_many(&mut waiting, BATCH).await > 0 {
            let mut closed = None;
            let mut batch = Batch {
                revision: self.state().revision(),
                ..Batch::default()
            };
            for command in waiting.drain(..) {
                match command {
                    // Writes that were in line behind the close are refused with it.
                    Command::Write(_, reply) if closed.is_some() => refuse(reply, CommitError::Closed),
                    Command::Write(write, reply) => self.decide(&mut batch, *write, reply),
                    Command::Close(done) => closed = Some(done),
                }
            }
            self.commit(batch).await;
            if let Some(done) = closed {
                drop(commands);
                drop(self);
                // The caller of close may have gone; the store is closed all the same.
                let _ = done.send(());
                return;
            }
        }
    }

    fn state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self, batch: &Batch, resource: &Arc<str>, key: &Key) -> Option<Stored> {
        match batch.pending.get(&(resource.clone(), key.clone())) {
            Some(pending) => pending.clone(),
            None => self.state().get(resource, key),
        }
    }

    /// The row of an entry as it is now.
    fn before(&self, entry: &Entry) -> Entry {
        let stored = self.state().get(&entry.resource, &entry.key);
        Entry {
            json: stored.map(|stored| stored.object.to_string().into_bytes()),
            ..entry.clone()
        }
    }

    fn decide(&self, batch: &mut Batch, write: Write, reply: Reply) {
        let Write {
            resource,
            key,
            expected,
            change,
            needs,
        } = write;
        let previous = self.current(batch, &resource, &key);
        let as_expected = match expected {
            Expected::Absent => previous.is_none(),
            Expected::Version(revision) => previous
                .as_ref()
                .is_some_and(|stored| stored.revision == revision),
        };
        if !as_expected {
            return refuse(reply, CommitError::Conflict);
        }
        if needs.is_some_and(|(resource, key)| self.current(batch, &resource, &key).is_none()) {
            return refuse(reply, CommitError::Missing);
        }
        batch.revision += 1;
        let revision = batch.revision;
        let (mut object, deleted) = match change {
            Change::Put(object) => (object, false),
            Change::Delete(object) => (object, true),
        };
        stamp(&mut object, revision);
        let kind = match (&previous, deleted) {
            (_, true) => EventKind::Deleted,
            (Some(_), false) => EventKind::Modified,
            (None, false) => EventKind::Added,
        };
        if let Log::Disk(_) = self.log {
            let json = (!deleted).then(|| object.to_string().into_bytes());
            batch.entries.push(Entry {
                resource: resource.clone(),
                key: key.clone(),
                json,
            });
        }
        let stored = Stored {
            revision,
            object: Arc::new(object),
        };
        batch.pending.insert(
            (resource.clone(), key.clone()),
            (!deleted).then(|| stored.clone()),
        );
        batch.events.push(Event {
            revision,
            resource,
            key,
            kind,
            object: stored.object.clone(),
            previous,
        });
        batch.replies.push((reply, stored));
    }

    async fn commit(&mut self, batch: Batch) {
        if batch.events.is_empty() {
            return;
        }
        let Batch {
            events,
            entries,
            replies,
            revision,
            ..
        } = batch;
        let before = entries.iter().map(|entry| self.before(entry));
        let before: Vec<Entry> = before.chain(self.unsettled.iter().cloned()).collect();
        let unsettled = self.unsettled.iter().cloned();
        let entries = unsettled.chain(entries).collect();
        if let Err(error) = self.log.commit(revision, entries).await {
            tracing::error!(%error, writes = replies.len(), "cannot write to the data file");
            self.unsettled = before;
            let full = refusal_of_the_system(&*error)
                .is_some_and(|error| error.kind() == io::ErrorKind::StorageFull);
            let error = if full {
                CommitError::Full(error.to_string())
            } else {
                CommitError::Log(error.to_string())
            };
            for (reply, _) in replies {
                refuse(reply, error.clone());
            }
            return;
        }
        self.unsettled.clear();
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .apply(events);
        self.visible.send_replace(revision);
        for (reply, stored) in replies {
            // A caller that gave up does not undo its write.
            let _ = reply.send(Ok(stored));
        }
    }
}

fn refuse(reply: Reply, error: CommitError) {
    // Nobody to tell where the caller gave up.
    let _ = reply.send(Err(error));
}

fn stamp(object: &mut Value, revision: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
    }
}
