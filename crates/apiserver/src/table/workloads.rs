//! The columns of pods and of what makes them: how far they are, in one word and a few numbers.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age,
    builtin::{
        NONE, age_column, first_or_none, int_at, integer, labels, list_at, or_none, str_at, text, wide,
    },
};
use crate::resource::Column;

pub(super) fn pod_columns() -> Vec<Column> {
    vec![
        text("Ready", |pod, _| {
            let state = PodState::of(pod);
            format!("{}/{}", state.ready, state.containers).into()
        }),
        text("Status", |pod, _| PodState::of(pod).reason.into()),
        text("Restarts", |pod, now| PodState::of(pod).restarts(now).into()),
        age_column(),
        wide("IP", |pod, _| match str_at(pod, "/status/podIP") {
            "" => first_or_none(pod, "/status/podIPs/0/ip"),
            address => address.into(),
        }),
        wide("Node", |pod, _| first_or_none(pod, "/spec/nodeName")),
        wide("Nominated Node", |pod, _| {
            first_or_none(pod, "/status/nominatedNodeName")
        }),
        wide("Readiness Gates", |pod, _| {
            let gates = list_at(pod, "/spec/readinessGates");
            if gates.is_empty() {
                return NONE.into();
            }
            let met = gates
                .iter()
                .filter(|gate| condition(pod, str_at(gate, "/conditionType")) == Some("True"));
            format!("{}/{}", met.count(), gates.len()).into()
        }),
    ]
}

pub(super) fn deployment_columns() -> Vec<Column> {
    let mut columns = vec![
        text("Ready", |object, _| {
            format!(
                "{}/{}",
                int_at(object, "/status/readyReplicas"),
                int_at(object, "/spec/replicas")
            )
            .into()
        }),
        integer("Up-to-date", |object, _| {
            int_at(object, "/status/updatedReplicas").into()
        }),
        integer("Available", |object, _| {
            int_at(object, "/status/availableReplicas").into()
        }),
        age_column(),
    ];
    columns.extend(template_columns());
    columns
}

pub(super) fn replica_set_columns() -> Vec<Column> {
    let mut columns = vec![
        integer("Desired", |object, _| int_at(object, "/spec/replicas").into()),
        integer("Current", |object, _| int_at(object, "/status/replicas").into()),
        integer("Ready", |object, _| {
            int_at(object, "/status/readyReplicas").into()
        }),
        age_column(),
    ];
    columns.extend(template_columns());
    columns
}

pub(super) fn job_columns() -> Vec<Column> {
    let mut columns = vec![
        text("Status", |job, _| job_state(job).into()),
        text("Completions", |job, _| {
            let succeeded = int_at(job, "/status/succeeded");
            match (job.pointer("/spec/completions"), int_at(job, "/spec/parallelism")) {
                (Some(completions), _) => format!("{succeeded}/{completions}"),
                (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
                (None, _) => format!("{succeeded}/1"),
            }
            .into()
        }),
        text("Duration", |job, now| {
            let time = |pointer| str_at(job, pointer).parse::<Timestamp>().ok();
            let ended = time("/status/completionTime").unwrap_or(now);
            time("/status/startTime")
                .map_or_else(String::new, |started| age::since(started, ended))
                .into()
        }),
        age_column(),
    ];
    columns.extend(template_columns());
    columns
}

/// How far a Job is, in one word.
fn job_state(job: &Value) -> &'static str {
    let holds = |kind| condition(job, kind) == Some("True");
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| holds(kind));
    if let Some(end) = first(&["Complete", "Failed"]) {
        end
    } else if job.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else {
        first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
    }
}

/// What `-o wide` shows of a pod template and its selector.
fn template_columns() -> [Column; 3] {
    [
        wide("Containers", |object, _| each_container(object, "/name")),
        wide("Images", |object, _| each_container(object, "/image")),
        wide("Selector", |object, _| {
            selector(object.pointer("/spec/selector")).into()
        }),
    ]
}

fn each_container(object: &Value, pointer: &str) -> Value {
    let containers = list_at(object, "/spec/template/spec/containers").iter();
    containers
        .map(|container| str_at(container, pointer))
        .collect::<Vec<_>>()
        .join(",")
        .into()
}

