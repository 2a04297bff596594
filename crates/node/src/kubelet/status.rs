//! A pod's status from the state of its containers: the fields and conditions that a kubelet writes.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container as ContainerSpec, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    HOST_IP, POD_IP,
    phase::{Outlook, Phase, is_initialized, is_ready, main_began, succeeded},
    role::Role,
};
use crate::processes::Exit;

/// The id of a run of a container.
pub(crate) fn container_id(uid: &str, container: &str, restarts: u32) -> String {
    format!("process://{uid}/{container}/{restarts}")
}

/// The number of the run before the one that the status of a pod's container shows: as for a kubelet, the run that
/// its last state tells of. A container that ended for good shows that run itself, and has none before it unless it
/// was started again.
pub(crate) fn previous_run(pod: &Pod, container: &str) -> Option<u32> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    let last = all.find(|status| status.name == container)?.last_state.as_ref()?;
    let id = last.terminated.as_ref()?.container_id.as_ref()?;
    id.rsplit('/').next()?.parse().ok()
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terminated {
    pub(crate) exit: Exit,
    pub(crate) reason: String,
    pub(crate) message: Option<String>,
    pub(crate) container_id: String,
}

impl Terminated {
    /// The end of a run that a status tells of: one that it shows as running ended with the node that ran it.
    pub(crate) fn from_status(state: &ContainerState) -> Option<Self> {
        if let Some(running) = &state.running {
            let at = running.started_at.as_ref().map(|time| time.0).unwrap_or_default();
            return Some(Self {
                exit: Exit {
                    code: 137,
                    signal: None,
                    started: at,
                    finished: at,
                },
                reason: "ContainerStatusUnknown".to_owned(),
                message: Some("the node ended while the container ran".to_owned()),
                container_id: String::new(),
            });
        }
        let ended = state.terminated.as_ref()?;
        let at = |time: &Option<Time>| time.as_ref().map(|time| time.0).unwrap_or_default();
        Some(Self {
            exit: Exit {
                code: ended.exit_code,
                signal: ended.signal,
                started: at(&ended.started_at),
                finished: at(&ended.finished_at),
            },
            reason: ended.reason.clone().unwrap_or_default(),
            message: ended.message.clone(),
            container_id: ended.container_id.clone().unwrap_or_default(),
        })
    }
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting {
        reason: String,
        message: Option<String>,
    },
    Running {
        since: Timestamp,
        started: bool,
        ready: bool,
    },
    Terminated(Terminated),
}

