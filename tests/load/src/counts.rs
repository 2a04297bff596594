//! Requests by kind, as the API server counts them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

const METRIC: &str = "apiserver_request_total{";
/// What the operator makes for resources.
const CHILDREN: [&str; 4] = ["deployments", "services", "configmaps", "httproutes"];
const KINDS: [&str; 3] = ["agents", "modelapis", "mcpservers"];

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    resource: String,
    subresource: String,
    verb: String,
    code: String,
}

impl Key {
    /// Whether it is a write of the operator. This program creates and annotates the resources and says that
    /// Deployments are rolled out; the operator does everything else.
    fn is_operators(&self) -> bool {
        let (resource, sub) = (self.resource.as_str(), self.subresource.as_str());
        let writes = matches!(
            self.verb.as_str(),
            "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION"
        );
        let makes = CHILDREN.contains(&resource) && (resource, sub) != ("deployments", "status");
        // Only this program's writes are neither of the status nor applied.
        let tells = KINDS.contains(&resource) && (!sub.is_empty() || self.verb == "APPLY");
        writes && (makes || tells)
    }

    fn is_creation(&self) -> bool {
        CHILDREN.contains(&self.resource.as_str()) && self.code == "201"
    }
}

/// How many requests of each kind there were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(BTreeMap<Key, u32>);

impl Counts {
    /// All requests since the API server was started.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let text = client
            .request_text(request)
            .await
            .context("the API server tells no metrics")?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let Some((labels, value)) = line.rsplit_once("} ") else {
                continue;
            };
            let label = |name: &str| {
                let start = format!("{name}=\"");
                let found = labels
                    .split(',')
                    .find_map(|label| label.strip_prefix(start.as_str()));
                found.unwrap_or_default().trim_end_matches('"').to_owned()
            };
            let key = Key {
                resource: label("resource"),
                subresource: label("subresource"),
                verb: label("verb"),
                code: label("code"),
            };
            *counts.entry(key).or_default() += value.parse::<f64>().unwrap_or_default() as u32;
        }
        Self(counts)
    }

    /// What came after `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let added = self.0.iter().filter_map(|(key, count)| {
            let before = earlier.0.get(key).copied().unwrap_or_default();
            (*count > before).then(|| (key.clone(), count - before))
        });
        Self(added.collect())
    }

    fn sum(&self, counts: impl Fn(&Key) -> bool) -> u32 {
        self.0
            .iter()
            .filter(|(key, _)| counts(key))
            .map(|(_, count)| count)
            .sum()
    }

    /// All writes of the operator.
    pub(crate) fn operators(&self) -> u32 {
        self.sum(Key::is_operators)
    }

    /// The operator's writes to the resources of a kind and their status.
    pub(crate) fn of_kind(&self, resource: &str) -> u32 {
        self.sum(|key| key.is_operators() && key.resource == resource)
    }

    /// Objects that the operator created.
    pub(crate) fn creations(&self) -> u32 {
        self.sum(|key| key.is_operators() && key.is_creation())
    }

    /// The operator's writes to the resources of a kind and, whosever they are, to objects that were there already.
    pub(crate) fn beyond_creations(&self, resource: &str) -> u32 {
        self.sum(|key| {
            let other_kind = KINDS.contains(&key.resource.as_str()) && key.resource != resource;
            key.is_operators() && !key.is_creation() && !other_kind
        })
    }

    /// The operator's writes in detail.
    pub(crate) fn shown(&self) -> Value {
        let rows = self.0.iter().filter(|(key, _)| key.is_operators());
        rows.map(|(key, count)| {
            let Key {
                resource,
                subresource,
                verb,
                code,
            } = key;
            (format!("{verb} {resource}/{subresource} {code}"), json!(count))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(resource: &str, subresource: &str, verb: &str, code: u16, count: &str) -> String {
        format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",group=\"g\",resource=\"{resource}\",\
             scope=\"resource\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"v1\"}} {count}\n"
        )
    }

    #[test]
    fn the_operators_writes_are_told_from_those_of_this_program() {
        let before = line("agents", "status", "APPLY", 200, "10");
        let after = [
            line("agents", "status", "APPLY", 200, "12"),
            line("agents", "", "POST", 201, "1000"),
            line("modelapis", "", "PATCH", 200, "20"),
            line("deployments", "", "APPLY", 201, "5"),
            line("deployments", "", "APPLY", 200, "1"),
            line("deployments", "status", "PATCH", 200, "7"),
            line("deployments", "", "LIST", 200, "3"),
            line("modelapis", "status", "APPLY", 200, "4"),
            line("leases", "", "PUT", 200, "1e+03"),
        ]
        .concat();
        let counts = Counts::parse(&after).since(&Counts::parse(&before));
        assert_eq!(counts.operators(), 2 + 5 + 1 + 4);
        assert_eq!(counts.creations(), 5);
        assert_eq!(counts.of_kind("agents"), 2);
        assert_eq!(counts.beyond_creations("agents"), 2 + 1);
    }
}
