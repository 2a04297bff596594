//! The three controllers, put together and run.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt, future};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kaos_api::{
    names::{self, Kind},
    v1alpha1::{Agent, MCPServer, ModelAPI},
};
use kaos_kube_ext::watched;
use kaos_seams::Seams;
use kube::{
    Client, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{
        Controller, controller,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::{
    agent::{self, Agents, resolve},
    common::{children::Children, context::Context},
    config::Config,
    mcp_server::{self, McpServers, tools::Tools},
    model_api::{self, ModelApis},
};

/// How many resources of a kind are worked on at a time.
const CONCURRENCY: u16 = 16;
/// Events that come this close together lead to one pass.
const DEBOUNCE: Duration = Duration::from_millis(5);

/// Why the controllers could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kind is not installed, or may not be listed.
    #[error(
        "cannot list {kind}: {source}; are the CustomResourceDefinitions installed, and may this user list them?"
    )]
    NotListed {
        /// The kind.
        kind: String,
        /// The API server's answer.
        source: kube::Error,
    },
}

/// Runs the controllers of all kinds in all namespaces until `shutdown`, and then until the passes that are
/// under way have ended.
///
/// # Errors
/// When a kind cannot be listed at the start. Later errors are retried.
pub async fn run(
    client: Client,
    config: Config,
    seams: Seams,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let installed = async {
        listed::<ModelAPI>(&client).await?;
        listed::<MCPServer>(&client).await?;
        listed::<Agent>(&client).await
    };
    tokio::select! {
        installed = installed => installed?,
        () = shutdown.cancelled() => return Ok(()),
    }
    let config = Arc::new(config);
    info!("controllers started");
    future::join3(
        model_apis(client.clone(), config.clone(), seams.clone(), shutdown.clone()),
        mcp_servers(client.clone(), config.clone(), seams.clone(), shutdown.clone()),
        agents(client, config, seams, shutdown),
    )
    .await;
    info!("controllers stopped");
    Ok(())
}

/// Fails where the kind cannot be listed: its watch would only be tried again and again.
async fn listed<K>(client: &Client) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let one = kube::api::ListParams::default().limit(1);
    let api = kube::Api::<K>::all(client.clone());
    let answer = api.list_metadata(&one).await;
    answer.map(drop).map_err(|source| Error::NotListed {
        kind: K::kind(&()).into_owned(),
        source,
    })
}

/// Everything that this project made for resources of `kind`.
fn made_for(kind: Kind) -> watcher::Config {
    let (ours, app) = (names::MANAGED_BY_LABEL, kind.label());
    watcher::Config::default().labels(&format!("{ours}={},app={app}", names::MANAGER))
}

fn controller_config() -> controller::Config {
    controller::Config::default()
        .concurrency(CONCURRENCY)
        .debounce(DEBOUNCE)
}

/// Tells `gone` of objects that the store no longer has.
fn tell_gone<K>(
    store: Store<K>,
    objects: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    gone: impl Fn(&K) + Send + 'static,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    objects.inspect_ok(move |object| {
        if store.get(&ObjectRef::from_obj(object)).is_none() {
            gone(object);
        }
    })
}

async fn model_apis(client: Client, config: Arc<Config>, seams: Seams, shutdown: CancellationToken) {
    let children_of = made_for(Kind::ModelApi);
    let (store, objects) = watched::<ModelAPI>(client.clone(), watcher::Config::default());
    let (deployments, deployment_events) = watched::<Deployment>(client.clone(), children_of.clone());
    let (services, service_events) = watched::<Service>(client.clone(), children_of.clone());
    let (_, config_map_events) = watched::<ConfigMap>(client.clone(), children_of);
    let context = Arc::new(ModelApis {
        shared: Context::new(client, model_api::MANAGER, config, seams),
        children: Children {
            deployments,
            services,
        },
    });
    let forget = context.clone();
    let objects = tell_gone(store.clone(), objects, move |gone| forget.shared.forget(gone));
    let passes = Controller::for_stream(objects, store.clone())
        .with_config(controller_config())
        .owns_stream(deployment_events)
        .owns_stream(service_events)
        .owns_stream(config_map_events)
        .graceful_shutdown_on(shutdown.clone().cancelled_owned())
        .run(model_api::reconcile, |_, never, _| match *never {}, context);
    drain(passes, &store, &shutdown).await;
}

