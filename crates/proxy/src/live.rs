//! The configuration in force, while its file may change.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task, time::sleep};

use crate::config::{Config, ConfigError};

/// How often the files are read. Kubernetes replaces mounted files by swapping links above them, which a watch
/// of the file itself does not see.
const POLL: Duration = Duration::from_secs(3);

/// What requests are answered with.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) config: Arc<Config>,
    /// What is wrong with a newer file, without a word of what is in it: whoever reaches the proxy reads this.
    pub(crate) problem: Option<String>,
}

/// The configuration of each moment, beginning with `config`.
pub(crate) struct Live {
    tell: watch::Sender<InForce>,
}

impl Live {
    /// With `config` in force.
    pub(crate) fn new(config: Config) -> (Self, watch::Receiver<InForce>) {
        let (tell, told) = watch::channel(InForce {
            config: Arc::new(config),
            problem: None,
        });
        (Self { tell }, told)
    }

    /// Takes over what its files become, for ever. Something that cannot be served is logged, and what was in
    /// force before stays. Ends only for a configuration that has no file.
    pub(crate) async fn follow(self) {
        let Some(mut files) = self.tell.borrow().config.files().cloned() else {
            return;
        };
        loop {
            sleep(POLL).await;
            let read = task::spawn_blocking(move || {
                let changed = files.changed();
                (files, changed)
            });
            let Ok((same, changed)) = read.await else {
                tracing::error!("the configuration file is not read any more: its reader ended");
                return;
            };
            files = same;
            match changed {
                None => {}
                Some(Ok(config)) => {
                    let names: Vec<String> = config.names().collect();
                    tracing::info!(models = names.join(", "), "the configuration has changed");
                    self.tell.send_replace(InForce {
                        config: Arc::new(config),
                        problem: None,
                    });
                }
                Some(Err(error)) => self.stay(&error),
            }
        }
    }

    fn stay(&self, error: &ConfigError) {
        let place = match error {
            ConfigError::Invalid { line: Some(line), .. } => format!("line {line}; "),
            ConfigError::Invalid { line: None, .. } => String::new(),
            ConfigError::Environment { .. } | ConfigError::Read { .. } | ConfigError::Key { .. } => {
                "it cannot be read; ".to_owned()
            }
        };
        let problem = format!(
            "the changed configuration cannot be served ({place}the log says more), the one before stays in force"
        );
        let news = self.tell.borrow().problem.as_ref() != Some(&problem);
        if news {
            tracing::error!(%error, "the changed configuration cannot be served, the one before stays in force");
            self.tell.send_modify(|in_force| in_force.problem = Some(problem));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use tempfile::TempDir;

    use super::*;
    use crate::config::Upstream;

    const FILE: &str = "model_list:\n- model_name: NAME\n  litellm_params:\n    model: openai/NAME\n    \
                        api_base: http://models/v1\n    api_key: os.environ/PROXY_API_KEY\n";

    fn write(folder: &Path, file: &str, text: &str) {
        fs::write(folder.join(file), text).unwrap();
    }

    fn load(folder: &Path) -> Result<Config, ConfigError> {
        let key_file = folder.join("key").display().to_string();
        let environment = [
            ("PROXY_API_KEY_FILE", key_file.as_str()),
            ("PROXY_API_KEY", "of-the-environment"),
        ];
        Config::load(
            &folder.join("config.yaml"),
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())),
        )
    }

    /// The configuration of `folder`, followed.
    fn followed(folder: &Path) -> watch::Receiver<InForce> {
        let (live, told) = Live::new(load(folder).unwrap());
        tokio::spawn(live.follow());
        told
    }

    fn folder(key: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        write(folder.path(), "config.yaml", &FILE.replace("NAME", "one"));
        write(folder.path(), "key", key);
        folder
    }

    fn key(in_force: &InForce, model: &str) -> String {
        match &in_force.config.group(model).unwrap().deployments[0].upstream {
            Upstream::Remote(remote) => remote.key.as_ref().unwrap().reveal().to_owned(),
            Upstream::Mock => panic!("{model} is the mock"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_of_the_file_wins_and_a_rotation_arrives() {
        let folder = folder("first\n");
        let mut told = followed(folder.path());
        assert_eq!(key(&told.borrow(), "one"), "first");
        write(folder.path(), "key", "second");
        told.changed().await.unwrap();
        assert_eq!(key(&told.borrow(), "one"), "second");
        // A key that need not exist.
        fs::remove_file(folder.path().join("key")).unwrap();
        told.changed().await.unwrap();
        assert_eq!(key(&told.borrow(), "one"), "of-the-environment");
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_in_force_and_a_broken_one_never() {
        let folder = folder("k");
        let mut told = followed(folder.path());
        let served =
            |told: &watch::Receiver<InForce>| -> Vec<String> { told.borrow().config.names().collect() };

        write(folder.path(), "config.yaml", &FILE.replace("NAME", "two"));
        told.changed().await.unwrap();
        assert_eq!(served(&told), ["two"]);

        for (broken, place) in [
            (
                "model_list:\n- model_name: secret-text\n  wrong: 1\n",
                "(line 2; the log says more)",
            ),
            ("model_list: []\n", "(line 1; the log says more)"),
        ] {
            write(folder.path(), "config.yaml", broken);
            told.changed().await.unwrap();
            let problem = told.borrow_and_update().problem.clone().unwrap();
            assert!(problem.contains(place), "{problem}");
            assert!(!problem.contains("secret-text"), "{problem}");
            assert_eq!(served(&told), ["two"]);
        }

        fs::remove_file(folder.path().join("config.yaml")).unwrap();
        told.changed().await.unwrap();
        assert!(
            told.borrow_and_update()
                .problem
                .as_ref()
                .unwrap()
                .contains("cannot be read")
        );

        // The one that was read last, before it was gone.
        write(folder.path(), "config.yaml", "model_list: []\n");
        told.changed().await.unwrap();
        write(folder.path(), "config.yaml", &FILE.replace("NAME", "two"));
        told.changed().await.unwrap();
        assert_eq!(
            (served(&told), told.borrow().problem.clone()),
            (vec!["two".to_owned()], None)
        );
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn links_that_kubernetes_swaps_are_followed() {
        use std::os::unix::fs::symlink;

        let folder = TempDir::new().unwrap();
        for (version, model) in [("v1", "one"), ("v2", "two")] {
            fs::create_dir(folder.path().join(version)).unwrap();
            write(
                &folder.path().join(version),
                "config.yaml",
                &FILE.replace("NAME", model),
            );
        }
        symlink("v1", folder.path().join("..data")).unwrap();
        symlink("..data/config.yaml", folder.path().join("config.yaml")).unwrap();
        let mut told = followed(folder.path());
        symlink("v2", folder.path().join("..new")).unwrap();
        fs::rename(folder.path().join("..new"), folder.path().join("..data")).unwrap();
        told.changed().await.unwrap();
        assert_eq!(told.borrow().config.names().collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn a_key_file_that_cannot_be_read_is_an_error_and_nothing_shows_a_key() {
        let folder = folder("sk-secret");
        let shown = format!("{:?}", load(folder.path()).unwrap());
        assert!(
            !shown.contains("sk-secret") && !shown.contains("of-the-environment"),
            "{shown}"
        );
        fs::remove_file(folder.path().join("key")).unwrap();
        fs::create_dir(folder.path().join("key")).unwrap();
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("PROXY_API_KEY_FILE"), "{error}");
    }
}