impl State {
    pub(crate) fn waiting(reason: &str, message: impl Into<Option<String>>) -> Self {
        Self::Waiting {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// One container as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// It has been started since the node was.
    pub(crate) began: bool,
    pub(crate) image: String,
    pub(crate) container_id: Option<String>,
    pub(crate) state: State,
    pub(crate) last: Option<Terminated>,
    pub(crate) restarts: u32,
}

/// The status of `pod` with these containers. Conditions keep their times while they do not change.
pub(crate) fn status(pod: &Pod, views: &[View], outlook: Outlook, now: Timestamp) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let Phase {
        name: phase,
        reason,
        message,
    } = Phase::of(pod, views, outlook);
    let over = matches!(phase, "Succeeded" | "Failed");
    let main_began = main_began(views);
    // Once the main containers have begun, a sidecar that is started again holds back nothing.
    let incomplete: Vec<&str> = views
        .iter()
        .filter(|view| !main_began && !is_initialized(view))
        .map(|view| view.name.as_str())
        .collect();
    let initialized = incomplete.is_empty();
    let unready: Vec<&str> = views
        .iter()
        .filter(|view| view.role != Role::Init && !is_ready(&view.state))
        .map(|view| view.name.as_str())
        .collect();

    let mut conditions = Conditions {
        old: old.conditions.unwrap_or_default(),
        pod,
        now,
        new: Vec::new(),
    };
    conditions.set("PodReadyToStartContainers", !over, None);
    let init_reason = (!initialized).then(|| {
        (
            "ContainersNotInitialized",
            format!("containers with incomplete status: [{}]", incomplete.join(" ")),
        )
    });
    conditions.set("Initialized", initialized, init_reason);
    let not_ready = if phase == "Succeeded" {
        Some(("PodCompleted", String::new()))
    } else if phase == "Failed" {
        Some(("PodFailed", String::new()))
    } else if unready.is_empty() && initialized {
        None
    } else {
        Some((
            "ContainersNotReady",
            format!("containers with unready status: [{}]", unready.join(" ")),
        ))
    };
    conditions.set("Ready", not_ready.is_none(), not_ready.clone());
    conditions.set("ContainersReady", not_ready.is_none(), not_ready);
    conditions.set("PodScheduled", true, None);

    let statuses = |list: &str| {
        let listed = views.iter().filter(|view| view.role.list() == list);
        let statuses: Vec<_> = listed.map(container_status).collect();
        (!statuses.is_empty()).then_some(statuses)
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        conditions: Some(conditions.finish()),
        observed_generation: pod.metadata.generation,
        host_ip: Some(HOST_IP.to_owned()),
        host_ips: Some(vec![HostIP {
            ip: HOST_IP.to_owned(),
        }]),
        pod_ip: Some(POD_IP.to_owned()),
        pod_ips: Some(vec![PodIP {
            ip: POD_IP.to_owned(),
        }]),
        start_time: old.start_time.or_else(|| Some(time(now))),
        qos_class: old.qos_class.or_else(|| Some(qos_class(pod).to_owned())),
        init_container_statuses: statuses(Role::Init.list()),
        container_statuses: statuses(Role::Main.list()),
        ..PodStatus::default()
    }
}

fn container_status(view: &View) -> ContainerStatus {
    let started = match &view.state {
        State::Running { started, .. } => *started,
        _ => false,
    };
    ContainerStatus {
        name: view.name.clone(),
        image: view.image.clone(),
        image_id: String::new(),
        container_id: view.container_id.clone(),
        ready: match view.role {
            Role::Init => succeeded(&view.state),
            Role::Sidecar | Role::Main => is_ready(&view.state),
        },
        started: Some(started),
        restart_count: i32::try_from(view.restarts).unwrap_or(i32::MAX),
        state: Some(container_state(&view.state)),
        last_state: Some(view.last.as_ref().map(terminated_state).unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn container_state(state: &State) -> ContainerState {
    match state {
        State::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: message.clone(),
            }),
            ..ContainerState::default()
        },
        State::Running { since, .. } => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(time(*since)),
            }),
            ..ContainerState::default()
        },
        State::Terminated(terminated) => terminated_state(terminated),
    }
}

fn terminated_state(terminated: &Terminated) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(terminated.container_id.clone()),
            exit_code: terminated.exit.code,
            signal: terminated.exit.signal,
            reason: Some(terminated.reason.clone()),
            message: terminated.message.clone(),
            started_at: Some(time(terminated.exit.started)),
            finished_at: Some(time(terminated.exit.finished)),
        }),
        ..ContainerState::default()
    }
}

/// Kubernetes keeps times to the second; more would differ from what comes back from the API.
fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

struct Conditions<'a> {
    old: Vec<PodCondition>,
    pod: &'a Pod,
    now: Timestamp,
    new: Vec<PodCondition>,
}

impl Conditions<'_> {
    fn set(&mut self, kind: &str, holds: bool, reason: Option<(&str, String)>) {
        let status = if holds { "True" } else { "False" };
        let before = self
            .old
            .iter()
            .find(|old| old.type_ == kind && old.status == status);
        let since = before.and_then(|old| old.last_transition_time.clone());
        let (reason, message) = reason.unzip();
        self.new.push(PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message: message.filter(|message| !message.is_empty()),
            last_transition_time: since.or_else(|| Some(time(self.now))),
            last_probe_time: None,
            observed_generation: self.pod.metadata.generation,
        });
    }

    /// The conditions, those that others wrote included.
    fn finish(mut self) -> Vec<PodCondition> {
        let own = |kind: &str| self.new.iter().any(|new| new.type_ == kind);
        let mut others: Vec<_> = self.old.iter().filter(|old| !own(&old.type_)).cloned().collect();
        self.new.append(&mut others);
        self.new
    }
}

