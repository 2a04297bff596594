//! A Kubernetes API without controllers of this project: a real one where `KAOS_TEST_KUBECONFIG` names it, else the
//! embedded one over HTTPS.

use std::{fs, future};

use anyhow::{Context, Result};
use kaos_apiserver::front::{self, FrontOptions, TlsIdentity};
use kaos_seams::Seams;
use kaos_testkit::{Builder, TestApi, keep_pods_ready};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::Folder;

/// A Kubernetes API in which every pod becomes ready. It ends when it is dropped.
pub struct Cluster {
    namespace: String,
    _runtime: Runtime,
}

impl Cluster {
    /// Starts it, and has kubectl in `folder` speak to it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(folder: &Folder) -> Result<Self> {
        Self::from(Builder::default().workloads(), folder)
    }

    /// As [`Cluster::start`], whatever the environment says: for what no other operator may see.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn embedded(folder: &Folder) -> Result<Self> {
        Self::from(Builder::default().workloads().embedded(), folder)
    }

    fn from(builder: Builder, folder: &Folder) -> Result<Self> {
        let runtime = Runtime::new()?;
        // Its clock and its keys are real: kubectl is not part of a simulation.
        let api = runtime.block_on(builder.seams(Seams::system()).start());
        let kubeconfig = match &api.server {
            Some(_) => runtime.block_on(serve(&api))?,
            None => {
                let path = std::env::var_os("KAOS_TEST_KUBECONFIG").context("the API is not embedded")?;
                fs::read_to_string(path)?
            }
        };
        fs::create_dir_all(folder.path().join(".kaos"))?;
        folder.write(".kaos/kubeconfig", &kubeconfig)?;
        let namespace = api.namespace.clone();
        runtime.spawn(async move {
            // All of it: what makes pods ends with it.
            let api = api;
            let _ready = keep_pods_ready(&api.client, &api.namespace);
            future::pending::<()>().await;
        });
        Ok(Self {
            namespace,
            _runtime: runtime,
        })
    }

    /// A namespace that nobody else uses.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

async fn serve(api: &TestApi) -> Result<String> {
    let server = api.server.clone().context("the API is embedded")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    let options = FrontOptions {
        token: "a-token-of-this-test".to_owned(),
        tls: TlsIdentity::generate(&Seams::system())?,
    };
    let kubeconfig = front::kubeconfig(&url, &options.token, &options.tls.certificate_pem);
    tokio::spawn(front::serve(server, listener, options, future::pending()));
    Ok(kubeconfig)
}
