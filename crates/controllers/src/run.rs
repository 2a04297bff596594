//! The three controllers, put together and run.
//!
//! Each kind is watched once. What comes out of a watch is told to the controllers it concerns, as the names of
//! the resources to look at.

use std::{collections::HashMap, fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use futures::{
    FutureExt, Stream, StreamExt,
    channel::mpsc::{self, UnboundedSender},
    future::{self, BoxFuture},
    stream::{self, FuturesUnordered},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kaos_api::{
    GROUP, names,
    v1alpha1::{Agent, MCPServer, ModelAPI},
};
use kaos_kube_ext::{answer, controller_of, watched, watched_modified, watched_optional};
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
    agent::{
        Agents, Peer,
        resolve::{self, References},
    },
    common::{
        children::{Children, Kept},
        context::Context,
        driver::{self, Driver, Workload},
        leftovers::InOrder,
    },
    config::Config,
    listing::Listing,
    mcp_server::{McpServers, registry::Registry, tools::Tools},
    model_api::ModelApis,
};

/// How many resources of a kind are worked on at a time.
const CONCURRENCY: u16 = 16;
/// Events that come this close together lead to one pass.
const DEBOUNCE: Duration = Duration::from_millis(5);
/// How long the first passes wait to learn whether the API server serves routes.
const ROUTES_KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// Why the controllers could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kind is not installed, or may not be listed.
    #[error(
        "cannot list {kind}: {}; are the CustomResourceDefinitions installed, and may this user list them?",
        answer(source)
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
    run_telling(client, config, seams, Listing::default(), shutdown).await
}

/// As [`run`], with `listing` told what has been listed.
///
/// # Errors
/// As [`run`].
pub async fn run_telling(
    client: Client,
    config: Config,
    seams: Seams,
    listing: Listing,
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
    info!("controllers started");
    let Controllers {
        watches,
        ready,
        passes,
    } = controllers(client, config, seams, listing, &shutdown);
    let work = async {
        tokio::select! {
            () = ready => passes.await,
            () = shutdown.cancelled() => {}
        }
    };
    tokio::select! {
        () = work => {}
        () = watches => {}
    }
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

/// All controllers, as futures that need one another.
struct Controllers {
    /// Reads the watches. Never ends.
    watches: BoxFuture<'static, ()>,
    /// Ends when everything that passes look at has been listed.
    ready: BoxFuture<'static, ()>,
    /// The passes, until they are told to stop.
    passes: BoxFuture<'static, ()>,
}

fn controllers(
    client: Client,
    config: Config,
    seams: Seams,
    listing: Listing,
    shutdown: &CancellationToken,
) -> Controllers {
    let config = Arc::new(config);
    let everything = watcher::Config::default();
    let ours = everything
        .clone()
        .labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGER));
    let (agents, agent_events) = watched_modified(client.clone(), everything.clone(), forget_fields::<Agent>);
    let (model_apis, model_api_events) =
        watched_modified(client.clone(), everything.clone(), forget_fields::<ModelAPI>);
    let (mcp_servers, mcp_server_events) =
        watched_modified(client.clone(), everything, forget_fields::<MCPServer>);
    let (deployments, deployment_events) = watched(client.clone(), ours.clone());
    let (services, service_events) = watched(client.clone(), ours.clone());
    let (config_maps, config_map_events) = watched(client.clone(), ours.clone());
    let (routes, route_events, routes_served) = watched_optional(client.clone(), ours, seams.random.clone());
    let (registry, registry_events) = Registry::watch(client.clone(), config.clone());
    let children = Children {
        deployments: Kept::new(deployments),
        services: Kept::new(services),
        config_maps: Kept::new(config_maps),
        routes: Kept::new(routes),
        routes_served: routes_served.clone(),
        in_order: InOrder::default(),
    };
    let awaited = vec![
        ("agents", listed_in(agents.clone())),
        ("modelapis", listed_in(model_apis.clone())),
        ("mcpservers", listed_in(mcp_servers.clone())),
        ("deployments", listed_in(children.deployments.store().clone())),
        ("services", listed_in(children.services.store().clone())),
        ("configmaps", listed_in(children.config_maps.store().clone())),
        (names::RUNTIMES_CONFIG_MAP, {
            let registry = registry.clone();
            async move { registry.listed().await }.boxed()
        }),
    ];
    let ready = {
        let routes = config
            .gateway
            .is_some()
            .then(|| listed_in(children.routes.store().clone()));
        async move {
            listing.follow(awaited).await;
            if let Some(routes) = routes {
                let _ = tokio::time::timeout(ROUTES_KNOWN_WITHIN, routes).await;
            }
        }
    };

    let (models, pull_news) = ModelApis::new(seams.clone());
    let (tools, tools_news) = Tools::new(seams.clone());
    let references = References {
        model_apis: model_apis.clone(),
        mcp_servers: mcp_servers.clone(),
        agents: agents.clone(),
    };
    let part = Part {
        client,
        config,
        seams,
        children: children.clone(),
        shutdown: shutdown.clone(),
    };
    let model_apis = part.controller(models, model_apis, pull_news);
    let runtimes = registry.clone();
    let mcp_servers = part.controller(McpServers { tools, registry }, mcp_servers, tools_news);
    let agents = part.controller(Agents { references }, agents, stream::pending());

    let owners = Owners {
        agents: agents.queue.clone(),
        model_apis: model_apis.queue.clone(),
        mcp_servers: mcp_servers.queue.clone(),
    };
    let watches = vec![
        model_apis.follow(model_api_events, {
            let (users, queue) = (agents.store.clone(), agents.queue.clone());
            let mut changes = Changes::default();
            move |model_api, is_there| {
                let ready = model_api
                    .status
                    .as_ref()
                    .map(|status| (status.ready, status.observed_generation));
                if changes.is_news(model_api, is_there, ready) {
                    let (namespace, name) = place(model_api);
                    tell(&queue, resolve::users_of_model_api(&users, &namespace, &name));
                }
            }
        }),
        mcp_servers.follow(mcp_server_events, {
            let (users, queue) = (agents.store.clone(), agents.queue.clone());
            let mut changes = Changes::default();
            move |server, is_there| {
                let ready = server
                    .status
                    .as_ref()
                    .map(|status| (status.ready, status.observed_generation));
                if changes.is_news(server, is_there, ready) {
                    let (namespace, name) = place(server);
                    tell(&queue, resolve::users_of_mcp_server(&users, &namespace, &name));
                }
            }
        }),
        agents.follow(agent_events, {
            let (users, queue) = (agents.store.clone(), agents.queue.clone());
            let mut changes = Changes::default();
            move |agent, is_there| {
                if changes.is_news(agent, is_there, Peer::of(Some(agent))) {
                    let (namespace, name) = place(agent);
                    tell(&queue, resolve::users_of_agent(&users, &namespace, &name));
                }
            }
        }),
        {
            let (users, queue) = (mcp_servers.store.clone(), mcp_servers.queue.clone());
            registry_events
                .for_each(move |_| {
                    tell(&queue, runtimes.users_of_changes(&users));
                    future::ready(())
                })
                .boxed()
        },
        owners.follow(children.deployments, deployment_events),
        owners.follow(children.services, service_events),
        owners.follow(children.config_maps, config_map_events),
        owners.follow(children.routes, route_events),
        {
            let (agents, model_apis, mcp_servers) = (agents.all(), model_apis.all(), mcp_servers.all());
            routes_served
                .changes()
                .for_each(move |()| {
                    (agents)();
                    (model_apis)();
                    (mcp_servers)();
                    future::ready(())
                })
                .then(|()| future::pending())
                .boxed()
        },
    ];
    Controllers {
        watches: all(watches),
        ready: ready.boxed(),
        passes: all([model_apis.passes, mcp_servers.passes, agents.passes]),
    }
}

