//! The source of the tools, and the pool that serves it: for a file, always its present content.
//!
//! The content is compared, not the file: Kubernetes changes a mounted Secret by turning a symbolic link, which
//! no watch on the file itself sees.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use kaos_seams::Seams;
use tokio::task::JoinSet;

use super::{
    config::{FILE_VARIABLE, SOURCE_VARIABLE, Source, ToolServerConfig},
    pool::Pool,
    worker::StartError,
};
use crate::packages::{self, script};

/// How often a file is compared with what is served. The kubelet takes about a minute to bring a change.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait before Python is started again that did not start.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What is said of a changed file that cannot be served.
const KEPT: &str = "the changed source cannot be served; the tools stay as they were";

/// Python source that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    pub(super) text: String,
    /// What messages call the place it is from.
    pub(super) place: String,
}

impl Loaded {
    /// The interpreter that has the packages which the source and the configuration name; they are installed now
    /// if need be.
    pub(super) async fn python(&self, config: &ToolServerConfig) -> Result<PathBuf, StartError> {
        let settings = &config.packages;
        let script = script::read(&self.text).map_err(|bad| StartError::Source {
            place: self.place.clone(),
            message: bad.message,
            line: u64::try_from(bad.line).ok(),
            text: self.text.lines().nth(bad.line - 1).unwrap_or_default().to_owned(),
        })?;
        let failed = |source| StartError::Packages {
            place: self.place.clone(),
            source,
        };
        if let Some(required) = script.requires_python {
            let (version, _) = packages::interpreter(&settings.python).await.map_err(failed)?;
            if !script::is_satisfied(&required, &version) {
                return Err(StartError::OtherPython {
                    place: self.place.clone(),
                    required,
                    python: settings.python.display().to_string(),
                    version,
                });
            }
        }
        let requirements = [script.dependencies, config.requirements.clone()].concat();
        if requirements.is_empty() {
            return Ok(settings.python.clone());
        }
        let environment = packages::install(settings, &requirements).await.map_err(failed)?;
        Ok(environment.python())
    }
}

async fn read(source: &Source) -> Result<Loaded, StartError> {
    match source {
        Source::Text(text) => Ok(Loaded {
            text: text.clone(),
            place: SOURCE_VARIABLE.to_owned(),
        }),
        Source::File(path) => Ok(Loaded {
            text: read_file(path).await?,
            place: format!("{FILE_VARIABLE} ({})", path.display()),
        }),
    }
}

async fn read_file(path: &Path) -> Result<String, StartError> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| StartError::Unreadable {
            path: path.to_owned(),
            source,
        })
}

/// The tools as they are now.
pub(super) struct Current {
    config: Arc<ToolServerConfig>,
    seams: Seams,
    served: Loaded,
    pool: RwLock<Arc<Pool>>,
}

impl Current {
    /// Reads the source and starts its workers.
    pub(super) async fn load(config: ToolServerConfig, seams: Seams) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let served = read(&config.source).await?;
        let pool = Pool::start(config.clone(), served.clone(), seams.clone()).await?;
        Ok(Self {
            config,
            seams,
            served,
            pool: RwLock::new(Arc::new(pool)),
        })
    }

    /// The pool that takes calls now.
    pub(super) fn pool(&self) -> Arc<Pool> {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves what the file says, whenever it says something else, until dropped. What cannot be served is
    /// logged once, and the tools from before stay. Calls that have come before a change end with the workers
    /// that they came to.
    pub(super) async fn follow(self: Arc<Self>) {
        let source @ Source::File(_) = &self.config.source else {
            return;
        };
        let mut served = self.served.clone();
        // What is known not to work, and why not.
        let mut refused: Option<Result<Loaded, String>> = None;
        let mut retired = JoinSet::new();
        let mut wait = INTERVAL;
        loop {
            tokio::time::sleep(wait).await;
            while retired.try_join_next().is_some() {}
            let found = read(source).await.map_err(|error| error.to_string());
            if refused.as_ref() == Some(&found) {
                continue;
            }
            refused = None;
            let loaded = match &found {
                Ok(loaded) if *loaded == served => continue,
                Ok(loaded) => loaded.clone(),
                Err(error) => {
                    tracing::error!(error, "{KEPT}");
                    refused = Some(found);
                    continue;
                }
            };
            match self.serve(loaded.clone()).await {
                Ok(before) => {
                    tracing::info!(
                        tools = self.pool().names(),
                        "serving the tools of a changed source"
                    );
                    retired.spawn(before.retire());
                    served = loaded;
                    wait = INTERVAL;
                }
                Err(error @ StartError::Source { .. }) => {
                    tracing::error!(%error, "{KEPT}");
                    refused = Some(found);
                }
                // Python did not start, which may pass.
                Err(error) => {
                    tracing::error!(%error, "{KEPT}");
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Puts a pool for this source in the place of the one before, and returns that one.
    async fn serve(&self, loaded: Loaded) -> Result<Arc<Pool>, StartError> {
        let pool = Pool::start(self.config.clone(), loaded, self.seams.clone()).await?;
        let mut current = self.pool.write().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::replace(&mut *current, Arc::new(pool)))
    }
}
