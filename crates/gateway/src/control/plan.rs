//! From what the API holds to what is served and what the statuses are to say: pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Service;
use kaos_external::gateway_api::{
    GROUP, Gateway, GatewayClass, GatewayClassStatus, GatewayStatus, GatewayStatusAddresses,
    GatewayStatusListeners, GatewayStatusListenersSupportedKinds, HTTPRoute, HttpRouteParentRefs,
    HttpRouteStatus, HttpRouteStatusParents, HttpRouteStatusParentsParentRef,
};
use kaos_seams::Clock;
use kube::{Resource, ResourceExt};

use super::{
    backends::{self, Services, Unresolved},
    conditions::{ACCEPTED, Finding, RESOLVED_REFS, conditions, no, yes},
    gateways::{self, Judged, ROUTE_KIND},
};
use crate::{
    CONTROLLER,
    routes::{
        matches::HostMatch,
        rule::{self, Rule},
        table::{Route, Table},
    },
};

/// What the API holds.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) classes: Vec<Arc<GatewayClass>>,
    pub(super) gateways: Vec<Arc<Gateway>>,
    pub(super) routes: Vec<Arc<HTTPRoute>>,
    pub(super) services: Vec<Arc<Service>>,
}

/// What is to be.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) table: Table,
    pub(super) classes: Vec<(Arc<GatewayClass>, GatewayClassStatus)>,
    pub(super) gateways: Vec<(Arc<Gateway>, GatewayStatus)>,
    pub(super) routes: Vec<(Arc<HTTPRoute>, HttpRouteStatus)>,
}

type Key = (String, String);

fn key<K: Resource>(object: &K) -> Key {
    (
        object.meta().namespace.clone().unwrap_or_default(),
        object.name_any(),
    )
}

/// Plans for a gateway that listens on `address`.
pub(super) fn plan(world: &World, address: SocketAddr, clock: &dyn Clock) -> Plan {
    let ours: Vec<_> = world
        .classes
        .iter()
        .filter(|class| gateways::is_ours(class))
        .collect();
    let classes = ours
        .iter()
        .map(|class| {
            let before = class
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_deref());
            let status = GatewayClassStatus {
                conditions: Some(conditions(
                    before.unwrap_or_default(),
                    gateways::class_findings(class),
                    class.metadata.generation,
                    clock,
                )),
                supported_features: None,
            };
            (Arc::clone(class), status)
        })
        .collect();
    // A class that is not accepted has no Gateways.
    let served: BTreeSet<String> = ours
        .iter()
        .filter(|class| class.spec.parameters_ref.is_none())
        .map(|class| class.name_any())
        .collect();
    let judged: BTreeMap<Key, (Arc<Gateway>, Judged)> = world
        .gateways
        .iter()
        .filter(|gateway| served.contains(&gateway.spec.gateway_class_name))
        .map(|gateway| {
            (
                key(gateway.as_ref()),
                (gateway.clone(), gateways::judge(gateway, address)),
            )
        })
        .collect();
    let services: Services = world
        .services
        .iter()
        .map(|service| (key(service.as_ref()), service.clone()))
        .collect();

    let mut attached = BTreeMap::new();
    let mut table = Vec::new();
    let mut routes = Vec::new();
    for route in &world.routes {
        let verdict = Verdict::of(route, &judged, &services);
        if let Some(route) = verdict.served {
            table.push(route);
        }
        for listener in verdict.listeners {
            *attached.entry(listener).or_insert(0) += 1;
        }
        if let Some(status) = route_status(route, verdict.parents, clock) {
            routes.push((route.clone(), status));
        }
    }
    let gateways = judged
        .into_iter()
        .map(|(key, (gateway, judged))| {
            let status = gateway_status(&gateway, judged, address, clock, |listener| {
                attached
                    .get(&(key.clone(), listener.to_owned()))
                    .copied()
                    .unwrap_or(0)
            });
            (gateway, status)
        })
        .collect();
    Plan {
        table: Table::new(table),
        classes,
        gateways,
        routes,
    }
}

