//! `kaos status`: every agent, tool server and model API, with its phase and what it waits for.

use std::io::{Write, stdout};

use anyhow::Result;
use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

use crate::{args::Global, output::table, target::connect};

/// Prints the resources of the namespace, or of all.
pub(crate) async fn status(global: &Global, all_namespaces: bool) -> Result<()> {
    let target = connect(global).await?;
    let mut rows = Vec::new();
    for kind in [
        ApiResource::erase::<ModelAPI>(&()),
        ApiResource::erase::<MCPServer>(&()),
        ApiResource::erase::<Agent>(&()),
    ] {
        let api: Api<DynamicObject> = if all_namespaces {
            Api::all_with(target.client.clone(), &kind)
        } else {
            Api::namespaced_with(target.client.clone(), &target.namespace, &kind)
        };
        for object in api.list(&ListParams::default()).await? {
            let status = &object.data["status"];
            let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
            let phase = if text("phase").is_empty() {
                "Pending".to_owned()
            } else {
                text("phase")
            };
            let message = if status["ready"] == true {
                String::new()
            } else {
                text("message")
            };
            rows.push(vec![
                object.namespace().unwrap_or_default(),
                format!("{}/{}", kind.kind.to_lowercase(), object.name_any()),
                phase,
                text("endpoint"),
                message,
            ]);
        }
    }
    if rows.is_empty() {
        let place = if all_namespaces {
            "any namespace"
        } else {
            target.namespace.as_str()
        };
        eprintln!("no agents, tool servers or model APIs in {place}");
        return Ok(());
    }
    writeln!(
        stdout(),
        "{}",
        table(&["NAMESPACE", "RESOURCE", "PHASE", "ENDPOINT", "MESSAGE"], &rows)
    )?;
    Ok(())
}
