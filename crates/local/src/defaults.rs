//! What the controllers and the node are told on one machine: which image names stand for this program.
//!
//! The image names are those of a cluster, so that the objects in the embedded API read the same as there.

use std::{collections::BTreeMap, path::Path};

use kaos_api::names;
use kaos_controllers::{
    Config, ConfigMapRef, Gateway, Images, RoleImage, RouteTimeouts, Runtime, TelemetryDefaults,
};
use kaos_node::ImageMapping;

/// Where a cluster keeps the operator and its configuration; the local API has it too, so that the same
/// paths and tools work.
pub const CONTROL_NAMESPACE: &str = "kaos-system";

/// The image of every role of this program.
const IMAGE: &str = "kaos";
/// The image of the tool server: the same program beside a Python interpreter.
const TOOLS_IMAGE: &str = "kaos-tools";
/// LiteLLM's own image. It is no program of this machine: the node says what to write instead.
const LITELLM_IMAGE: &str = "ghcr.io/berriai/litellm:main-stable";
/// Ollama's own image, and those of the interpreters that packages need: no programs of this machine either.
const OLLAMA_IMAGE: &str = "ollama/ollama:latest";
const PYTHON_IMAGE: &str = "python:3.13-slim";
const NODE_IMAGE: &str = "node:24-slim";

/// The Gateway that the local gateway serves, in [`CONTROL_NAMESPACE`].
pub const GATEWAY: &str = "kaos-gateway";

fn image(repository: &str) -> String {
    format!("{repository}:{}", env!("CARGO_PKG_VERSION"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The configuration of the controllers: each role in this program's image, routes through the local gateway,
/// and more tool runtimes from the same ConfigMap as on a cluster.
pub fn controllers_config(log_level: &str) -> Config {
    let role = |image: String, args: &[&str]| RoleImage {
        image,
        args: words(args),
    };
    let foreign = |image: &str| role(image.to_owned(), &[]);
    let tools = Runtime {
        image: image(TOOLS_IMAGE),
        args: words(&["serve", "tools"]),
        params_env_var: Some("MCP_TOOLS_STRING".to_owned()),
        required_env: words(&["MCP_TOOLS_STRING"]),
        ..Runtime::default()
    };
    Config {
        images: Images {
            agent: role(image(IMAGE), &["serve", "agent"]),
            litellm: foreign(LITELLM_IMAGE),
            native_proxy: role(image(IMAGE), &["serve", "proxy"]),
            ollama: foreign(OLLAMA_IMAGE),
            model_pull: role(image(IMAGE), &["serve", "model-pull"]),
            python: foreign(PYTHON_IMAGE),
            node: foreign(NODE_IMAGE),
        },
        runtimes: BTreeMap::from([("python-string".to_owned(), tools)]),
        runtimes_from: Some(ConfigMapRef {
            namespace: CONTROL_NAMESPACE.to_owned(),
            name: names::RUNTIMES_CONFIG_MAP.to_owned(),
        }),
        cluster_domain: "cluster.local".to_owned(),
        log_level: log_level.to_owned(),
        telemetry: TelemetryDefaults::default(),
        gateway: Some(Gateway {
            name: GATEWAY.to_owned(),
            namespace: CONTROL_NAMESPACE.to_owned(),
            timeouts: RouteTimeouts::default(),
        }),
    }
}

/// The images that this machine can run: `program` for each of ours.
pub fn image_mappings(program: &Path) -> Vec<ImageMapping> {
    [IMAGE, TOOLS_IMAGE]
        .map(|repository| ImageMapping {
            repository: repository.to_owned(),
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
        })
        .to_vec()
}
