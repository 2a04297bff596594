//! Applying manifests: all of them or none.
//!
//! Every object is first sent as a dry run with strict field validation, so that an unknown field or a
//! refused value in the last document leaves the first ones unapplied. Then each is applied by server-side
//! apply; the file wins over an edit made elsewhere, as with every tool that applies from files.

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    discovery::{Scope, oneshot},
};

use crate::manifest::Manifest;

/// The field manager of objects applied from files.
const FIELD_MANAGER: &str = "kaos";

/// What applying did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It did not exist.
    Created,
    /// It existed and differed.
    Configured,
    /// It was already as the file says.
    Unchanged,
}

/// One applied object.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The kind.
    pub kind: String,
    /// The namespace; `None` for objects of the cluster.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// What happened.
    pub change: Change,
    /// The object as the server returned it.
    pub object: DynamicObject,
}

/// Why nothing, or not everything, was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The server refuses some of the objects; nothing was applied.
    #[error("nothing was applied:\n{}", .0.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))]
    Refused(Vec<String>),
    /// The server stopped answering, or changed its mind between the dry run and the apply.
    #[error("{place}: {kind} {name}: {message}")]
    Failed {
        /// `file:line`.
        place: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
        /// What the server said.
        message: String,
    },
}

/// Applies `manifests`; those without a namespace go to `namespace`.
///
/// # Errors
/// When the server refuses an object (nothing is applied then) or cannot be reached.
pub async fn apply(
    client: &Client,
    manifests: &[Manifest],
    namespace: &str,
) -> Result<Vec<Applied>, ApplyError> {
    let kinds = Kinds::discover(client, manifests).await?;
    let mut ordered: Vec<&Manifest> = manifests.iter().collect();
    // What others live in comes first; the rest stays in the order of the files.
    ordered.sort_by_key(|manifest| match manifest.gvk().kind.as_str() {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    });
    let made_here: BTreeSet<String> = ordered
        .iter()
        .filter(|manifest| manifest.gvk().kind == "Namespace")
        .map(|manifest| manifest.object.name_any())
        .collect();

    let mut refused = Vec::new();
    for manifest in &ordered {
        let api = kinds.api(client, manifest, namespace);
        let params = PatchParams::apply(FIELD_MANAGER)
            .force()
            .validation_strict()
            .dry_run();
        let name = manifest.object.name_any();
        if let Err(error) = api.patch(&name, &params, &Patch::Apply(&manifest.object)).await {
            let missing_namespace = matches!(&error, kube::Error::Api(status) if status.code == 404);
            let in_new_namespace =
                made_here.contains(manifest.object.metadata.namespace.as_deref().unwrap_or(namespace));
            if !(missing_namespace && in_new_namespace) {
                refused.push(format!("{}: {}", manifest.place(), told(&error)));
            }
        }
    }
    if !refused.is_empty() {
        return Err(ApplyError::Refused(refused));
    }

    let mut applied = Vec::new();
    for manifest in ordered {
        let api = kinds.api(client, manifest, namespace);
        applied.push(
            apply_one(&api, manifest)
                .await
                .map_err(|error| ApplyError::Failed {
                    place: manifest.place(),
                    kind: manifest.gvk().kind,
                    name: manifest.object.name_any(),
                    message: told(&error),
                })?,
        );
    }
    Ok(applied)
}

async fn apply_one(api: &Api<DynamicObject>, manifest: &Manifest) -> Result<Applied, kube::Error> {
    let name = manifest.object.name_any();
    let before = api
        .get_metadata_opt(&name)
        .await?
        .and_then(|object| object.metadata.resource_version);
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    let object = api.patch(&name, &params, &Patch::Apply(&manifest.object)).await?;
    let change = match before {
        None => Change::Created,
        before if before == object.metadata.resource_version => Change::Unchanged,
        Some(_) => Change::Configured,
    };
    Ok(Applied {
        kind: manifest.gvk().kind,
        namespace: object.namespace(),
        name,
        change,
        object,
    })
}

/// The API resources of the kinds that the manifests name.
struct Kinds(BTreeMap<(String, String, String), (ApiResource, Scope)>);

impl Kinds {
    async fn discover(client: &Client, manifests: &[Manifest]) -> Result<Self, ApplyError> {
        let mut kinds = BTreeMap::new();
        let mut refused = Vec::new();
        for manifest in manifests {
            let gvk = manifest.gvk();
            let key = key(&gvk);
            if kinds.contains_key(&key) {
                continue;
            }
            match oneshot::pinned_kind(client, &gvk).await {
                Ok((resource, capabilities)) => {
                    kinds.insert(key, (resource, capabilities.scope));
                }
                Err(_) => refused.push(format!(
                    "{}: no kind {} in {}; `kubectl api-resources` lists what is served here",
                    manifest.place(),
                    gvk.kind,
                    gvk.api_version(),
                )),
            }
        }
        if refused.is_empty() {
            Ok(Self(kinds))
        } else {
            Err(ApplyError::Refused(refused))
        }
    }

    fn api(&self, client: &Client, manifest: &Manifest, namespace: &str) -> Api<DynamicObject> {
        let fallback = || (ApiResource::from_gvk(&manifest.gvk()), Scope::Namespaced);
        let (resource, scope) = self
            .0
            .get(&key(&manifest.gvk()))
            .cloned()
            .unwrap_or_else(fallback);
        match scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = manifest.object.meta().namespace.as_deref().unwrap_or(namespace);
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
        }
    }
}

fn key(gvk: &GroupVersionKind) -> (String, String, String) {
    (gvk.group.clone(), gvk.version.clone(), gvk.kind.clone())
}

/// The server's own words, without the client's frame around them.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
