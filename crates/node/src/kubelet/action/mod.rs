//! What probes and lifecycle hooks do: a request, a connection, a program, a pause.

mod exec;
mod grpc;
mod http;

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::{
    api::core::v1::{
        Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::net::TcpStream;

pub(crate) use exec::Executor;

use self::http::Get;
use crate::ports::{self, PodPorts};

/// One action with its addresses resolved.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Http(Get),
    Tcp { address: SocketAddr },
    Grpc { address: SocketAddr, service: String },
    Exec { command: Vec<String> },
    Sleep(Duration),
}

impl Action {
    /// What a probe does.
    pub(crate) fn of_probe(probe: &Probe, container: &Container, ports: &PodPorts) -> Result<Self, String> {
        let Probe {
            exec,
            grpc,
            http_get,
            tcp_socket,
            ..
        } = probe;
        let place = Place { container, ports };
        match (http_get, tcp_socket, grpc, exec) {
            (Some(get), ..) => place.http(get),
            (_, Some(tcp), ..) => place.tcp(tcp),
            (_, _, Some(grpc), _) => place.grpc(grpc),
            (.., Some(exec)) => command(exec),
            _ => Err("has no action; give it httpGet, tcpSocket, grpc or exec".to_owned()),
        }
    }

    /// What a hook does.
    pub(crate) fn of_hook(
        hook: &LifecycleHandler,
        container: &Container,
        ports: &PodPorts,
    ) -> Result<Self, String> {
        let LifecycleHandler {
            exec,
            http_get,
            sleep,
            tcp_socket: _,
        } = hook;
        let place = Place { container, ports };
        match (http_get, exec, sleep) {
            (Some(get), ..) => place.http(get),
            (_, Some(exec), _) => command(exec),
            (.., Some(sleep)) => Ok(Self::Sleep(Duration::from_secs(
                u64::try_from(sleep.seconds).unwrap_or(0),
            ))),
            _ => Err("has no action; give it exec, httpGet or sleep".to_owned()),
        }
    }

    /// Does it. Dropping the future gives it up, and ends a program it started.
    pub(crate) async fn run(&self, executor: &Executor) -> Result<(), String> {
        match self {
            Self::Http(get) => get.run().await,
            Self::Tcp { address } => connect(*address).await.map(drop),
            Self::Grpc { address, service } => grpc::check(*address, service).await,
            Self::Exec { command } => executor.run(command).await,
            Self::Sleep(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
        }
    }
}

fn command(exec: &ExecAction) -> Result<Action, String> {
    let command = exec.command.clone().unwrap_or_default();
    if command.is_empty() {
        return Err("exec.command is empty; name a program".to_owned());
    }
    Ok(Action::Exec { command })
}

/// Whose ports an action means.
struct Place<'a> {
    container: &'a Container,
    ports: &'a PodPorts,
}

impl Place<'_> {
    fn http(&self, get: &HTTPGetAction) -> Result<Action, String> {
        let path = get.path.clone().unwrap_or_default();
        let path = match path.starts_with('/') {
            true => path,
            false => format!("/{path}"),
        };
        let headers = get.http_headers.iter().flatten();
        Ok(Action::Http(Get {
            address: self.address(&get.port, get.host.as_deref())?,
            secure: get.scheme.as_deref() == Some("HTTPS"),
            path,
            headers: headers
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect(),
        }))
    }

    fn tcp(&self, tcp: &TCPSocketAction) -> Result<Action, String> {
        let address = self.address(&tcp.port, tcp.host.as_deref())?;
        Ok(Action::Tcp { address })
    }

    fn grpc(&self, grpc: &GRPCAction) -> Result<Action, String> {
        Ok(Action::Grpc {
            address: self.address(&IntOrString::Int(grpc.port), None)?,
            service: grpc.service.clone().unwrap_or_default(),
        })
    }

    /// The address behind a port: the container's own for a declared one.
    fn address(&self, port: &IntOrString, host: Option<&str>) -> Result<SocketAddr, String> {
        let number = match port {
            IntOrString::Int(port) => *port,
            IntOrString::String(name) => {
                let mut declared = self.container.ports.iter().flatten();
                match declared.find(|port| port.name.as_ref() == Some(name)) {
                    Some(port) => port.container_port,
                    None => name
                        .parse()
                        .map_err(|_| format!("the container has no port named {name:?}"))?,
                }
            }
        };
        let number = u16::try_from(number).map_err(|_| format!("{number} is no port"))?;
        match host.filter(|host| !host.is_empty()) {
            None => Ok(ports::address(self.ports, number)),
            Some(host) => {
                let host = host
                    .parse()
                    .map_err(|_| format!("host {host:?} is not an IP address"))?;
                Ok(SocketAddr::new(host, number))
            }
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(address)
        .await
        .map_err(|error| format!("dial tcp {address}: {error}"))
}
