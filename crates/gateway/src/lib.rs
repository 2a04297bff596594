//! The gateway of the local node: serves HTTPRoutes of the Gateway API on one loopback port, so that the path
//! learned on a laptop is the path on a cluster.
//!
//! Owns the GatewayClasses whose controller is [`CONTROLLER`], the status of their Gateways and HTTPRoutes,
//! and the proxy itself. Speaks only the Kubernetes API and HTTP, and knows no kind of ours. A Service is
//! reached through the dialer it is given: on the local node that is the table of loopback addresses.
//!
//! Three folders, one way: `routes` turns an HTTPRoute into rules that cannot be wrong or says which field
//! it does not implement, `control` watches and writes statuses, `serving` serves what has been accepted.
//! What a Gateway or route asks for beyond that is never ignored: it is not accepted, and the condition's
//! message names the field.

mod control;
#[cfg(test)]
mod fuzz;
pub mod guard;
mod routes;
mod serving;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use kaos_seams::Seams;
use kube::Client;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{guard::Access, routes::table::Table};

/// The `controllerName` of the GatewayClasses that are served here.
pub const CONTROLLER: &str = "kaos.tools/local-gateway";

/// The field manager of the statuses that the gateway writes.
pub const MANAGER: &str = "kaos-local-gateway";

/// What the gateway needs.
#[derive(Debug)]
pub struct Options {
    /// Where it listens: loopback addresses of one port, as [`bind`] gives them.
    pub listeners: Vec<TcpListener>,
    /// Who may call it besides programs of this machine.
    pub access: Access,
    /// How long requests that run at a stop may take to end.
    pub grace: Duration,
    /// The clock of conditions, the choice between weighted backends, and where Services are reached.
    pub seams: Seams,
}

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no listener, or its address cannot be read.
    #[error("the gateway has no address to listen on: {0}")]
    Listener(io::Error),
    /// A listener is reachable from other machines.
    #[error("the gateway listens on loopback addresses only, not on {0}: listen on 127.0.0.1 or ::1")]
    NotLoopback(SocketAddr),
}

/// Listens on `port` of 127.0.0.1, and of ::1 where that is free, too: browsers and SDKs that are told
/// `localhost` try either first.
///
/// # Errors
/// When 127.0.0.1 does not have the port.
pub async fn bind(port: u16) -> io::Result<Vec<TcpListener>> {
    let first = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).await?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    match TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, port)).await {
        Ok(second) => listeners.push(second),
        Err(error) => tracing::debug!(port, %error, "the gateway does not listen on ::1"),
    }
    Ok(listeners)
}

/// Serves until `stop`, then lets running requests end within the grace period.
///
/// # Errors
/// Where it is not given loopback listeners. Everything later is told in statuses, answers and the log.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let Options {
        listeners,
        access,
        grace,
        seams,
    } = options;
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<io::Result<Vec<_>>>()
        .map_err(Error::Listener)?;
    if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        return Err(Error::NotLoopback(*open));
    }
    let address = *addresses
        .first()
        .ok_or_else(|| Error::Listener(io::ErrorKind::AddrNotAvailable.into()))?;
    let (publish, table) = watch::channel(Arc::new(Table::default()));
    let serving = serving::serve(listeners, access, grace, seams.clone(), table, stop.clone());
    let control = control::run(client, address, seams, publish, stop);
    tokio::join!(serving, control);
    Ok(())
}