async fn mcp_servers(client: Client, config: Arc<Config>, seams: Seams, shutdown: CancellationToken) {
    let children_of = made_for(Kind::McpServer);
    let (store, objects) = watched::<MCPServer>(client.clone(), watcher::Config::default());
    let (deployments, deployment_events) = watched::<Deployment>(client.clone(), children_of.clone());
    let (services, service_events) = watched::<Service>(client.clone(), children_of);
    let (tools, news) = Tools::new(seams.clone());
    let context = Arc::new(McpServers {
        shared: Context::new(client, mcp_server::MANAGER, config, seams),
        children: Children {
            deployments,
            services,
        },
        tools,
    });
    let forget = context.clone();
    let objects = tell_gone(store.clone(), objects, move |gone| {
        forget.shared.forget(gone);
        forget.tools.forget(&ObjectRef::from_obj(gone));
    });
    let passes = Controller::for_stream(objects, store.clone())
        .with_config(controller_config())
        .owns_stream(deployment_events)
        .owns_stream(service_events)
        .reconcile_on(news)
        .graceful_shutdown_on(shutdown.clone().cancelled_owned())
        .run(mcp_server::reconcile, |_, never, _| match *never {}, context);
    drain(passes, &store, &shutdown).await;
}

async fn agents(client: Client, config: Arc<Config>, seams: Seams, shutdown: CancellationToken) {
    let children_of = made_for(Kind::Agent);
    let (store, objects) = watched::<Agent>(client.clone(), watcher::Config::default());
    let (deployments, deployment_events) = watched::<Deployment>(client.clone(), children_of.clone());
    let (services, service_events) = watched::<Service>(client.clone(), children_of);
    let (model_apis, model_api_events) = watched::<ModelAPI>(client.clone(), watcher::Config::default());
    let (mcp_servers, mcp_server_events) = watched::<MCPServer>(client.clone(), watcher::Config::default());
    let context = Arc::new(Agents {
        shared: Context::new(client, agent::MANAGER, config, seams),
        children: Children {
            deployments,
            services,
        },
        references: resolve::References {
            model_apis,
            mcp_servers,
        },
    });
    let forget = context.clone();
    let objects = tell_gone(store.clone(), objects, move |gone| forget.shared.forget(gone));
    let (by_model_api, by_mcp_server) = (store.clone(), store.clone());
    let passes = Controller::for_stream(objects, store.clone())
        .with_config(controller_config())
        .owns_stream(deployment_events)
        .owns_stream(service_events)
        .watches_stream(model_api_events, move |model_api: ModelAPI| {
            resolve::users_of_model_api(
                &by_model_api,
                &model_api.namespace().unwrap_or_default(),
                &model_api.name_any(),
            )
        })
        .watches_stream(mcp_server_events, move |server: MCPServer| {
            resolve::users_of_mcp_server(
                &by_mcp_server,
                &server.namespace().unwrap_or_default(),
                &server.name_any(),
            )
        })
        .graceful_shutdown_on(shutdown.clone().cancelled_owned())
        .run(agent::reconcile, |_, never, _| match *never {}, context);
    drain(passes, &store, &shutdown).await;
}

/// Polls a controller to its end. What it reports of passes has been said by the passes themselves.
///
/// A controller begins its passes once its store is complete, and asked to stop before, it waits for that
/// for ever: nothing fills the store any more. No pass has begun then, so it is left as it is.
async fn drain<K, T, E>(
    passes: impl Stream<Item = Result<T, E>> + Send,
    store: &Store<K>,
    shutdown: &CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    E: Debug,
{
    let to_the_end = passes.for_each(|pass| {
        if let Err(error) = pass {
            debug!(?error, "an event led to no pass");
        }
        future::ready(())
    });
    let stopped_before_it_began = async {
        tokio::select! {
            biased;
            Ok(()) = store.wait_until_ready() => future::pending().await,
            () = shutdown.cancelled() => {}
        }
    };
    tokio::select! {
        () = to_the_end => {}
        () = stopped_before_it_began => {}
    }
}