/// The quality-of-service class that follows from the containers' resources.
fn qos_class(pod: &Pod) -> &'static str {
    let containers: Vec<&ContainerSpec> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
        .collect();
    let set = |container: &ContainerSpec| {
        let resources = container.resources.as_ref();
        let count = |map: Option<&std::collections::BTreeMap<_, _>>| map.map_or(0, |map| map.len());
        resources.is_some_and(|r| count(r.requests.as_ref()) + count(r.limits.as_ref()) > 0)
    };
    let guaranteed = |container: &ContainerSpec| {
        let Some(resources) = &container.resources else {
            return false;
        };
        let limits = resources.limits.clone().unwrap_or_default();
        let requests = resources.requests.clone().unwrap_or_default();
        ["cpu", "memory"].iter().all(|name| {
            limits
                .get(*name)
                .is_some_and(|l| requests.get(*name).is_none_or(|r| r == l))
        })
    };
    if !containers.iter().copied().any(set) {
        "BestEffort"
    } else if containers.iter().copied().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::kubelet) fn view(role: Role, state: State) -> View {
        View {
            name: "c".into(),
            role,
            began: !matches!(state, State::Waiting { .. }),
            image: "i".into(),
            container_id: None,
            state,
            last: None,
            restarts: 0,
        }
    }

    pub(in crate::kubelet) fn ended(code: i32) -> State {
        let at = Timestamp::UNIX_EPOCH;
        State::Terminated(Terminated {
            exit: Exit {
                code,
                signal: None,
                started: at,
                finished: at,
            },
            reason: "x".into(),
            message: None,
            container_id: "y".into(),
        })
    }

    pub(in crate::kubelet) fn running(ready: bool) -> State {
        State::Running {
            since: Timestamp::UNIX_EPOCH,
            started: true,
            ready,
        }
    }

    #[test]
    fn a_sidecar_counts_for_readiness_and_until_the_main_containers_begin_for_initialization() {
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [] } })).unwrap();
        let at = Timestamp::UNIX_EPOCH;
        let found = |sidecar, main| {
            let views = [view(Role::Sidecar, sidecar), view(Role::Main, main)];
            let status = status(&pod, &views, Outlook::GoesOn, at);
            let holds = |kind: &str| {
                let conditions = status.conditions.iter().flatten();
                conditions
                    .filter(|one| one.type_ == kind)
                    .any(|one| one.status == "True")
            };
            (holds("Initialized"), holds("Ready"))
        };
        let waiting = || State::waiting("ContainerCreating", None);
        assert_eq!(found(waiting(), waiting()), (false, false));
        assert_eq!(found(running(false), running(true)), (true, false));
        assert_eq!(found(running(true), running(true)), (true, true));
        assert_eq!(found(ended(1), running(true)), (true, false));
    }

    #[test]
    fn conditions_keep_their_time_until_they_change() {
        let mut pod: Pod =
            serde_json::from_value(json!({ "metadata": { "generation": 1 }, "spec": { "containers": [] } }))
                .unwrap();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let find = |status: &PodStatus, kind: &str| {
            let found = status
                .conditions
                .iter()
                .flatten()
                .find(|c| c.type_ == kind)
                .unwrap();
            (
                found.status.clone(),
                found.last_transition_time.as_ref().unwrap().0.as_second(),
            )
        };
        pod.status = Some(status(
            &pod,
            &[view(Role::Main, running(false))],
            Outlook::GoesOn,
            at(10),
        ));
        assert_eq!(find(pod.status.as_ref().unwrap(), "Ready"), ("False".into(), 10));
        let later = status(&pod, &[view(Role::Main, running(false))], Outlook::GoesOn, at(20));
        assert_eq!(
            Some(&later),
            pod.status.as_ref(),
            "nothing changed, so nothing would be written"
        );
        let ready = status(&pod, &[view(Role::Main, running(true))], Outlook::GoesOn, at(30));
        assert_eq!(find(&ready, "Ready"), ("True".into(), 30));
        assert_eq!(find(&ready, "Initialized"), ("True".into(), 10));
    }

    #[test]
    fn quality_of_service_follows_from_resources() {
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({ "requests": { "cpu": "1" } }), "Burstable"),
            (json!({ "limits": { "cpu": "1", "memory": "1Gi" } }), "Guaranteed"),
        ] {
            let pod = serde_json::from_value(
                json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } }),
            )
            .unwrap();
            assert_eq!(qos_class(&pod), expected);
        }
    }
}
