//! What the controllers are told from outside.

use std::collections::BTreeMap;

/// The configuration of the controllers. It does not change while they run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The images of the generated containers.
    pub images: Images,
    /// The runtimes that an MCPServer may name, by name.
    pub runtimes: BTreeMap<String, Runtime>,
    /// The DNS domain of the cluster, `cluster.local` on most.
    pub cluster_domain: String,
    /// `LOG_LEVEL` of the generated containers, such as `INFO`.
    pub log_level: String,
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
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The image's name with its tag or digest.
    pub image: String,
    /// Takes the place of the image's entrypoint; empty keeps it.
    pub command: Vec<String>,
    /// Arguments; empty keeps the image's.
    pub args: Vec<String>,
    /// The environment variable that carries an MCPServer's `params`. Without one the runtime takes none.
    pub params_env_var: Option<String>,
}
