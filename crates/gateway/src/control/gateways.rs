//! What becomes of a GatewayClass and a Gateway.

use std::net::SocketAddr;

use kaos_external::gateway_api::{
    GROUP, Gateway, GatewayAllowedListenersNamespacesFrom, GatewayClass, GatewayListeners,
    GatewayListenersAllowedRoutesNamespacesFrom as From, GatewaySpec,
};

use super::conditions::{ACCEPTED, Finding, PROGRAMMED, RESOLVED_REFS, no, yes};
use crate::CONTROLLER;

/// The one kind of route that is served.
pub(super) const ROUTE_KIND: &str = "HTTPRoute";
const HTTP: &str = "HTTP";

/// Whether a class is served here.
pub(super) fn is_ours(class: &GatewayClass) -> bool {
    class.spec.controller_name == CONTROLLER
}

/// What is to be said of a class of ours.
pub(super) fn class_findings(class: &GatewayClass) -> Vec<Finding> {
    vec![match &class.spec.parameters_ref {
        None => yes(ACCEPTED, "served by the gateway of the local node"),
        Some(_) => no(
            ACCEPTED,
            "InvalidParameters",
            "spec.parametersRef: the local gateway takes no parameters; remove it",
        ),
    }]
}

/// A listener of a Gateway, judged.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) port: i32,
    /// Whether routes of every namespace may attach, and not only those of the Gateway's.
    pub(super) every_namespace: bool,
    pub(super) accepted: bool,
    pub(super) findings: Vec<Finding>,
}

impl Listener {
    /// Judges a listener for a gateway that listens on `address`.
    fn judge(listener: &GatewayListeners, address: SocketAddr) -> Self {
        let GatewayListeners {
            allowed_routes,
            hostname,
            name,
            port,
            protocol,
            tls,
        } = listener;
        let refused = |reason: &'static str, message: String| Some((reason, message));
        let allowed = allowed_routes.as_ref();
        let from = allowed.and_then(|allowed| allowed.namespaces.as_ref()?.from.as_ref());
        let kinds = allowed
            .and_then(|allowed| allowed.kinds.as_deref())
            .unwrap_or_default();
        let foreign_kind = kinds
            .iter()
            .find(|one| one.kind != ROUTE_KIND || one.group.as_deref().is_some_and(|group| group != GROUP));
        let problem = if protocol != HTTP {
            refused(
                "UnsupportedProtocol",
                format!("protocol: the local gateway serves HTTP only, not {protocol}"),
            )
        } else if i32::from(address.port()) != *port {
            refused(
                "PortUnavailable",
                format!(
                    "port: the local gateway listens on {}, not on {port}; choose its port with `kaos up --gateway-port`",
                    address.port()
                ),
            )
        } else if tls.is_some() {
            refused(
                "UnsupportedValue",
                "tls: the local gateway has no TLS; remove it".to_owned(),
            )
        } else if hostname.as_ref().is_some_and(|hostname| !hostname.is_empty()) {
            refused(
                "UnsupportedValue",
                "hostname: the local gateway has no hostnames of listeners; name them in the route"
                    .to_owned(),
            )
        } else if matches!(from, Some(From::Selector | From::Unrecognized)) {
            refused(
                "UnsupportedValue",
                "allowedRoutes.namespaces.from: the local gateway knows Same and All only".to_owned(),
            )
        } else {
            None
        };
        let accepted = problem.is_none() && foreign_kind.is_none();
        let mut findings = vec![match &problem {
            None => yes(ACCEPTED, ""),
            Some((reason, message)) => no(ACCEPTED, reason, message.clone()),
        }];
        findings.push(match foreign_kind {
            None => yes(RESOLVED_REFS, ""),
            Some(kind) => no(
                RESOLVED_REFS,
                "InvalidRouteKinds",
                format!(
                    "allowedRoutes.kinds: the local gateway serves {ROUTE_KIND} only, not {}",
                    kind.kind
                ),
            ),
        });
        findings.push(if accepted {
            yes(PROGRAMMED, "")
        } else {
            no(PROGRAMMED, "Invalid", "the listener is not accepted")
        });
        Self {
            name: name.clone(),
            port: *port,
            every_namespace: from == Some(&From::All),
            accepted,
            findings,
        }
    }
}

/// A Gateway of ours, judged.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) listeners: Vec<Listener>,
    pub(super) findings: Vec<Finding>,
    /// Whether its routes are served.
    pub(super) serves: bool,
}

/// Judges a Gateway for a gateway that listens on `address`.
pub(super) fn judge(gateway: &Gateway, address: SocketAddr) -> Judged {
    let listeners: Vec<Listener> = gateway
        .spec
        .listeners
        .iter()
        .map(|listener| Listener::judge(listener, address))
        .collect();
    let refused: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.accepted)
        .map(|listener| listener.name.as_str())
        .collect();
    let problem = problem(&gateway.spec, address);
    let serves = problem.is_none() && listeners.iter().any(|listener| listener.accepted);
    let accepted = match problem {
        Some((reason, message)) => no(ACCEPTED, reason, message),
        None if refused.is_empty() => yes(ACCEPTED, ""),
        None => {
            let message = format!(
                "listeners that are not accepted: {}; see their conditions",
                refused.join(", ")
            );
            let (type_, mut observed) = no(ACCEPTED, "ListenersNotValid", message);
            observed.status = Some(serves);
            (type_, observed)
        }
    };
    let programmed = if serves {
        yes(PROGRAMMED, format!("serving on http://{address}"))
    } else {
        no(PROGRAMMED, "Invalid", "the Gateway is not accepted")
    };
    Judged {
        listeners,
        findings: vec![accepted, programmed],
        serves,
    }
}

/// What of a Gateway is not implemented, if anything.
fn problem(spec: &GatewaySpec, address: SocketAddr) -> Option<(&'static str, String)> {
    let GatewaySpec {
        addresses,
        allowed_listeners,
        gateway_class_name: _,
        infrastructure,
        listeners: _,
        tls,
    } = spec;
    let foreign = addresses.iter().flatten().find(|asked| {
        let ip = asked.r#type.as_deref().is_none_or(|type_| type_ == "IPAddress");
        !ip || asked.value.as_deref() != Some(&address.ip().to_string())
    });
    let attached = allowed_listeners
        .as_ref()
        .and_then(|allowed| allowed.namespaces.as_ref()?.from.as_ref())
        .is_some_and(|from| *from != GatewayAllowedListenersNamespacesFrom::None);
    if foreign.is_some() {
        let message = format!(
            "spec.addresses: the local gateway has the address {} only; remove the field",
            address.ip()
        );
        Some(("UnsupportedAddress", message))
    } else if infrastructure
        .as_ref()
        .is_some_and(|infrastructure| infrastructure.parameters_ref.is_some())
    {
        let message = "spec.infrastructure.parametersRef: the local gateway takes no parameters; remove it";
        Some(("InvalidParameters", message.to_owned()))
    } else if infrastructure.is_some() {
        let message =
            "spec.infrastructure: the local gateway makes no objects that could carry labels; remove it";
        Some(("Invalid", message.to_owned()))
    } else if attached {
        let message = "spec.allowedListeners: the local gateway knows no ListenerSets; remove it";
        Some(("Invalid", message.to_owned()))
    } else if tls.is_some() {
        Some((
            "Invalid",
            "spec.tls: the local gateway has no TLS; remove it".to_owned(),
        ))
    } else {
        None
    }
}
