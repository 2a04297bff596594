//! PersistentVolumeClaims: each is a folder of this machine, made when a claim is bound and kept until the claim
//! is deleted. The size that a claim asks for is told as its capacity and not enforced.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    events::{Recorder, Type, reference},
    files::create_private_dir,
    watch::Cache,
};

/// How long to wait before something that failed for a passing reason is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The folders of claims.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    dir: PathBuf,
}

impl Claims {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The folder of a claim: by its uid, so that a later claim of the same name starts empty.
    pub(crate) fn folder(&self, claim: &PersistentVolumeClaim) -> Option<PathBuf> {
        let (namespace, name) = (claim.namespace()?, claim.name_any());
        Some(self.dir.join(format!("{namespace}_{name}_{}", claim.uid()?)))
    }

    /// Binds claims and removes what was kept for those that are gone, until `stop`.
    pub(crate) async fn run(
        self,
        client: Client,
        claims: Arc<Cache<PersistentVolumeClaim>>,
        pods: Arc<Cache<Pod>>,
        events: Recorder,
        stop: CancellationToken,
    ) {
        let mut claim_changes = claims.changes();
        let mut pod_changes = pods.changes();
        loop {
            let mut again = false;
            for claim in claims.all() {
                if let Err(error) = self.bind(&client, &claim, &events).await {
                    tracing::warn!(claim = %claim.name_any(), %error, "a claim cannot be bound; trying again");
                    again = true;
                }
            }
            if let Err(error) = self.remove_leftovers(&client).await {
                tracing::warn!(%error, "the folders of deleted claims cannot be removed; trying again");
                again = true;
            }
            let retry = async {
                match again {
                    true => sleep(RETRY).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                _ = claim_changes.changed() => {}
                _ = pod_changes.changed() => {}
                () = retry => {}
            }
        }
    }

    /// Makes the folder of a claim and says in its status that it is bound.
    async fn bind(
        &self,
        client: &Client,
        claim: &PersistentVolumeClaim,
        events: &Recorder,
    ) -> Result<(), kube::Error> {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let (Some(namespace), Some(folder)) = (claim.namespace(), self.folder(claim)) else {
            return Ok(());
        };
        if phase == Some("Bound") || claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let refused = refusal(claim).or_else(|| {
            let error = create_private_dir(&folder).err()?;
            Some(format!("cannot create {}: {error}", folder.display()))
        });
        if let Some(message) = refused {
            events.report(reference(claim), Type::Warning, "ProvisioningFailed", message);
            return Ok(());
        }
        let spec = claim.spec.clone().unwrap_or_default();
        let mut bound = claim.clone();
        bound.status = Some(PersistentVolumeClaimStatus {
            phase: Some("Bound".to_owned()),
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            ..PersistentVolumeClaimStatus::default()
        });
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        match api
            .replace_status(&claim.name_any(), &PostParams::default(), &bound)
            .await
        {
            Ok(_) => {
                let message = format!("Bound to the folder {}", folder.display());
                events.report(reference(claim), Type::Normal, "ProvisioningSucceeded", message);
                Ok(())
            }
            // Somebody wrote first, and the watch tells of it.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the folders of claims that are gone, once no pod uses them any more.
    async fn remove_leftovers(&self, client: &Client) -> Result<(), LeftoverError> {
        let folders = names(&self.dir)?;
        if folders.is_empty() {
            return Ok(());
        }
        // Asked from the API itself: what a watch has not seen yet must not be taken for gone.
        let claims = Api::<PersistentVolumeClaim>::all(client.clone());
        let claims = claims.list(&ListParams::default()).await?.items;
        let kept: BTreeSet<PathBuf> = claims.iter().filter_map(|claim| self.folder(claim)).collect();
        let gone: Vec<PathBuf> = folders
            .into_iter()
            .filter(|folder| !kept.contains(folder))
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let pods = Api::<Pod>::all(client.clone())
            .list(&ListParams::default())
            .await?
            .items;
        for folder in gone {
            if !pods.iter().any(|pod| may_use(pod, &folder)) {
                fs::remove_dir_all(folder)?;
            }
        }
        Ok(())
    }
}

/// Why what was kept for claims that are gone stays.
#[derive(Debug, thiserror::Error)]
enum LeftoverError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a claim asks for that a folder cannot give.
fn refusal(claim: &PersistentVolumeClaim) -> Option<String> {
    let spec = claim.spec.as_ref()?;
    if let Some(mode) = spec.volume_mode.as_ref().filter(|mode| *mode != "Filesystem") {
        return Some(format!(
            "spec.volumeMode {mode} is not supported by the local node; use Filesystem"
        ));
    }
    let refused = [
        ("dataSource", spec.data_source.is_some()),
        ("dataSourceRef", spec.data_source_ref.is_some()),
        ("selector", spec.selector.is_some()),
    ];
    let (field, _) = refused.into_iter().find(|(_, is_asked)| *is_asked)?;
    Some(format!(
        "spec.{field} is not supported by the local node, where a claim is a new folder; leave it out"
    ))
}

/// Whether a pod that is not over has a claim whose folder may be this one.
fn may_use(pod: &Pod, folder: &Path) -> bool {
    let namespace = pod.namespace().unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    !matches!(phase, Some("Succeeded" | "Failed"))
        && volumes.any(|volume| {
            let claim = volume.persistent_volume_claim.as_ref();
            claim.is_some_and(|claim| name.starts_with(&format!("{namespace}_{}_", claim.claim_name)))
        })
}

/// The folders in `dir`; none where it is not there.
fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| entry.map(|entry| entry.path())).collect(),
    }
}
