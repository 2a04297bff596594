//! The wire between the controllers and the server: it sees every request, does the faults, and is cut where
//! the controllers crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kaos_apiserver::{ApiServer, Body, BoxError};
use kube::client::Body as ClientBody;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
use tower::{Service, ServiceExt};

use crate::{Fault, WatchFault, WriteFault};

/// How long an answer that never comes is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What `Retry-After` says, in seconds.
const RETRY_AFTER: &str = "5";
/// For how long a watch that loses events cannot be had again.
const BLIND: Duration = Duration::from_secs(20);

/// One request of the controllers.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// The step it belongs to; before the first one there is none.
    pub(crate) step: Option<usize>,
    /// Which of the processes of the run sent it.
    pub(crate) process: usize,
    /// Its method in the words of Kubernetes, and what it is about.
    pub(crate) what: String,
    pub(crate) writes: bool,
    /// Which of the writes of the step that read the same.
    pub(crate) nth: usize,
    pub(crate) body: Option<Bytes>,
    /// What came of it, once that is known.
    pub(crate) outcome: String,
}

/// A watch that was opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Opened {
    pub(crate) watch: String,
    pub(crate) nth: usize,
}

/// What all wires of one run share.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<State>,
    /// Told when the controllers have crashed.
    pub(crate) crashed: Notify,
}

#[derive(Debug)]
struct State {
    process: usize,
    step: Option<usize>,
    fault: Option<Fault>,
    fired: Option<Instant>,
    sent: Vec<Sent>,
    writes: BTreeMap<String, usize>,
    opened: BTreeMap<String, usize>,
    /// Events by watch.
    events: BTreeMap<Opened, usize>,
    last_write: Option<Instant>,
    blind: Option<(String, Instant)>,
    managers: BTreeSet<String>,
    most: usize,
}

impl Board {
    /// For a run in which this goes wrong, and no more than `most` requests are answered.
    pub(crate) fn new(fault: Option<Fault>, most: usize) -> Arc<Self> {
        let state = State {
            process: 0,
            step: None,
            fault,
            fired: None,
            sent: Vec::new(),
            writes: BTreeMap::new(),
            opened: BTreeMap::new(),
            events: BTreeMap::new(),
            last_write: None,
            blind: None,
            managers: BTreeSet::new(),
            most,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            crashed: Notify::new(),
        })
    }

    /// The wire of a new process. Those of all before are cut.
    pub(crate) fn wire(self: &Arc<Self>, server: ApiServer) -> Wire {
        let mut state = self.lock();
        state.process += 1;
        Wire {
            server,
            board: self.clone(),
            process: state.process,
        }
    }

    /// Cuts the wire of the present process.
    pub(crate) fn cut(&self) {
        self.lock().process += 1;
    }

    /// From now on requests belong to this step.
    pub(crate) fn begin(&self, step: usize) {
        let mut state = self.lock();
        state.step = Some(step);
        state.writes.clear();
    }

    /// Notes that a fault that is not on the wire was done.
    pub(crate) fn fire(&self) {
        self.lock().fired = Some(Instant::now());
    }

    pub(crate) fn fired(&self) -> Option<Instant> {
        self.lock().fired
    }

    pub(crate) fn last_write(&self) -> Option<Instant> {
        self.lock().last_write
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.lock().sent.clone()
    }

    /// How many requests were sent so far, and how many of them write.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        let writes = state.sent.iter().filter(|sent| sent.writes).count();
        (state.sent.len(), writes)
    }

    /// Under which names the controllers write.
    pub(crate) fn managers(&self) -> BTreeSet<String> {
        self.lock().managers.clone()
    }

    pub(crate) fn ran_away(&self) -> bool {
        let state = self.lock();
        state.sent.len() >= state.most
    }

    pub(crate) fn events(&self) -> BTreeMap<Opened, usize> {
        self.lock().events.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client side of it, for one process of the controllers.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    server: ApiServer,
    board: Arc<Board>,
    process: usize,
}

/// A request as the wire understands it.
struct Asked {
    what: String,
    writes: bool,
    watches: bool,
    /// What a list and a watch of the same objects have in common.
    selection: String,
    manager: Option<String>,
}

