//! Server-side apply of objects that belong to a resource.

use std::fmt;

use kube::{
    Api, Client, Resource,
    api::{ApiResource, Patch, PatchParams, ValidationDirective},
    core::{DynamicObject, NamespaceResourceScope},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    compare,
    owner::{controller_of, is_controlled_by},
};

/// What was asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading the live object.
    Get,
    /// Applying an object that was not there.
    Create,
    /// Applying an object that was there.
    Update,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
        })
    }
}

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// An object of that name is there, and belongs to somebody else. It was not touched.
    #[error("{kind} {name} exists already and {owner}; delete it, or give this resource another name")]
    Foreign {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// Whose it is, as the end of a sentence.
        owner: String,
    },
    /// An object of that name is on its way out; it can be applied when it is gone.
    #[error("{kind} {name} is being deleted")]
    BeingDeleted {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The API server refused, or could not be reached.
    #[error("{source}")]
    Api {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// What was asked of it.
        operation: Operation,
        /// Its answer.
        source: kube::Error,
    },
    /// The object to apply has no name, namespace or controller, or the server's answer is no such object.
    #[error("{kind} cannot be applied: {problem}")]
    Malformed {
        /// Kind of the object.
        kind: String,
        /// What is wrong.
        problem: String,
    },
}

/// Applies objects under one field manager.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: &'static str,
}

impl fmt::Debug for Applier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applier")
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}

impl Applier {
    /// Applies as `manager`. One controller always uses the same one: the fields it once applied and no
    /// longer wants are found by it.
    pub fn new(client: Client, manager: &'static str) -> Self {
        Self { client, manager }
    }

    /// Makes the live object what `desired` says, and returns it. Sends nothing where it already is.
    ///
    /// `desired` names its controller in its owner references. Fields that others have set are taken over:
    /// the object is ours alone.
    ///
    /// # Errors
    /// When an object of that name is not controlled by that owner, or the API server says no.
    pub async fn apply<K>(&self, desired: &K) -> Result<K, ApplyError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize + DeserializeOwned,
    {
        let kind = K::kind(&()).into_owned();
        let malformed = |problem: &str| ApplyError::Malformed {
            kind: kind.clone(),
            problem: problem.to_owned(),
        };
        let meta = desired.meta();
        let name = meta.name.clone().ok_or_else(|| malformed("it has no name"))?;
        let namespace = meta
            .namespace
            .as_deref()
            .ok_or_else(|| malformed("it has no namespace"))?;
        let owner = controller_of(meta).ok_or_else(|| malformed("it has no controller"))?;
        let failed = |operation| {
            let (kind, name) = (kind.clone(), name.clone());
            move |source| ApplyError::Api {
                kind,
                name,
                operation,
                source,
            }
        };

        let intent = serde_json::to_value(desired).map_err(|error| malformed(&error.to_string()))?;
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let live = api.get_opt(&name).await.map_err(failed(Operation::Get))?;
        let operation = match live {
            None => Operation::Create,
            Some(live) => {
                if !is_controlled_by(&live.metadata, &owner.uid) {
                    return Err(foreign(kind, name, &live));
                }
                if live.metadata.deletion_timestamp.is_some() {
                    return Err(ApplyError::BeingDeleted { kind, name });
                }
                let live = serde_json::to_value(live).map_err(|error| malformed(&error.to_string()))?;
                if compare::holds(&intent, &live, self.manager, None) {
                    return typed(live).map_err(|error| malformed(&error.to_string()));
                }
                Operation::Update
            }
        };
        let params = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply(self.manager).force()
        };
        tracing::debug!(kind, namespace, name, %operation, "applying");
        let applied = api
            .patch(&name, &params, &Patch::Apply(&intent))
            .await
            .map_err(failed(operation))?;
        serde_json::to_value(applied)
            .and_then(typed)
            .map_err(|error| malformed(&error.to_string()))
    }
}

fn typed<K: DeserializeOwned>(object: Value) -> Result<K, serde_json::Error> {
    serde_json::from_value(object)
}

fn foreign(kind: String, name: String, live: &DynamicObject) -> ApplyError {
    let owner = match controller_of(&live.metadata) {
        Some(owner) => format!(
            "is controlled by {} {} (uid {})",
            owner.kind, owner.name, owner.uid
        ),
        None => "has no controller".to_owned(),
    };
    ApplyError::Foreign { kind, name, owner }
}
