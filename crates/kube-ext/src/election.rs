//! One leader among several processes of a program, told by a Lease.
//!
//! The protocol is that of client-go's `leaderelection`, so that `kubectl get lease` reads the same and both can
//! stand for the same Lease: a leader renews the Lease, a candidate takes it when it was given back, or has not
//! changed for as long as it says that it holds. How long that is, each candidate measures with a clock of its own
//! from when it saw the last change: clocks of machines differ.
//!
//! Every write names the version it was made from, so that of two candidates one comes too late. A leader that
//! cannot renew stops leading before another may take its place, as `renew` is shorter than `duration`.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kaos_seams::Seams;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::answer;

/// The times of an election. Those by default are client-go's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a Lease holds that is not renewed, in whole seconds.
    pub duration: Duration,
    /// How long a leader tries to renew it before it gives up. Shorter than `duration`.
    pub renew: Duration,
    /// How long everybody waits between two tries.
    pub retry: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Stands for election.
#[derive(Debug)]
pub struct Candidate {
    post: Post,
    /// The Lease as it was last seen, and since when it has been so.
    seen: Option<(Lease, Instant)>,
    /// The leader that was last logged.
    told: Option<String>,
}

/// Has been elected.
#[derive(Debug)]
pub struct Leader {
    post: Post,
    /// As it was last written.
    lease: Lease,
    renewed: Instant,
}

/// Why a leader leads no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It could not renew the Lease in time.
    #[error("Lease {lease} could not be renewed for {} s: {reason}", .within.as_secs())]
    Late {
        /// Namespace and name of the Lease.
        lease: String,
        /// How long it was tried.
        within: Duration,
        /// The last answer.
        reason: String,
    },
    /// Somebody else has it.
    #[error("Lease {lease} is held by {holder} now")]
    Taken {
        /// Namespace and name of the Lease.
        lease: String,
        /// Who has it.
        holder: String,
    },
}

/// What is stood for, and by whom.
#[derive(Debug)]
struct Post {
    api: Api<Lease>,
    namespace: String,
    name: String,
    identity: String,
    terms: Terms,
    seams: Seams,
}

impl Candidate {
    /// Stands for the Lease `name` in `namespace`, as `identity`, which no other candidate has.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        identity: String,
        terms: Terms,
        seams: Seams,
    ) -> Self {
        let post = Post {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            terms,
            seams,
        };
        Self {
            post,
            seen: None,
            told: None,
        }
    }

    /// Waits until it is elected. What goes wrong meanwhile is logged, and tried again.
    pub async fn win(mut self) -> Leader {
        let mut problem = None;
        loop {
            let begun = Instant::now();
            match timeout(self.post.terms.renew, self.stand()).await {
                Ok(Ok(Some(lease))) => {
                    info!(
                        lease = self.post.shown(),
                        identity = self.post.identity,
                        "elected"
                    );
                    return Leader {
                        post: self.post,
                        lease,
                        renewed: begun,
                    };
                }
                Ok(Ok(None)) => problem = None,
                Ok(Err(error)) => self.warn(&mut problem, answer(&error).into_owned()),
                Err(_) => self.warn(&mut problem, "no answer".to_owned()),
            }
            sleep(self.post.seams.random.jitter(self.post.terms.retry)).await;
        }
    }

    fn warn(&self, told: &mut Option<String>, reason: String) {
        if told.as_ref() != Some(&reason) {
            warn!(
                lease = self.post.shown(),
                error = reason,
                "cannot stand for election; trying again"
            );
            *told = Some(reason);
        }
    }

    /// Takes the Lease if it is free.
    async fn stand(&mut self) -> Result<Option<Lease>, kube::Error> {
        let Some(lease) = self.post.api.get_opt(&self.post.name).await? else {
            return self.post.written(self.post.create().await);
        };
        let since = match &self.seen {
            Some((seen, since)) if seen.metadata.uid == lease.metadata.uid && seen.spec == lease.spec => {
                *since
            }
            _ => Instant::now(),
        };
        let is_free = holder(&lease).is_none_or(|holder| holder == self.post.identity)
            || since.elapsed() >= duration(&lease);
        if is_free {
            let taken = self.post.taken(&lease);
            self.seen = Some((lease, since));
            return self.post.written(self.post.write(&taken).await);
        }
        if let Some(holder) = holder(&lease)
            && self.told.as_deref() != Some(holder)
        {
            info!(
                lease = self.post.shown(),
                leader = holder,
                "another leads; waiting"
            );
            self.told = Some(holder.to_owned());
        }
        self.seen = Some((lease, since));
        Ok(None)
    }
}

