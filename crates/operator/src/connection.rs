//! Which API server the operator works for.

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Where the way to the API server is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// A kubeconfig. Without one: `$KUBECONFIG`, then `~/.kube/config`, then the pod's ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig. Without one: its current context.
    pub context: Option<String>,
}

/// A client, and what it talks to.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The address of the API server.
    pub api: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// A kubeconfig that was asked for is of no use.
    #[error("{kubeconfig} leads to no cluster: {cause}")]
    Kubeconfig {
        /// What was read.
        kubeconfig: String,
        /// What is wrong with it.
        cause: kube::config::KubeconfigError,
    },
    /// Nothing says where the API server is.
    #[error(
        "no API server is configured: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod with a \
         ServiceAccount ({0})"
    )]
    Nowhere(kube::config::InferConfigError),
    /// The configuration makes no client.
    #[error("no connection to {api} can be made: {cause}")]
    Client {
        /// The address of the API server.
        api: String,
        /// What is wrong.
        cause: Box<kube::Error>,
    },
}

impl Connection {
    /// Reads the configuration that `source` names. Nothing is sent yet.
    ///
    /// # Errors
    /// When there is no usable configuration.
    pub async fn open(source: &Source) -> Result<Self, ConnectionError> {
        let config = configuration(source).await?;
        let api = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        match Client::try_from(config) {
            Ok(client) => Ok(Self { client, api }),
            Err(cause) => Err(ConnectionError::Client {
                api,
                cause: Box::new(cause),
            }),
        }
    }
}

async fn configuration(source: &Source) -> Result<Config, ConnectionError> {
    let kubeconfig = match (&source.kubeconfig, &source.context) {
        (None, None) => return Config::infer().await.map_err(ConnectionError::Nowhere),
        (Some(path), _) => path.display().to_string(),
        (None, Some(_)) => "the kubeconfig".to_owned(),
    };
    let read = match &source.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let options = KubeConfigOptions {
        context: source.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = match read {
        Ok(read) => Config::from_custom_kubeconfig(read, &options).await,
        Err(error) => Err(error),
    };
    config.map_err(|cause| ConnectionError::Kubeconfig { kubeconfig, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_is_named() {
        let source = Source {
            kubeconfig: Some("/nowhere/config".into()),
            context: None,
        };
        let error = Connection::open(&source)
            .await
            .err()
            .map(|error| error.to_string());
        assert!(
            error
                .as_ref()
                .is_some_and(|text| text.starts_with("/nowhere/config leads to no cluster: ")),
            "{error:?}"
        );
    }
}
