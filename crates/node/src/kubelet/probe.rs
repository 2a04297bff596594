//! Probes: whether a container has started, is ready, is alive.
//!
//! A period has the kubelet's meaning for failures: a probe fails for a period when no attempt within it
//! succeeded, and only such periods count against `failureThreshold`. Within the periods before the first
//! success, attempts come every 50 ms, so that a container is used as soon as it can be.

use std::{net::SocketAddr, time::Duration};

use http::{Request, header::HOST};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::pod::Message;
use crate::ports::{self, PodPorts};

/// How often a container that is starting is asked.
const STARTING: Duration = Duration::from_millis(50);
/// How long it is asked so often; then once per period, as the kubelet does.
const STARTING_LASTS: Duration = Duration::from_secs(120);

/// Which of the three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// What a container's probes found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The startup probe succeeded, or there is none.
    Started,
    /// The readiness probe changed its mind.
    Ready(bool),
    /// A probe failed for a period.
    Unhealthy(Kind, String),
    /// A startup or liveness probe failed for good: the container must be restarted.
    Failed(Kind),
}

#[derive(Clone, Debug)]
enum Check {
    Http {
        address: SocketAddr,
        path: String,
        headers: Vec<(String, String)>,
    },
    Tcp {
        address: SocketAddr,
    },
}

/// One probe with its addresses resolved.
#[derive(Clone, Debug)]
struct Plan {
    check: Check,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: u32,
    failures: u32,
}

/// The probes of one run of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    startup: Option<Plan>,
    readiness: Option<Plan>,
    liveness: Option<Plan>,
}

/// Why a probe cannot be run here: the field and what to do.
pub(crate) fn unsupported(probe: &Probe) -> Option<&'static str> {
    let scheme = probe.http_get.as_ref().and_then(|get| get.scheme.as_deref());
    if probe.exec.is_some() {
        Some("exec is not supported by the local node; use httpGet or tcpSocket")
    } else if probe.grpc.is_some() {
        Some("grpc is not supported by the local node; use httpGet or tcpSocket")
    } else if scheme.is_some_and(|scheme| scheme != "HTTP") {
        Some("httpGet.scheme HTTPS is not supported by the local node; use HTTP or tcpSocket")
    } else {
        None
    }
}

impl Probes {
    pub(crate) fn of(container: &Container, ports: &PodPorts) -> Result<Self, String> {
        let plan = |field: &str, probe: &Option<Probe>| {
            let resolved = probe
                .as_ref()
                .map(|probe| Plan::of(probe, container, ports))
                .transpose();
            resolved.map_err(|error| format!("{field}: {error}"))
        };
        Ok(Self {
            startup: plan("startupProbe", &container.startup_probe)?,
            readiness: plan("readinessProbe", &container.readiness_probe)?,
            liveness: plan("livenessProbe", &container.liveness_probe)?,
        })
    }

    /// Runs the probes of run `run` of container `container` and reports what they find, until dropped.
    pub(crate) async fn run(self, container: usize, run: u64, found: mpsc::Sender<Message>) {
        let tell = |finding| {
            found.send(Message::Probed {
                container,
                run,
                finding,
            })
        };
        if let Some(startup) = &self.startup
            && !startup.until_started(&tell).await
        {
            return;
        }
        if tell(Finding::Started).await.is_err() {
            return;
        }
        let readiness = async {
            match &self.readiness {
                Some(plan) => plan.watch_readiness(&tell).await,
                None => drop(tell(Finding::Ready(true)).await),
            }
        };
        let liveness = async {
            if let Some(plan) = &self.liveness {
                plan.watch_liveness(&tell).await;
            }
        };
        tokio::join!(readiness, liveness);
    }
}

