//! What the controllers and the node are told on one machine: which image names stand for this program.
//!
//! The image names are those of a cluster, so that the objects in the embedded API read the same as there.

use std::{collections::BTreeMap, path::Path};

use kaos_controllers::{Config, Images, RoleImage, Runtime};
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

fn image(repository: &str) -> String {
    format!("{repository}:{}", env!("CARGO_PKG_VERSION"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The configuration of the controllers: each role in this program's image.
pub fn controllers_config(log_level: &str) -> Config {
    let tools = Runtime {
        image: image(TOOLS_IMAGE),
        command: Vec::new(),
        args: words(&["serve", "tools"]),
        params_env_var: Some("MCP_TOOLS_STRING".to_owned()),
    };
    Config {
        images: Images {
            agent: RoleImage {
                image: image(IMAGE),
                args: words(&["serve", "agent"]),
            },
            litellm: RoleImage {
                image: LITELLM_IMAGE.to_owned(),
                args: Vec::new(),
            },
            native_proxy: RoleImage {
                image: image(IMAGE),
                args: words(&["serve", "proxy"]),
            },
        },
        runtimes: BTreeMap::from([("python-string".to_owned(), tools)]),
        cluster_domain: "cluster.local".to_owned(),
        log_level: log_level.to_owned(),
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
