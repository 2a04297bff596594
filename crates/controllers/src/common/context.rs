//! What every controller has in hand, and what follows a pass over a resource.

use std::{sync::Arc, time::Duration};

use kaos_kube_ext::{Applier, Backoff};
use kaos_seams::Seams;
use kube::{
    Client, Resource, ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};
use tracing::{debug, warn};

use super::failure::{Blame, Failure};
use crate::config::Config;

/// How long after a pass an object is looked at again though nothing has changed: a safety net for events
/// that were never sent. Jittered.
const RESYNC: Duration = Duration::from_secs(600);

/// How long at most until a name is looked at again that somebody else's object has: its removal is not watched.
const NAME_TAKEN: Duration = Duration::from_secs(30);

/// The field manager of the operator of KAOS in Go, which wrote by plain updates.
const PREDECESSORS: &[&str] = &["manager"];

/// What the passes of one controller share.
pub(crate) struct Context<K: Resource<DynamicType = ()> + 'static> {
    pub(crate) client: Client,
    pub(crate) applier: Applier,
    /// The name that it writes under.
    pub(crate) manager: &'static str,
    pub(crate) config: Arc<Config>,
    pub(crate) seams: Seams,
    backoff: Backoff<ObjectRef<K>>,
}

impl<K: Resource<DynamicType = ()> + 'static> Context<K> {
    /// A controller that writes as `manager`.
    pub(crate) fn new(client: Client, manager: &'static str, config: Arc<Config>, seams: Seams) -> Self {
        Self {
            applier: Applier::new(client.clone(), manager).succeeding(PREDECESSORS),
            manager,
            client,
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
                let mut wait = self.backoff.failed(key);
                if failure.is_name_taken() {
                    wait = wait.min(self.seams.random.jitter(NAME_TAKEN));
                }
                match failure.blame() {
                    Blame::Passing => debug!(%kind, namespace, name, %failure, ?wait, "trying again"),
                    _ => warn!(%kind, namespace, name, %failure, ?wait, "trying again"),
                }
                return Action::requeue(wait);
            }
        }
        Action::requeue(self.seams.random.jitter(RESYNC))
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, resource: &K) {
        self.backoff.reset(&ObjectRef::from_obj(resource));
    }
}
