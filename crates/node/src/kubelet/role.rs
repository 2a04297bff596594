//! What a container is to its pod, and what follows from how it ended.

use k8s_openapi::api::core::v1::{Container, Pod};

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An init container: runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: has started before the next one does, and goes on until
    /// the main containers have ended.
    Sidecar,
    /// One of `spec.containers`.
    Main,
}

impl Role {
    /// The role of one of `spec.initContainers`.
    pub(crate) fn of_init(container: &Container) -> Self {
        match container.restart_policy.as_deref() {
            Some("Always") => Self::Sidecar,
            _ => Self::Init,
        }
    }

    /// The field of the pod's spec that lists it.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainers",
            Self::Main => "containers",
        }
    }
}

/// When the containers of a pod are started again.
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

    /// Whether a container that ended with `code` is started again. An init container that succeeded is not; a
    /// sidecar is, whatever the pod's policy.
    pub(crate) fn restarts(self, code: i32, role: Role) -> bool {
        match (role, self) {
            (Role::Sidecar, _) => true,
            (_, Self::Never) => false,
            (Role::Main, Self::Always) => true,
            (Role::Init, Self::Always) | (_, Self::OnFailure) => code != 0,
        }
    }
}
