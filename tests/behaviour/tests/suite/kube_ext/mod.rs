//! What our own additions to kube-rs do on an API server, where somebody else acts at the worst moment.

mod apply;
mod canonical;
mod election;
mod finalizers;
mod handover;
mod interposed;
mod status;
mod watch;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kaos_kube_ext::{Applier, ApplyError, Fingerprint, Others};
use kaos_testkit::TestApi;
use kube::Resource;
use kube::api::{ObjectMeta, PostParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The field manager under test.
const US: &str = "us";

/// As a controller applies whose store has the object otherwise than the last apply left it: it is looked at.
async fn apply<K>(applier: &Applier, desired: &K) -> Result<K, ApplyError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Serialize + DeserializeOwned,
{
    let other = Fingerprint::of(&ObjectMeta::default());
    let applied = applier.apply(desired, Some(other), Others::Stay).await?;
    Ok(applied.expect("what is looked at is returned"))
}

/// An object that can control others: on a real server, an owner that is not there has its objects deleted.
async fn owner(api: &TestApi) -> OwnerReference {
    let metadata = ObjectMeta {
        generate_name: Some("owner-".to_owned()),
        ..ObjectMeta::default()
    };
    let owner = ConfigMap {
        metadata,
        ..ConfigMap::default()
    };
    let owner = api.api().create(&PostParams::default(), &owner).await.unwrap();
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: owner.metadata.name.unwrap(),
        uid: owner.metadata.uid.unwrap(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// The ConfigMap `child` of that owner.
fn child(api: &TestApi, owner: &OwnerReference, data: &[(&str, &str)]) -> ConfigMap {
    let data = data
        .iter()
        .map(|(key, value)| (String::from(*key), String::from(*value)));
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("child".to_owned()),
            namespace: Some(api.namespace.clone()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        ..ConfigMap::default()
    }
}

/// The same ConfigMap, of nobody.
fn foreign(api: &TestApi) -> ConfigMap {
    let mut object = child(api, &OwnerReference::default(), &[("theirs", "1")]);
    object.metadata.owner_references = None;
    object
}

fn data(object: &ConfigMap) -> Vec<(&str, &str)> {
    let data = object.data.iter().flatten();
    data.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}
