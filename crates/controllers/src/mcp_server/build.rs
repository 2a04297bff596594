//! The objects of an MCPServer. Pure.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use serde::Serialize;

use super::validate::ValidMcpServer;
use crate::common::{
    env::{literal, merged},
    objects::{Check, Pods, deployment, service},
};

/// Everything an MCPServer is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Objects {
    pub(crate) deployment: Deployment,
    pub(crate) service: Service,
}

/// The objects of `server`.
pub(crate) fn build(server: &ValidMcpServer<'_>, log_level: &str) -> Objects {
    let params = server.params.map(|(variable, params)| literal(variable, params));
    let pods = Pods {
        image: &server.runtime.image,
        command: &server.runtime.command,
        args: server.runtime.args.clone(),
        env: merged(
            params.into_iter().collect(),
            server.container,
            vec![literal("LOG_LEVEL", log_level)],
        ),
        check: Check::Tcp,
        config: None,
        requests: ("10m", "64Mi"),
    };
    Objects {
        deployment: deployment(server.owner, pods),
        service: service(server.owner),
    }
}