impl Wire {
    async fn serve(self, request: Request<ClientBody>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let asked = ask(&parts.method, &parts.uri, &parts.headers, &bytes);
        let Some((index, fault)) = self.note(&asked, &bytes) else {
            // Of a process that is no more, or that asks without end: it never hears anything again.
            return std::future::pending().await;
        };
        if asked.watches {
            let opened = self.open(&asked.selection);
            return self.watch(index, opened, parts, bytes).await;
        }
        if !asked.writes {
            self.wait_until_seeing(&asked.selection).await;
        }
        match fault {
            None => {
                let response = self.forward(parts, bytes).await?;
                self.answered(index, response.status().as_str());
                self.alive(response).await
            }
            Some(WriteFault::CrashBefore) => self.crash(index).await,
            Some(WriteFault::CrashAfter) => {
                self.forward(parts, bytes).await?;
                self.crash(index).await
            }
            Some(WriteFault::TimeoutAfterCommit) => {
                let response = self.forward(parts, bytes).await?;
                self.answered(
                    index,
                    &format!("{}, and the answer is lost", response.status().as_u16()),
                );
                tokio::time::sleep(TIMEOUT).await;
                Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into())
            }
            Some(WriteFault::Conflict) => Ok(self.refuse(index, StatusCode::CONFLICT, "Conflict")),
            Some(WriteFault::TooManyRequests) => {
                Ok(self.refuse(index, StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"))
            }
            Some(WriteFault::InternalError) => {
                Ok(self.refuse(index, StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
            }
        }
    }

    /// Notes a request, and says what goes wrong with it.
    fn note(&self, asked: &Asked, body: &Bytes) -> Option<(usize, Option<WriteFault>)> {
        let mut state = self.board.lock();
        if state.process != self.process || state.sent.len() >= state.most {
            return None;
        }
        let (mut nth, mut hit) = (0, None);
        if asked.writes {
            let count = state.writes.entry(asked.what.clone()).or_default();
            nth = *count;
            *count += 1;
            state.last_write = Some(Instant::now());
            state.managers.extend(asked.manager.clone());
            if let Some(Fault::Write {
                step,
                write,
                nth: which,
                how,
            }) = &state.fault
                && state.fired.is_none()
                && (state.step, write, *which) == (Some(*step), &asked.what, nth)
            {
                hit = Some(*how);
                state.fired = Some(Instant::now());
            }
        }
        let sent = Sent {
            at: Instant::now(),
            step: state.step,
            process: self.process,
            what: asked.what.clone(),
            writes: asked.writes,
            nth,
            body: (asked.writes && !body.is_empty()).then(|| body.clone()),
            outcome: String::new(),
        };
        state.sent.push(sent);
        Some((state.sent.len() - 1, hit))
    }

    fn answered(&self, index: usize, outcome: &str) {
        if let Some(sent) = self.board.lock().sent.get_mut(index) {
            outcome.clone_into(&mut sent.outcome);
        }
    }

    async fn forward(&self, parts: http::request::Parts, body: Bytes) -> Result<Response<Body>, BoxError> {
        let request = Request::from_parts(parts, Full::new(body));
        match self.server.clone().oneshot(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }

    /// The answer, unless the process crashed while it was on its way.
    async fn alive(&self, response: Response<Body>) -> Result<Response<Body>, BoxError> {
        if self.board.lock().process != self.process {
            return std::future::pending().await;
        }
        Ok(response)
    }

    async fn crash(&self, index: usize) -> Result<Response<Body>, BoxError> {
        self.answered(index, "the controllers crash");
        self.board.cut();
        self.board.crashed.notify_one();
        std::future::pending().await
    }

    fn refuse(&self, index: usize, code: StatusCode, reason: &str) -> Response<Body> {
        self.answered(index, &format!("{}, injected", code.as_u16()));
        let status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": reason,
            "code": code.as_u16(),
            "message": "injected",
        });
        let body = Full::new(Bytes::from(status.to_string()));
        let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        );
        if code == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(
                http::header::RETRY_AFTER,
                http::HeaderValue::from_static(RETRY_AFTER),
            );
        }
        response
    }

    /// Numbers a watch.
    fn open(&self, selection: &str) -> Opened {
        let mut state = self.board.lock();
        let count = state.opened.entry(selection.to_owned()).or_default();
        let opened = Opened {
            watch: selection.to_owned(),
            nth: *count,
        };
        *count += 1;
        opened
    }

    /// Holds a list back while its watch is blind.
    async fn wait_until_seeing(&self, selection: &str) {
        let blind = self.board.lock().blind.clone();
        if let Some((watch, until)) = blind
            && watch == selection
        {
            tokio::time::sleep_until(until).await;
        }
    }

