//! Which Kubernetes API a command talks to: the one of the flags, else a running local instance for this
//! folder, else the kubeconfig's. Every command says which one it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    args::Global,
    exit::{Coded, NOTHING_RUNS},
};

/// The folder's name, in the folder of the project.
const DATA_DIR: &str = ".kaos";

/// A client and what it talks to.
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// The data folder that the options name, or the nearest `.kaos` here or above, or `.kaos` here.
pub(crate) fn data_dir(global: &Global) -> Result<PathBuf> {
    if let Some(path) = &global.data_dir {
        return Ok(path.clone());
    }
    let here = std::env::current_dir().context("failed to find the current folder")?;
    let nearest = here
        .ancestors()
        .map(|folder| folder.join(DATA_DIR))
        .find(|path| path.is_dir());
    Ok(nearest.unwrap_or_else(|| here.join(DATA_DIR)))
}

/// A path as short as it can be written from here.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// Connects, and says to what on standard error.
pub(crate) async fn connect(global: &Global) -> Result<Target> {
    let by_flag = global.kubeconfig.is_some() || global.context.is_some();
    let data_dir = data_dir(global)?;
    let (config, name) = if by_flag {
        from_kubeconfig(global).await?
    } else if kaos_local::running(&data_dir).is_some() {
        let config = of_instance(&data_dir).await?;
        (config, format!("local instance in {}", shown(&data_dir)))
    } else if global.data_dir.is_some() {
        let message = format!(
            "no instance runs on {}; start one with `kaos up --data-dir {0}`",
            data_dir.display()
        );
        return Err(Coded::telling(NOTHING_RUNS, message));
    } else {
        from_kubeconfig(global).await.map_err(|error| {
            let message = format!(
                "no instance runs on {} and no cluster is configured; start one with `kaos up`: {error:#}",
                shown(&data_dir)
            );
            Coded::telling(NOTHING_RUNS, message)
        })?
    };
    eprintln!(
        "API: {name} ({})",
        config.cluster_url.to_string().trim_end_matches('/')
    );
    let namespace = global
        .namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    Ok(Target {
        client: Client::try_from(config)?,
        namespace,
    })
}

/// How the instance of a data folder is reached.
pub(crate) async fn of_instance(data_dir: &Path) -> Result<Config> {
    let file = data_dir.join("kubeconfig");
    let kubeconfig =
        Kubeconfig::read_from(&file).with_context(|| format!("failed to read {}", file.display()))?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

async fn from_kubeconfig(global: &Global) -> Result<(Config, String)> {
    let options = KubeConfigOptions {
        context: global.context.clone(),
        ..KubeConfigOptions::default()
    };
    if let Some(file) = &global.kubeconfig {
        let kubeconfig =
            Kubeconfig::read_from(file).with_context(|| format!("failed to read {}", file.display()))?;
        let context = global
            .context
            .clone()
            .or_else(|| kubeconfig.current_context.clone());
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        return Ok((config, named(file.display(), context)));
    }
    let kubeconfig = Kubeconfig::read().context("failed to read the kubeconfig")?;
    let context = global
        .context
        .clone()
        .or_else(|| kubeconfig.current_context.clone());
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok((config, named("kubeconfig", context)))
}

fn named(source: impl std::fmt::Display, context: Option<String>) -> String {
    match context {
        Some(context) => format!("{source}, context {context}"),
        None => source.to_string(),
    }
}
