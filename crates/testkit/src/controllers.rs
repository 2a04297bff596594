//! The controllers of this project, run beside a test.

use std::collections::BTreeMap;

use kaos_controllers::{Config, Images, RoleImage, Runtime};
use kaos_seams::Seams;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::TestApi;
use crate::calls::Calls;
use crate::crds::install_crds;

/// A configuration with images that nobody runs, and the one runtime `python-string`.
pub fn test_config() -> Config {
    let image = |image: &str, role: &[&str]| RoleImage {
        image: image.to_owned(),
        args: role.iter().map(|word| (*word).to_owned()).collect(),
    };
    let python = Runtime {
        image: "example.com/kaos-tools:test".to_owned(),
        command: Vec::new(),
        args: vec!["serve".to_owned(), "tools".to_owned()],
        params_env_var: Some("MCP_TOOLS_STRING".to_owned()),
    };
    Config {
        images: Images {
            agent: image("example.com/kaos:test", &["serve", "agent"]),
            litellm: image("example.com/litellm:test", &[]),
            native_proxy: image("example.com/kaos:test", &["serve", "proxy"]),
        },
        runtimes: BTreeMap::from([("python-string".to_owned(), python)]),
        cluster_domain: "cluster.local".to_owned(),
        log_level: "INFO".to_owned(),
    }
}

/// Running controllers that see one test's namespace. They stop when this is dropped.
#[derive(Debug)]
pub struct Controllers {
    calls: Calls,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Controllers {
    /// Installs this project's kinds and starts the controllers with [`test_config`] and the test's seams.
    pub async fn start(api: &TestApi) -> Self {
        Self::start_with(api, test_config(), api.seams.clone()).await
    }

    /// As [`Controllers::start`], configured.
    ///
    /// # Panics
    /// When the kinds cannot be installed.
    pub async fn start_with(api: &TestApi, config: Config, seams: Seams) -> Self {
        install_crds(api).await;
        let (client, calls) = api.client_of_namespace().await;
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move {
            kaos_controllers::run(client, config, seams, token)
                .await
                .expect("the controllers run until stopped");
        });
        Self {
            calls,
            stop,
            task: Some(task),
        }
    }

    /// What the controllers sent to the API.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Stops them as an operator that is told to end, and returns when they have ended.
    ///
    /// # Panics
    /// When they had failed.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.await.expect("the controllers end without an error");
        }
    }

    /// Ends them in the middle of what they do, as a crash would.
    pub fn kill(self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
