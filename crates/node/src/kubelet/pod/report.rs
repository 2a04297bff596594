//! What a pod's task tells the API and people: the status, the events' subject, the end.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{RETRY, Worker};
use crate::{
    events,
    kubelet::status::{self, View},
};

impl Worker {
    /// Removes the object of a deleted pod, now that nothing of it runs. Tried until the API takes it.
    pub(super) async fn confirm_deletion(&self, stop: &CancellationToken) {
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), &self.namespace);
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        loop {
            match api.delete(&self.name, &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return,
                Err(error) => {
                    tracing::warn!(pod = %self.name, %error, "a pod that has ended cannot be removed; trying again");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Removes what the pod left on this machine.
    pub(super) fn forget(&self) {
        self.context.ports.remove(&self.uid);
        let removed = match std::fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => self.context.logs.remove(&self.namespace, &self.name, &self.uid),
        };
        if let Err(error) = removed {
            tracing::warn!(pod = %self.name, %error, "the files of a pod cannot be removed");
        }
    }

    pub(super) fn container_id(&self, index: usize) -> String {
        let container = &self.containers[index];
        status::container_id(&self.uid, &container.spec.name, container.restarts)
    }

    /// The pod, or one of its containers, for events.
    pub(super) fn reference(&self, index: Option<usize>) -> ObjectReference {
        let field_path = index.map(|index| {
            let container = &self.containers[index];
            format!("spec.{}{{{}}}", container.role.list(), container.spec.name)
        });
        ObjectReference {
            field_path,
            ..events::reference(&*self.pod)
        }
    }

    pub(super) fn views(&self) -> Vec<View> {
        let containers = self.containers.iter().enumerate();
        containers
            .map(|(index, container)| container.view(self.container_id(index)))
            .collect()
    }

    /// Writes the status where it differs from what the API has.
    pub(super) async fn publish(&mut self) {
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), &self.namespace);
        let views = self.views();
        let mut live = (*self.pod).clone();
        for attempt in 0..2 {
            let status = status::status(&live, &views, self.outlook, self.context.seams.clock.now());
            if live.status.as_ref() == Some(&status) {
                break;
            }
            live.status = Some(status);
            match api
                .replace_status(&self.name, &PostParams::default(), &live)
                .await
            {
                Ok(written) => {
                    live = written;
                    break;
                }
                Err(kube::Error::Api(answer)) if answer.is_conflict() && attempt == 0 => {
                    match api.get_opt(&self.name).await {
                        Ok(Some(newer)) if newer.uid().as_ref() == Some(&self.uid) => live = newer,
                        Ok(_) => return,
                        Err(_) => break,
                    }
                }
                // The watch tells that it is gone.
                Err(kube::Error::Api(answer)) if answer.is_not_found() => return,
                Err(error) => {
                    tracing::warn!(pod = %self.name, %error, "the status of a pod cannot be written; trying again");
                    self.retry_at = Some(Instant::now() + RETRY);
                    return;
                }
            }
        }
        self.pod = Arc::new(live);
    }
}
