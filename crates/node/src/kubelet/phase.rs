//! Where a pod is in its life.

use k8s_openapi::api::core::v1::Pod;

use super::{
    role::{RestartPolicy, Role},
    status::{State, View},
};

/// Whether the containers of a pod that have ended may be started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// As its restart policy says.
    GoesOn,
    /// No more: the pod is deleted.
    Deleted,
    /// The node stops before the pod was done.
    Interrupted,
}

/// A phase, and why it is that where the containers do not say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

impl Phase {
    /// The phase of a pod with these containers. One that is over stays as it ended.
    pub(super) fn of(pod: &Pod, views: &[View], outlook: Outlook) -> Self {
        let plain = |name| Self {
            name,
            reason: None,
            message: None,
        };
        let policy = RestartPolicy::of(pod);
        if let Some(status) = &pod.status
            && let Some(name) = ["Succeeded", "Failed"]
                .into_iter()
                .find(|name| status.phase.as_deref() == Some(name))
        {
            return Self {
                name,
                reason: status.reason.clone(),
                message: status.message.clone(),
            };
        }
        let ended = !views
            .iter()
            .any(|view| matches!(view.state, State::Running { .. }));
        match outlook {
            Outlook::Deleted if ended => {
                let mut main = views.iter().filter(|view| view.role == Role::Main);
                plain(match main.all(|view| succeeded(&view.state)) {
                    true => "Succeeded",
                    false => "Failed",
                })
            }
            // Whatever its containers made of being asked to end, they were not done. A pod that may be started
            // again is, by the next run of the node.
            Outlook::Interrupted if ended && policy == RestartPolicy::Never => Self {
                name: "Failed",
                reason: Some("Terminated".to_owned()),
                message: Some("Pod was terminated because its node stopped.".to_owned()),
            },
            Outlook::Interrupted if ended && main_began(views) => plain("Running"),
            _ => plain(phase(policy, views)),
        }
    }
}

pub(super) fn succeeded(state: &State) -> bool {
    matches!(state, State::Terminated(terminated) if terminated.exit.code == 0)
}

pub(super) fn is_ready(state: &State) -> bool {
    matches!(state, State::Running { ready: true, .. })
}

/// Whether it holds back no other container of the pod.
pub(super) fn is_initialized(view: &View) -> bool {
    match view.role {
        Role::Init => succeeded(&view.state),
        Role::Sidecar => matches!(view.state, State::Running { started: true, .. }),
        Role::Main => true,
    }
}

/// Whether a main container has begun, so that the init containers are done with.
pub(super) fn main_began(views: &[View]) -> bool {
    views.iter().any(|view| view.role == Role::Main && view.began)
}

