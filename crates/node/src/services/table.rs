//! The table of Service addresses: who asks for a Service's port gets a loopback address, whether the
//! Service exists yet or not, and the same one ever after.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kaos_seams::Dialer;
use tokio::{net::TcpSocket, runtime::Handle, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    allocation::{self, AllocationError, ServicePort},
    endpoints::Endpoints,
    forward,
    rewrite::{is_label, parse_host},
    unanswered::Unanswered,
};

/// Why the table cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] AllocationError),
    /// The system gives no loopback port.
    #[error("cannot open a port on 127.0.0.1 for Service {service}: {source}")]
    Bind {
        /// The Service's port.
        service: String,
        /// Why.
        source: io::Error,
    },
}

/// An address that could not be kept: another program listens on its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) service: ServicePort,
    pub(crate) from: u16,
    pub(crate) to: u16,
}

/// The addresses of Services on this machine. Every address it has ever given is open for as long as it
/// lives: connections go to the ready pods of the Service, and are refused while there are none.
pub struct ServiceTable {
    path: PathBuf,
    allocated: Mutex<BTreeMap<ServicePort, u16>>,
    endpoints: watch::Sender<Arc<Endpoints>>,
    unanswered: Unanswered,
    runtime: Handle,
    forwarders: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for ServiceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTable")
            .field("allocated", &*self.lock())
            .finish_non_exhaustive()
    }
}

impl ServiceTable {
    /// Opens the table kept in `path`, inside a runtime. Ports that another program has taken meanwhile are
    /// replaced, which is safe only before any pod runs.
    pub(crate) fn open(path: PathBuf) -> Result<(Self, Vec<Moved>), TableError> {
        let kept = allocation::read(&path)?;
        let table = Self {
            path,
            allocated: Mutex::default(),
            endpoints: watch::Sender::new(Arc::default()),
            unanswered: Unanswered::default(),
            runtime: Handle::current(),
            forwarders: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let mut moved = Vec::new();
        let mut allocated = table.lock();
        for (service, from) in kept {
            let bound = match hold(from, true) {
                Err(_) => hold(0, false),
                kept => kept,
            };
            let (holder, to) = bound.map_err(|source| TableError::Bind {
                service: service.to_string(),
                source,
            })?;
            allocated.insert(service.clone(), to);
            table.forward(service.clone(), holder, to);
            if from != to {
                moved.push(Moved { service, from, to });
            }
        }
        if !moved.is_empty() {
            allocation::write(&table.path, &allocated)?;
        }
        drop(allocated);
        Ok((table, moved))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServicePort, u16>> {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of `port` of a Service, allocated now if this is the first time anybody asks. `None` when
    /// the system gives no port or the address cannot be recorded, which is logged.
    pub fn address(&self, namespace: &str, service: &str, port: u16) -> Option<SocketAddr> {
        let key = ServicePort {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            port,
        };
        let mut allocated = self.lock();
        if let Some(port) = allocated.get(&key) {
            return Some(loopback(*port));
        }
        let (holder, given) = hold(0, false)
            .inspect_err(|error| tracing::error!(service = %key, %error, "no loopback port for a Service"))
            .ok()?;
        allocated.insert(key.clone(), given);
        // On record before it is told to anybody: a pod may carry it in its env for longer than this run.
        if let Err(error) = allocation::write(&self.path, &allocated) {
            tracing::error!(service = %key, %error, "the address of a Service cannot be recorded");
            allocated.remove(&key);
            return None;
        }
        self.forward(key, holder, given);
        Some(loopback(given))
    }

    /// The address of a Service's port by name, or of its only port. `None` while there is no such Service
    /// or port.
    pub fn named_address(&self, namespace: &str, service: &str, port: Option<&str>) -> Option<SocketAddr> {
        let number = self.endpoints.borrow().port_of(namespace, service, port)?;
        self.address(namespace, service, number)
    }

    /// `text` with the names of Services replaced by their addresses; see [`super::rewrite`].
    pub fn rewrite(&self, text: &str) -> String {
        super::rewrite::rewrite(text, |name, port| {
            self.address(name.namespace, name.service, port)
        })
    }

    /// What is behind the addresses from now on.
    pub(crate) fn set_endpoints(&self, endpoints: Endpoints) {
        self.endpoints.send_if_modified(|current| {
            let changed = **current != endpoints;
            if changed {
                *current = Arc::new(endpoints);
            }
            changed
        });
    }

    /// Waits until no Service leads to `targets` any more, and every connection to them that came before that was
    /// answered or has ended.
    pub(crate) async fn drained(&self, targets: &[SocketAddr]) {
        let mut endpoints = self.endpoints.subscribe();
        // The sender is here, so it cannot be gone.
        let _ = endpoints
            .wait_for(|now| !targets.iter().any(|target| now.leads_to(*target)))
            .await;
        self.unanswered.none(targets).await;
    }

    fn forward(&self, service: ServicePort, holder: TcpSocket, port: u16) {
        let endpoints = self.endpoints.subscribe();
        let unanswered = self.unanswered.clone();
        let work = forward::run(service, holder, port, endpoints, unanswered, self.stop.clone());
        self.forwarders.spawn_on(work, &self.runtime);
    }

    /// Closes every address and its connections.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.forwarders.close();
        self.forwarders.wait().await;
    }
}

impl Dialer for ServiceTable {
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr> {
        if let Some(name) = parse_host(host) {
            return ServiceTable::address(self, name.namespace, name.service, port);
        }
        // `name.namespace` reads like any host of the world: only Services that exist are answered.
        let (service, namespace) = host.split_once('.')?;
        let known = is_label(namespace) && self.endpoints.borrow().knows(namespace, service);
        known
            .then(|| ServiceTable::address(self, namespace, service, port))
            .flatten()
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A socket that keeps a port without listening on it, so that connections are refused until a second
/// socket, which shares the port (`SO_REUSEPORT`), listens.
///
/// `exclusive`: fail when anybody else has the port, even with sharing allowed. `SO_REUSEADDR` there, since
/// connections of the last run may linger in TIME_WAIT.
fn hold(port: u16, exclusive: bool) -> io::Result<(TcpSocket, u16)> {
    if exclusive {
        let probe = TcpSocket::new_v4()?;
        probe.set_reuseaddr(true)?;
        probe.bind(loopback(port))?;
    }
    let holder = TcpSocket::new_v4()?;
    holder.set_reuseport(true)?;
    holder.bind(loopback(port))?;
    let port = holder.local_addr()?.port();
    Ok((holder, port))
}
