//! The ports on record: which loopback port belongs to which port of a Service, in a file of the data
//! folder.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// One port of one Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServicePort {
    pub(crate) namespace: String,
    pub(crate) service: String,
    pub(crate) port: u16,
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)
    }
}

impl ServicePort {
    fn parse(text: &str) -> Option<Self> {
        let (namespace, rest) = text.split_once('/')?;
        let (service, port) = rest.split_once(':')?;
        Some(Self {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    /// `namespace/service:port` to the port on 127.0.0.1.
    ports: BTreeMap<String, u16>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// Reading or writing failed.
    #[error("cannot use {path}, which keeps the addresses of Services: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what this program wrote.
    #[error(
        "{path}, which keeps the addresses of Services, is damaged: {reason}; delete it, and they get new ones"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
}

/// The ports of the last run; none where there is no file yet.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<ServicePort, u16>, AllocationError> {
    let damaged = |reason: String| AllocationError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => {
            return Err(AllocationError::Io {
                path: path.to_owned(),
                source,
            });
        }
    };
    let file: File = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if file.format != FORMAT {
        return Err(damaged(format!(
            "its format is {}, this program reads {FORMAT}",
            file.format
        )));
    }
    file.ports
        .into_iter()
        .map(|(key, port)| {
            let service = ServicePort::parse(&key)
                .ok_or_else(|| damaged(format!("{key:?} is not namespace/service:port")))?;
            Ok((service, port))
        })
        .collect()
}

/// Writes the file whole or not at all.
pub(crate) fn write(path: &Path, ports: &BTreeMap<ServicePort, u16>) -> Result<(), AllocationError> {
    let file = File {
        format: FORMAT,
        ports: ports.iter().map(|(key, port)| (key.to_string(), *port)).collect(),
    };
    let error = |source| AllocationError::Io {
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_vec_pretty(&file).map_err(|cause| error(cause.into()))?;
    crate::files::write_atomically(path, &text).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("services.json");
        assert!(read(&path).unwrap().is_empty());
        let key = ServicePort {
            namespace: "a".into(),
            service: "b".into(),
            port: 80,
        };
        let ports = BTreeMap::from([(key, 40_000)]);
        write(&path, &ports).unwrap();
        assert_eq!(read(&path).unwrap(), ports);
        for damage in [
            "",
            "{}",
            r#"{"format":9,"ports":{}}"#,
            r#"{"format":1,"ports":{"x":1}}"#,
        ] {
            fs::write(&path, damage).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains("is damaged"), "{damage}: {message}");
        }
    }
}
