//! What the controllers are told from outside.

use std::collections::BTreeMap;

/// The configuration of the controllers. It does not change while they run; what may change is in the cluster
/// (see [`Config::runtimes_from`]).
#[derive(Clone, Debug)]
pub struct Config {
    /// The images of the generated containers.
    pub images: Images,
    /// The runtimes that an MCPServer may name, by name, where [`Config::runtimes_from`] has none of that name.
    pub runtimes: BTreeMap<String, Runtime>,
    /// A ConfigMap with more runtimes. It need not exist, and is watched.
    pub runtimes_from: Option<ConfigMapRef>,
    /// The DNS domain of the cluster, `cluster.local` on most.
    pub cluster_domain: String,
    /// `LOG_LEVEL` of the generated containers, such as `INFO`.
    pub log_level: String,
    /// Telemetry of resources that do not say otherwise.
    pub telemetry: TelemetryDefaults,
    /// The Gateway that resources get routes through. Without one they get none.
    pub gateway: Option<Gateway>,
}

impl Config {
    /// What goes without saying: every role of this program in the image `kaos`, tools written in Python in the
    /// image `tools`, what others publish in their own images; no routes and no telemetry.
    pub fn new(kaos: &str, tools: &str) -> Self {
        Self {
            images: Images::with(kaos, tools),
            runtimes: BTreeMap::from([
                ("python-string".to_owned(), Runtime::python_functions(tools)),
                ("stdio".to_owned(), Runtime::stdio_server(tools)),
            ]),
            runtimes_from: None,
            cluster_domain: "cluster.local".to_owned(),
            log_level: "INFO".to_owned(),
            telemetry: TelemetryDefaults::default(),
            gateway: None,
        }
    }
}

/// The images of the generated containers.
#[derive(Clone, Debug)]
pub struct Images {
    /// What runs an Agent.
    pub agent: RoleImage,
    /// What runs a ModelAPI with the runtime `LiteLLM`.
    pub litellm: RoleImage,
    /// What runs a ModelAPI with the runtime `Native`.
    pub native_proxy: RoleImage,
    /// What runs a ModelAPI of mode `Hosted`: Ollama.
    pub ollama: RoleImage,
    /// What has Ollama pull its model, and tells how far it is.
    pub model_pull: RoleImage,
    /// The bridge beside a Python, for tool servers that are packages of PyPI.
    pub python: RoleImage,
    /// The bridge beside Node.js with npx, for tool servers that are packages of npm.
    pub node: RoleImage,
}

impl Images {
    /// Every role of this program in the image `kaos`, and beside interpreters in the image `tools`. The others as
    /// they are published.
    fn with(kaos: &str, tools: &str) -> Self {
        let own = |role: &str| RoleImage {
            image: kaos.to_owned(),
            args: words(&["serve", role]),
        };
        let bridge = RoleImage {
            image: tools.to_owned(),
            args: words(&["serve", "bridge"]),
        };
        let published = |image: &str| RoleImage {
            image: image.to_owned(),
            args: Vec::new(),
        };
        Self {
            agent: own("agent"),
            litellm: published("ghcr.io/berriai/litellm:main-stable"),
            native_proxy: own("proxy"),
            ollama: published("ollama/ollama:latest"),
            model_pull: own("model-pull"),
            python: bridge.clone(),
            node: bridge,
        }
    }
}

/// An image, and what makes it take its role.
#[derive(Clone, Debug)]
pub struct RoleImage {
    /// The image's name with its tag or digest.
    pub image: String,
    /// Arguments before those that the controllers add.
    pub args: Vec<String>,
}

/// What can serve the tools of an MCPServer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// The image's name with its tag or digest.
    pub image: String,
    /// Takes the place of the image's entrypoint; empty keeps it.
    pub command: Vec<String>,
    /// Arguments; empty keeps the image's.
    pub args: Vec<String>,
    /// The environment variable that carries an MCPServer's `params`. Without one the runtime takes none.
    pub params_env_var: Option<String>,
    /// Variables that an MCPServer of this runtime has to set.
    pub required_env: Vec<String>,
}

impl Runtime {
    /// Functions in Python, served from `params` by the tool server in `image`.
    fn python_functions(image: &str) -> Self {
        Self {
            image: image.to_owned(),
            args: words(&["serve", "tools"]),
            params_env_var: Some("MCP_TOOLS_STRING".to_owned()),
            required_env: words(&["MCP_TOOLS_STRING"]),
            ..Self::default()
        }
    }

    /// A server that speaks over stdio, whose command line is `params`, served by the bridge in `image`.
    fn stdio_server(image: &str) -> Self {
        Self {
            image: image.to_owned(),
            args: words(&["serve", "bridge"]),
            params_env_var: Some("MCP_COMMAND".to_owned()),
            required_env: words(&["MCP_COMMAND"]),
            ..Self::default()
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A ConfigMap by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Telemetry of resources that do not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetryDefaults {
    /// Whether anything is sent.
    pub enabled: bool,
    /// The address of an OTLP collector (gRPC).
    pub endpoint: Option<String>,
}

/// The Gateway that routes are attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// How long requests may take where a resource says nothing.
    pub timeouts: RouteTimeouts,
}

/// How long requests may take, as Gateway API durations; `0s` is without limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// To Agents.
    pub agent: String,
    /// To ModelAPIs.
    pub model_api: String,
    /// To MCPServers.
    pub mcp_server: String,
}

impl Default for RouteTimeouts {
    /// Those of the KAOS chart, the longest of the defaults that KAOS had in different places: an answer that
    /// takes long is not cut off.
    fn default() -> Self {
        Self {
            agent: "300s".to_owned(),
            model_api: "120s".to_owned(),
            mcp_server: "60s".to_owned(),
        }
    }
}