fn gateway_status(
    gateway: &Gateway,
    judged: Judged,
    address: SocketAddr,
    clock: &dyn Clock,
    attached: impl Fn(&str) -> i32,
) -> GatewayStatus {
    let before = gateway.status.clone().unwrap_or_default();
    let generation = gateway.metadata.generation;
    let addresses = GatewayStatusAddresses {
        r#type: Some("IPAddress".to_owned()),
        value: address.ip().to_string(),
    };
    let listeners_before = before.listeners.unwrap_or_default();
    let listeners = judged.listeners.into_iter().map(|listener| {
        let before = listeners_before
            .iter()
            .find(|before| before.name == listener.name);
        GatewayStatusListeners {
            attached_routes: attached(&listener.name),
            conditions: conditions(
                before
                    .map(|before| before.conditions.as_slice())
                    .unwrap_or_default(),
                listener.findings,
                generation,
                clock,
            ),
            supported_kinds: Some(vec![GatewayStatusListenersSupportedKinds {
                group: Some(GROUP.to_owned()),
                kind: ROUTE_KIND.to_owned(),
            }]),
            name: listener.name,
        }
    });
    GatewayStatus {
        addresses: judged.serves.then(|| vec![addresses]),
        attached_listener_sets: None,
        conditions: Some(conditions(
            &before.conditions.unwrap_or_default(),
            judged.findings,
            generation,
            clock,
        )),
        listeners: Some(listeners.collect()),
    }
}

/// What becomes of one route.
struct Verdict {
    served: Option<Route>,
    /// What to say to each parent of ours.
    parents: Vec<(HttpRouteParentRefs, Vec<Finding>)>,
    /// The listeners it is attached to.
    listeners: BTreeSet<(Key, String)>,
}

impl Verdict {
    fn of(route: &HTTPRoute, gateways: &BTreeMap<Key, (Arc<Gateway>, Judged)>, services: &Services) -> Self {
        let (namespace, name) = key(route);
        let mut verdict = Self {
            served: None,
            parents: Vec::new(),
            listeners: BTreeSet::new(),
        };
        let parents: Vec<_> = route
            .spec
            .parent_refs
            .iter()
            .flatten()
            .filter_map(|parent| {
                let key = gateway_of(parent, &namespace)?;
                Some((parent, gateways.get(&key)?, key))
            })
            .collect();
        if parents.is_empty() {
            return verdict;
        }

        let mut unresolved: Vec<Unresolved> = Vec::new();
        let rules = rule::parse(&route.spec, &mut |reference, field| {
            backends::resolve(reference, &namespace, services).map_err(|problem| {
                let message = format!("{field}: {}", problem.message);
                unresolved.push(Unresolved {
                    message: message.clone(),
                    ..problem
                });
                message
            })
        });
        let references = match unresolved.first() {
            None => yes(RESOLVED_REFS, ""),
            Some(first) => {
                let messages: Vec<&str> = unresolved.iter().map(|one| one.message.as_str()).collect();
                no(RESOLVED_REFS, first.reason, messages.join("; "))
            }
        };
        let mut attached = false;
        for (parent, (_, gateway), key) in parents {
            let accepted = match (attach(parent, gateway, key.0 == namespace), &rules) {
                (Err(finding), _) => finding,
                (Ok(_), Err(problems)) => no(ACCEPTED, "UnsupportedValue", problems.join("; ")),
                (Ok(listeners), Ok(_)) => {
                    attached = true;
                    verdict
                        .listeners
                        .extend(listeners.into_iter().map(|listener| (key.clone(), listener)));
                    yes(ACCEPTED, "")
                }
            };
            verdict
                .parents
                .push((parent.clone(), vec![accepted, references.clone()]));
        }
        verdict.served = rules.ok().filter(|_| attached).map(|rules: Vec<Rule>| Route {
            created: route.metadata.creation_timestamp.as_ref().map(|time| time.0),
            name: format!("{namespace}/{name}"),
            hosts: route
                .spec
                .hostnames
                .iter()
                .flatten()
                .map(|host| HostMatch::parse(host))
                .collect(),
            rules,
        });
        verdict
    }
}

