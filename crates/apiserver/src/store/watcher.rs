//! A reader of events that keeps its own place in history.
//!
//! Watchers pull: nothing is buffered per watcher, a slow one holds nobody up, and one that falls behind
//! history is told so.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::watch;

use super::state::{Compacted, Event, State};

/// Reads events in order.
#[derive(Debug)]
pub(crate) struct Watcher {
    state: Arc<RwLock<State>>,
    visible: watch::Receiver<u64>,
    resource: Option<Arc<str>>,
    /// Everything up to here is in `ready` or was returned.
    seen: u64,
    ready: VecDeque<Event>,
}

impl Watcher {
    pub(super) fn new(
        state: Arc<RwLock<State>>,
        visible: watch::Receiver<u64>,
        resource: Option<Arc<str>>,
        revision: u64,
    ) -> Self {
        Self {
            state,
            visible,
            resource,
            seen: revision,
            ready: VecDeque::new(),
        }
    }

    /// The next event, when there is one. `Ok(None)` when the store is closed. Safe to cancel.
    ///
    /// # Errors
    /// Where this watcher fell behind history.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Compacted> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if self.visible.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// The next event, if there is one already.
    ///
    /// # Errors
    /// Where this watcher fell behind history.
    pub(crate) fn try_next(&mut self) -> Result<Option<Event>, Compacted> {
        if self.ready.is_empty() {
            // Marked before reading: what becomes visible after this line wakes `changed` again.
            self.visible.mark_unchanged();
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            // A watch may start at a version from the future: it waits for what comes after that.
            if state.revision() > self.seen {
                let wanted =
                    |event: &&Event| self.resource.as_ref().is_none_or(|name| *name == event.resource);
                self.ready = state.events_after(self.seen)?.filter(wanted).cloned().collect();
                self.seen = state.revision();
            }
        }
        Ok(self.ready.pop_front())
    }

    /// The resource version up to which everything was returned, if nothing waits: what a bookmark says.
    pub(crate) fn position(&self) -> Option<u64> {
        self.ready.is_empty().then_some(self.seen)
    }
}
