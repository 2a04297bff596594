//! A pod's status from the state of its containers: the fields and conditions that a kubelet writes.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container as ContainerSpec, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{HOST_IP, POD_IP};
use crate::processes::Exit;

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
    pub(crate) image: String,
    pub(crate) container_id: Option<String>,
    pub(crate) state: State,
    pub(crate) last: Option<Terminated>,
    pub(crate) restarts: u32,
}

/// What a pod's phase depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub(crate) fn of(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with `code` is started again. An init container that succeeded is not.
    pub(crate) fn restarts(self, code: i32, is_init: bool) -> bool {
        match self {
            Self::Always => !is_init || code != 0,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The status of `pod` with these containers. Conditions keep their times while they do not change.
pub(crate) fn status(pod: &Pod, init: &[View], main: &[View], now: Timestamp) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let policy = RestartPolicy::of(pod);
    let phase = phase(policy, init, main);
    let over = matches!(phase, "Succeeded" | "Failed");
    let initialized = init.iter().all(|view| succeeded(&view.state));
    let unready: Vec<&str> = main
        .iter()
        .filter(|view| !is_ready(&view.state))
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
        let incomplete: Vec<&str> = init
            .iter()
            .filter(|view| !succeeded(&view.state))
            .map(|view| view.name.as_str())
            .collect();
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

    let statuses = |views: &[View], is_init| {
        let statuses: Vec<_> = views.iter().map(|view| container_status(view, is_init)).collect();
        (!statuses.is_empty()).then_some(statuses)
    };
    PodStatus {
        phase: Some(phase.to_owned()),
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
        init_container_statuses: statuses(init, true),
        container_statuses: statuses(main, false),
        ..PodStatus::default()
    }
}

fn succeeded(state: &State) -> bool {
    matches!(state, State::Terminated(terminated) if terminated.exit.code == 0)
}

fn is_ready(state: &State) -> bool {
    matches!(state, State::Running { ready: true, .. })
}

/// The phase, by the kubelet's rules.
fn phase(policy: RestartPolicy, init: &[View], main: &[View]) -> &'static str {
    let ended = |view: &View| match &view.state {
        State::Terminated(terminated) => Some(terminated.exit.code),
        _ => None,
    };
    let final_code = |view: &View, is_init| ended(view).filter(|code| !policy.restarts(*code, is_init));
    if init
        .iter()
        .any(|view| final_code(view, true).is_some_and(|code| code != 0))
    {
        return "Failed";
    }
    if init.iter().any(|view| ended(view) != Some(0)) {
        return "Pending";
    }
    let codes: Vec<i32> = main.iter().filter_map(|view| final_code(view, false)).collect();
    if !main.is_empty() && codes.len() == main.len() {
        return if codes.iter().all(|code| *code == 0) {
            "Succeeded"
        } else {
            "Failed"
        };
    }
    // A container that has never run keeps the pod pending, whatever the others do.
    let never_ran = |view: &View| matches!(view.state, State::Waiting { .. }) && view.last.is_none();
    if main.iter().any(never_ran) {
        "Pending"
    } else {
        "Running"
    }
}

fn container_status(view: &View, is_init: bool) -> ContainerStatus {
    let started = match &view.state {
        State::Running { started, .. } => *started,
        _ => false,
    };
    ContainerStatus {
        name: view.name.clone(),
        image: view.image.clone(),
        image_id: String::new(),
        container_id: view.container_id.clone(),
        ready: if is_init {
            succeeded(&view.state)
        } else {
            is_ready(&view.state)
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
mod tests {
    use serde_json::json;

    use super::*;

    fn view(state: State) -> View {
        View {
            name: "c".into(),
            image: "i".into(),
            container_id: None,
            state,
            last: None,
            restarts: 0,
        }
    }

    fn ended(code: i32) -> State {
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

    fn running(ready: bool) -> State {
        State::Running {
            since: Timestamp::UNIX_EPOCH,
            started: true,
            ready,
        }
    }

    #[test]
    fn phases_follow_the_kubelet() {
        use RestartPolicy::{Always, Never, OnFailure};
        let waiting = || State::waiting("ContainerCreating", None);
        for (policy, init, main, expected) in [
            (Always, vec![], vec![waiting()], "Pending"),
            (Always, vec![], vec![running(false)], "Running"),
            (Always, vec![], vec![ended(0)], "Running"),
            (OnFailure, vec![], vec![ended(0)], "Succeeded"),
            (OnFailure, vec![], vec![ended(1)], "Running"),
            (Never, vec![], vec![ended(1), ended(0)], "Failed"),
            (Never, vec![], vec![ended(0), running(true)], "Running"),
            (Always, vec![running(false)], vec![waiting()], "Pending"),
            (Never, vec![ended(1)], vec![waiting()], "Failed"),
            (Always, vec![ended(0)], vec![running(true)], "Running"),
        ] {
            let views = |states: Vec<State>| states.into_iter().map(view).collect::<Vec<_>>();
            let (init, main) = (views(init), views(main));
            assert_eq!(
                phase(policy, &init, &main),
                expected,
                "{policy:?} {init:?} {main:?}"
            );
        }
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
        pod.status = Some(status(&pod, &[], &[view(running(false))], at(10)));
        assert_eq!(find(pod.status.as_ref().unwrap(), "Ready"), ("False".into(), 10));
        let later = status(&pod, &[], &[view(running(false))], at(20));
        assert_eq!(
            Some(&later),
            pod.status.as_ref(),
            "nothing changed, so nothing would be written"
        );
        let ready = status(&pod, &[], &[view(running(true))], at(30));
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