/// Ends when the kind has been listed.
fn listed_in<K>(store: Store<K>) -> BoxFuture<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    // It fails only where a watch has ended, and none does.
    async move { drop(store.wait_until_ready().await) }.boxed()
}

/// Ends when all have ended. What wakes one of them wakes no other: each event of each watch would cost a look at
/// all of them.
fn all(futures: impl IntoIterator<Item = BoxFuture<'static, ()>>) -> BoxFuture<'static, ()> {
    let all: FuturesUnordered<_> = futures.into_iter().collect();
    all.collect().boxed()
}

/// Who owns which field is asked of the live object. It is half of what an object takes in memory.
fn forget_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

fn place<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn tell<K: Resource<DynamicType = ()>>(queue: &UnboundedSender<ObjectRef<K>>, whom: Vec<ObjectRef<K>>) {
    for key in whom {
        // Nobody listens any more when the controller ends.
        let _ = queue.unbounded_send(key);
    }
}

/// Which objects have changed in what others look at.
struct Changes<K: Resource, S> {
    seen: HashMap<ObjectRef<K>, (ObjectState, S)>,
}

/// The identity and generation of an object that stays.
type ObjectState = (Option<String>, Option<i64>);

impl<K: Resource<DynamicType = ()>, S> Default for Changes<K, S> {
    fn default() -> Self {
        Self { seen: HashMap::new() }
    }
}

impl<K: Resource<DynamicType = ()> + Clone, S: PartialEq> Changes<K, S>
where
    ObjectRef<K>: Eq + Hash,
{
    /// Whether `object` is new, gone, of another generation or in another state than when it was last asked about.
    fn is_news(&mut self, object: &K, is_there: bool, state: S) -> bool {
        let key = ObjectRef::from_obj(object);
        let meta = object.meta();
        if !is_there || meta.deletion_timestamp.is_some() {
            return self.seen.remove(&key).is_some();
        }
        let now = ((meta.uid.clone(), meta.generation), state);
        match self.seen.get(&key) {
            Some(before) if *before == now => false,
            _ => {
                self.seen.insert(key, now);
                true
            }
        }
    }
}

/// What every controller is made with.
struct Part {
    client: Client,
    config: Arc<Config>,
    seams: Seams,
    children: Children,
    shutdown: CancellationToken,
}

/// The controller of one kind.
struct Controlled<W: Workload> {
    driver: Arc<Driver<W>>,
    store: Store<W::Resource>,
    /// Resources to look at.
    queue: UnboundedSender<ObjectRef<W::Resource>>,
    passes: BoxFuture<'static, ()>,
}

impl Part {
    /// The controller of a kind, whose resources are looked at when they are told to its queue or come out of
    /// `news`.
    fn controller<W: Workload>(
        &self,
        workload: W,
        store: Store<W::Resource>,
        news: impl Stream<Item = ObjectRef<W::Resource>> + Send + 'static,
    ) -> Controlled<W> {
        let driver = Arc::new(Driver::new(
            workload,
            Context::new(
                self.client.clone(),
                W::MANAGER,
                self.config.clone(),
                self.seams.clone(),
            ),
            self.children.clone(),
            store.clone(),
        ));
        let (queue, queued) = mpsc::unbounded();
        let config = controller::Config::default()
            .concurrency(CONCURRENCY)
            .debounce(DEBOUNCE);
        let passes = Controller::for_stream(stream::pending(), store.clone())
            .with_config(config)
            .reconcile_on(queued)
            .reconcile_on(news)
            .graceful_shutdown_on(self.shutdown.clone().cancelled_owned())
            .run(driver::reconcile, |_, never, _| match *never {}, driver.clone())
            // What it reports of passes has been said by the passes themselves.
            .for_each(|pass| {
                if let Err(error) = pass {
                    debug!(?error, "an event led to no pass");
                }
                future::ready(())
            })
            .boxed();
        Controlled {
            driver,
            store,
            queue,
            passes,
        }
    }
}

impl<W: Workload> Controlled<W> {
    /// Looks at the resources that come out of the kind's watch, and tells `others` of them, and whether they are
    /// still there.
    fn follow(
        &self,
        events: impl Stream<Item = Result<W::Resource, watcher::Error>> + Send + 'static,
        mut others: impl FnMut(&W::Resource, bool) + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let (driver, store, queue) = (self.driver.clone(), self.store.clone(), self.queue.clone());
        events
            .filter_map(|event| future::ready(event.ok()))
            .for_each(move |resource| {
                let key = ObjectRef::from_obj(&resource);
                let is_there = store.get(&key).is_some();
                if !is_there {
                    driver.forget(&resource);
                } else if driver.is_news(&resource) {
                    tell(&queue, vec![key]);
                }
                others(&resource, is_there);
                future::ready(())
            })
            .boxed()
    }

    /// Has all resources of the kind looked at.
    fn all(&self) -> impl Fn() + Send + 'static {
        let (store, queue) = (self.store.clone(), self.queue.clone());
        move || {
            let all = store.state();
            tell(
                &queue,
                all.iter()
                    .map(|resource| ObjectRef::from_obj(&**resource))
                    .collect(),
            );
        }
    }
}

