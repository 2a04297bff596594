//! What the controllers and the node are told on one machine: which image names stand for this program.
//!
//! The image names are those of a cluster, so that the objects in the embedded API read the same as there.

use std::path::Path;

use kaos_api::names;
use kaos_controllers::{Config, ConfigMapRef, Gateway, RouteTimeouts};
use kaos_node::{ImageMapping, PortNotice, Program};

/// Where a cluster keeps the operator and its configuration; the local API has it too, so that the same
/// paths and tools work.
pub const CONTROL_NAMESPACE: &str = "kaos-system";

/// The image of every role of this program.
const IMAGE: &str = "kaos";
/// The image of the tool server: the same program beside a Python interpreter.
const TOOLS_IMAGE: &str = "kaos-tools";

/// The Gateway that the local gateway serves, in [`CONTROL_NAMESPACE`].
pub const GATEWAY: &str = "kaos-gateway";

fn image(repository: &str) -> String {
    format!("{repository}:{}", env!("CARGO_PKG_VERSION"))
}

/// The configuration of the controllers: each role in this program's image, routes through the local gateway,
/// and more tool runtimes from the same ConfigMap as on a cluster.
pub(crate) fn controllers_config(log_level: &str) -> Config {
    Config {
        runtimes_from: Some(ConfigMapRef {
            namespace: CONTROL_NAMESPACE.to_owned(),
            name: names::RUNTIMES_CONFIG_MAP.to_owned(),
        }),
        log_level: log_level.to_owned(),
        gateway: Some(Gateway {
            name: GATEWAY.to_owned(),
            namespace: CONTROL_NAMESPACE.to_owned(),
            timeouts: RouteTimeouts::default(),
        }),
        ..Config::new(&image(IMAGE), &image(TOOLS_IMAGE))
    }
}

/// What a pod says that waits for Ollama.
const INSTALL_OLLAMA: &str = "install it from https://ollama.com/download and see that `ollama --version` works where \
                              `kaos up` is started; the pod starts by itself then";

/// The images that this machine can run: `program` for each of ours and for LiteLLM, whose configuration it
/// reads, and Ollama where it is installed.
pub(crate) fn image_mappings(program: &Path) -> Vec<ImageMapping> {
    let own = |repository: &str, args: &[&str]| ImageMapping {
        repository: repository.to_owned(),
        program: Program::File(program.to_owned()),
        args: args.iter().map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
        port: PortNotice::Listen,
    };
    let ollama = ImageMapping {
        repository: "ollama/ollama".to_owned(),
        program: Program::OnPath {
            name: "ollama".to_owned(),
            install: INSTALL_OLLAMA.to_owned(),
        },
        args: vec!["serve".to_owned()],
        // The volume of the pod, which is not where Ollama would look without a mount.
        env: vec![("OLLAMA_MODELS".to_owned(), "/root/.ollama/models".to_owned())],
        port: PortNotice::Env {
            name: "OLLAMA_HOST".to_owned(),
            value: "127.0.0.1:{port}".to_owned(),
        },
    };
    vec![
        own(IMAGE, &[]),
        own(TOOLS_IMAGE, &[]),
        own("ghcr.io/berriai/litellm", &["serve", "proxy"]),
        ollama,
    ]
}
