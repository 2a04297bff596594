//! Watches: the objects as they are, then every change, one JSON document per line.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{
    Shared,
    context::{Answer, Context},
    decode::JSON,
    query::ListOptions,
    read::Selection,
    respond::Shape,
    versions::in_version,
};
use crate::{
    BoxError,
    error::ApiError,
    fault::{Call, Fault, Outcome},
    store::{Compacted, Event, EventKind, Watcher},
};

/// How often a watch that asked for bookmarks gets one; about as often as from kube-apiserver.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long a watch lasts at least when the caller does not say; up to twice as long, so that many watches do
/// not end together.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// `GET` with `watch=true`.
pub(crate) fn watch(ctx: Context) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let options = ctx.query.list_options(true)?;
    let selection = Selection::of(&ctx)?;
    let stream = Stream::open(ctx, shape, options, selection);
    let body = StreamBody::new(stream.frames());
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    Ok(response)
}

/// One watch while it lasts.
struct Stream {
    ctx: Context,
    shape: Shape,
    selection: Selection,
    /// What is sent before events: the objects as they are.
    initial: Vec<Value>,
    /// Whether a bookmark marks the end of `initial`.
    mark_initial: bool,
    bookmarks: bool,
    /// `None` where history does not reach back to the start.
    watcher: Result<Watcher, Expired>,
    deadline: Instant,
    report: Report,
}

/// A watch's version is older than history.
struct Expired {
    asked: u64,
    oldest: u64,
}