/// A label selector as text.
fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return NONE.to_owned();
    };
    let mut terms = Vec::new();
    let equal = labels(selector.get("matchLabels"));
    if equal != NONE {
        terms.push(equal);
    }
    for expression in list_at(selector, "/matchExpressions") {
        let key = str_at(expression, "/key");
        let mut values: Vec<&str> = list_at(expression, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match str_at(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or_none(&terms.join(",")).to_owned()
}

/// The status of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let found = list_at(object, "/status/conditions")
        .iter()
        .find(|condition| str_at(condition, "/type") == kind);
    found.map(|condition| str_at(condition, "/status"))
}

/// A pod in one word and three numbers.
struct PodState {
    ready: usize,
    containers: usize,
    reason: String,
    restart_count: i64,
    last_restart: Option<Timestamp>,
}

/// Restarts of some containers, and when the last of them was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += int_at(status, "/restartCount");
        let finished = str_at(status, "/lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(finished);
    }
}

impl PodState {
    fn of(pod: &Value) -> Self {
        let mut state = Self {
            ready: 0,
            containers: list_at(pod, "/spec/containers").len() + sidecars(pod).count(),
            reason: reason_of_phase(pod),
            restart_count: 0,
            last_restart: None,
        };
        let (mut restarts, initializing) = state.look_at_init_containers(pod);
        if !initializing || condition(pod, "Initialized") == Some("True") {
            restarts = state.look_at_containers(pod);
        }
        state.restart_count = restarts.count;
        state.last_restart = restarts.last;
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            if str_at(pod, "/status/reason") == "NodeLost" {
                state.reason = "Unknown".to_owned();
            } else if !matches!(str_at(pod, "/status/phase"), "Succeeded" | "Failed") {
                state.reason = "Terminating".to_owned();
            }
        }
        state
    }

    /// Up to the first that is not done. Returns their restarts and whether one is not done.
    fn look_at_init_containers(&mut self, pod: &Value) -> (Restarts, bool) {
        let mut restarts = Restarts::default();
        for (at, status) in list_at(pod, "/status/initContainerStatuses").iter().enumerate() {
            restarts.add(status);
            let terminated = status.pointer("/state/terminated");
            if terminated.is_some_and(|terminated| int_at(terminated, "/exitCode") == 0) {
                continue;
            }
            if is_sidecar(pod, status) && status.get("started") == Some(&Value::Bool(true)) {
                self.ready += usize::from(status.get("ready") == Some(&Value::Bool(true)));
                continue;
            }
            let waiting = str_at(status, "/state/waiting/reason");
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", ended(terminated)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{at}/{}", list_at(pod, "/spec/initContainers").len()),
            };
            return (restarts, true);
        }
        (restarts, false)
    }

    /// Returns the restarts of the containers and of those that run beside them.
    fn look_at_containers(&mut self, pod: &Value) -> Restarts {
        let mut restarts = Restarts::default();
        for status in list_at(pod, "/status/initContainerStatuses")
            .iter()
            .filter(|status| is_sidecar(pod, status))
        {
            restarts.add(status);
        }
        let mut any_runs = false;
        // Backwards: what is said of the first container counts.
        for status in list_at(pod, "/status/containerStatuses").iter().rev() {
            restarts.add(status);
            let waiting = str_at(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = status.pointer("/state/terminated") {
                self.reason = ended(terminated);
            } else if status.get("ready") == Some(&Value::Bool(true))
                && status.pointer("/state/running").is_some()
            {
                any_runs = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && any_runs {
            let ready = condition(pod, "Ready") == Some("True");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
        restarts
    }

    fn restarts(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(last) if self.restart_count != 0 => {
                format!("{} ({} ago)", self.restart_count, age::since(last, now))
            }
            _ => self.restart_count.to_string(),
        }
    }
}

fn reason_of_phase(pod: &Value) -> String {
    let gated = list_at(pod, "/status/conditions").iter().any(|condition| {
        str_at(condition, "/type") == "PodScheduled" && str_at(condition, "/reason") == "SchedulingGated"
    });
    match (gated, str_at(pod, "/status/reason")) {
        (true, _) => "SchedulingGated".to_owned(),
        (false, "") => str_at(pod, "/status/phase").to_owned(),
        (false, reason) => reason.to_owned(),
    }
}

/// Why a container ended.
fn ended(terminated: &Value) -> String {
    match (str_at(terminated, "/reason"), int_at(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", int_at(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Init containers that go on running beside the others.
fn sidecars(pod: &Value) -> impl Iterator<Item = &Value> {
    let init = list_at(pod, "/spec/initContainers").iter();
    init.filter(|container| str_at(container, "/restartPolicy") == "Always")
}

fn is_sidecar(pod: &Value, status: &Value) -> bool {
    sidecars(pod).any(|container| str_at(container, "/name") == str_at(status, "/name"))
}
