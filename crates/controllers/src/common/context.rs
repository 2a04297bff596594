//! What every controller has in hand, and what happens around each pass over a resource.

use std::{sync::Arc, time::Duration};

use kaos_kube_ext::{Applier, Backoff, apply_status};
use kaos_seams::Seams;
use kube::{
    Client, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde::Serialize;
use tracing::{debug, warn};

use super::apply::{Blame, Failure};
use crate::config::Config;

/// How long after a pass an object is looked at again though nothing has changed: a safety net for events
/// that were never sent. Jittered.
const RESYNC: Duration = Duration::from_secs(600);

/// When a pass is tried again that came before the first list of something it looks at.
pub(crate) const SOON: Duration = Duration::from_millis(10);

/// What the passes of one controller share.
pub(crate) struct Context<K: Resource<DynamicType = ()> + 'static> {
    pub(crate) client: Client,
    pub(crate) applier: Applier,
    pub(crate) manager: &'static str,
    pub(crate) config: Arc<Config>,
    pub(crate) seams: Seams,
    backoff: Backoff<ObjectRef<K>>,
}

impl<K: Resource<DynamicType = ()> + 'static> Context<K> {
    /// A controller that writes as `manager`.
    pub(crate) fn new(client: Client, manager: &'static str, config: Arc<Config>, seams: Seams) -> Self {
        Self {
            applier: Applier::new(client.clone(), manager),
            client,
            manager,
            config,
            backoff: Backoff::new(seams.random.clone()),
            seams,
        }
    }

    /// What follows a pass: a wait for a change, or another try after a while that grows with each failure.
    pub(crate) fn after(&self, resource: &K, outcome: Result<(), Failure>) -> Action {
        let key = ObjectRef::from_obj(resource);
        let kind = K::kind(&());
        let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
        match outcome {
            Ok(()) => {
                self.backoff.reset(&key);
                debug!(%kind, namespace, name, "reconciled");
            }
            Err(failure) if failure.blame() == Blame::User => {
                self.backoff.reset(&key);
                debug!(%kind, namespace, name, %failure, "waiting for a change");
            }
            Err(failure) => {
                let wait = self.backoff.failed(key);
                match failure.blame() {
                    Blame::Passing => debug!(%kind, namespace, name, %failure, ?wait, "trying again"),
                    _ => warn!(%kind, namespace, name, %failure, ?wait, "trying again"),
                }
                return Action::requeue(wait);
            }
        }
        Action::requeue(self.seams.random.jitter(RESYNC))
    }

    /// Writes the status of `resource` where it is another.
    pub(crate) async fn write_status<S: Serialize>(&self, resource: &K, status: &S) -> Result<(), Failure>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize,
    {
        apply_status(&self.client, self.manager, resource, status)
            .await
            .map_err(Failure::api("failed to write the status"))
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, resource: &K) {
        self.backoff.reset(&ObjectRef::from_obj(resource));
    }
}