impl Stream {
    fn open(ctx: Context, shape: Shape, options: ListOptions, selection: Selection) -> Self {
        let version = options.resource_version.unwrap_or_default();
        let resource: Arc<str> = ctx.resource.storage_name().into();
        let with_initial = options.send_initial_events.unwrap_or(version == 0);
        let (mut initial, mut start) = (Vec::new(), version);
        if with_initial {
            let snapshot = ctx.server.store.list(&resource, selection.namespace.as_deref());
            start = snapshot.revision.max(version);
            initial = snapshot
                .objects
                .iter()
                .filter(|(key, stored)| selection.matches(key, &stored.object))
                .map(|(_, stored)| in_version(&ctx.resource, &stored.object).into_owned())
                .collect();
        } else if version == 0 {
            start = ctx.server.store.revision();
        }
        let watcher = ctx
            .server
            .store
            .watch(Some(resource), start)
            .map_err(|Compacted { oldest }| Expired { asked: start, oldest });
        let timeout = match options.timeout_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => DEFAULT_TIMEOUT + ctx.server.seams.random.jitter(DEFAULT_TIMEOUT),
        };
        let report = Report {
            server: ctx.server.clone(),
            call: ctx.call.clone(),
            fault: ctx.fault.clone(),
            events: 0,
        };
        Self {
            shape,
            selection,
            initial,
            mark_initial: options.send_initial_events == Some(true) && options.bookmarks,
            bookmarks: options.bookmarks,
            watcher,
            deadline: Instant::now() + timeout,
            report,
            ctx,
        }
    }

    fn frames(self) -> impl futures::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send {
        async_stream::stream! {
            let mut this = self;
            let drop_after = match this.ctx.fault {
                Fault::DropWatch { after_events } => after_events,
                _ => usize::MAX,
            };
            let mut queue = Vec::new();
            for object in std::mem::take(&mut this.initial) {
                queue.push(this.line("ADDED", &object));
            }
            let mut watcher = match std::mem::replace(&mut this.watcher, Err(Expired { asked: 0, oldest: 0 })) {
                Ok(watcher) => Some(watcher),
                Err(Expired { asked, oldest }) => {
                    queue.push(error_line(&too_old(asked, oldest)));
                    None
                }
            };
            if let Some(revision) = watcher.as_ref().and_then(Watcher::position).filter(|_| this.mark_initial) {
                queue.push(this.bookmark(revision, true));
            }
            let mut bookmarks = bookmark_ticks();
            // Looked at once in any case: a caller may begin to read long after it asked.
            let mut served = this.ctx.server.registry.changes();
            served.mark_changed();
            loop {
                for line in queue.drain(..) {
                    if this.report.events >= drop_after {
                        yield Err(BoxError::from("the connection was dropped by an injected fault"));
                        return;
                    }
                    this.report.events += 1;
                    yield Ok(Frame::data(line));
                }
                if this.report.events >= drop_after {
                    yield Err(BoxError::from("the connection was dropped by an injected fault"));
                    return;
                }
                let Some(live) = watcher.as_mut() else { return };
                tokio::select! {
                    biased;
                    event = live.next() => match event {
                        Ok(Some(event)) => queue.extend(this.event(&event)),
                        // The server closes.
                        Ok(None) => watcher = None,
                        Err(Compacted { oldest }) => {
                            queue.push(error_line(&too_old(live.position().unwrap_or_default(), oldest)));
                            watcher = None;
                        }
                    },
                    // Its sender lives as long as the server that this watch holds.
                    Ok(()) = served.changed() => {
                        if this.is_withdrawn() {
                            watcher = None;
                        }
                    }
                    _ = bookmarks.tick(), if this.bookmarks => {
                        queue.extend(live.position().map(|revision| this.bookmark(revision, false)));
                    }
                    () = tokio::time::sleep_until(this.deadline) => {
                        // The last bookmark lets the next watch start where this one ended.
                        if this.bookmarks {
                            queue.extend(live.position().map(|revision| this.bookmark(revision, false)));
                        }
                        watcher = None;
                    }
                }
            }
        }
    }

    /// Whether the resource is no longer served: its definition was deleted.
    fn is_withdrawn(&self) -> bool {
        let resource = &self.ctx.resource;
        self.ctx
            .server
            .registry
            .lookup(&resource.group, &resource.version, &resource.plural)
            .is_none()
    }

    /// The event as this watch sees it: an object that enters or leaves the selection is added or deleted.
    fn event(&self, event: &Event) -> Option<Bytes> {
        let before = event
            .previous
            .as_ref()
            .is_some_and(|stored| self.selection.matches(&event.key, &stored.object));
        let now = event.kind != EventKind::Deleted && self.selection.matches(&event.key, &event.object);
        let kind = match (before, now) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if kind == "DELETED" && event.kind == EventKind::Modified {
            // What left the selection is shown as it last was in it, at the version of the change.
            let mut object = event
                .previous
                .as_ref()
                .map(|stored| Value::clone(&stored.object))?;
            super::meta::set(&mut object, "resourceVersion", event.revision.to_string());
            return Some(self.line(kind, &object));
        }
        Some(self.line(kind, &event.object))
    }

    fn line(&self, kind: &str, object: &Value) -> Bytes {
        let object = self
            .shape
            .object(&self.ctx.resource, object, self.ctx.server.now());
        line(kind, &object)
    }

    fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if initial_events_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let (kind, api_version) = match self.shape {
            Shape::Full => (self.ctx.resource.kind.as_str(), self.ctx.resource.api_version()),
            Shape::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            Shape::Table(_) => ("Table", "meta.k8s.io/v1".to_owned()),
        };
        let mut object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
        if let Shape::Table(_) = self.shape {
            object["columnDefinitions"] = json!([]);
            object["rows"] = json!([]);
        }
        line("BOOKMARK", &object)
    }
}

fn bookmark_ticks() -> Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn too_old(asked: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}

fn error_line(error: &ApiError) -> Bytes {
    line("ERROR", &error.to_status())
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}

/// Tells the fault injector how the watch went, also where the caller just went away.
struct Report {
    server: Arc<Shared>,
    call: Call,
    fault: Fault,
    events: usize,
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(faults) = &self.server.faults {
            faults.observe(
                &self.call,
                &self.fault,
                &Outcome::WatchEnded { events: self.events },
            );
        }
    }
}
