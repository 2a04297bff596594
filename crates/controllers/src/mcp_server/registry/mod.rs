//! The runtimes that MCPServers may name: those of the configuration, and over them those of a ConfigMap, which is
//! watched.

mod parse;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kaos_api::{
    names::{CUSTOM_RUNTIME, RUNTIMES_KEY},
    v1alpha1::MCPServer,
};
use kaos_kube_ext::watched;
use kube::{
    Client,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tracing::warn;

use super::resolve::{self, Resolved};
use crate::config::{Config, ConfigMapRef, Runtime};

/// The runtime of Python source.
pub(crate) const PYTHON: &str = "python-string";
/// What [`PYTHON`] was called before.
const OLDER_PYTHON: &str = "rawpython";

/// Why there is no runtime of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The registry has it, with a mistake.
    Broken(String),
    /// There is none.
    Unknown {
        /// Those that there are.
        known: Vec<String>,
        /// Why it may be missing: what is wrong with the registry as a whole.
        problem: Option<String>,
    },
}

/// The runtimes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runtimes {
    entries: BTreeMap<String, Result<Runtime, String>>,
    problem: Option<String>,
}

impl Runtimes {
    /// Those of the configuration, and over them those that the ConfigMap at `place` has.
    pub(crate) fn read(config: &Config, from: Option<(&ConfigMapRef, &ConfigMap)>) -> Self {
        let built_in = config.runtimes.iter();
        let mut runtimes = Self {
            entries: built_in
                .map(|(name, runtime)| (name.clone(), Ok(runtime.clone())))
                .collect(),
            problem: None,
        };
        let Some((place, config_map)) = from else {
            return runtimes;
        };
        let place = format!("ConfigMap {}/{}", place.namespace, place.name);
        let Some(text) = config_map.data.as_ref().and_then(|data| data.get(RUNTIMES_KEY)) else {
            runtimes.problem = Some(format!(
                "{place} has no key {RUNTIMES_KEY}; write the runtimes under it"
            ));
            return runtimes;
        };
        let said = |problem: &dyn std::fmt::Display| format!("{place}, {RUNTIMES_KEY}, {problem}");
        let document = parse::parse(text);
        for (name, entry) in document.entries {
            runtimes
                .entries
                .insert(name, entry.map_err(|problem| said(&problem)));
        }
        runtimes.problem = document.problem.map(|problem| said(&problem));
        runtimes
    }

    /// The runtime of this name.
    pub(crate) fn find(&self, name: &str) -> Result<Runtime, Unavailable> {
        let entry = self.entries.get(name).or_else(|| {
            let is_older = name == OLDER_PYTHON;
            is_older.then(|| self.entries.get(PYTHON)).flatten()
        });
        match entry {
            Some(Ok(runtime)) => Ok(runtime.clone()),
            Some(Err(problem)) => Err(Unavailable::Broken(problem.clone())),
            None => Err(Unavailable::Unknown {
                known: self
                    .entries
                    .keys()
                    .map(String::as_str)
                    .chain([CUSTOM_RUNTIME])
                    .map(ToOwned::to_owned)
                    .collect(),
                problem: self.problem.clone(),
            }),
        }
    }
}

/// The runtimes, kept up to date.
pub(crate) struct Registry {
    config: Arc<Config>,
    from: Option<(ConfigMapRef, Store<ConfigMap>)>,
    /// What was last read, and of which version of the ConfigMap.
    read: Mutex<(Option<String>, Arc<Runtimes>)>,
    /// What the passes were last started for.
    told: Mutex<Arc<Runtimes>>,
}

impl Registry {
    /// The registry, and the stream that keeps it up to date while it is polled. Only the one ConfigMap is
    /// watched.
    pub(crate) fn watch(
        client: Client,
        config: Arc<Config>,
    ) -> (
        Arc<Self>,
        impl Stream<Item = Result<ConfigMap, watcher::Error>> + Send + 'static,
    ) {
        let (from, events) = match config.runtimes_from.clone() {
            Some(place) => {
                let only = format!(
                    "metadata.name={},metadata.namespace={}",
                    place.name, place.namespace
                );
                let (store, events) = watched(client, watcher::Config::default().fields(&only));
                (Some((place, store)), events.boxed())
            }
            None => (None, stream::pending().boxed()),
        };
        let runtimes = Arc::new(Runtimes::read(&config, None));
        let registry = Self {
            config,
            from,
            read: Mutex::new((None, runtimes.clone())),
            told: Mutex::new(runtimes),
        };
        (Arc::new(registry), events)
    }

    /// Ends when it is known what the ConfigMap says, or that there is none.
    pub(crate) async fn listed(&self) {
        if let Some((_, store)) = &self.from {
            // This fails only where the watch has ended, and it does not.
            let _ = store.wait_until_ready().await;
        }
    }

    /// The runtimes now.
    pub(crate) fn current(&self) -> Arc<Runtimes> {
        let config_map = self.from.as_ref().and_then(|(place, store)| {
            let key = ObjectRef::new(&place.name).within(&place.namespace);
            store.get(&key).map(|config_map| (place, config_map))
        });
        let version = config_map
            .as_ref()
            .and_then(|(_, config_map)| config_map.metadata.resource_version.clone());
        let mut read = locked(&self.read);
        if read.0 != version {
            let from = config_map
                .as_ref()
                .map(|(place, config_map)| (*place, &**config_map));
            let runtimes = Runtimes::read(&self.config, from);
            if let Some(problem) = &runtimes.problem {
                warn!(problem, "the runtime registry cannot be read as a whole");
            }
            *read = (version, Arc::new(runtimes));
        }
        read.1.clone()
    }

    /// The MCPServers for which the registry says something else than when this was last asked.
    pub(crate) fn users_of_changes(&self, servers: &Store<MCPServer>) -> Vec<ObjectRef<MCPServer>> {
        let now = self.current();
        let before = std::mem::replace(&mut *locked(&self.told), now.clone());
        if now == before {
            return Vec::new();
        }
        let sees =
            |server: &MCPServer, runtimes: &Runtimes| -> Resolved { resolve::resolve(server, runtimes) };
        servers
            .state()
            .iter()
            .filter(|server| sees(server, &before) != sees(server, &now))
            .map(|server| ObjectRef::from_obj(&**server))
            .collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
