//! The node put together: what starts, in which order it stops, and the questions it answers.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service},
    discovery::v1::EndpointSlice,
};
use kaos_seams::Seams;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    AccessError,
    claims::Claims,
    events::{Recorder, Type, reference},
    files::create_private_dir,
    image::ImageMapping,
    kubelet::{self, Context, Kubelet},
    launcher::Launcher,
    ports::{self, PortMap},
    processes::{
        Spawner,
        logs::{LogOptions, LogStream, Logs},
        reap,
    },
    scheduler,
    services::{self, Endpoints, Moved, ServiceTable, TableError, write_slices},
    watch::{Cache, Change, follow},
    workloads,
};

/// How long to wait before something that the API refused is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What a node is started with.
#[derive(Clone)]
pub struct NodeOptions {
    /// The API whose pods it runs.
    pub client: Client,
    /// A folder of its own, made where it does not exist. Two nodes must not share one.
    pub data_dir: PathBuf,
    /// The images it can run.
    pub images: Vec<ImageMapping>,
    /// What becomes the containers' programs.
    pub launcher: Launcher,
    /// Clock and randomness.
    pub seams: Seams,
    /// The name of its Node object.
    pub node_name: String,
}

/// Why a node does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its folder cannot be used.
    #[error("cannot use {path} for the node: {source}")]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What an earlier run left behind cannot be ended.
    #[error("cannot end the processes of an earlier run, recorded in {path}: {source}")]
    Reap {
        /// The records.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The addresses of Services cannot be opened.
    #[error(transparent)]
    Services(#[from] TableError),
    /// The API does not answer as it must.
    #[error("the node cannot use the API: {0}")]
    Api(#[from] kube::Error),
}

/// A node. Its services have their addresses as soon as it exists; its pods run while [`Node::run`] does.
/// Cheap to clone.
#[derive(Clone)]
pub struct Node {
    context: Arc<Context>,
    services: Arc<ServiceTable>,
    pods: Arc<Cache<Pod>>,
}

impl Node {
    /// Ends what an earlier run left behind, opens the addresses of Services and registers the node.
    ///
    /// # Errors
    /// When the folder, the records, the addresses or the API cannot be used.
    pub async fn start(options: NodeOptions) -> Result<Self, NodeError> {
        let NodeOptions {
            client,
            data_dir,
            images,
            launcher,
            seams,
            node_name,
        } = options;
        let dir = |name: &str| data_dir.join(name);
        create_private_dir(&data_dir).map_err(|source| NodeError::DataDir {
            path: data_dir.clone(),
            source,
        })?;
        let records = dir("run");
        let reaped = {
            let records = records.clone();
            tokio::task::spawn_blocking(move || reap(&records))
                .await
                .map_err(io::Error::other)
                .flatten()
        };
        match reaped {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "ended processes that an earlier run left behind"),
            Err(source) => {
                return Err(NodeError::Reap {
                    path: records,
                    source,
                });
            }
        }

        let (services, moved) = ServiceTable::open(dir("services.json"))?;
        for moved in &moved {
            tracing::warn!(
                service = %moved.service,
                "127.0.0.1:{} is used by another program; the Service is now at 127.0.0.1:{}",
                moved.from,
                moved.to
            );
        }
        scheduler::register(&client, &node_name, &seams).await?;
        let left = pods_of(&client, &node_name).await?;
        forget_readiness(&client, &left).await?;
        let uids: HashSet<String> = left.iter().filter_map(|pod| pod.uid()).collect();
        let usable = |path: PathBuf| move |source| NodeError::DataDir { path, source };
        kubelet::remove_leftovers(&dir("pods"), &uids).map_err(usable(dir("pods")))?;
        let spawner = Spawner::start(launcher, &records, seams.clone()).map_err(usable(records))?;

        let services = Arc::new(services);
        let context = Context {
            events: Recorder::start(client.clone(), &seams, "kubelet", Some(node_name.clone())),
            client,
            seams,
            node_name,
            pods_dir: dir("pods"),
            claims: Claims::new(dir("claims")),
            images,
            spawner,
            logs: Logs::new(dir("logs")),
            ports: Arc::new(PortMap::default()),
            services: services.clone(),
            config_maps: Arc::default(),
            secrets: Arc::default(),
        };
        tell_moved(&context, &moved).await;
        Ok(Self {
            context: Arc::new(context),
            services,
            pods: Arc::default(),
        })
    }

    /// The addresses of Services.
    pub fn services(&self) -> Arc<ServiceTable> {
        self.services.clone()
    }

    /// Runs Deployments, ReplicaSets, Jobs and pods until `stop`; returns when every process has ended.
    ///
    /// # Errors
    /// None so far that do not come from the API at the start: what fails later is tried again.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), NodeError> {
        let context = &self.context;
        let client = context.client.clone();
        // Watches and forwarders outlive the pods: ending them needs both.
        let background = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(workloads::run(
            client.clone(),
            context.seams.clone(),
            stop.clone(),
        ));

        let (changes, mut changed) = mpsc::unbounded_channel::<Change<Pod>>();
        tasks.spawn(follow(
            Api::all(client.clone()),
            self.pods.clone(),
            background.clone(),
            move |change| {
                // The receiver goes only when the node has stopped.
                let _ = changes.send(change);
            },
        ));
        let services: Arc<Cache<Service>> = Arc::default();
        tasks.spawn(follow(
            Api::all(client.clone()),
            services.clone(),
            background.clone(),
            |_| {},
        ));
        let config_maps: Api<ConfigMap> = Api::all(client.clone());
        tasks.spawn(follow(
            config_maps,
            context.config_maps.clone(),
            background.clone(),
            |_| {},
        ));
        let secrets: Api<Secret> = Api::all(client.clone());
        tasks.spawn(follow(
            secrets,
            context.secrets.clone(),
            background.clone(),
            |_| {},
        ));
        let claims: Arc<Cache<PersistentVolumeClaim>> = Arc::default();
        tasks.spawn(follow(
            Api::all(client.clone()),
            claims.clone(),
            background.clone(),
            |_| {},
        ));
        tasks.spawn(context.claims.clone().run(
            client.clone(),
            claims,
            self.pods.clone(),
            context.events.clone(),
            background.clone(),
        ));
        let (slices, told) = watch::channel(Vec::new());
        tasks.spawn(self.clone().keep_endpoints(services, slices, background.clone()));
        tasks.spawn(self.clone().publish_slices(told, background.clone()));

        let mut kubelet = Kubelet::new(context.clone(), stop.clone());
        let scheduler = Recorder::start(client.clone(), &context.seams, "default-scheduler", None);
        let mut unbound: VecDeque<Arc<Pod>> = VecDeque::new();
        loop {
            let retry = async {
                match unbound.is_empty() {
                    true => std::future::pending().await,
                    false => sleep(RETRY).await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                Some(Change { old, new }) = changed.recv() => {
                    unbound.extend(new.clone().filter(|pod| scheduler::is_unscheduled(pod)));
                    kubelet.changed(old, new);
                }
                () = retry => {}
            }
            for pod in std::mem::take(&mut unbound) {
                if let Err(error) = scheduler::bind(&client, &pod, &context.node_name, &scheduler).await {
                    tracing::warn!(pod = %pod.name_any(), %error, "a pod cannot be bound; trying again");
                    unbound.push_back(pod);
                }
            }
        }
        // Changes of pods go on being told while they end: a second delete may shorten a grace period.
        let finished = kubelet.finished();
        tokio::pin!(finished);
        loop {
            tokio::select! {
                () = &mut finished => break,
                Some(_) = changed.recv() => {}
            }
        }
        // Programs of probes and hooks end after the containers that they looked at.
        context.spawner.finished().await;
        background.cancel();
        self.services.close().await;
        tasks.close();
        tasks.wait().await;
        Ok(())
    }

    /// Keeps what is behind the Services' addresses true, and tells the slices that say so. Nothing is waited
    /// for here: who hears that a pod is ready finds it behind its Service.
    async fn keep_endpoints(
        self,
        services: Arc<Cache<Service>>,
        slices: watch::Sender<Vec<EndpointSlice>>,
        stop: CancellationToken,
    ) {
        let mut service_changes = services.changes();
        let mut pod_changes = self.pods.changes();
        let mut port_changes = self.context.ports.changes();
        let mut told: HashMap<String, String> = HashMap::new();
        loop {
            let all = services.all();
            self.tell_unsupported(&all, &mut told);
            let (endpoints, desired) = Endpoints::compute(&all, &self.pods.all(), &self.context.ports);
            self.services.set_endpoints(endpoints);
            slices.send_if_modified(|before| {
                let changed = *before != desired;
                *before = desired;
                changed
            });
            tokio::select! {
                () = stop.cancelled() => return,
                _ = service_changes.changed() => {}
                _ = pod_changes.changed() => {}
                _ = port_changes.changed() => {}
            }
        }
    }

    /// Keeps the EndpointSlices of the API what was told last.
    async fn publish_slices(self, mut slices: watch::Receiver<Vec<EndpointSlice>>, stop: CancellationToken) {
        let mut failed = false;
        loop {
            let retry = async {
                match failed {
                    true => sleep(RETRY).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = slices.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = retry => {}
            }
            let desired = slices.borrow_and_update().clone();
            let written = write_slices(&self.context.client, &desired).await;
            failed = written.is_err();
            if let Err(error) = written {
                tracing::warn!(%error, "EndpointSlices cannot be written; trying again");
            }
        }
    }

    /// Tells what of the Services takes no effect, each once; `told` is what was told, by the Service's uid.
    fn tell_unsupported(&self, all: &[Arc<Service>], told: &mut HashMap<String, String>) {
        let warnings: HashMap<String, String> = all
            .iter()
            .filter_map(|service| {
                let (uid, message) = (service.uid()?, services::supported::warning(service)?);
                if told.get(&uid) != Some(&message) {
                    let (events, object) = (&self.context.events, reference(&**service));
                    events.report(object, Type::Warning, "Unsupported", message.clone());
                }
                Some((uid, message))
            })
            .collect();
        *told = warnings;
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Pod, AccessError> {
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        match api.get_opt(name).await {
            Ok(Some(pod)) => Ok(pod),
            Ok(None) => Err(AccessError::NotFound(format!("pods {name:?} not found"))),
            Err(error) => Err(AccessError::Unavailable(error.to_string())),
        }
    }

    /// The log of a pod's container.
    ///
    /// # Errors
    /// When there is no such pod, container or earlier run, or the container must be named and is not.
    pub async fn logs(
        &self,
        namespace: &str,
        pod: &str,
        options: LogOptions,
    ) -> Result<LogStream, AccessError> {
        let object = self.pod(namespace, pod).await?;
        let spec = object.spec.clone().unwrap_or_default();
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let names: Vec<&str> = all.map(|container| container.name.as_str()).collect();
        let container = match (&options.container, spec.containers.as_slice()) {
            (Some(name), _) if names.contains(&name.as_str()) => name.clone(),
            (Some(name), _) => {
                let message = format!("container {name} is not valid for pod {pod}");
                return Err(AccessError::BadRequest(message));
            }
            (None, [only]) => only.name.clone(),
            (None, _) => {
                let message = format!(
                    "a container name must be specified for pod {pod}, choose one of: [{}]",
                    names.join(" ")
                );
                return Err(AccessError::BadRequest(message));
            }
        };
        let run = kubelet::previous_run(&object, &container);
        if options.previous && run.is_none() {
            let message = format!("previous terminated container {container:?} in pod {pod:?} not found");
            return Err(AccessError::BadRequest(message));
        }
        let run = run.filter(|_| options.previous);
        let uid = object.uid().unwrap_or_default();
        self.context
            .logs
            .read((namespace, pod, &uid), &container, run, options)
    }

    /// Where a Service is reached: by the name or number of one of its ports, or by its only one.
    ///
    /// # Errors
    /// When there is no such Service or port.
    pub async fn service_address(
        &self,
        namespace: &str,
        service: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, AccessError> {
        self.services
            .named_address(namespace, service, port)
            .ok_or_else(|| {
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                AccessError::NotFound(format!("no such Service or port: {namespace}/{service}{port}"))
            })
    }

    /// Where a pod's container port is reached: by its name or number, or the first one.
    ///
    /// # Errors
    /// When there is no such pod or port, or the pod does not run.
    pub async fn pod_address(
        &self,
        namespace: &str,
        pod: &str,
        port: Option<&str>,
    ) -> Result<SocketAddr, AccessError> {
        let object = self.pod(namespace, pod).await?;
        let mut declared = object.spec.iter().flat_map(ports::declared);
        let number = match port {
            None => declared.next().map(|port| port.container_port),
            Some(wanted) => declared
                .find(|port| port.name.as_deref() == Some(wanted))
                .map(|port| port.container_port)
                .or_else(|| wanted.parse().ok()),
        };
        let number = number
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| {
                AccessError::BadRequest(format!("pod {pod} has no port {}", port.unwrap_or("at all")))
            })?;
        let ports = self.context.ports.of(&object.uid().unwrap_or_default());
        if ports.is_empty() {
            return Err(AccessError::Unavailable(format!("pod {pod} does not run")));
        }
        Ok(ports::address(&ports, number))
    }
}

async fn pods_of(client: &Client, node_name: &str) -> Result<Vec<Pod>, kube::Error> {
    let api: Api<Pod> = Api::all(client.clone());
    let mut pods = api.list(&ListParams::default()).await?.items;
    pods.retain(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node_name));
    Ok(pods)
}

/// Takes back what an earlier run said of its pods: none of them is ready before it runs again.
async fn forget_readiness(client: &Client, pods: &[Pod]) -> Result<(), kube::Error> {
    for pod in pods.iter().filter(|pod| kubelet::is_ready(pod)) {
        let mut pod = pod.clone();
        let status = pod.status.get_or_insert_default();
        for condition in status.conditions.iter_mut().flatten() {
            if matches!(condition.type_.as_str(), "Ready" | "ContainersReady") {
                condition.status = "False".to_owned();
                condition.reason = Some("NodeNotReady".to_owned());
            }
        }
        for container in status.container_statuses.iter_mut().flatten() {
            container.ready = false;
        }
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        api.replace_status(&pod.name_any(), &PostParams::default(), &pod)
            .await?;
    }
    Ok(())
}

/// Tells on each Service that its address is another one now. Best effort: the log has it as well.
async fn tell_moved(context: &Context, moved: &[Moved]) {
    for Moved { service, from, to } in moved {
        let api: Api<Service> = Api::namespaced(context.client.clone(), &service.namespace);
        if let Ok(Some(object)) = api.get_opt(&service.service).await {
            let message = format!(
                "127.0.0.1:{from} is used by another program; port {} is now at 127.0.0.1:{to}",
                service.port
            );
            let object = reference(&object);
            context
                .events
                .report(object, Type::Warning, "AddressMoved", message);
        }
    }
}