/// The Gateway that a route in `namespace` names as its parent; `None` where the parent is something else.
fn gateway_of(parent: &HttpRouteParentRefs, namespace: &str) -> Option<Key> {
    let group = parent.group.as_deref().unwrap_or(GROUP);
    let kind = parent.kind.as_deref().unwrap_or("Gateway");
    let namespace = parent.namespace.as_deref().unwrap_or(namespace);
    (group == GROUP && kind == "Gateway").then(|| (namespace.to_owned(), parent.name.clone()))
}

/// The listeners that a route is attached to by this reference, or why to none.
fn attach(
    parent: &HttpRouteParentRefs,
    gateway: &Judged,
    same_namespace: bool,
) -> Result<Vec<String>, Finding> {
    let named: Vec<_> = gateway
        .listeners
        .iter()
        .filter(|listener| {
            parent
                .section_name
                .as_ref()
                .is_none_or(|name| *name == listener.name)
                && parent.port.is_none_or(|port| port == listener.port)
        })
        .collect();
    let none = |message: &str| Err(no(ACCEPTED, "NoMatchingParent", message));
    if named.is_empty() {
        return none("the Gateway has no listener of this sectionName and port");
    }
    if !gateway.serves || !named.iter().any(|listener| listener.accepted) {
        return none("no listener that the route names is accepted; see the conditions of the Gateway");
    }
    let listeners: Vec<String> = named
        .iter()
        .filter(|listener| listener.accepted && (same_namespace || listener.every_namespace))
        .map(|listener| listener.name.clone())
        .collect();
    if listeners.is_empty() {
        let message = "the listener takes routes of the Gateway's namespace only; set its allowedRoutes.namespaces.from \
                       to All";
        return Err(no(ACCEPTED, "NotAllowedByListeners", message));
    }
    Ok(listeners)
}

/// The status of a route, with what other controllers said in it; `None` where there is nothing of ours in it,
/// neither before nor now.
fn route_status(
    route: &HTTPRoute,
    parents: Vec<(HttpRouteParentRefs, Vec<Finding>)>,
    clock: &dyn Clock,
) -> Option<HttpRouteStatus> {
    let before = route
        .status
        .as_ref()
        .map(|status| status.parents.as_slice())
        .unwrap_or_default();
    let (ours, others): (Vec<_>, Vec<_>) = before
        .iter()
        .partition(|entry| entry.controller_name == CONTROLLER);
    if ours.is_empty() && parents.is_empty() {
        return None;
    }
    let mut entries: Vec<HttpRouteStatusParents> = others.into_iter().cloned().collect();
    entries.extend(parents.into_iter().map(|(parent, findings)| {
        let parent_ref = status_reference(parent);
        let before = ours.iter().find(|entry| entry.parent_ref == parent_ref);
        HttpRouteStatusParents {
            conditions: conditions(
                before
                    .map(|entry| entry.conditions.as_slice())
                    .unwrap_or_default(),
                findings,
                route.metadata.generation,
                clock,
            ),
            controller_name: CONTROLLER.to_owned(),
            parent_ref,
        }
    }));
    Some(HttpRouteStatus { parents: entries })
}

fn status_reference(parent: HttpRouteParentRefs) -> HttpRouteStatusParentsParentRef {
    let HttpRouteParentRefs {
        group,
        kind,
        name,
        namespace,
        port,
        section_name,
    } = parent;
    HttpRouteStatusParentsParentRef {
        group,
        kind,
        name,
        namespace,
        port,
        section_name,
    }
}
