//! What `kaos up` has applied, so that what is in no file any more can be told and removed.
//!
//! The list lies in the data folder. An object is in it until it was pruned or is gone; a namespace or a kind never
//! is, because what others put there would go with it.

use std::path::{Path, PathBuf};

use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions, PropagationPolicy},
    core::{ApiResource, DynamicObject},
};
use serde::{Deserialize, Serialize};

use crate::{
    apply::{Applied, ApplyError, apply},
    data_dir::{DataDir, DataDirError},
    manifest::Manifest,
};

const FILE: &str = "applied.json";

/// What to do about objects that an earlier `up` applied and that are in no file any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Nothing: no file was given, so that none can lack them.
    Keep,
    /// Tell them.
    List,
    /// Remove them.
    Prune,
}

/// An object that was applied from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    api_version: String,
    kind: String,
    plural: String,
    namespace: Option<String>,
    name: String,
    uid: String,
    /// Where it was given.
    pub file: PathBuf,
}

impl Entry {
    fn of(applied: &Applied) -> Option<Self> {
        let stays = matches!(
            applied.resource.kind.as_str(),
            "Namespace" | "CustomResourceDefinition"
        );
        Some(Self {
            api_version: applied.resource.api_version.clone(),
            kind: applied.resource.kind.clone(),
            plural: applied.resource.plural.clone(),
            namespace: applied.namespace.clone(),
            name: applied.name.clone(),
            uid: applied.uid.clone(),
            file: applied.file.clone().filter(|_| !stays)?,
        })
    }

    /// `kind/name`, with the namespace where it is not the default one.
    pub fn label(&self) -> String {
        let label = format!("{}/{}", self.kind.to_lowercase(), self.name);
        match self.namespace.as_deref() {
            None | Some("default") => label,
            Some(namespace) => format!("{label} in {namespace}"),
        }
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        };
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// Whether this very object is still there.
    async fn is_there(&self, client: &Client) -> Result<bool, kube::Error> {
        let found = self.api(client).get_metadata_opt(&self.name).await?;
        Ok(found.is_some_and(|found| {
            found.metadata.uid.as_deref() == Some(&self.uid) && found.metadata.deletion_timestamp.is_none()
        }))
    }

    async fn remove(&self, client: &Client) -> Result<(), kube::Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api(client).delete(&self.name, &params).await {
            Ok(_) => Ok(()),
            // Somebody else was faster, or it is another object by now.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What came of applying the files of a project.
#[derive(Clone, Debug)]
pub struct Brought {
    /// What was applied.
    pub applied: Vec<Applied>,
    /// What an earlier time applied, is in no file any more, and was told or removed.
    pub gone: Vec<Entry>,
}

/// Applies `manifests` as [`apply`] does, keeps a list of it in `data`, and finds, or removes, what is gone from
/// the files.
///
/// # Errors
/// As [`apply`]; and when the list cannot be read or written.
pub async fn bring(
    client: &Client,
    data: &DataDir,
    manifests: &[Manifest],
    namespace: &str,
    gone: Gone,
) -> Result<Brought, BringError> {
    let before = read(data)?;
    let applied = apply(client, manifests, namespace).await?;
    let mut list: Vec<Entry> = applied.iter().filter_map(Entry::of).collect();
    let mut missing = Vec::new();
    for entry in before {
        let is_listed = list.iter().any(|one| one.uid == entry.uid);
        if is_listed {
            continue;
        }
        if gone == Gone::Keep {
            list.push(entry);
        } else if entry.is_there(client).await? {
            missing.push(entry);
        }
    }
    match gone {
        Gone::Keep => {}
        Gone::List => list.extend(missing.iter().cloned()),
        Gone::Prune => {
            for entry in &missing {
                entry.remove(client).await?;
            }
        }
    }
    write(data, &list)?;
    Ok(Brought {
        applied,
        gone: missing,
    })
}

/// Why the files of a project could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum BringError {
    /// See [`ApplyError`].
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The list cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The API does not answer.
    #[error("the API does not answer: {0}")]
    Api(#[from] kube::Error),
}

fn read(data: &DataDir) -> Result<Vec<Entry>, DataDirError> {
    let Some(bytes) = data.read(FILE)? else {
        return Ok(Vec::new());
    };
    serde_json::from_slice(&bytes).map_err(|error| DataDirError::Damaged {
        path: data.path().join(FILE),
        reason: error.to_string(),
    })
}

fn write(data: &DataDir, list: &[Entry]) -> Result<(), DataDirError> {
    let text = serde_json::to_vec_pretty(list).unwrap_or_default();
    data.write_private(FILE, &text)
}

/// Removes the list with everything else that is about objects.
pub(crate) fn path(data: &Path) -> PathBuf {
    data.join(FILE)
}
