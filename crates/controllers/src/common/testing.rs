//! What the tests of builders share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kaos_api::names::Kind;
use kube::ResourceExt;
use serde::{Serialize, de::DeserializeOwned};

use super::objects::Owner;
use crate::config::{Config, Gateway, RouteTimeouts, Runtime};

/// A configuration as an installation brings it, without a Gateway.
pub(crate) fn config() -> Config {
    let plain = Runtime {
        image: "plain:1".to_owned(),
        command: words(&["/bin/plain"]),
        args: words(&["--port", "8000"]),
        ..Runtime::default()
    };
    let mut config = Config::new("kaos:1", "kaos-tools:1");
    config.runtimes.insert("plain".to_owned(), plain);
    for (image, known) in [
        (&mut config.images.litellm, "litellm:1"),
        (&mut config.images.ollama, "ollama:1"),
        (&mut config.images.python, "python:1"),
        (&mut config.images.node, "node:1"),
    ] {
        known.clone_into(&mut image.image);
    }
    config
}

/// A Gateway with the usual timeouts.
pub(crate) fn gateway() -> Gateway {
    Gateway {
        name: "gate".to_owned(),
        namespace: "system".to_owned(),
        timeouts: RouteTimeouts::default(),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A resource of this spec, as the API server would return it.
pub(crate) fn stored<K: DeserializeOwned + ResourceExt>(name: &str, spec: &str) -> K {
    let indented = spec.trim_end().replace('\n', "\n  ");
    let text = format!(
        "metadata: {{name: {name}, namespace: team, uid: uid-of-{name}, generation: 1}}\nspec:\n  {indented}\n"
    );
    serde_saphyr::from_str(&text).unwrap()
}

/// The owner of a resource's objects, as [`Owner::of`] makes it.
pub(crate) fn owner(kind: Kind, name: &str) -> Owner {
    let (kind_name, app) = match kind {
        Kind::Agent => ("Agent", kind),
        Kind::ModelApi => ("ModelAPI", kind),
        Kind::McpServer => ("MCPServer", kind),
    };
    Owner {
        kind: app,
        name: name.to_owned(),
        namespace: "team".to_owned(),
        reference: OwnerReference {
            api_version: "kaos.tools/v1alpha1".to_owned(),
            kind: kind_name.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
    }
}

/// Objects as a reader would write them.
pub(crate) fn yaml<T: Serialize>(objects: &T) -> String {
    serde_saphyr::to_string(objects).unwrap()
}
