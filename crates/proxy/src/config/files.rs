//! Where a configuration was read, to read it again: the file, the file of the key that it refers to, and that of
//! the certificates to trust.

use std::{fmt, fs, io, path::PathBuf};

use super::{Config, ConfigError, Environment};
use crate::client::Authorities;

/// The variable that generated configurations take the key from.
const KEY: &str = "PROXY_API_KEY";
/// The variable with the path of a file to take that key from instead. A mounted Secret's file changes with
/// the Secret, which an environment never does.
const KEY_FILE: &str = "PROXY_API_KEY_FILE";

/// The files of a configuration, as they were when it was read.
#[derive(Clone)]
pub(crate) struct Files {
    path: PathBuf,
    environment: Environment,
    read: Contents,
    /// Of the configuration that was served last.
    authorities: Option<Authorities>,
    /// Whether the last try to read them failed.
    lost: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct Contents {
    text: String,
    key: Option<String>,
}

impl fmt::Debug for Files {
    /// Without the environment and the contents, in which keys are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// Reads them for the first time.
    pub(super) fn open(path: PathBuf, environment: Environment) -> Result<Self, ConfigError> {
        let read = read(&path, &environment)?;
        Ok(Self {
            path,
            environment,
            read,
            authorities: None,
            lost: false,
        })
    }

    /// The configuration of what was last read.
    pub(super) fn parse(&mut self) -> Result<Config, ConfigError> {
        let mut environment = self.environment.clone();
        if let Some(key) = &self.read.key {
            environment.insert(KEY.to_owned(), key.clone());
        }
        let config = Config::of(&self.read.text, environment)?;
        self.authorities = config.transport.authorities().cloned();
        Ok(config)
    }

    /// Reads them again: the configuration where something has changed since they were last read, else `None`.
    pub(crate) fn changed(&mut self) -> Option<Result<Config, ConfigError>> {
        let authorities = self.authorities.as_ref().map(Authorities::read_again);
        match read(&self.path, &self.environment) {
            Ok(read) if read == self.read && authorities == self.authorities && !self.lost => None,
            Ok(read) => {
                self.read = read;
                self.authorities = authorities;
                self.lost = false;
                Some(self.parse())
            }
            Err(error) => {
                self.lost = true;
                Some(Err(error))
            }
        }
    }
}

fn read(path: &std::path::Path, environment: &Environment) -> Result<Contents, ConfigError> {
    let unreadable = |path: &std::path::Path, source| ConfigError::Read {
        path: path.display().to_string(),
        source,
    };
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    let key = match environment.get(KEY_FILE).filter(|path| !path.is_empty()) {
        None => None,
        Some(path) => match fs::read_to_string(path) {
            Ok(key) => Some(key),
            // The key of a Secret that need not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(ConfigError::Key {
                    path: path.clone(),
                    source,
                });
            }
        },
    };
    Ok(Contents { text, key })
}