impl Leader {
    /// Renews the Lease until it is lost. May be dropped and called again.
    pub async fn keep(&mut self) -> Lost {
        loop {
            sleep(self.post.terms.retry).await;
            let until = self.renewed + self.post.terms.renew;
            let mut reason = "no answer".to_owned();
            match timeout_at(until, self.renew(&mut reason)).await {
                Ok(Ok(())) => {}
                Ok(Err(lost)) => return lost,
                Err(_) => {
                    return Lost::Late {
                        lease: self.post.shown(),
                        within: self.post.terms.renew,
                        reason,
                    };
                }
            }
        }
    }

    /// One renewal, tried until it succeeds.
    async fn renew(&mut self, reason: &mut String) -> Result<(), Lost> {
        loop {
            let begun = Instant::now();
            match self.post.write(&self.post.taken(&self.lease)).await {
                Ok(lease) => {
                    self.lease = lease;
                    self.renewed = begun;
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {
                    match self.live().await {
                        // Somebody has put a label on it, say.
                        Ok(Some(lease)) if holder(&lease) == Some(&self.post.identity) => {
                            self.lease = lease;
                            continue;
                        }
                        Ok(lease) => return Err(self.taken(lease.as_ref())),
                        Err(error) => *reason = answer(&error).into_owned(),
                    }
                }
                Err(error) => *reason = answer(&error).into_owned(),
            }
            debug!(
                lease = self.post.shown(),
                error = reason,
                "not renewed; trying again"
            );
            sleep(self.post.terms.retry).await;
        }
    }

    /// The Lease as it is; made anew where somebody has deleted it and nobody has taken its place.
    async fn live(&self) -> Result<Option<Lease>, kube::Error> {
        match self.post.api.get_opt(&self.post.name).await? {
            Some(lease) => Ok(Some(lease)),
            None => self.post.written(self.post.create().await),
        }
    }

    fn taken(&self, lease: Option<&Lease>) -> Lost {
        Lost::Taken {
            lease: self.post.shown(),
            holder: lease.and_then(holder).unwrap_or("another").to_owned(),
        }
    }

    /// Gives the Lease back, so that another need not wait for it to run out.
    pub async fn resign(self) {
        let mut lease = self.lease;
        let now = MicroTime(self.post.seams.clock.now());
        lease.spec = Some(LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..lease.spec.unwrap_or_default()
        });
        match timeout(self.post.terms.retry, self.post.write(&lease)).await {
            Ok(Ok(_)) => info!(lease = self.post.shown(), "given back"),
            Ok(Err(error)) => debug!(
                error = %answer(&error),
                "the Lease was not given back and runs out"
            ),
            Err(_) => debug!("the Lease was not given back in time and runs out"),
        }
    }
}

impl Post {
    fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The Lease that was written; nothing where another was quicker.
    fn written(&self, answer: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
        match answer {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                debug!(lease = self.shown(), "another was quicker");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&self) -> Result<Lease, kube::Error> {
        let now = MicroTime(self.seams.clock.now());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.held(now.clone(), now, 0)),
        };
        self.api.create(&PostParams::default(), &lease).await
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.api.replace(&self.name, &PostParams::default(), lease).await
    }

    /// `lease` in this candidate's hands.
    fn taken(&self, lease: &Lease) -> Lease {
        let spec = lease.spec.clone().unwrap_or_default();
        let now = MicroTime(self.seams.clock.now());
        let transitions = spec.lease_transitions.unwrap_or_default();
        let held = if spec.holder_identity.as_ref() == Some(&self.identity) {
            self.held(spec.acquire_time.unwrap_or_else(|| now.clone()), now, transitions)
        } else {
            self.held(now.clone(), now, transitions.saturating_add(1))
        };
        Lease {
            spec: Some(held),
            ..lease.clone()
        }
    }

    fn held(&self, acquired: MicroTime, renewed: MicroTime, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.terms.duration.as_secs()).ok(),
            acquire_time: Some(acquired),
            renew_time: Some(renewed),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

/// Who holds it.
fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref();
    holder.filter(|holder| !holder.is_empty())
}

/// How long it holds unless it is renewed.
fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    Duration::from_secs(
        seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .unwrap_or_default(),
    )
}