    async fn watch(
        &self,
        index: usize,
        opened: Opened,
        parts: http::request::Parts,
        bytes: Bytes,
    ) -> Result<Response<Body>, BoxError> {
        let (breaks_after, how, blind) = {
            let state = self.board.lock();
            let blind = matches!(&state.blind, Some((watch, until)) if *watch == opened.watch && Instant::now() < *until);
            match &state.fault {
                Some(Fault::Watch {
                    watch,
                    nth,
                    after,
                    how,
                }) if (watch, *nth) == (&opened.watch, opened.nth) => (*after, *how, blind),
                _ => (usize::MAX, WatchFault::Breaks, blind),
            }
        };
        if blind {
            self.answered(index, "410, injected");
            return Ok(expired());
        }
        let response = self.forward(parts, bytes).await?;
        self.answered(index, response.status().as_str());
        if !response.status().is_success() {
            return self.alive(response).await;
        }
        self.board.lock().events.insert(opened.clone(), 0);
        let (parts, body) = response.into_parts();
        let (board, process) = (self.board.clone(), self.process);
        let frames = body.into_data_stream().boxed();
        let frames = stream::unfold((frames, 0, false), move |(mut frames, mut seen, broken)| {
            let (board, opened) = (board.clone(), opened.clone());
            async move {
                if broken {
                    return None;
                }
                if seen >= breaks_after {
                    board.lose(&opened, how);
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke");
                    return Some((Err(error.into()), (frames, seen, true)));
                }
                let frame = frames.next().await?;
                if board.lock().process != process {
                    return std::future::pending().await;
                }
                // The server sends each event as one frame.
                if let Ok(line) = &frame
                    && !line.starts_with(b"{\"type\":\"BOOKMARK\"")
                {
                    seen += 1;
                    board.lock().events.insert(opened, seen);
                }
                Some((frame.map(Frame::data), (frames, seen, false)))
            }
        });
        Ok(Response::from_parts(
            parts,
            StreamBody::new(frames).boxed_unsync(),
        ))
    }
}

impl Board {
    fn lose(&self, opened: &Opened, how: WatchFault) {
        let mut state = self.lock();
        state.fired = Some(Instant::now());
        if how == WatchFault::Loses {
            state.blind = Some((opened.watch.clone(), Instant::now() + BLIND));
        }
    }
}

/// A watch whose past is forgotten.
fn expired() -> Response<Body> {
    let status = json!({"type": "ERROR", "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
        "message": "too old resource version, injected",
    }});
    let body = Full::new(Bytes::from(format!("{status}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

fn ask(method: &Method, uri: &Uri, headers: &http::HeaderMap, body: &Bytes) -> Asked {
    let query: Vec<(&str, &str)> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let value = |name: &str| {
        query
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    let watches = matches!(value("watch"), Some("true" | "1"));
    let target = Target::of(uri.path());
    let applies = headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"));
    let verb = match *method {
        Method::GET if watches => "watch",
        Method::GET if target.name.is_some() => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        // It changes nothing, but is asked as a write is, and has to be got over as one.
        Method::PATCH if value("dryRun").is_some() => "rehearse",
        Method::PATCH if applies => "apply",
        Method::PATCH => "patch",
        Method::DELETE if target.name.is_none() => "deletecollection",
        Method::DELETE => "delete",
        _ => "other",
    };
    let selectors = ["labelSelector", "fieldSelector"].into_iter().filter_map(value);
    let selection = selectors.fold(target.resource.clone(), |text, selector| {
        let selector = selector
            .replace("%3D", "=")
            .replace("%2C", ",")
            .replace("%2F", "/");
        format!("{text} {selector}")
    });
    let name = target.name.clone().or_else(|| name_of(body));
    let mut what = format!("{verb} {}", target.resource);
    match (&target.namespace, &name) {
        (Some(namespace), Some(name)) => what += &format!(" {namespace}/{name}"),
        (Some(one), None) | (None, Some(one)) => what += &format!(" {one}"),
        (None, None) => what.clone_from(&format!("{verb} {selection}")),
    }
    if let Some(subresource) = &target.subresource {
        what += &format!(" {subresource}");
    }
    Asked {
        what,
        writes: !matches!(*method, Method::GET | Method::HEAD),
        watches,
        manager: value("fieldManager").map(str::to_owned),
        selection,
    }
}

/// The name in the body of a create.
fn name_of(body: &Bytes) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().or(metadata["generateName"].as_str());
    name.map(str::to_owned)
}

/// What a path is about.
struct Target {
    /// With its group, as in `deployments.apps`.
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl Target {
    fn of(path: &str) -> Self {
        let mut parts = path.trim_matches('/').split('/').map(str::to_owned);
        let group = match parts.next().as_deref() {
            Some("apis") => parts.next(),
            _ => None,
        };
        parts.next();
        let rest: Vec<String> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            [namespaces, namespace, rest @ ..] if namespaces == "namespaces" && !rest.is_empty() => {
                (Some(namespace.clone()), rest)
            }
            rest => (None, rest),
        };
        let plural = rest.first().cloned().unwrap_or_default();
        Self {
            resource: group.map(|group| format!("{plural}.{group}")).unwrap_or(plural),
            namespace,
            name: rest.get(1).cloned(),
            subresource: rest.get(2).cloned(),
        }
    }
}

impl Service<Request<ClientBody>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        Box::pin(self.clone().serve(request))
    }
}
