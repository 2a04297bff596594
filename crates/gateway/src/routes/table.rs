//! All accepted rules in the order in which they are asked.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    matches::{Asked, HostMatch, Match},
    rule::Rule,
};

/// An accepted route.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// When it was made: of routes that ask for the same, the oldest is served.
    pub(crate) created: Option<Timestamp>,
    /// `namespace/name`.
    pub(crate) name: String,
    pub(crate) hosts: Vec<HostMatch>,
    pub(crate) rules: Vec<Rule>,
}

/// One alternative of one rule for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) host: HostMatch,
    pub(crate) matched: Match,
    pub(crate) rule: Arc<Rule>,
    /// `namespace/name` of the route.
    pub(crate) route: Arc<str>,
}

/// What is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    entries: Vec<Entry>,
}

impl Table {
    pub(crate) fn new(mut routes: Vec<Route>) -> Self {
        // A route without a time of creation was made after all others.
        routes.sort_by(|a, b| {
            let age = |route: &Route| (route.created.is_none(), route.created);
            age(a).cmp(&age(b)).then_with(|| a.name.cmp(&b.name))
        });
        let mut entries = Vec::new();
        for route in routes {
            let name: Arc<str> = route.name.into();
            let hosts = if route.hosts.is_empty() {
                vec![HostMatch::Any]
            } else {
                route.hosts
            };
            for rule in route.rules {
                let rule = Arc::new(rule);
                for host in &hosts {
                    entries.extend(rule.matches.iter().map(|matched| Entry {
                        host: host.clone(),
                        matched: matched.clone(),
                        rule: rule.clone(),
                        route: name.clone(),
                    }));
                }
            }
        }
        // Stable: what ties stays in the order of age, name and place in the route.
        entries.sort_by(|a, b| {
            let host = a.host.precedence().cmp(&b.host.precedence());
            host.then_with(|| a.matched.precedence().cmp(&b.matched.precedence()))
        });
        Self { entries }
    }

    /// The first entry that fits.
    pub(crate) fn find(&self, asked: &Asked<'_>) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| entry.host.fits(asked.host) && entry.matched.fits(asked))
    }

    /// Whether a route names this host.
    pub(crate) fn names_host(&self, host: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.host != HostMatch::Any && entry.host.fits(host))
    }

    /// The paths that are served, each once.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<_> = self
            .entries
            .iter()
            .map(|entry| entry.matched.path.shown())
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use serde_json::{Value, json};

    use super::*;
    use crate::routes::rule;

    fn route(name: &str, created: &str, hosts: &[&str], rules: &Value) -> Route {
        let spec = serde_json::from_value(json!({ "rules": rules })).unwrap();
        Route {
            created: Some(created.parse().unwrap()),
            name: name.to_owned(),
            hosts: hosts.iter().map(|host| HostMatch::parse(host)).collect(),
            rules: rule::parse(&spec, &mut |_, _| Err("none".to_owned())).unwrap(),
        }
    }

    #[test]
    fn the_most_exact_match_of_the_oldest_route_is_served() {
        const OLD: &str = "2026-01-01T00:00:00Z";
        const NEW: &str = "2026-01-02T00:00:00Z";
        let prefix = |path: &str| json!([{"matches": [{"path": {"type": "PathPrefix", "value": path}}]}]);
        let table = Table::new(vec![
            route("n/new", NEW, &[], &prefix("/a")),
            route("n/old", OLD, &[], &prefix("/a")),
            route("n/longer", NEW, &[], &prefix("/a/b")),
            route(
                "n/exact",
                NEW,
                &[],
                &json!([{"matches": [{"path": {"type": "Exact", "value": "/a/b"}}]}]),
            ),
            route(
                "n/method",
                NEW,
                &[],
                &json!([{"matches": [{"path": {"value": "/a"}, "method": "POST"}]}]),
            ),
            route(
                "n/header",
                NEW,
                &[],
                &json!([{"matches": [
                {"path": {"value": "/a"}, "headers": [{"name": "v", "value": "2"}]}]}]),
            ),
            route("m/same", OLD, &[], &prefix("/same")),
            route("a/same", OLD, &[], &prefix("/same")),
            route("n/host", NEW, &["a.test"], &prefix("/")),
            route("n/wild", NEW, &["*.test"], &prefix("/")),
        ]);
        let mut versioned = HeaderMap::new();
        versioned.insert("v", "2".parse().unwrap());
        let none = HeaderMap::new();
        for (host, method, path, headers, expected) in [
            ("localhost", Method::GET, "/a", &none, Some("n/old")),
            ("localhost", Method::GET, "/a/c", &none, Some("n/old")),
            ("localhost", Method::GET, "/a/b", &none, Some("n/exact")),
            ("localhost", Method::GET, "/a/b/c", &none, Some("n/longer")),
            ("localhost", Method::POST, "/a", &versioned, Some("n/method")),
            ("localhost", Method::GET, "/a", &versioned, Some("n/header")),
            ("localhost", Method::GET, "/same", &none, Some("a/same")),
            ("localhost", Method::GET, "/other", &none, None),
            ("a.test", Method::GET, "/a", &none, Some("n/host")),
            ("b.test", Method::GET, "/a", &none, Some("n/wild")),
        ] {
            let asked = Asked {
                host,
                method: &method,
                path,
                query: "",
                headers,
            };
            let found = table.find(&asked).map(|entry| &*entry.route);
            assert_eq!(found, expected, "{method} {host} {path}");
        }
        assert!(
            table.names_host("a.test") && table.names_host("x.test") && !table.names_host("evil.example")
        );
        assert_eq!(table.paths(), ["/", "/a", "/a/b", "/same"]);
    }
}
