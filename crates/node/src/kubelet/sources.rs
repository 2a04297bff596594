//! What a pod refers to: its ConfigMaps, Secrets and claims, read by name before its containers start.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::Api;

use super::Context;

/// The ConfigMaps, Secrets and folders of claims of one pod that exist, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sources {
    pub(crate) config_maps: BTreeMap<String, ConfigMap>,
    pub(crate) secrets: BTreeMap<String, Secret>,
    pub(crate) claims: BTreeMap<String, PathBuf>,
}

/// Whether the pod refers to anything.
pub(crate) fn has_references(pod: &Pod) -> bool {
    let names = references(pod);
    !names.0.is_empty() || !names.1.is_empty()
}

/// The names of the ConfigMaps and Secrets that the pod refers to.
fn references(pod: &Pod) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let Some(spec) = &pod.spec else {
        return (config_maps, secrets);
    };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for from in container.env_from.iter().flatten() {
            config_maps.extend(from.config_map_ref.as_ref().map(|source| source.name.as_str()));
            secrets.extend(from.secret_ref.as_ref().map(|source| source.name.as_str()));
        }
        for from in container
            .env
            .iter()
            .flatten()
            .filter_map(|var| var.value_from.as_ref())
        {
            config_maps.extend(
                from.config_map_key_ref
                    .as_ref()
                    .map(|source| source.name.as_str()),
            );
            secrets.extend(from.secret_key_ref.as_ref().map(|source| source.name.as_str()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        config_maps.extend(volume.config_map.as_ref().map(|source| source.name.as_str()));
        secrets.extend(
            volume
                .secret
                .as_ref()
                .and_then(|source| source.secret_name.as_deref()),
        );
        let projected = volume
            .projected
            .iter()
            .flat_map(|source| source.sources.iter().flatten());
        for projection in projected {
            config_maps.extend(projection.config_map.as_ref().map(|source| source.name.as_str()));
            secrets.extend(projection.secret.as_ref().map(|source| source.name.as_str()));
        }
    }
    (config_maps, secrets)
}

impl Sources {
    /// Reads what the pod refers to, as it is now.
    pub(crate) async fn read(context: &Context, namespace: &str, pod: &Pod) -> Result<Self, kube::Error> {
        let client = &context.client;
        let (config_maps, secrets) = references(pod);
        let mut sources = Self::default();
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        for name in config_maps {
            sources
                .config_maps
                .extend(api.get_opt(name).await?.map(|object| (name.to_owned(), object)));
        }
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        for name in secrets {
            sources
                .secrets
                .extend(api.get_opt(name).await?.map(|object| (name.to_owned(), object)));
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for claim in volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
            let name = &claim.claim_name;
            let found = api.get_opt(name).await?;
            let folder = found.and_then(|claim| context.claims.folder(&claim));
            sources.claims.extend(folder.map(|folder| (name.clone(), folder)));
        }
        Ok(sources)
    }
}