/// The phase of a pod whose restart policy decides what comes next, by the kubelet's rules.
fn phase(policy: RestartPolicy, views: &[View]) -> &'static str {
    let final_code = |view: &View| match &view.state {
        State::Terminated(terminated) => {
            Some(terminated.exit.code).filter(|code| !policy.restarts(*code, view.role))
        }
        _ => None,
    };
    let of = |role: Role| views.iter().filter(move |view| view.role == role);
    // Where the pod comes to its end, sidecars are asked to end, too, and it is over when they have.
    let sidecars_run = of(Role::Sidecar).any(|view| matches!(view.state, State::Running { .. }));
    if of(Role::Init).any(|view| final_code(view).is_some_and(|code| code != 0)) {
        return if sidecars_run { "Pending" } else { "Failed" };
    }
    if !main_began(views) && !views.iter().all(is_initialized) {
        return "Pending";
    }
    let codes: Vec<i32> = of(Role::Main).filter_map(final_code).collect();
    if !codes.is_empty() && codes.len() == of(Role::Main).count() {
        return match codes.iter().all(|code| *code == 0) {
            _ if sidecars_run => "Running",
            true => "Succeeded",
            false => "Failed",
        };
    }
    // A container that has never run keeps the pod pending, whatever the others do.
    let never_ran = |view: &View| matches!(view.state, State::Waiting { .. }) && view.last.is_none();
    if of(Role::Main).any(never_ran) {
        "Pending"
    } else {
        "Running"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubelet::status::tests::{ended, running, view};

    #[test]
    fn phases_follow_the_kubelet() {
        use RestartPolicy::{Always, Never, OnFailure};
        use Role::{Init, Main, Sidecar};
        let waiting = || State::waiting("ContainerCreating", None);
        for (policy, states, expected) in [
            (Always, vec![(Main, waiting())], "Pending"),
            (Always, vec![(Main, running(false))], "Running"),
            (Always, vec![(Main, ended(0))], "Running"),
            (OnFailure, vec![(Main, ended(0))], "Succeeded"),
            (OnFailure, vec![(Main, ended(1))], "Running"),
            (Never, vec![(Main, ended(1)), (Main, ended(0))], "Failed"),
            (Never, vec![(Main, ended(0)), (Main, running(true))], "Running"),
            (Always, vec![(Init, running(false)), (Main, waiting())], "Pending"),
            (Never, vec![(Init, ended(1)), (Main, waiting())], "Failed"),
            (Always, vec![(Init, ended(0)), (Main, running(true))], "Running"),
            (Always, vec![(Sidecar, waiting()), (Main, waiting())], "Pending"),
            (
                Always,
                vec![(Sidecar, running(true)), (Main, waiting())],
                "Pending",
            ),
            (
                Always,
                vec![(Sidecar, waiting()), (Main, running(true))],
                "Running",
            ),
            (Never, vec![(Sidecar, running(true)), (Main, ended(0))], "Running"),
            (Never, vec![(Sidecar, ended(143)), (Main, ended(0))], "Succeeded"),
            (Never, vec![(Sidecar, ended(0)), (Main, ended(1))], "Failed"),
            (
                Never,
                vec![(Sidecar, running(true)), (Init, ended(1)), (Main, waiting())],
                "Pending",
            ),
        ] {
            let views: Vec<View> = states
                .into_iter()
                .map(|(role, state)| view(role, state))
                .collect();
            assert_eq!(phase(policy, &views), expected, "{policy:?} {views:?}");
        }
    }

    #[test]
    fn a_pod_that_is_not_started_again_is_over() {
        use Outlook::{Deleted, GoesOn, Interrupted};
        let waiting = || State::waiting("ContainerCreating", None);
        for (policy, outlook, state, expected) in [
            ("Always", Deleted, ended(0), "Succeeded"),
            ("Always", Deleted, ended(143), "Failed"),
            ("OnFailure", Deleted, ended(143), "Failed"),
            ("Always", Deleted, waiting(), "Failed"),
            ("Always", Deleted, running(true), "Running"),
            ("Always", Interrupted, ended(0), "Running"),
            ("OnFailure", Interrupted, ended(0), "Running"),
            ("Never", Interrupted, ended(0), "Failed"),
            ("Never", Interrupted, running(true), "Running"),
            ("Always", Interrupted, waiting(), "Pending"),
            ("Never", GoesOn, ended(0), "Succeeded"),
        ] {
            let pod = json!({ "spec": { "containers": [], "restartPolicy": policy } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let found = Phase::of(&pod, &[view(Role::Main, state)], outlook);
            assert_eq!(found.name, expected, "{policy} {outlook:?}");
            assert_eq!(
                found.reason.is_some(),
                policy == "Never" && outlook == Interrupted && expected == "Failed"
            );
        }
        let over =
            json!({ "spec": { "containers": [] }, "status": { "phase": "Failed", "reason": "Terminated" } });
        let over: Pod = serde_json::from_value(over).unwrap();
        let found = Phase::of(&over, &[view(Role::Main, ended(0))], GoesOn);
        assert_eq!(
            (found.name, found.reason.as_deref()),
            ("Failed", Some("Terminated"))
        );
    }
}
