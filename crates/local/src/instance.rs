//! One running instance: the embedded API, the node and the controllers over one data folder, from start
//! to the end of the last process.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kaos_apiserver::{ApiServer, OpenError, Options as ApiOptions, Storage, front};
use kaos_gateway::guard::Access;
use kaos_node::{Launcher, Node, NodeError, NodeOptions, ServiceTable};
use kaos_seams::Seams;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use tokio::{
    net::TcpListener,
    task::{JoinError, JoinHandle},
};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::NodeBackend,
    data_dir::{DataDir, DataDirError, Record},
    defaults::{CONTROL_NAMESPACE, controllers_config, image_mappings},
    format,
    gateway::{self, GatewayOptions},
    identity::Identity,
};

/// The field manager of what an instance brings itself: the kinds and the control namespace.
pub(crate) const FIELD_MANAGER: &str = "kaos-local";

/// What an instance begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the objects that the data folder holds.
    Resume,
    /// With none: they are removed, whatever they were.
    Fresh,
}

/// How to start an instance.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; made where it does not exist.
    pub data_dir: PathBuf,
    /// Whether the objects of earlier times are there.
    pub begin: Begin,
    /// The port of the API. `None`: the one of the last instance on this folder while it is free, else any.
    pub api_port: Option<u16>,
    /// The one address of everything that has a route.
    pub gateway: GatewayOptions,
    /// This program: what runs in the pods of its images.
    pub program: PathBuf,
    /// The hidden subcommand of this program that becomes a container's process.
    pub launch: Vec<String>,
    /// The log level of the pods, as an operator gives it.
    pub log_level: String,
    /// Clock and randomness.
    pub seams: Seams,
}

/// Why an instance does not start. Nothing it started is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(OpenError),
    /// The store is not what this program wrote. What was found, with the file.
    #[error(
        "{0}; save what can be read with `kaos export > saved.yaml`, then begin anew with `kaos up --fresh saved.yaml`"
    )]
    DamagedStore(String),
    /// The port that was asked for is taken.
    #[error(
        "port {port} on 127.0.0.1 cannot be used: {source}; choose another one with --port, or leave it out"
    )]
    Port {
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The gateway has no port.
    #[error(
        "port {port} on 127.0.0.1 cannot be used for the gateway: {source}; choose another one with --gateway-port, or \
         leave it out"
    )]
    GatewayPort {
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The node cannot start.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The kinds cannot be installed into the embedded API.
    #[error("failed to set up the API: {0}")]
    SetUp(#[from] kube::Error),
}

/// A part of an instance that ended with an error.
#[derive(Debug, thiserror::Error)]
#[error("{part} failed: {reason}")]
pub struct StopError {
    part: &'static str,
    reason: String,
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Damaged { ref source, .. } => Self::DamagedStore(format!("{error}: {source}")),
            OpenError::InUse { .. } | OpenError::NewerFormat { .. } | OpenError::Storage { .. } => {
                Self::Store(error)
            }
        }
    }
}

