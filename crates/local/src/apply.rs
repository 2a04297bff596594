//! Applying manifests: all of them or none.
//!
//! Every object is first sent as a dry run with strict field validation, so that an unknown field or a
//! refused value in the last document leaves the first ones unapplied. Then each is applied by server-side
//! apply; the file wins over an edit made elsewhere, as with every tool that applies from files.
//!
//! Namespaces that are named and not there are made, and what other objects refer to is applied before them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kaos_api::GROUP;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    discovery::{Scope, oneshot},
};

use crate::{
    finding::{Finding, Findings},
    manifest::Manifest,
    refusal::{closest, findings},
};

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
    /// The kind, and what the API calls its objects.
    pub resource: ApiResource,
    /// The namespace; `None` for objects of the cluster.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// Its unique identity.
    pub uid: String,
    /// Where it was given; nothing where a namespace was made because others are in it.
    pub file: Option<std::path::PathBuf>,
    /// What happened.
    pub change: Change,
}

/// Why nothing, or not everything, was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The server refuses some of the objects; nothing was applied.
    #[error("nothing was applied:\n{}", .0.0.iter().map(|finding| format!("  {finding}")).collect::<Vec<_>>().join("\n"))]
    Refused(Findings),
    /// The server stopped answering, or changed its mind between the dry run and the apply.
    #[error("{0}")]
    Failed(Finding),
    /// The server does not answer.
    #[error("the API does not answer: {0}")]
    Unreachable(#[from] kube::Error),
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
    // Stable: within each rank the order of the files stays.
    ordered.sort_by_key(|manifest| rank(&manifest.gvk()));

    let made = make_namespaces(client, &kinds, &ordered, namespace).await?;
    let refused = try_all(client, &kinds, &ordered, namespace).await;
    if !refused.is_empty() {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for made in &made {
            // It is empty. Where it cannot be taken back it does no harm either.
            let _ = namespaces.delete(&made.name, &DeleteParams::default()).await;
        }
        return Err(ApplyError::Refused(Findings(refused)));
    }

    let given: BTreeSet<&str> = ordered
        .iter()
        .filter(|manifest| manifest.gvk().kind == "Namespace")
        .map(|manifest| manifest.name())
        .collect();
    let (made_for_given, mut applied): (Vec<_>, Vec<_>) = made
        .into_iter()
        .partition(|made| given.contains(made.name.as_str()));
    for manifest in ordered {
        let mut one = apply_one(client, &kinds, manifest, namespace)
            .await
            .map_err(|error| {
                let mut found = findings(manifest, &error);
                ApplyError::Failed(found.swap_remove(0))
            })?;
        if made_for_given.iter().any(|made| made.uid == one.uid) {
            one.change = Change::Created;
        }
        applied.push(one);
    }
    Ok(applied)
}

/// What others live in comes first, then what they refer to.
fn rank(gvk: &GroupVersionKind) -> usize {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("", "ServiceAccount" | "Secret" | "ConfigMap" | "PersistentVolumeClaim") => 2,
        _ => 3,
    }
}

/// Makes the namespaces that the objects go to and that are not there.
async fn make_namespaces(
    client: &Client,
    kinds: &Kinds,
    manifests: &[&Manifest],
    namespace: &str,
) -> Result<Vec<Applied>, ApplyError> {
    let wanted: BTreeSet<&str> = manifests
        .iter()
        .filter(|manifest| kinds.is_namespaced(manifest))
        .map(|manifest| manifest.namespace_or(namespace))
        .collect();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut made = Vec::new();
    for name in wanted {
        if namespaces.get_metadata_opt(name).await?.is_some() {
            continue;
        }
        let mut object = Namespace::default();
        object.metadata.name = Some(name.to_owned());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let object = match namespaces.patch(name, &params, &Patch::Apply(&object)).await {
            Ok(object) => object,
            Err(error @ kube::Error::Api(_)) => {
                let user = manifests.iter().find(|one| one.namespace_or(namespace) == name);
                let found = user.map(|user| findings(user, &error)).unwrap_or_default();
                return Err(ApplyError::Refused(Findings(found)));
            }
            Err(error) => return Err(error.into()),
        };
        made.push(Applied {
            resource: ApiResource::erase::<Namespace>(&()),
            namespace: None,
            name: name.to_owned(),
            uid: object.uid().unwrap_or_default(),
            file: None,
            change: Change::Created,
        });
    }
    Ok(made)
}

