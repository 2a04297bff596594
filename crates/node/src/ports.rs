//! The loopback ports that stand for the containers' ports: a pod has no network of its own here, so each
//! `containerPort` gets a port of 127.0.0.1.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};
use tokio::sync::watch;

/// Container name and `containerPort` to the port on 127.0.0.1.
pub(crate) type PodPorts = BTreeMap<(String, u16), u16>;

/// The ports of every pod that runs here, by the pod's uid.
#[derive(Debug)]
pub(crate) struct PortMap {
    pods: Mutex<HashMap<String, PodPorts>>,
    changed: watch::Sender<u64>,
}

impl Default for PortMap {
    fn default() -> Self {
        Self {
            pods: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl PortMap {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, PodPorts>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when any pod's ports change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The ports of a pod; none before its containers were first started.
    pub(crate) fn of(&self, uid: &str) -> PodPorts {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    /// Forgets a pod.
    pub(crate) fn remove(&self, uid: &str) {
        if self.lock().remove(uid).is_some() {
            self.changed.send_modify(|version| *version += 1);
        }
    }

    /// Gives those of a container's ports that have none yet a free port: before it starts, so that the
    /// containers beside it can be told.
    pub(crate) fn reserve(&self, uid: &str, container: &str, ports: &[u16]) -> io::Result<()> {
        self.give(uid, container, ports, |_, given, taken| match given {
            Some(given) => Ok(given),
            None => free_port(taken),
        })
        .map(drop)
    }

    /// Gives every one of a container's ports a free port, the one it had before where that is still free.
    pub(crate) fn assign(&self, uid: &str, container: &str, ports: &[u16]) -> io::Result<PodPorts> {
        self.give(uid, container, ports, |_, given, taken| {
            match given.filter(|given| is_free(*given)) {
                Some(given) => Ok(given),
                None => free_port(taken),
            }
        })
    }

    /// Gives a container its ports as they are, for a program that cannot be told others. Fails with
    /// [`io::ErrorKind::AddrInUse`] and the port while another program has one of them.
    pub(crate) fn assign_as_they_are(
        &self,
        uid: &str,
        container: &str,
        ports: &[u16],
    ) -> io::Result<PodPorts> {
        self.give(uid, container, ports, |port, given, taken| {
            let promised = taken.contains(&port) && given != Some(port);
            if promised || !is_free(port) {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, port.to_string()));
            }
            Ok(port)
        })
    }

    fn give(
        &self,
        uid: &str,
        container: &str,
        ports: &[u16],
        choose: impl Fn(u16, Option<u16>, &BTreeSet<u16>) -> io::Result<u16>,
    ) -> io::Result<PodPorts> {
        let mut pods = self.lock();
        let mut taken: BTreeSet<u16> = pods.values().flat_map(BTreeMap::values).copied().collect();
        let mut own = pods.get(uid).cloned().unwrap_or_default();
        for port in ports {
            let key = (container.to_owned(), *port);
            let chosen = choose(*port, own.get(&key).copied(), &taken)?;
            taken.insert(chosen);
            own.insert(key, chosen);
        }
        let changed = pods.insert(uid.to_owned(), own.clone()).as_ref() != Some(&own);
        drop(pods);
        if changed {
            self.changed.send_modify(|version| *version += 1);
        }
        Ok(own)
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port that nothing listens on and that is not promised to another container. Between here and the
/// container's own bind another program may take it; the container then fails and gets a new one.
fn free_port(taken: &BTreeSet<u16>) -> io::Result<u16> {
    // Held until one is found, so that the system does not offer the same one again.
    let mut held = Vec::new();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        if !taken.contains(&port) {
            return Ok(port);
        }
        held.push(listener);
    }
}

/// The ports that the containers of a pod declare: the main ones' first, then those of the sidecars.
pub(crate) fn declared(spec: &PodSpec) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
}

/// Where a container's port is reached: a port that is not declared stands for itself.
pub(crate) fn address(ports: &PodPorts, port: u16) -> SocketAddr {
    let mapped = ports
        .iter()
        .find(|((_, declared), _)| *declared == port)
        .map_or(port, |(_, mapped)| *mapped);
    (Ipv4Addr::LOCALHOST, mapped).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_kept_while_free_and_never_shared() {
        let map = PortMap::default();
        let first = map.assign("a", "main", &[8000, 9000]).unwrap();
        assert_eq!(map.assign("a", "main", &[8000, 9000]).unwrap(), first);
        let second = map.assign("b", "main", &[8000]).unwrap();
        assert!(
            !first
                .values()
                .any(|port| second.values().any(|other| other == port))
        );

        let occupied = first[&("main".to_owned(), 8000)];
        let _foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, occupied)).unwrap();
        let moved = map.assign("a", "main", &[8000, 9000]).unwrap();
        assert_ne!(moved[&("main".to_owned(), 8000)], occupied);
        assert_eq!(
            moved[&("main".to_owned(), 9000)],
            first[&("main".to_owned(), 9000)]
        );
        assert_eq!(address(&moved, 7).port(), 7);
        map.remove("a");
        assert!(map.of("a").is_empty());
    }

    #[test]
    fn a_reserved_port_stays_and_one_that_cannot_be_another_waits_for_its_own() {
        let map = PortMap::default();
        map.reserve("a", "main", &[8000]).unwrap();
        let reserved = map.of("a");
        let _listening =
            TcpListener::bind((Ipv4Addr::LOCALHOST, reserved[&("main".to_owned(), 8000)])).unwrap();
        map.reserve("a", "main", &[8000]).unwrap();
        assert_eq!(map.of("a"), reserved, "also while its container listens there");

        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let taken = map.assign_as_they_are("b", "main", &[port]).unwrap_err();
        assert_eq!(
            (taken.kind(), taken.to_string()),
            (io::ErrorKind::AddrInUse, port.to_string())
        );
        drop(other);
        let given = map.assign_as_they_are("b", "main", &[port]).unwrap();
        assert_eq!(given[&("main".to_owned(), port)], port);
    }
}
