//! What is tested: controllers, and the cluster that they expect.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kaos_seams::Seams;
use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Cluster, World};

/// Starts the controllers. The future runs until the token is cancelled; it is dropped where they crash.
pub type Start = Arc<dyn Fn(Client, Seams, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>;

/// Starts what else acts in the cluster, such as whatever makes pods. Dropped at the end of a case.
pub type Surroundings = Arc<dyn Fn(Cluster, Seams) -> BoxFuture<'static, ()> + Send + Sync>;

/// Whether an object may say that it is ready in this world; otherwise, why not. An object that does not say
/// so is always right.
pub type ReadyRule = Arc<dyn Fn(&Value, &World) -> Result<(), String> + Send + Sync>;

/// Controllers under test.
#[derive(Clone)]
pub struct Subject {
    /// Its name in the report.
    pub name: String,
    /// The namespace of every object of a scenario that names none.
    pub namespace: String,
    /// CustomResourceDefinitions. They are installed, unless a scenario says otherwise.
    pub definitions: Vec<Value>,
    /// Objects that every scenario finds.
    pub fixed: Vec<Value>,
    /// The kinds that users write: the controllers make everything else, and of these only the status.
    pub primaries: Vec<String>,
    /// Starts the controllers.
    pub start: Start,
    /// The rest of the cluster.
    pub surroundings: Surroundings,
    /// When an object of the primary kinds may be ready.
    pub ready: ReadyRule,
    /// What is too much and too late.
    pub limits: Limits,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is too much and too late. Durations are simulated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A world is settled when nothing has been written for so long: longer than any backoff.
    pub quiet: Duration,
    /// A run that has not settled by then never does.
    pub patience: Duration,
    /// How long the controllers may take to put right what went wrong. Shorter than any periodic resync: what
    /// only that puts right was missed.
    pub healed_within: Duration,
    /// How long a status may lag behind the world.
    pub grace: Duration,
    /// How long is watched at the end that nothing is written any more, beyond `quiet`. Three times as long
    /// where nothing was disturbed.
    pub vigil: Duration,
    /// How many more writes than undisturbed one fault may cause.
    pub more_writes: usize,
    /// How many more requests of any sort, for each request of the undisturbed run.
    pub more_requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self {
            quiet: minutes(6),
            patience: minutes(180),
            healed_within: minutes(3),
            grace: Duration::from_secs(5),
            vigil: minutes(10),
            more_writes: 8,
            more_requests: 20,
        }
    }
}
