//! Events (`kubectl describe`, `kubectl get events`): told once, counted when repeated.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kaos_seams::Seams;
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;

/// Whether an event tells of the expected or of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Normal,
    Warning,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The longest message that an Event may carry, in bytes.
const MESSAGE_LIMIT: usize = 1024;
/// How many events wait to be written; more are dropped, since they only inform.
const QUEUE: usize = 1024;
/// How many distinct events are remembered for counting.
const REMEMBERED: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    uid: String,
    field_path: Option<String>,
    kind: Type,
    reason: &'static str,
    message: String,
}

struct Report {
    object: ObjectReference,
    identity: Identity,
    at: Timestamp,
}

/// Reports events of one component. Cheap to clone; never waits for the API.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Report>,
    seams: Seams,
}

/// A reference to `object` for its events.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

impl Recorder {
    /// Starts writing in the background, until the last clone is dropped.
    pub(crate) fn start(
        client: Client,
        seams: &Seams,
        component: &'static str,
        host: Option<String>,
    ) -> Self {
        let (queue, reports) = mpsc::channel(QUEUE);
        let source = EventSource {
            component: Some(component.to_owned()),
            host,
        };
        tokio::spawn(write(client, seams.clone(), source, reports));
        Self {
            queue,
            seams: seams.clone(),
        }
    }

    /// Reports one event. The same event about the same object raises the count of the first.
    pub(crate) fn report(
        &self,
        object: ObjectReference,
        kind: Type,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let mut message = message.into();
        if message.len() > MESSAGE_LIMIT {
            let end = message.floor_char_boundary(MESSAGE_LIMIT - 4);
            message.truncate(end);
            message.push_str(" ...");
        }
        let identity = Identity {
            uid: object.uid.clone().unwrap_or_default(),
            field_path: object.field_path.clone(),
            kind,
            reason,
            message,
        };
        let report = Report {
            object,
            identity,
            at: self.seams.clock.now(),
        };
        if let Err(error) = self.queue.try_send(report) {
            tracing::debug!(%error, "an event was dropped");
        }
    }
}

async fn write(client: Client, seams: Seams, source: EventSource, mut reports: mpsc::Receiver<Report>) {
    let mut known: HashMap<Identity, (String, i32)> = HashMap::new();
    while let Some(report) = reports.recv().await {
        let namespace = report
            .object
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let earlier = known.get(&report.identity).cloned();
        let written = match earlier {
            Some((name, count)) => repeat(&api, name, count + 1, report.at).await,
            None => Ok(None),
        };
        let written = match written {
            // Never written, or expired since: events are kept for a while only.
            Ok(None) => create(&api, &seams, &source, &report).await.map(Some),
            other => other,
        };
        match written {
            Ok(entry) => {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.extend(entry.map(|entry| (report.identity, entry)));
            }
            // An object of a namespace that is going away has no events.
            Err(error) => {
                tracing::debug!(%error, reason = report.identity.reason, "an event was not written")
            }
        }
    }
}

async fn repeat(
    api: &Api<Event>,
    name: String,
    count: i32,
    at: Timestamp,
) -> Result<Option<(String, i32)>, kube::Error> {
    let patch = Patch::Merge(json!({ "count": count, "lastTimestamp": Time(at) }));
    match api.patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(Some((name, count))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn create(
    api: &Api<Event>,
    seams: &Seams,
    source: &EventSource,
    report: &Report,
) -> Result<(String, i32), kube::Error> {
    let object = report.object.name.as_deref().unwrap_or_default();
    // As Kubernetes names them, with randomness instead of the time: two events may come in one instant.
    let name = format!("{object}.{}", seams.random.hex(8));
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..Default::default()
        },
        involved_object: report.object.clone(),
        type_: Some(report.identity.kind.name().to_owned()),
        reason: Some(report.identity.reason.to_owned()),
        message: Some(report.identity.message.clone()),
        source: Some(source.clone()),
        reporting_component: source.component.clone(),
        reporting_instance: Some(source.host.clone().unwrap_or_default()),
        first_timestamp: Some(Time(report.at)),
        last_timestamp: Some(Time(report.at)),
        count: Some(1),
        ..Default::default()
    };
    api.create(&PostParams::default(), &event).await?;
    Ok((name, 1))
}