impl Plan {
    fn of(probe: &Probe, container: &Container, ports: &PodPorts) -> Result<Self, String> {
        if let Some(reason) = unsupported(probe) {
            return Err(reason.to_owned());
        }
        let check = if let Some(get) = &probe.http_get {
            let path = get
                .path
                .clone()
                .filter(|path| !path.is_empty())
                .unwrap_or_else(|| "/".to_owned());
            let path = if path.starts_with('/') {
                path
            } else {
                format!("/{path}")
            };
            let headers = get.http_headers.iter().flatten();
            let headers = headers
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect();
            Check::Http {
                address: address(&get.port, get.host.as_deref(), container, ports)?,
                path,
                headers,
            }
        } else if let Some(tcp) = &probe.tcp_socket {
            Check::Tcp {
                address: address(&tcp.port, tcp.host.as_deref(), container, ports)?,
            }
        } else {
            return Err("has no action; give it httpGet or tcpSocket".to_owned());
        };
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value
                    .and_then(|value| u64::try_from(value).ok())
                    .unwrap_or(default),
            )
        };
        let count = |value: Option<i32>, default| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(default)
                .max(1)
        };
        Ok(Self {
            check,
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
            timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
            successes: count(probe.success_threshold, 1),
            failures: count(probe.failure_threshold, 3),
        })
    }

    async fn attempt(&self) -> Result<(), String> {
        match timeout(self.timeout, self.check.run()).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs())),
        }
    }

    /// Attempts every 50 ms until one succeeds or the period is over.
    async fn attempt_for_a_period(&self) -> Result<(), String> {
        let end = Instant::now() + self.period;
        loop {
            let result = self.attempt().await;
            if result.is_ok() || Instant::now() + STARTING >= end {
                if result.is_err() {
                    sleep_until(end).await;
                }
                return result;
            }
            sleep(STARTING).await;
        }
    }

    async fn attempt_once_in_a_period(&self) -> Result<(), String> {
        let end = Instant::now() + self.period;
        let result = self.attempt().await;
        sleep_until(end).await;
        result
    }

    /// Returns whether the container has started; otherwise it has reported that it never will.
    async fn until_started<F>(&self, tell: &impl Fn(Finding) -> F) -> bool
    where
        F: Future<Output = Result<(), mpsc::error::SendError<Message>>>,
    {
        let counts_from = Instant::now() + self.delay;
        let mut failed = 0;
        loop {
            let Err(reason) = self.attempt_for_a_period().await else {
                return true;
            };
            if Instant::now() < counts_from {
                continue;
            }
            failed += 1;
            if tell(Finding::Unhealthy(Kind::Startup, reason)).await.is_err() {
                return false;
            }
            if failed >= self.failures {
                let _ = tell(Finding::Failed(Kind::Startup)).await;
                return false;
            }
        }
    }

    async fn watch_readiness<F>(&self, tell: &impl Fn(Finding) -> F)
    where
        F: Future<Output = Result<(), mpsc::error::SendError<Message>>>,
    {
        let began = Instant::now();
        let (mut ready, mut was_ready) = (false, false);
        let (mut succeeded, mut failed) = (0, 0);
        loop {
            let starting = !was_ready && began.elapsed() < STARTING_LASTS;
            let result = if starting && succeeded == 0 {
                self.attempt_for_a_period().await
            } else if starting {
                sleep(STARTING).await;
                self.attempt().await
            } else {
                self.attempt_once_in_a_period().await
            };
            let told = match result {
                Ok(()) => {
                    (succeeded, failed) = (succeeded + 1, 0);
                    if !ready && succeeded >= self.successes {
                        (ready, was_ready) = (true, true);
                        tell(Finding::Ready(true)).await
                    } else {
                        Ok(())
                    }
                }
                Err(reason) => {
                    (succeeded, failed) = (0, failed + 1);
                    let quiet = began.elapsed() < self.delay;
                    let told = match quiet {
                        true => Ok(()),
                        false => tell(Finding::Unhealthy(Kind::Readiness, reason)).await,
                    };
                    if ready && failed >= self.failures {
                        ready = false;
                        tell(Finding::Ready(false)).await
                    } else {
                        told
                    }
                }
            };
            if told.is_err() {
                return;
            }
        }
    }

    async fn watch_liveness<F>(&self, tell: &impl Fn(Finding) -> F)
    where
        F: Future<Output = Result<(), mpsc::error::SendError<Message>>>,
    {
        sleep(self.delay).await;
        let mut failed = 0;
        loop {
            let Err(reason) = self.attempt_once_in_a_period().await else {
                failed = 0;
                continue;
            };
            failed += 1;
            if tell(Finding::Unhealthy(Kind::Liveness, reason)).await.is_err() {
                return;
            }
            if failed >= self.failures {
                let _ = tell(Finding::Failed(Kind::Liveness)).await;
                return;
            }
        }
    }
}

/// The address behind a probe's port: the container's own for a declared one.
fn address(
    port: &IntOrString,
    host: Option<&str>,
    container: &Container,
    ports: &PodPorts,
) -> Result<SocketAddr, String> {
    let number = match port {
        IntOrString::Int(port) => *port,
        IntOrString::String(name) => {
            let mut declared = container.ports.iter().flatten();
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
        None => Ok(ports::address(ports, number)),
        Some(host) => {
            let host = host
                .parse()
                .map_err(|_| format!("host {host:?} is not an IP address"))?;
            Ok(SocketAddr::new(host, number))
        }
    }
}

impl Check {
    async fn run(&self) -> Result<(), String> {
        match self {
            Self::Tcp { address } => connect(*address).await.map(drop),
            Self::Http {
                address,
                path,
                headers,
            } => {
                let status = get(*address, path, headers).await?;
                match status {
                    200..=399 => Ok(()),
                    status => Err(format!("HTTP probe failed with statuscode: {status}")),
                }
            }
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(address)
        .await
        .map_err(|error| format!("dial tcp {address}: {error}"))
}

async fn get(address: SocketAddr, path: &str, headers: &[(String, String)]) -> Result<u16, String> {
    let stream = connect(address).await?;
    let failed = |error: &dyn std::fmt::Display| format!("Get \"http://{address}{path}\": {error}");
    let mut request = Request::get(path)
        .header("user-agent", "kube-probe/local")
        .header("accept", "*/*");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header(HOST, address.to_string());
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|error| failed(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    // Not in a task of its own: no connection outlives its probe.
    let response = sender.send_request(request);
    tokio::pin!(response, connection);
    let answer = tokio::select! {
        biased;
        answer = &mut response => answer,
        // Its last words may have been the answer.
        _ = &mut connection => response.await,
    };
    answer
        .map(|response| response.status().as_u16())
        .map_err(|error| failed(&error))
}