type Part = (&'static str, JoinHandle<Result<(), String>>);

/// A running instance. Stop it with [`Instance::stop`]: dropping it leaves the node no time to end its
/// processes (they end with this process all the same).
pub struct Instance {
    data: DataDir,
    server: ApiServer,
    client: Client,
    api: SocketAddr,
    gateway: SocketAddr,
    started: Timestamp,
    services: Arc<ServiceTable>,
    parts: Vec<Part>,
    stop_controllers: CancellationToken,
    stop_node: CancellationToken,
    stop_front: CancellationToken,
    stop_gateway: CancellationToken,
    failed: CancellationToken,
}

impl Instance {
    /// Starts everything and returns once the API answers and serves the kinds.
    ///
    /// # Errors
    /// When the folder, the store, the port or the node cannot be used.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let Options {
            data_dir,
            begin,
            api_port,
            gateway,
            program,
            launch,
            log_level,
            seams,
        } = options;
        let data = DataDir::lock(&data_dir)?;
        format::migrate(&data)?;
        if begin == Begin::Fresh {
            data.clear()?;
        }
        let started = seams.clock.now();
        let last = data.last_record();
        let gateway_port = last.as_ref().and_then(|record| record.gateway_port);
        // From here on it is this process that `kaos down` means, and not the one before.
        data.write_record(&Record {
            pid: std::process::id(),
            api_port: last.as_ref().map_or(0, |record| record.api_port),
            gateway_port,
        })?;
        let listener = listen(api_port, last).await?;
        let api = listener
            .local_addr()
            .map_err(|source| StartError::Port { port: 0, source })?;
        let gateway_listening = gateway::listen(gateway.port, gateway_port).await?;
        let identity = Identity::of(&data, &seams)?;
        let server = ApiServer::open(ApiOptions {
            storage: Storage::Disk(data.store()),
            seams: seams.clone(),
            faults: None,
        })
        .await?;
        let client = Client::new(server.clone(), "default");
        tokio::try_join!(set_up(&client), gateway::install_kinds(&client))?;
        gateway::set_up(&client, gateway_listening.address.port()).await?;

        let node = Arc::new(
            Node::start(NodeOptions {
                client: client.clone(),
                data_dir: data.node(),
                images: image_mappings(&program),
                launcher: Launcher {
                    program,
                    args: launch,
                },
                seams: seams.clone(),
                node_name: "local".to_owned(),
            })
            .await?,
        );
        server.set_backend(Arc::new(NodeBackend {
            node: node.clone(),
            clock: seams.clock.clone(),
        }));

        let mut instance = Self {
            data,
            server: server.clone(),
            client: client.clone(),
            api,
            gateway: gateway_listening.address,
            started,
            services: node.services(),
            parts: Vec::new(),
            stop_controllers: CancellationToken::new(),
            stop_node: CancellationToken::new(),
            stop_front: CancellationToken::new(),
            stop_gateway: CancellationToken::new(),
            failed: CancellationToken::new(),
        };
        let front_options = front::FrontOptions {
            token: identity.token.clone(),
            tls: identity.tls(),
        };
        let stop = instance.stop_front.clone();
        instance.part("the API's HTTPS front", async move {
            front::serve(server, listener, front_options, stop.cancelled_owned()).await
        });
        let (stop, runner) = (instance.stop_node.clone(), node.clone());
        instance.part("the node", async move { runner.run(stop).await });
        let stop = instance.stop_controllers.clone();
        let seams = seams.with_dialer(node.services());
        let (for_controllers, for_gateway) = (client.clone(), seams.clone());
        instance.part("the controllers", async move {
            kaos_controllers::run(for_controllers, controllers_config(&log_level), seams, stop).await
        });
        let stop = instance.stop_gateway.clone();
        let gateway_options = kaos_gateway::Options {
            listeners: gateway_listening.listeners,
            access: Access {
                hosts: Vec::new(),
                origins: gateway.allow_origins,
            },
            grace: gateway::GRACE,
            seams: for_gateway,
        };
        instance.part("the gateway", async move {
            kaos_gateway::run(client, gateway_options, stop).await
        });

        let url = format!("https://{api}");
        let kubeconfig = front::kubeconfig(&url, &identity.token, &identity.certificate_pem);
        instance.data.write_private("kubeconfig", kubeconfig.as_bytes())?;
        instance.data.write_record(&Record {
            pid: std::process::id(),
            api_port: api.port(),
            gateway_port: Some(gateway_listening.kept),
        })?;
        Ok(instance)
    }

    fn part<E: std::fmt::Display>(
        &mut self,
        name: &'static str,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let failed = self.failed.clone();
        let task = tokio::spawn(async move {
            // A part that ends, for whatever reason, ends the instance: none of them works without the others.
            let _guard = failed.drop_guard();
            work.await.map_err(|error| error.to_string())
        });
        self.parts.push((name, task));
    }

    /// A client of the embedded API, without a socket between.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The data folder.
    pub fn data(&self) -> &DataDir {
        &self.data
    }

    /// Where the API listens.
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// Where the gateway listens: the one address of everything that has a route.
    pub fn gateway(&self) -> SocketAddr {
        self.gateway
    }

    /// Where a Service is reached on this machine.
    pub fn service(&self, namespace: &str, name: &str, port: u16) -> Option<SocketAddr> {
        self.services.address(namespace, name, port)
    }

    /// When the instance was started.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Ends when a part of the instance has ended by itself, which none should.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Stops the gateway, then the controllers, then the pods, then the API, and waits for each. Stored objects stay.
    ///
    /// # Errors
    /// When a part had failed, before or while stopping.
    pub async fn stop(self) -> Result<(), StopError> {
        let Self {
            data,
            server,
            parts,
            stop_controllers,
            stop_node,
            stop_front,
            stop_gateway,
            ..
        } = self;
        let mut result = Ok(());
        // Parts were started in the order front, node, controllers, gateway; they stop in the opposite one, so
        // that each can still write its last words, and answers under way still have their pods.
        let tokens = [&stop_front, &stop_node, &stop_controllers, &stop_gateway];
        for ((part, task), token) in parts.into_iter().zip(tokens).rev() {
            token.cancel();
            let reason = match task.await {
                Ok(Ok(())) => continue,
                Ok(Err(reason)) => reason,
                Err(error) => error.to_string(),
            };
            result = Err(StopError { part, reason });
        }
        server.shutdown().await;
        drop(data);
        result
    }
}

/// The port that was asked for, or the last one while it is free, or any.
async fn listen(asked: Option<u16>, last: Option<Record>) -> Result<TcpListener, StartError> {
    let bind = |port: u16| async move {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|source| StartError::Port { port, source })
    };
    if let Some(port) = asked {
        return bind(port).await;
    }
    if let Some(record) = last
        && let Ok(listener) = bind(record.api_port).await
    {
        return Ok(listener);
    }
    bind(0).await
}

/// The kinds and the control namespace, as an installation brings them to a cluster.
pub(crate) async fn set_up(client: &Client) -> Result<(), kube::Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(CONTROL_NAMESPACE.to_owned());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Patch::Apply(namespace);
    let namespace = namespaces.patch(CONTROL_NAMESPACE, &params, &namespace);
    let kinds = install_all(kaos_api::crds, |definition| {
        let client = client.clone();
        async move { install(&client, &definition).await }
    });
    tokio::try_join!(kinds, namespace)?;
    Ok(())
}

/// Reads definitions and installs them. They are large, so that this is most of the work of a first start: none of
/// it waits for another.
pub(crate) async fn install_all<W>(
    definitions: fn() -> Vec<CustomResourceDefinition>,
    install: impl Fn(CustomResourceDefinition) -> W,
) -> Result<(), kube::Error>
where
    W: Future<Output = Result<(), kube::Error>> + Send + 'static,
{
    let failed = |error: JoinError| kube::Error::Service(error.into());
    let definitions = tokio::task::spawn_blocking(definitions).await.map_err(failed)?;
    let installs: Vec<_> = definitions
        .into_iter()
        .map(|definition| tokio::spawn(install(definition)))
        .collect();
    for installed in installs {
        installed.await.map_err(failed)??;
    }
    Ok(())
}

/// Makes a kind served.
pub(crate) async fn install(
    client: &Client,
    definition: &CustomResourceDefinition,
) -> Result<(), kube::Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    // The answer is not read, and whole it is as large as the definition.
    definitions
        .patch_metadata(&name, &params, &Patch::Apply(definition))
        .await?;
    Ok(())
}
