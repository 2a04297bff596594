//! One session: a client, the server process that is its own, and what goes between them.
//!
//! A task owns all of it; whoever speaks HTTP sends it [`Event`]s. Messages of the server go to exactly one
//! stream of the client, as the transport asks: answers to the request they answer, progress to the request it
//! is about, everything else to the one request that is under way, or to the stream that the client keeps open,
//! or into a short queue until it opens one.
//!
//! A server that ends takes its memory with it. The requests it had are answered with an error, the next one
//! starts it again and repeats the handshake, and only a server that then says something else of itself ends
//! the session: its client would be speaking to a stranger.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Shared,
    handshake::{Handshake, initialize, result_of, same_server},
    process::{MAX_LINE, Output, Process, begins},
};
use crate::message::{BRIDGE_ERROR, INVALID_REQUEST, Key, Kind, Message, failure};

/// How many messages may wait for a client that does not read its stream, or has none.
const QUEUE: usize = 256;
/// How many events may wait for the task.
const EVENTS: usize = 64;
/// Waits between a server's end and its next start.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(10);
/// A server that has run this long was sound: the next one is started at once.
const SOUND_LIFE: Duration = Duration::from_secs(10);

/// Where messages for a client are put.
pub(super) type Outbox = mpsc::Sender<String>;

/// A new stream to a client.
pub(super) fn stream() -> (Outbox, mpsc::Receiver<String>) {
    mpsc::channel(QUEUE)
}

/// What the client does.
pub(super) enum Event {
    /// Sends a message. Answers go to `answers`.
    Message { message: Message, answers: Outbox },
    /// Opens the stream of messages that answer nothing.
    Stream(Outbox),
}

/// A session from outside.
#[derive(Clone)]
pub(super) struct Session {
    events: mpsc::Sender<Event>,
    stop: CancellationToken,
    usage: Arc<Mutex<Usage>>,
    /// Where every answer goes, in the transport that has one stream for all.
    pub(super) stream: Option<Outbox>,
}

/// Since when nothing is under way and no stream open; `None` while something is.
#[derive(Default)]
struct Usage {
    idle: Option<Instant>,
}

impl Session {
    /// Starts a session, which leaves the table of `shared` when it ends. With `stream` it is one of the older
    /// transport.
    pub(super) fn start(shared: &Arc<Shared>, id: String, stream: Option<Outbox>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let session = Self {
            events: sender,
            stop: shared.stop.child_token(),
            usage: Arc::default(),
            stream: stream.clone(),
        };
        let actor = Actor {
            shared: shared.clone(),
            usage: session.usage.clone(),
            process: None,
            started: None,
            delay: Duration::ZERO,
            handshake: None,
            pending: HashMap::new(),
            asked: HashSet::new(),
            begun: 0,
            stream,
            waiting: VecDeque::new(),
        };
        let (shared, stop) = (shared.clone(), session.stop.clone());
        shared.clone().tasks.spawn(async move {
            actor.run(events, stop).await;
            shared.sessions().remove(&id);
        });
        session
    }

    /// Hands an event to the session. False where it has ended.
    pub(super) async fn send(&self, event: Event) -> bool {
        self.events.send(event).await.is_ok()
    }

    /// Has it end.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Has it end with this value.
    pub(super) fn end_on_drop(&self) -> DropGuard {
        self.stop.clone().drop_guard()
    }

    /// Since when nobody uses it.
    pub(super) fn idle(&self) -> Option<Instant> {
        lock(&self.usage).idle
    }
}

