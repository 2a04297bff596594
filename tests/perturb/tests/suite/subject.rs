//! This project's controllers, and the cluster that they are run in.

use std::sync::Arc;

use kaos_api::names;
use kaos_controllers::{Config, ConfigMapRef, Gateway, RouteTimeouts, Runtime};
use kaos_perturb::{Limits, Subject, surroundings};
use serde_json::json;

use crate::{ready, tools::Tools};

/// Where the operator's own configuration is.
const SYSTEM: &str = "kaos-system";

/// The controllers of all kinds.
pub(crate) fn controllers() -> Arc<Subject> {
    // The client that asks for tools wants one, though nothing here is encrypted.
    kaos_telemetry::install_crypto_provider();
    let mut definitions = kaos_api::crds();
    // The Gateways themselves are the business of whoever serves them.
    definitions.extend(
        kaos_testkit::brief_gateway_api()
            .into_iter()
            .filter(|definition| definition.spec.names.kind == "HTTPRoute"),
    );
    Arc::new(Subject {
        name: "the controllers".to_owned(),
        namespace: "work".to_owned(),
        definitions: definitions.iter().map(|definition| json!(definition)).collect(),
        fixed: vec![json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names::RUNTIMES_CONFIG_MAP, "namespace": SYSTEM},
            "data": {"runtimes.yaml": "runtimes: {registered: {image: 'example.com/registered:1'}}"},
        })],
        primaries: ["ModelAPI", "MCPServer", "Agent"].map(str::to_owned).to_vec(),
        start: Arc::new(|client, seams, stop| {
            let seams = seams.with_dialer(Arc::new(Tools::of_this_thread()));
            Box::pin(async move {
                kaos_controllers::run(client, config(), seams, stop)
                    .await
                    .expect("the kinds are installed");
            })
        }),
        surroundings: Arc::new(|cluster, seams| {
            let rollouts = surroundings::rollouts(cluster.clone(), seams.clone());
            let routes = surroundings::routes(cluster, seams);
            Box::pin(async move {
                tokio::join!(rollouts, routes);
            })
        }),
        ready: Arc::new(ready::rule),
        limits: Limits::default(),
    })
}

fn config() -> Config {
    let mut config = Config::new("example.com/kaos:1", "example.com/tools:1");
    let plain = Runtime {
        image: "example.com/plain:1".to_owned(),
        args: vec!["--port".to_owned(), "8000".to_owned()],
        ..Runtime::default()
    };
    config.runtimes.insert("plain".to_owned(), plain);
    Config {
        runtimes_from: Some(ConfigMapRef {
            namespace: SYSTEM.to_owned(),
            name: names::RUNTIMES_CONFIG_MAP.to_owned(),
        }),
        gateway: Some(Gateway {
            name: "gate".to_owned(),
            namespace: SYSTEM.to_owned(),
            timeouts: RouteTimeouts::default(),
        }),
        ..config
    }
}
