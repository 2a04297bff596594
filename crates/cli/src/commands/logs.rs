//! `kaos logs`: what the pods of a resource wrote.

use std::io::{Write, stdout};

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kaos_api::v1alpha1::{Agent, MCPServer, ModelAPI};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
    core::{ApiResource, DynamicObject},
};

use crate::{args::Global, target::connect};

/// How much to show.
pub(crate) struct Options {
    pub(crate) follow: bool,
    pub(crate) tail: Option<i64>,
    pub(crate) previous: bool,
}

/// Prints the logs of the pods of `resource`, each line after the pod's name where there are several.
pub(crate) async fn logs(global: &Global, resource: &str, options: &Options) -> Result<()> {
    let target = connect(global).await?;
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let names = pod_names(&target.client, &target.namespace, resource).await?;
    let params = LogParams {
        follow: options.follow,
        tail_lines: options.tail,
        previous: options.previous,
        ..LogParams::default()
    };
    let several = names.len() > 1;
    let mut streams = Vec::new();
    for name in names {
        let lines = pods
            .log_stream(&name, &params)
            .await
            .with_context(|| format!("pod {name}"))?
            .lines();
        let prefix = if several {
            format!("[{name}] ")
        } else {
            String::new()
        };
        streams.push(lines.map_ok(move |line| format!("{prefix}{line}")).boxed());
    }
    let mut lines = if options.follow {
        stream::select_all(streams).boxed()
    } else {
        stream::iter(streams).flatten().boxed()
    };
    while let Some(line) = lines.try_next().await? {
        writeln!(stdout(), "{line}")?;
    }
    Ok(())
}

/// The kinds whose pods carry the resource's name under a label of their own.
fn kinds() -> [ApiResource; 3] {
    [
        ApiResource::erase::<Agent>(&()),
        ApiResource::erase::<MCPServer>(&()),
        ApiResource::erase::<ModelAPI>(&()),
    ]
}

async fn pod_names(client: &Client, namespace: &str, resource: &str) -> Result<Vec<String>> {
    let (kind, name) = match resource.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => return Ok(vec![name.to_owned()]),
        Some((kind, name)) => (Some(kind.to_lowercase()), name),
        None => (None, resource),
    };
    let mut found = Vec::new();
    for candidate in kinds() {
        let singular = candidate.kind.to_lowercase();
        if kind
            .as_deref()
            .is_some_and(|kind| kind != singular && kind != candidate.plural)
        {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &candidate);
        if api.get_opt(name).await?.is_some() {
            found.push(singular);
        }
    }
    let label = match found.as_slice() {
        [label] => label,
        [] => bail!(
            "nothing is called {resource} in namespace {namespace}; \
             `kaos status` lists the agents, tool servers and model APIs"
        ),
        several => bail!(
            "{name} is the name of several resources; say {}/{name}",
            several.join(&format!("/{name} or "))
        ),
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = ListParams::default().labels(&format!("{label}={name}"));
    let names: Vec<String> = pods
        .list(&selector)
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    if names.is_empty() {
        bail!("{label}/{name} has no pods yet; `kaos status` says what it waits for");
    }
    Ok(names)
}