fn lock(usage: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    usage.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request of the client that the server has not answered.
struct Pending {
    id: Value,
    answers: Outbox,
    deadline: Instant,
    progress: Option<Key>,
    /// Counts up: which is the newest.
    number: u64,
    /// Takes nothing but its answer: what answers an `initialize` names the session first.
    only_answer: bool,
}

/// Why the session cannot go on.
struct Over;

struct Actor {
    shared: Arc<Shared>,
    usage: Arc<Mutex<Usage>>,
    process: Option<Process>,
    started: Option<Instant>,
    delay: Duration,
    handshake: Option<Handshake>,
    pending: HashMap<Key, Pending>,
    /// The requests of the server that the client has not answered.
    asked: HashSet<Key>,
    begun: u64,
    stream: Option<Outbox>,
    waiting: VecDeque<String>,
}

impl Actor {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, stop: CancellationToken) {
        loop {
            self.note_usage();
            let deadline = self.deadline();
            let step = tokio::select! {
                event = events.recv() => match event {
                    Some(event) => tokio::select! {
                        step = self.event(event) => step,
                        () = stop.cancelled() => Err(Over),
                    },
                    None => Err(Over),
                },
                output = output_of(&mut self.process) => self.output(output).await,
                () = tokio::time::sleep_until(deadline) => self.expire(),
                () = closed(self.stream.as_ref()) => {
                    self.stream = None;
                    Ok(())
                }
                () = stop.cancelled() => Err(Over),
            };
            if step.is_err() {
                break;
            }
        }
        events.close();
        // Calls that are under way may end; the client's own stream would last for ever.
        self.stream = None;
        if stop.is_cancelled() && self.shared.stop.is_cancelled() {
            self.drain().await;
        }
        self.fail_all("the session has ended");
        self.end_process().await;
    }

    /// Lets what is under way end.
    async fn drain(&mut self) {
        let until = Instant::now() + super::DRAIN;
        while !self.pending.is_empty() && self.process.is_some() {
            tokio::select! {
                output = output_of(&mut self.process) => if self.output(output).await.is_err() { return },
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    fn is_busy(&self) -> bool {
        !self.pending.is_empty() || self.stream.as_ref().is_some_and(|stream| !stream.is_closed())
    }

    fn note_usage(&self) {
        let mut usage = lock(&self.usage);
        if self.is_busy() {
            usage.idle = None;
        } else {
            usage.idle.get_or_insert_with(Instant::now);
        }
    }

    /// When the next request, or the whole session, has waited for too long.
    fn deadline(&self) -> Instant {
        let earliest = self.pending.values().map(|pending| pending.deadline).min();
        earliest.unwrap_or_else(|| {
            lock(&self.usage).idle.unwrap_or_else(Instant::now) + self.shared.config.idle_timeout
        })
    }

    fn expire(&mut self) -> Result<(), Over> {
        let now = Instant::now();
        let late: Vec<Key> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline <= now)
            .map(|(key, _)| key.clone())
            .collect();
        let seconds = self.shared.config.call_timeout.as_secs_f64();
        for key in &late {
            let Some(pending) = self.pending.remove(key) else {
                continue;
            };
            tracing::warn!(
                id = key,
                "the MCP server has not answered a request for {seconds} s"
            );
            answer(
                &pending,
                &format!("the MCP server has not answered within {seconds} s, the time limit"),
            );
            self.cancel(&pending.id, "the time limit has passed");
        }
        let idle = lock(&self.usage).idle;
        let is_over =
            late.is_empty() && idle.is_some_and(|idle| idle.elapsed() >= self.shared.config.idle_timeout);
        if is_over { Err(Over) } else { Ok(()) }
    }

    /// Tells the server that nobody waits for an answer.
    fn cancel(&self, id: &Value, reason: &str) {
        let params = serde_json::json!({"requestId": id, "reason": reason});
        let cancelled = serde_json::json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
        });
        if let Some(process) = &self.process {
            process.send(cancelled.to_string());
        }
    }

    async fn event(&mut self, event: Event) -> Result<(), Over> {
        match event {
            Event::Stream(stream) => {
                // The one before ends: its client has most likely lost it.
                for message in self.waiting.drain(..) {
                    let _ = stream.try_send(message);
                }
                self.stream = Some(stream);
            }
            Event::Message { message, answers } => match &message.kind {
                Kind::Request { .. } => self.request(message, answers).await?,
                Kind::Notification { method, about } => {
                    if method == "notifications/initialized"
                        && let Some(handshake) = &mut self.handshake
                    {
                        handshake.initialized = Some(message.text.clone());
                    }
                    if method == "notifications/cancelled"
                        && let Some(about) = about
                    {
                        // A cancelled request gets no answer: its stream ends.
                        self.pending.remove(about);
                    }
                    self.pass(message.text);
                }
                Kind::Response { id } => {
                    if self.asked.remove(&id.to_string()) {
                        self.pass(message.text);
                    } else {
                        tracing::debug!(%id, "an answer to a request that the MCP server has not made");
                    }
                }
            },
        }
        Ok(())
    }

    /// Hands a line to the server. One that has ended has no use for it.
    fn pass(&self, line: String) {
        if let Some(process) = &self.process
            && !process.send(line)
        {
            tracing::warn!("the MCP server does not read its input; a message to it is lost");
        }
    }

    async fn request(&mut self, message: Message, answers: Outbox) -> Result<(), Over> {
        let Kind::Request { id, method, progress } = &message.kind else {
            return Ok(());
        };
        let is_first = self.handshake.is_none() && method == "initialize";
        let key = id.to_string();
        if self.pending.contains_key(&key) {
            let said = format!("a request with the id {key} is under way; use another id");
            let _ = answers.try_send(failure(id, INVALID_REQUEST, &said));
            return Ok(());
        }
        let pending = Pending {
            id: id.clone(),
            answers,
            deadline: Instant::now() + self.shared.config.call_timeout,
            progress: progress.clone(),
            number: self.begun,
            only_answer: is_first,
        };
        self.begun += 1;
        if is_first {
            self.handshake = Some(Handshake {
                initialize: message.clone(),
                answer: None,
                initialized: None,
            });
        }
        if self.process.is_none()
            && let Err(problem) = self.start().await
        {
            answer(&pending, &problem.said);
            return if problem.is_over { Err(Over) } else { Ok(()) };
        }
        let sent = self
            .process
            .as_ref()
            .is_some_and(|process| process.send(message.text));
        if sent {
            self.pending.insert(key, pending);
        } else {
            answer(&pending, "the MCP server does not read its input");
        }
        Ok(())
    }

    /// Starts the server, and begins it as it was begun before.
    async fn start(&mut self) -> Result<(), Problem> {
        if !self.delay.is_zero() {
            let since = self.started.map_or(Duration::MAX, |started| started.elapsed());
            let delay = self.shared.seams.random.jitter(self.delay);
            tokio::time::sleep(delay.saturating_sub(since)).await;
        }
        self.started = Some(Instant::now());
        let mut process = Process::start(&self.shared.config.command).map_err(|error| {
            let said = self.shared.config.command.not_started(&error);
            self.shared.unwell(&said);
            Problem::passing(said)
        })?;
        if let Some(handshake) = &self.handshake
            && let Some(known) = &handshake.answer
        {
            let again = initialize(
                &mut process,
                &handshake.initialize,
                self.shared.config.call_timeout,
            );
            match again.await {
                Ok(said) if same_server(known, &said) => {}
                Ok(_) => {
                    process.stop().await;
                    return Err(Problem {
                        said: "the MCP server was started again and is another one now; open a new session"
                            .to_owned(),
                        is_over: true,
                    });
                }
                Err(said) => {
                    let how = process.stop().await;
                    self.delay = longer(self.delay);
                    let said = format!("the MCP server could not be started again ({how}): {said}");
                    self.shared.unwell(&said);
                    return Err(Problem::passing(said));
                }
            }
            if let Some(initialized) = &handshake.initialized {
                process.send(initialized.clone());
            }
            tracing::info!("the MCP server of a session was started again");
        }
        self.process = Some(process);
        Ok(())
    }

    async fn output(&mut self, output: Option<Output>) -> Result<(), Over> {
        match output {
            Some(Output::Line(line)) => match Message::parse(&line) {
                Ok(message) => self.deliver(message),
                Err(why) => {
                    let line = begins(line.as_bytes());
                    tracing::error!(line, %why, "the MCP server wrote to standard output what is no message");
                }
            },
            Some(Output::NoText { begins }) => {
                tracing::error!(
                    line = begins,
                    "the MCP server wrote to standard output what is no text"
                );
            }
            Some(Output::TooLong { begins }) => {
                tracing::error!(line = begins, "the MCP server wrote a line that is too long");
                // Whose answer it was cannot be known.
                self.fail_all(&format!(
                    "the MCP server wrote an answer of more than {} MiB",
                    MAX_LINE >> 20
                ));
            }
            Some(Output::Broken { begins }) => {
                tracing::error!(line = begins, "the MCP server ended in the middle of a line");
            }
            None => {
                let how = self.end_process().await;
                tracing::warn!(how, "the MCP server of a session has ended");
                let since = self.started.map_or(Duration::ZERO, |started| started.elapsed());
                self.delay = if since >= SOUND_LIFE {
                    Duration::ZERO
                } else {
                    longer(self.delay)
                };
                self.asked.clear();
                self.fail_all(&format!(
                    "the MCP server has ended ({how}) without an answer; the next request starts it again"
                ));
                let begun = self
                    .handshake
                    .as_ref()
                    .is_some_and(|handshake| handshake.answer.is_some());
                if !begun {
                    self.shared.unwell(&format!(
                        "the MCP server ended before it answered initialize ({how})"
                    ));
                    return Err(Over);
                }
            }
        }
        Ok(())
    }

    /// Sends a message of the server where it belongs.
    fn deliver(&mut self, message: Message) {
        match message.kind {
            Kind::Response { id } => {
                let Some(pending) = self.pending.remove(&id.to_string()) else {
                    tracing::debug!(%id, "an answer that nobody waits for");
                    return;
                };
                if pending.only_answer
                    && let Some(handshake) = &mut self.handshake
                {
                    handshake.answer = result_of(&message.text);
                    if handshake.answer.is_some() {
                        self.shared.well();
                    }
                }
                if pending.answers.try_send(message.text).is_err() {
                    tracing::debug!(%id, "a client has left before its answer");
                }
            }
            Kind::Notification { method, about } => {
                if method == "notifications/progress"
                    && let Some(token) = about
                {
                    let limit = self.shared.config.call_timeout;
                    let request = self
                        .pending
                        .values_mut()
                        .find(|pending| pending.progress.as_ref() == Some(&token));
                    if let Some(request) = request {
                        // It is being worked on.
                        request.deadline = Instant::now() + limit;
                        let _ = request.answers.try_send(message.text);
                    }
                    return;
                }
                let of_the_server =
                    method.ends_with("/list_changed") || method.starts_with("notifications/resources/");
                self.route(message.text, of_the_server);
            }
            Kind::Request { id, .. } => {
                self.asked.insert(id.to_string());
                self.route(message.text, false);
            }
        }
    }

    /// Sends a message that answers nothing to one stream of the client.
    fn route(&mut self, text: String, prefers_stream: bool) {
        let takers = || self.pending.values().filter(|pending| !pending.only_answer);
        let newest = takers()
            .max_by_key(|pending| pending.number)
            .map(|pending| &pending.answers);
        let only = (takers().count() == 1).then_some(newest).flatten();
        let stream = self.stream.as_ref().filter(|stream| !stream.is_closed());
        let order = if prefers_stream {
            [stream, only, newest]
        } else {
            [only, stream, newest]
        };
        let mut text = text;
        for outbox in order.into_iter().flatten() {
            match outbox.try_send(text) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => {
                    text = back
                }
            }
        }
        if self.waiting.len() == QUEUE {
            tracing::warn!("a client has no stream open; the oldest message for it is dropped");
            self.waiting.pop_front();
        }
        self.waiting.push_back(text);
    }

    fn fail_all(&mut self, message: &str) {
        for (_, pending) in self.pending.drain() {
            answer(&pending, message);
        }
    }

    async fn end_process(&mut self) -> String {
        match self.process.take() {
            Some(process) => process.stop().await,
            None => "it was not running".to_owned(),
        }
    }
}

/// A server that could not be started.
struct Problem {
    said: String,
    is_over: bool,
}

impl Problem {
    fn passing(said: String) -> Self {
        Self { said, is_over: false }
    }
}

async fn output_of(process: &mut Option<Process>) -> Option<Output> {
    match process {
        Some(process) => process.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until the client has closed its stream.
async fn closed(stream: Option<&Outbox>) {
    match stream {
        Some(stream) => stream.closed().await,
        None => std::future::pending().await,
    }
}

/// Answers a request with an error of the bridge.
fn answer(pending: &Pending, message: &str) {
    let _ = pending
        .answers
        .try_send(failure(&pending.id, BRIDGE_ERROR, message));
}

fn longer(delay: Duration) -> Duration {
    (delay * 2).clamp(FIRST_DELAY, LAST_DELAY)
}
