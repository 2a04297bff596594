//! How far the resources of an instance have come, told from what the API says of them.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};

/// Several events of one moment are told as one state.
const SETTLE: Duration = Duration::from_millis(5);

/// How far one resource has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceState {
    /// `Agent`, `MCPServer` or `ModelAPI`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The phase of its status, `Pending` before it has one.
    pub phase: String,
    /// Whether it is ready for its present generation, with pods that were started since `since`.
    pub ready: bool,
    /// Why it is not ready: what its pods fail with, or else the message of its status.
    pub message: String,
}

/// The states of every Agent, MCPServer and ModelAPI, each time one of them changes.
///
/// `since` is when the instance started: a status that an earlier instance left behind is not believed
/// before the pods behind it run again.
pub fn follow(client: Client, since: Timestamp) -> impl Stream<Item = Vec<ResourceState>> {
    states(client, since)
}

/// Whether there is any Agent, MCPServer or ModelAPI.
///
/// # Errors
/// When the API does not answer.
pub async fn has_resources(client: &Client) -> Result<bool, kube::Error> {
    for (resource, _) in kinds() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let one = ListParams::default().limit(1);
        if !api.list_metadata(&one).await?.items.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many kinds are followed, and the place of pods after them.
const KINDS: usize = 3;

/// The label under which a kind's pods carry the name of their resource.
fn kinds() -> [(ApiResource, &'static str); KINDS] {
    [
        (ApiResource::erase::<ModelAPI>(&()), "modelapi"),
        (ApiResource::erase::<MCPServer>(&()), "mcpserver"),
        (ApiResource::erase::<Agent>(&()), "agent"),
    ]
}

#[derive(Default)]
struct Seen {
    resources: BTreeMap<(usize, String, String), DynamicObject>,
    pods: BTreeMap<(String, String), Pod>,
    /// The kinds of which the list is there, pods after the resources. Before all are, what is not there yet would
    /// be taken for what does not exist.
    listed: [bool; KINDS + 1],
}

enum Event {
    Resource(usize, Box<watcher::Event<DynamicObject>>),
    Pod(Box<watcher::Event<Pod>>),
}

fn states(client: Client, since: Timestamp) -> impl Stream<Item = Vec<ResourceState>> {
    let mut streams = Vec::new();
    for (index, (resource, _)) in kinds().iter().enumerate() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
        let events = watcher(api, watcher::Config::default()).default_backoff();
        streams.push(
            events
                .filter_map(move |e| async move { e.ok().map(|e| Event::Resource(index, Box::new(e))) })
                .boxed(),
        );
    }
    let pods = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
    streams.push(
        pods.filter_map(|e| async move { e.ok().map(|e| Event::Pod(Box::new(e))) })
            .boxed(),
    );

    let events = stream::select_all(streams);
    let start = (events, Seen::default(), Vec::new());
    stream::unfold(start, move |(mut events, mut seen, last)| async move {
        loop {
            seen.take(events.next().await?);
            // A rollout changes several objects at once: look at them together.
            let mut settled = pin!(tokio::time::sleep(SETTLE));
            loop {
                tokio::select! {
                    event = events.next() => seen.take(event?),
                    () = &mut settled => break,
                }
            }
            let states = seen.states(since);
            if seen.is_listed() && states != last {
                return Some((states.clone(), (events, seen, states)));
            }
        }
    })
}

impl Seen {
    fn is_listed(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    fn take(&mut self, event: Event) {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        match event {
            Event::Resource(kind, event) => match *event {
                Apply(object) | InitApply(object) => {
                    self.resources
                        .insert((kind, namespace(&object), object.name_any()), object);
                }
                Delete(object) => {
                    self.resources
                        .remove(&(kind, namespace(&object), object.name_any()));
                }
                Init => {
                    self.listed[kind] = false;
                    self.resources.retain(|(other, ..), _| *other != kind);
                }
                InitDone => self.listed[kind] = true,
            },
            Event::Pod(event) => match *event {
                Apply(pod) | InitApply(pod) => {
                    self.pods.insert((namespace(&pod), pod.name_any()), pod);
                }
                Delete(pod) => {
                    self.pods.remove(&(namespace(&pod), pod.name_any()));
                }
                Init => {
                    self.listed[KINDS] = false;
                    self.pods.clear();
                }
                InitDone => self.listed[KINDS] = true,
            },
        }
    }

    fn states(&self, since: Timestamp) -> Vec<ResourceState> {
        let kinds = kinds();
        self.resources
            .iter()
            .map(|((kind, namespace, name), object)| {
                let (resource, label) = &kinds[*kind];
                let pods: Vec<&Pod> = self
                    .pods
                    .values()
                    .filter(|pod| {
                        pod.metadata.namespace.as_deref() == Some(namespace)
                            && pod.labels().get(*label) == Some(name)
                            && pod.metadata.deletion_timestamp.is_none()
                    })
                    .collect();
                state(&resource.kind, object, &pods, since)
            })
            .collect()
    }
}

fn namespace<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

fn state(kind: &str, object: &DynamicObject, pods: &[&Pod], since: Timestamp) -> ResourceState {
    let status = &object.data["status"];
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let current = status["observedGeneration"].as_i64() == object.metadata.generation;
    let ready = current
        && status["ready"].as_bool() == Some(true)
        && pods.iter().all(|pod| started_since(pod, since));
    let phase = match text("phase") {
        phase if phase.is_empty() => "Pending".to_owned(),
        // The status is of an earlier life of the pods, or of an earlier spec.
        phase if phase == "Ready" && !ready => "Pending".to_owned(),
        phase => phase,
    };
    let message = if ready {
        String::new()
    } else {
        pods.iter()
            .find_map(|pod| failure(pod))
            .unwrap_or_else(|| text("message"))
    };
    ResourceState {
        kind: kind.to_owned(),
        namespace: namespace(object),
        name: object.name_any(),
        phase,
        ready,
        message,
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let statuses = pod.status.as_ref();
    statuses
        .and_then(|status| status.container_statuses.as_ref())
        .into_iter()
        .flatten()
}

/// Whether every container of the pod is ready and was started by this instance. Kubernetes keeps times to
/// the second.
fn started_since(pod: &Pod, since: Timestamp) -> bool {
    let mut any = false;
    let all = containers(pod).all(|container| {
        any = true;
        let running = container.state.as_ref().and_then(|state| state.running.as_ref());
        let started = running.and_then(|running| running.started_at.as_ref());
        container.ready && started.is_some_and(|time| time.0.as_second() >= since.as_second())
    });
    any && all
}

/// What a container of the pod fails with, if one does.
fn failure(pod: &Pod) -> Option<String> {
    containers(pod).find_map(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let ended = [container.state.as_ref(), container.last_state.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|state| state.terminated.as_ref());
        if let Some(ended) = ended.filter(|ended| ended.exit_code != 0 && !container.ready) {
            let said = ended
                .message
                .as_deref()
                .map(str::trim)
                .filter(|message| !message.is_empty());
            return Some(match said {
                Some(message) => gist(message).to_owned(),
                None => format!(
                    "container {} ended with exit code {}",
                    container.name, ended.exit_code
                ),
            });
        }
        let waiting = waiting.filter(|waiting| {
            !matches!(
                waiting.reason.as_deref(),
                None | Some("ContainerCreating" | "PodInitializing")
            )
        })?;
        waiting.message.clone().or_else(|| waiting.reason.clone())
    })
}

/// The part of a log's end that says why: from the error on, or else the last line.
fn gist(log: &str) -> &str {
    let error = log
        .rmatch_indices("error: ")
        .map(|(at, _)| at)
        .find(|at| *at == 0 || log[..*at].ends_with('\n'));
    match error {
        Some(at) => &log[at..],
        None => log.lines().last().unwrap_or(log),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(status: &serde_json::Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "kaos.tools/v1alpha1", "kind": "Agent",
            "metadata": {"name": "a", "namespace": "n", "generation": 2}, "status": status,
        }))
        .unwrap()
    }

    fn pod(container: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"agent": "a"}},
            "status": {"containerStatuses": [container]},
        }))
        .unwrap()
    }

    fn running(started: &str, ready: bool) -> Pod {
        pod(
            &json!({"name": "agent", "image": "", "imageID": "", "restartCount": 0, "ready": ready,
            "state": {"running": {"startedAt": started}}}),
        )
    }

    #[test]
    fn nothing_is_told_before_every_kind_is_listed() {
        use watcher::Event::{Init, InitApply, InitDone};
        let mut seen = Seen::default();
        for kind in 0..KINDS {
            seen.take(Event::Resource(kind, Box::new(Init)));
            seen.take(Event::Resource(kind, Box::new(InitApply(agent(&json!({}))))));
            seen.take(Event::Resource(kind, Box::new(InitDone)));
            assert!(!seen.is_listed());
        }
        seen.take(Event::Pod(Box::new(Init)));
        seen.take(Event::Pod(Box::new(InitDone)));
        assert!(seen.is_listed());
        // Its watch has broken off.
        seen.take(Event::Resource(1, Box::new(Init)));
        assert!(!seen.is_listed());
    }

    #[test]
    fn ready_needs_this_generation_and_pods_of_this_instance() {
        let since: Timestamp = "2026-01-01T00:00:10.7Z".parse().unwrap();
        let ready = json!({"phase": "Ready", "ready": true, "observedGeneration": 2});
        let older = json!({"phase": "Ready", "ready": true, "observedGeneration": 1});
        let now = running("2026-01-01T00:00:10Z", true);
        let before = running("2026-01-01T00:00:09Z", true);
        for (status, pods, expected) in [
            (&ready, vec![&now], true),
            (&older, vec![&now], false),
            (&ready, vec![&before], false),
            (&ready, vec![&now, &before], false),
            (&json!({}), vec![&now], false),
        ] {
            let state = state("Agent", &agent(status), &pods, since);
            assert_eq!(state.ready, expected, "{status} {pods:?}");
            assert_eq!(state.phase == "Ready", expected);
        }
    }

    #[test]
    fn what_a_container_died_of_is_the_message() {
        let since = Timestamp::UNIX_EPOCH;
        let waiting = json!({"phase": "Pending", "message": "Deployment ready replicas: 0/1"});
        let crashed = pod(
            &json!({"name": "c", "image": "", "imageID": "", "restartCount": 3, "ready": false,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "loading\nerror: line 3: invalid syntax\n"}}}),
        );
        let state = |pods: &[&Pod]| state("Agent", &agent(&waiting), pods, since).message;
        assert_eq!(state(&[&crashed]), "error: line 3: invalid syntax");
        assert_eq!(state(&[]), "Deployment ready replicas: 0/1");
    }
}