/// What the server has against any of the objects.
async fn try_all(client: &Client, kinds: &Kinds, manifests: &[&Manifest], namespace: &str) -> Vec<Finding> {
    let params = PatchParams::apply(FIELD_MANAGER)
        .force()
        .validation_strict()
        .dry_run();
    let mut refused = Vec::new();
    for manifest in manifests {
        let api = kinds.api(client, manifest, namespace);
        if let Err(error) = api
            .patch(manifest.name(), &params, &Patch::Apply(&manifest.object))
            .await
        {
            refused.extend(findings(manifest, &error));
        }
    }
    refused
}

async fn apply_one(
    client: &Client,
    kinds: &Kinds,
    manifest: &Manifest,
    namespace: &str,
) -> Result<Applied, kube::Error> {
    let api = kinds.api(client, manifest, namespace);
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
        resource: kinds.resource(manifest).0,
        namespace: object.namespace(),
        uid: object.uid().unwrap_or_default(),
        file: Some(manifest.file.clone()),
        name,
        change,
    })
}

/// The API resources of the kinds that the manifests name.
pub(crate) struct Kinds(BTreeMap<(String, String, String), (ApiResource, Scope)>);

impl Kinds {
    /// Asks the server for each kind. Those that it does not serve are refused with what was meant, perhaps.
    pub(crate) async fn discover(client: &Client, manifests: &[Manifest]) -> Result<Self, ApplyError> {
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
                Err(_) => refused.push(manifest.finding(Some("kind"), unserved(&gvk))),
            }
        }
        if refused.is_empty() {
            Ok(Self(kinds))
        } else {
            Err(ApplyError::Refused(Findings(refused)))
        }
    }

    fn resource(&self, manifest: &Manifest) -> (ApiResource, Scope) {
        let known = self.0.get(&key(&manifest.gvk())).cloned();
        known.unwrap_or_else(|| (ApiResource::from_gvk(&manifest.gvk()), Scope::Namespaced))
    }

    fn is_namespaced(&self, manifest: &Manifest) -> bool {
        matches!(self.resource(manifest).1, Scope::Namespaced)
    }

    fn api(&self, client: &Client, manifest: &Manifest, namespace: &str) -> Api<DynamicObject> {
        let (resource, scope) = self.resource(manifest);
        match scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                Api::namespaced_with(client.clone(), manifest.namespace_or(namespace), &resource)
            }
        }
    }
}

/// The kinds that people write most, for what may have been meant.
const COMMON: [&str; 6] = [
    "ConfigMap",
    "Secret",
    "Namespace",
    "Deployment",
    "Service",
    "HTTPRoute",
];

fn unserved(gvk: &GroupVersionKind) -> String {
    let ours: Vec<String> = kaos_api::crds()
        .into_iter()
        .map(|definition| definition.spec.names.kind)
        .collect();
    let known = ours.iter().map(String::as_str).chain(COMMON);
    let hint = match closest(&gvk.kind, known) {
        Some(kind) if ours.iter().any(|ours| ours == kind) => {
            format!("did you mean kind {kind} in {GROUP}/v1alpha1?")
        }
        Some(kind) if kind != gvk.kind => format!("did you mean kind {kind}?"),
        _ => "`kubectl api-resources` lists what is served here".to_owned(),
    };
    format!("no kind {} in {}; {hint}", gvk.kind, gvk.api_version())
}

fn key(gvk: &GroupVersionKind) -> (String, String, String) {
    (gvk.group.clone(), gvk.version.clone(), gvk.kind.clone())
}
