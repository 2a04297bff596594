//! Names, labels, ports and addresses of what is made from a resource. Users' tools rely on them.

use std::collections::BTreeMap;

use kube::core::{Message, Rule};

/// The port that containers listen on, except Ollama's ([`OLLAMA_PORT`]), and the first port of their Services.
pub const PORT: u16 = 8000;
/// The second port of every Service, which leads to the same container port.
pub const HTTP_PORT: u16 = 80;
/// The name of [`PORT`] in containers and Services.
pub const PORT_NAME: &str = "http";
/// The name of [`HTTP_PORT`] in Services.
pub const HTTP_PORT_NAME: &str = "http-80";
/// The key of the proxy configuration in its ConfigMap, and the name of the mounted file.
pub const LITELLM_CONFIG_KEY: &str = "config.yaml";

/// The label on everything that KAOS makes, with the value [`MANAGER`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`].
pub const MANAGER: &str = "kaos";
/// The annotation of a pod template that changes with the configuration its pods mount, so that they are
/// replaced when it changes.
pub const CONFIG_HASH_ANNOTATION: &str = "kaos.tools/config-hash";

/// The key of `status.linkedResources` of an Agent under which its ModelAPI stands.
pub const LINKED_MODEL_API: &str = "modelapi";

/// The key of `status.linkedResources` of an Agent under which the MCPServer called `name` stands.
pub fn linked_mcp_server(name: &str) -> String {
    format!("mcpserver.{name}")
}

/// The key of `status.linkedResources` of an Agent under which the peer called `name` stands.
pub fn linked_agent(name: &str) -> String {
    format!("agent.{name}")
}

/// The port that Ollama listens on.
pub const OLLAMA_PORT: u16 = 11434;

/// The ConfigMap of the operator's namespace with the runtimes that an MCPServer may name.
pub const RUNTIMES_CONFIG_MAP: &str = "kaos-mcp-runtimes";
/// The key of [`RUNTIMES_CONFIG_MAP`] with the runtimes as YAML.
pub const RUNTIMES_KEY: &str = "runtimes.yaml";
/// The runtime of an MCPServer that is whatever image it names.
pub const CUSTOM_RUNTIME: &str = "custom";

/// The finalizers that the operator of KAOS in Go put on its resources. Nothing here needs one: what belongs to
/// a resource goes with it by its owner references.
pub const FORMER_FINALIZERS: [&str; 3] = [
    "kaos.tools/agent-finalizer",
    "kaos.tools/modelapi-finalizer",
    "kaos.tools/mcpserver-finalizer",
];

/// A kind of resource, for what differs between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Agent.
    Agent,
    /// ModelAPI.
    ModelApi,
    /// MCPServer.
    McpServer,
}

impl Kind {
    /// The kind as manifests write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "Agent",
            Self::ModelApi => "ModelAPI",
            Self::McpServer => "MCPServer",
        }
    }

    /// How long a name may be, in bytes: with its prefix it names a Service, which is a DNS label.
    pub fn longest_name(self) -> usize {
        63 - self.child("").len()
    }

    /// Whether a resource of this kind may be called `name`.
    pub fn may_be_called(self, name: &str) -> bool {
        let is_outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        name.len() <= self.longest_name()
            && name.bytes().all(|byte| is_outer(&byte) || byte == b'-')
            && name.as_bytes().first().is_some_and(is_outer)
            && name.as_bytes().last().is_some_and(is_outer)
    }

    /// The prefix of child names, the value of the label `app` and the key of the label with the
    /// resource's name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::ModelApi => "modelapi",
            Self::McpServer => "mcpserver",
        }
    }

    /// The name of the generated container.
    pub fn container(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::ModelApi => "model-api",
            Self::McpServer => "mcp-server",
        }
    }

    /// The name of the Deployment and of the Service of the resource called `name`.
    pub fn child(self, name: &str) -> String {
        format!("{}-{name}", self.label())
    }

    /// What the paths and names of routes call the kind.
    pub fn route_type(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::ModelApi => "modelapi",
            Self::McpServer => "mcp",
        }
    }

    /// The name of the HTTPRoute of the resource called `name`.
    pub fn route(self, name: &str) -> String {
        format!("{}-{name}", self.route_type())
    }

    /// The path prefix under which a Gateway serves the resource called `name`.
    pub fn route_path(self, namespace: &str, name: &str) -> String {
        format!("/{namespace}/{}/{name}", self.route_type())
    }

    /// The labels by which the pods of the resource called `name` are selected.
    pub fn selector(self, name: &str) -> BTreeMap<String, String> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        BTreeMap::from([pair("app", self.label()), pair(self.label(), name)])
    }

    /// The labels of all objects made for the resource called `name`.
    pub fn labels(self, name: &str) -> BTreeMap<String, String> {
        let mut labels = self.selector(name);
        labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned());
        labels
    }

    /// The address of the resource called `name` from within the cluster.
    pub fn endpoint(self, name: &str, namespace: &str, cluster_domain: &str) -> String {
        format!("http://{}:{PORT}", self.host(name, namespace, cluster_domain))
    }

    /// The full name of the Service of the resource called `name`.
    pub fn host(self, name: &str, namespace: &str, cluster_domain: &str) -> String {
        format!("{}.{namespace}.svc.{cluster_domain}", self.child(name))
    }
}

