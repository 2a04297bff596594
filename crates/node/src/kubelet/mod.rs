//! Runs the pods that are bound to this node: one task per pod, from its first container to the end of its
//! last process.
//!
//! Owns pods' processes, volumes, probes, restarts and status. It never creates pods and never decides
//! where they run.

mod action;
mod backoff;
mod container;
mod env;
mod phase;
mod pod;
mod probe;
mod resources;
mod role;
mod siblings;
mod sources;
mod state;
mod status;
mod supported;
mod volumes;

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::PathBuf,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kaos_seams::Seams;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use role::Role;
pub(crate) use status::previous_run;

use crate::{
    claims::Claims,
    events::Recorder,
    image::ImageMapping,
    ports::PortMap,
    processes::{Spawner, logs::Logs},
    services::ServiceTable,
    watch::Cache,
};

/// The address of every pod: they share this machine's loopback.
pub(crate) const POD_IP: &str = "127.0.0.1";
/// The address of the node.
pub(crate) const HOST_IP: &str = "127.0.0.1";

/// Whether a pod's status says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True")
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind)
        .map(|condition| condition.status.as_str())
}

/// What every pod of this node is run with.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) seams: Seams,
    pub(crate) node_name: String,
    /// One folder per pod, by its uid.
    pub(crate) pods_dir: PathBuf,
    pub(crate) claims: Claims,
    pub(crate) images: Vec<ImageMapping>,
    pub(crate) spawner: Spawner,
    pub(crate) logs: Logs,
    pub(crate) ports: Arc<PortMap>,
    pub(crate) services: Arc<ServiceTable>,
    pub(crate) events: Recorder,
    pub(crate) config_maps: Arc<Cache<ConfigMap>>,
    pub(crate) secrets: Arc<Cache<Secret>>,
}

/// What a pod's task is told.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) pod: Arc<Pod>,
    /// The object is gone from the API: its processes must end too.
    pub(crate) gone: bool,
}

/// Keeps one task for each pod of this node.
pub(crate) struct Kubelet {
    context: Arc<Context>,
    tasks: TaskTracker,
    workers: HashMap<String, watch::Sender<Assignment>>,
    stop: CancellationToken,
}

impl Kubelet {
    /// `stop` ends every pod's processes, with their status written.
    pub(crate) fn new(context: Arc<Context>, stop: CancellationToken) -> Self {
        Self {
            context,
            tasks: TaskTracker::new(),
            workers: HashMap::new(),
            stop,
        }
    }

    /// Takes in a change of a pod.
    pub(crate) fn changed(&mut self, old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) {
        self.workers.retain(|_, worker| !worker.is_closed());
        // A pod of the same name with another uid is another pod: the old one is gone.
        if let Some(old) = old
            && new.as_ref().is_none_or(|new| new.uid() != old.uid())
            && let Some(worker) = self.workers.get(&old.uid().unwrap_or_default())
        {
            worker.send_replace(Assignment { pod: old, gone: true });
        }
        let Some(pod) = new else { return };
        let ours =
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&self.context.node_name);
        let Some(uid) = pod.uid().filter(|_| ours && !self.stop.is_cancelled()) else {
            return;
        };
        let assignment = Assignment { pod, gone: false };
        if let Some(worker) = self.workers.get(&uid) {
            worker.send_replace(assignment);
            return;
        }
        let (sender, receiver) = watch::channel(assignment);
        self.workers.insert(uid, sender);
        self.tasks
            .spawn(pod::run(self.context.clone(), receiver, self.stop.clone()));
    }

    /// Waits until every pod's processes have ended, after `stop`.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Removes the folders of pods that are gone, by the uids of those that are there.
pub(crate) fn remove_leftovers(pods_dir: &std::path::Path, uids: &HashSet<String>) -> io::Result<()> {
    crate::files::create_private_dir(pods_dir)?;
    for entry in fs::read_dir(pods_dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(|name| !uids.contains(name)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
