//! What the agent remembers: the events of its last sessions, in this process and for as long as it runs.
//!
//! Memory is bounded in sessions, in events of each, in the bytes of a text (64 KiB) and in bytes altogether
//! (64 MiB). Where there is too much, the sessions that were used longest ago go first.

mod record;
mod session;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use kaos_openai::Message;
use kaos_seams::{Clock, Random, Seams};
use kaos_telemetry::Ids;
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use record::{Kind, Record};
pub(crate) use session::{InvalidSession, SessionId};

/// The kind of memory this is, as `MEMORY_TYPE` names it.
pub(crate) const KIND: &str = "local";

/// How much all sessions may take, in bytes.
const BYTES_LIMIT: usize = 64 << 20;
/// What an event takes beside its content, in bytes: an estimate, so that many small ones are bounded, too.
const EVENT_OVERHEAD: usize = 512;
/// Which part of the sessions goes when there are too many: one of so many.
const DROPPED: usize = 10;

/// What is remembered at most, beside the bounds in bytes: 64 KiB of each text, 64 MiB altogether.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many sessions. When there is one more, a tenth of them goes.
    pub sessions: usize,
    /// How many events of each session.
    pub session_events: usize,
}

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    event_id: String,
    #[serde(serialize_with = "with_offset")]
    timestamp: Timestamp,
    event_type: Kind,
    content: Value,
    metadata: Map<String, Value>,
    /// Its place among all events.
    #[serde(skip)]
    number: u64,
    #[serde(skip)]
    bytes: usize,
}

/// The sessions of one agent.
#[derive(Debug)]
pub(crate) struct Memory {
    limits: Limits,
    /// How much all sessions may take, in bytes.
    bytes_limit: usize,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    by_id: BTreeMap<String, Session>,
    /// Counts what happens, so that the oldest is known whatever the clock does.
    count: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Session {
    events: VecDeque<Arc<Event>>,
    /// When it was used last, in [`Sessions::count`].
    used: u64,
}

impl Memory {
    pub(crate) fn new(limits: Limits, seams: &Seams) -> Self {
        Self {
            limits,
            bytes_limit: BYTES_LIMIT,
            clock: seams.clock.clone(),
            random: seams.random.clone(),
            sessions: Mutex::default(),
        }
    }

    /// The session `given`, or one of its own for a request that names none.
    pub(crate) fn open(&self, given: Option<SessionId>) -> SessionId {
        let id = given.unwrap_or_else(|| SessionId::generate(&*self.random));
        let mut sessions = self.sessions();
        if !sessions.by_id.contains_key(id.as_str()) {
            if sessions.by_id.len() >= self.limits.sessions {
                sessions.drop_oldest(None);
            }
            sessions.by_id.insert(id.as_str().to_owned(), Session::default());
        }
        sessions.used(id.as_str());
        id
    }

    /// What was said in a session last, at most `limit` messages, as a conversation with the model.
    pub(crate) fn conversation(&self, id: &SessionId, limit: usize) -> Vec<Message> {
        let sessions = self.sessions();
        let events = sessions.by_id.get(id.as_str()).into_iter();
        let said = events.flat_map(|session| session.events.iter().rev());
        let mut messages: Vec<Message> = said
            .filter_map(|event| event.event_type.message(&event.content))
            .take(limit)
            .collect();
        messages.reverse();
        messages
    }

    /// Remembers what happened in a session, unless it was dropped meanwhile, and where in a trace.
    pub(crate) fn record(
        &self,
        id: &SessionId,
        trace: Option<&Ids>,
        records: impl IntoIterator<Item = Record>,
    ) {
        let now = self.clock.now();
        let metadata = trace.map(|ids| {
            let pair = |key: &str, id: &String| (key.to_owned(), Value::from(id.as_str()));
            Map::from_iter([pair("trace_id", &ids.trace_id), pair("span_id", &ids.span_id)])
        });
        let metadata = metadata.unwrap_or_default();
        let mut sessions = self.sessions();
        for Record { kind, content } in records {
            let bytes = serde_json::to_vec(&content).map_or(0, |json| json.len()) + EVENT_OVERHEAD;
            let number = sessions.used(id.as_str());
            let event = Event {
                event_id: format!("event_{}", self.random.hex(4)),
                timestamp: now,
                event_type: kind,
                content,
                metadata: metadata.clone(),
                number,
                bytes,
            };
            sessions.push(id.as_str(), event, self.limits.session_events);
            sessions.shrink(id.as_str(), self.bytes_limit);
        }
    }

    /// The last `limit` events of one session or of all, the oldest first.
    pub(crate) fn events(&self, session: Option<&str>, limit: usize) -> Vec<Arc<Event>> {
        let sessions = self.sessions();
        let chosen: Vec<&Session> = match session {
            Some(id) => sessions.by_id.get(id).into_iter().collect(),
            None => sessions.by_id.values().collect(),
        };
        let last = chosen
            .iter()
            .flat_map(|session| session.events.iter().rev().take(limit));
        let mut events: Vec<Arc<Event>> = last.cloned().collect();
        drop(sessions);
        events.sort_unstable_by_key(|event| event.number);
        events.split_off(events.len().saturating_sub(limit))
    }

    /// All sessions, the one used last at the end.
    pub(crate) fn session_ids(&self) -> Vec<String> {
        let sessions = self.sessions();
        let mut ids: Vec<(u64, &String)> = sessions
            .by_id
            .iter()
            .map(|(id, session)| (session.used, id))
            .collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id.clone()).collect()
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    /// Counts a use of a session; returns its number.
    fn used(&mut self, id: &str) -> u64 {
        self.count += 1;
        if let Some(session) = self.by_id.get_mut(id) {
            session.used = self.count;
        }
        self.count
    }

    fn push(&mut self, id: &str, event: Event, limit: usize) {
        let Some(session) = self.by_id.get_mut(id) else {
            return;
        };
        self.bytes += event.bytes;
        session.events.push_back(Arc::new(event));
        while session.events.len() > limit
            && let Some(oldest) = session.events.pop_front()
        {
            self.bytes -= oldest.bytes;
        }
    }

    /// Makes room until all sessions take at most `limit` bytes: at the expense of others before `id`.
    fn shrink(&mut self, id: &str, limit: usize) {
        while self.bytes > limit && self.drop_oldest(Some(id)) {}
        let Some(session) = self.by_id.get_mut(id) else {
            return;
        };
        while self.bytes > limit
            && let Some(oldest) = session.events.pop_front()
        {
            self.bytes -= oldest.bytes;
        }
    }

    /// Drops a tenth of the sessions, at least one, those used longest ago but never `kept`; whether there was
    /// any.
    fn drop_oldest(&mut self, kept: Option<&str>) -> bool {
        let mut oldest: Vec<(u64, String)> = self
            .by_id
            .iter()
            .filter(|(id, _)| Some(id.as_str()) != kept)
            .map(|(id, session)| (session.used, id.clone()))
            .collect();
        oldest.sort_unstable();
        oldest.truncate((oldest.len() / DROPPED).max(1));
        for (_, id) in &oldest {
            let events = self
                .by_id
                .remove(id)
                .map(|session| session.events)
                .unwrap_or_default();
            self.bytes -= events.iter().map(|event| event.bytes).sum::<usize>();
        }
        !oldest.is_empty()
    }
}

/// As readers of KAOS agents know it: `+00:00` instead of `Z`.
fn with_offset<S: serde::Serializer>(timestamp: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&timestamp.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00"))
}