/// The name of the ConfigMap with the proxy configuration of the ModelAPI called `name`.
pub fn litellm_config(name: &str) -> String {
    format!("litellm-config-{name}")
}

/// What a DNS label is made of (RFC 1123), apart from its length.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// CEL, at the root of a kind: its name leaves room for the prefix of its Service's name.
pub(crate) fn own_name(kind: Kind) -> Rule {
    let longest = kind.longest_name();
    Rule::new(format!(
        "size(self.metadata.name) <= {longest} && !self.metadata.name.contains('.')"
    ))
    .message(Message::Expression(format!(
        "'metadata.name \"' + self.metadata.name + '\" is part of the name of a Service: use at most {longest} \
         characters and no dot'"
    )))
}

/// CEL, at a text: it may be the name of a resource of this kind.
pub(crate) fn name_of(kind: Kind) -> Rule {
    let (longest, kind) = (kind.longest_name(), kind.name());
    Rule::new(format!("size(self) <= {longest} && self.matches('{LABEL}')")).message(Message::Message(format!(
        "no {kind} can have this name: write that of one in this namespace, at most {longest} lower-case letters, \
         digits and hyphens, with a letter or digit at each end"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_fit_into_a_dns_label() {
        for (kind, length) in [(Kind::Agent, 57), (Kind::ModelApi, 54), (Kind::McpServer, 53)] {
            assert_eq!(kind.longest_name(), length, "{kind:?}");
            assert_eq!(kind.child(&"x".repeat(length)).len(), 63, "{kind:?}");
        }
    }

    #[test]
    fn a_name_that_a_resource_may_have_is_a_dns_label() {
        for (name, may) in [
            ("a", true),
            ("0-a", true),
            (&"x".repeat(57), true),
            (&"x".repeat(58), false),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("a.b", false),
            ("A", false),
            ("a_b", false),
            ("ä", false),
        ] {
            assert_eq!(Kind::Agent.may_be_called(name), may, "{name:?}");
        }
    }

    #[test]
    fn names_labels_and_addresses_are_those_of_kaos() {
        for (kind, child, route, path) in [
            (Kind::Agent, "agent-a", "agent-a", "/ns/agent/a"),
            (Kind::ModelApi, "modelapi-a", "modelapi-a", "/ns/modelapi/a"),
            (Kind::McpServer, "mcpserver-a", "mcp-a", "/ns/mcp/a"),
        ] {
            assert_eq!(
                (
                    kind.child("a").as_str(),
                    kind.route("a").as_str(),
                    kind.route_path("ns", "a").as_str()
                ),
                (child, route, path)
            );
            assert_eq!(
                kind.endpoint("a", "ns", "cluster.local"),
                format!("http://{child}.ns.svc.cluster.local:8000")
            );
        }
        assert_eq!(litellm_config("m"), "litellm-config-m");
        let selector: Vec<_> = Kind::McpServer.selector("t").into_iter().collect();
        assert_eq!(
            selector,
            [
                ("app".to_owned(), "mcpserver".to_owned()),
                ("mcpserver".to_owned(), "t".to_owned())
            ]
        );
    }
}
