//! `kaos status`: every agent, tool server and model API, with its phase and what it waits for.

use std::io::{Write, stdout};

use anyhow::Result;
use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kaos_local::RouteAddresses;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};
use serde::Serialize;

use crate::{
    args::{Format, Global},
    output::{print, table},
    target::connect,
};

/// A resource and how it is.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    kind: String,
    name: String,
    phase: String,
    ready: bool,
    /// What can be called from here, else what pods call.
    address: String,
    /// What it waits for; empty where it is ready.
    message: String,
}

/// Prints the resources of the namespace, or of all.
pub(crate) async fn status(global: &Global, all_namespaces: bool, output: Option<Format>) -> Result<()> {
    let target = connect(global).await?;
    let routes = match kaos_local::route_addresses(&target.client).await {
        Ok(routes) => routes,
        Err(error) => {
            tracing::warn!(%error, "routes cannot be read");
            RouteAddresses::new()
        }
    };
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
            let ready = status["ready"] == true;
            let message = if ready { String::new() } else { text("message") };
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            let route = routes.get(&(kind.kind.clone(), namespace.clone(), name.clone()));
            rows.push(Row {
                address: route.cloned().unwrap_or_else(|| text("endpoint")),
                kind: kind.kind.clone(),
                namespace,
                name,
                phase,
                ready,
                message,
            });
        }
    }
    if let Some(format) = output {
        return print(format, &rows);
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
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| {
            let resource = format!("{}/{}", row.kind.to_lowercase(), row.name);
            vec![row.namespace, resource, row.phase, row.address, row.message]
        })
        .collect();
    writeln!(
        stdout(),
        "{}",
        table(&["NAMESPACE", "RESOURCE", "PHASE", "ADDRESS", "MESSAGE"], &rows)
    )?;
    Ok(())
}
