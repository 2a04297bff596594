//! Work that only one of several operators does: the one that holds a Lease.

use std::future::Future;

use k8s_openapi::api::coordination::v1::Lease;
use kaos_kube_ext::{Candidate, Terms};
use kaos_seams::Seams;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::{Error, probes::Readiness};

/// The Lease, by the name that earlier operators of KAOS stand for too.
const LEASE: &str = "kaos-operator.kaos.tools";

/// What is stood for, and where.
pub(crate) struct Election {
    pub(crate) client: Client,
    /// The address of the API server.
    pub(crate) api: String,
    /// The namespace of the Lease.
    pub(crate) namespace: String,
    pub(crate) seams: Seams,
}

impl Election {
    /// Does `work` once it is elected and as long as it is, and gives the Lease back when the work has ended.
    ///
    /// # Errors
    /// When there is nothing to stand for, when another leads before the work has ended, and those of the work.
    pub(crate) async fn lead(
        self,
        work: impl Future<Output = Result<(), Error>>,
        readiness: &Readiness,
        shutdown: &CancellationToken,
    ) -> Result<(), Error> {
        let elected = async {
            self.preflight().await?;
            readiness.stands_by(true);
            let leader = self.candidate().win().await;
            readiness.stands_by(false);
            Ok(leader)
        };
        let mut leader = tokio::select! {
            leader = elected => leader?,
            () = shutdown.cancelled() => return Ok(()),
        };
        tokio::select! {
            ended = work => {
                leader.resign().await;
                ended
            }
            // What is under way is dropped: another may begin at once.
            lost = leader.keep() => Err(Error::Lost(lost)),
        }
    }

    fn candidate(&self) -> Candidate {
        let host = rustix::system::uname();
        // As client-go's users write it: a host may have more than one of them.
        let identity = format!(
            "{}_{}",
            host.nodename().to_string_lossy(),
            self.seams.random.uuid()
        );
        let lease = (self.namespace.as_str(), LEASE);
        Candidate::new(
            self.client.clone(),
            lease,
            identity,
            Terms::default(),
            self.seams.clone(),
        )
    }

    /// Fails where nobody can be elected: a candidate would only try again and again.
    async fn preflight(&self) -> Result<(), Error> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let there = leases.get_opt(LEASE).await.map_err(|error| self.told(error))?;
        if there.is_some() {
            return Ok(());
        }
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(LEASE.to_owned()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        };
        let trial = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match leases.create(&trial, &lease).await {
            // Another has just made it.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            tried => tried.map(drop).map_err(|error| self.told(error)),
        }
    }

    fn told(&self, error: kube::Error) -> Error {
        let code = match &error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        let (api, namespace) = (self.api.clone(), self.namespace.clone());
        let cause = Box::new(error);
        match code {
            404 => Error::NoNamespace { api, namespace },
            401 | 403 => Error::NoElection {
                api,
                namespace,
                cause,
            },
            _ => Error::NoLease {
                api,
                lease: format!("{namespace}/{LEASE}"),
                cause,
            },
        }
    }
}