/// The queues of all kinds, for what happens to objects of theirs.
struct Owners {
    agents: UnboundedSender<ObjectRef<Agent>>,
    model_apis: UnboundedSender<ObjectRef<ModelAPI>>,
    mcp_servers: UnboundedSender<ObjectRef<MCPServer>>,
}

impl Clone for Owners {
    fn clone(&self) -> Self {
        Self {
            agents: self.agents.clone(),
            model_apis: self.model_apis.clone(),
            mcp_servers: self.mcp_servers.clone(),
        }
    }
}

impl Owners {
    /// Keeps account of the objects of a kind, and tells their owners.
    fn follow<K>(
        &self,
        kept: Kept<K>,
        events: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    ) -> BoxFuture<'static, ()>
    where
        K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    {
        let owners = self.clone();
        events
            .filter_map(|event| future::ready(event.ok()))
            .for_each(move |object| {
                kept.note(&object);
                owners.tell(object.meta());
                future::ready(())
            })
            .boxed()
    }

    fn tell(&self, object: &ObjectMeta) {
        let Some(owner) = controller_of(object) else {
            return;
        };
        if owner.api_version.split('/').next() != Some(GROUP) {
            return;
        }
        let namespace = object.namespace.as_deref().unwrap_or_default();
        match owner.kind.as_str() {
            "Agent" => tell(&self.agents, vec![ObjectRef::new(&owner.name).within(namespace)]),
            "ModelAPI" => tell(
                &self.model_apis,
                vec![ObjectRef::new(&owner.name).within(namespace)],
            ),
            "MCPServer" => tell(
                &self.mcp_servers,
                vec![ObjectRef::new(&owner.name).within(namespace)],
            ),
            _ => {}
        }
    }
}
