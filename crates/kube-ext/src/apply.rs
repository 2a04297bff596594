//! Server-side apply of objects that belong to a resource.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use kube::{
    Api, Client, Resource,
    api::{ApiResource, Patch, PatchParams, ValidationDirective},
    core::{DynamicObject, NamespaceResourceScope, Request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    compare, handover,
    owner::{controller_of, is_controlled_by},
    readable::Identified,
    seen::{AsLeft, Fingerprint, Key},
    settled::Settled,
};

/// How often an object is looked at again that somebody else has made, deleted or changed at the same moment.
pub(crate) const ATTEMPTS: usize = 5;

/// A resource version that no object has: stores count their writes, and the first is not ours. An apply that
/// names it creates an object or fails, and never adds to what is there.
const NO_VERSION: &str = "1";

/// What was asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading the live object.
    Get,
    /// Applying an object that was not there.
    Create,
    /// Applying an object that was there, or taking over the fields of a predecessor.
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

/// What becomes of what others have put beside the fields of an object that is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It stays.
    Stay,
    /// It stays as long as it fits: where it makes the whole one that the API server refuses (two ports of one name,
    /// say), what others have of the spec goes.
    Yield,
}

/// Applies objects under one field manager.
#[derive(Clone)]
pub struct Applier {
    pub(crate) client: Client,
    pub(crate) manager: &'static str,
    pub(crate) predecessors: &'static [&'static str],
    settled: Settled,
    as_left: AsLeft,
}

impl fmt::Debug for Applier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applier")
            .field("manager", &self.manager)
            .field("predecessors", &self.predecessors)
            .finish_non_exhaustive()
    }
}

impl Applier {
    /// Applies as `manager`. One controller always uses the same one: the fields it once applied and no
    /// longer wants are found by it.
    pub fn new(client: Client, manager: &'static str) -> Self {
        Self {
            client,
            manager,
            predecessors: &[],
            settled: Settled::default(),
            as_left: AsLeft::default(),
        }
    }

    /// The same, which takes over what these field managers wrote by plain updates: in an object that this one
    /// has never applied, their fields become its own first. What it does not want of them goes with its
    /// first apply.
    #[must_use]
    pub fn succeeding(mut self, predecessors: &'static [&'static str]) -> Self {
        self.predecessors = predecessors;
        self
    }

    /// Makes the live object what `desired` says, and returns it as an `L`: only what the caller reads of it. `seen`
    /// is what a complete store has of the object. Where it is as the same apply has left it, nothing is asked and
    /// nothing returned; where there is none, the first apply is sent without a look. Else the live object is looked
    /// at, and nothing is sent where it already is as desired, or where the same apply of the same object has
    /// changed nothing before.
    ///
    /// `desired` names its controller in its owner references. Fields that others have set are taken over, `others`
    /// says what becomes of those that `desired` does not name. Each write is meant for the object that was looked
    /// at before, or for none: what somebody else makes in between is not touched.
    ///
    /// # Errors
    /// When an object of that name is not controlled by that owner, or the API server says no.
    pub async fn apply<K, L>(
        &self,
        desired: &K,
        seen: Option<Fingerprint>,
        others: Others,
    ) -> Result<Option<L>, ApplyError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Serialize,
        L: DeserializeOwned,
    {
        let target = Target::of(&self.client, desired, others)?;
        match seen {
            Some(seen) if self.as_left.is(&target.key, target.digest, seen) => return Ok(None),
            None if !self.as_left.has_been(&target.key) => match self.create(&target).await {
                Err(ApplyError::Api { source, .. }) if is_overtaken(&source) => {
                    self.as_left.remember_other(target.key.clone());
                }
                created => return self.left(&target, &created?).map(Some),
            },
            _ => {}
        }
        let applied = self.until_settled(&target).await?;
        self.left(&target, &applied).map(Some)
    }

    /// Whether [`Applier::apply`] would change an object that is there. `seen` is what a complete store has of it, as
    /// there. What only that can tell, such as that it belongs to somebody else, is left to it.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn would_change<K>(&self, desired: &K, seen: Option<Fingerprint>) -> Result<bool, ApplyError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    {
        let target = Target::of(&self.client, desired, Others::Stay)?;
        match seen {
            None => return Ok(false),
            Some(seen) if self.as_left.is(&target.key, target.digest, seen) => return Ok(false),
            Some(_) => {}
        }
        let live = target.api.get_opt(&target.name).await;
        let live = live.map_err(|error| target.failed(Operation::Get, error))?;
        let Some(live) = live.filter(|live| is_controlled_by(&live.metadata, &target.owner)) else {
            return Ok(false);
        };
        let intent = serde_json::to_value(desired).map_err(|error| target.malformed(&error))?;
        let object = serde_json::to_value(&live).map_err(|error| target.malformed(&error))?;
        let is_desired =
            compare::holds(&intent, &object, self.manager, None) || self.settled.knows(&intent, &object);
        if is_desired {
            self.as_left
                .remember(target.key.clone(), target.digest, &live.metadata);
        }
        Ok(!is_desired)
    }

    /// Asks the API server whether it would take `desired`, as a dry run: nothing is changed.
    ///
    /// # Errors
    /// When it would not. That it cannot tell, because a webhook supports no dry runs or the object has just been
    /// changed, is none.
    pub async fn rehearse<K>(&self, desired: &K) -> Result<(), ApplyError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    {
        let target = Target::of(&self.client, desired, Others::Stay)?;
        let params = PatchParams {
            dry_run: true,
            ..self.params()
        };
        match self.send(&target, Operation::Update, desired, &params).await {
            Err(ApplyError::Api { source, .. }) if is_overtaken(&source) || is_unrehearsable(&source) => {
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    async fn until_settled<K>(&self, target: &Target<'_, K>) -> Result<String, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize,
    {
        let intent = serde_json::to_value(target.desired).map_err(|error| target.malformed(&error))?;
        let mut attempt = 1;
        loop {
            match self.attempt(target, &intent).await {
                Err(ApplyError::Api { source, .. }) if attempt < ATTEMPTS && is_overtaken(&source) => {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Remembers what an apply made or found right.
    fn left<K, L: DeserializeOwned>(&self, target: &Target<'_, K>, live: &str) -> Result<L, ApplyError> {
        let read = serde_json::from_str(live).and_then(|Identified { metadata }| {
            self.as_left
                .remember(target.key.clone(), target.digest, &metadata);
            serde_json::from_str(live)
        });
        read.map_err(|error| target.malformed(&error))
    }

    /// Fails where there is an object of this name already.
    async fn create<K>(&self, target: &Target<'_, K>) -> Result<String, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize,
    {
        let mut intent = target.desired.clone();
        intent.meta_mut().resource_version = Some(NO_VERSION.to_owned());
        self.send(target, Operation::Create, &intent, &self.params())
            .await
    }

    /// One look at the live object, and one write at most beside the handover.
    async fn attempt<K>(&self, target: &Target<'_, K>, intent: &Value) -> Result<String, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize,
    {
        let live = target.api.get_opt(&target.name).await;
        let Some(live) = live.map_err(|error| target.failed(Operation::Get, error))? else {
            self.as_left.forget(&target.key);
            return self.create(target).await;
        };
        if !is_controlled_by(&live.metadata, &target.owner) {
            return Err(target.foreign(&live));
        }
        if live.metadata.deletion_timestamp.is_some() {
            return Err(ApplyError::BeingDeleted {
                kind: target.kind.clone(),
                name: target.name.clone(),
            });
        }
        let taken_over = handover::take_over(&target.api, &live, self, None).await;
        let live = taken_over
            .map_err(|error| target.failed(Operation::Update, error))?
            .unwrap_or(live);
        let object = serde_json::to_value(&live).map_err(|error| target.malformed(&error))?;
        if compare::holds(intent, &object, self.manager, None) || self.settled.knows(intent, &object) {
            return Ok(object.to_string());
        }
        let mut meant_for = target.desired.clone();
        meant_for.meta_mut().uid.clone_from(&live.metadata.uid);
        let params = self.params();
        let applied = match self.send(target, Operation::Update, &meant_for, &params).await {
            Err(ApplyError::Api { source, .. }) if target.others == Others::Yield && is_refused(&source) => {
                let taken = handover::take_spec(&target.api, &live, self).await;
                if !taken.map_err(|error| target.failed(Operation::Update, error))? {
                    return Err(target.failed(Operation::Update, source));
                }
                self.send(target, Operation::Update, &meant_for, &params).await
            }
            outcome => outcome,
        }?;
        // In the form in which the live object was read: other servers order the fields of their answers otherwise.
        let after = serde_json::from_str::<DynamicObject>(&applied).and_then(serde_json::to_value);
        let after = after.map_err(|error| target.malformed(&error))?;
        self.settled.learn(intent, &object, &after);
        Ok(applied)
    }

    /// Returns the server's answer as it came.
    async fn send<K: Resource + Serialize>(
        &self,
        target: &Target<'_, K>,
        operation: Operation,
        intent: &K,
        params: &PatchParams,
    ) -> Result<String, ApplyError> {
        let Target { kind, name, .. } = target;
        tracing::debug!(kind, name, %operation, dry_run = params.dry_run, "applying");
        let request = Request::new(target.api.resource_url()).patch(name, params, &Patch::Apply(intent));
        let answer = async {
            self.client
                .request_text(request.map_err(kube::Error::BuildRequest)?)
                .await
        };
        answer.await.map_err(|error| target.failed(operation, error))
    }

    pub(crate) fn params(&self) -> PatchParams {
        PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply(self.manager).force()
        }
    }
}

/// Whether a write came too late: there is another object now, or none, or it has changed.
pub(crate) fn is_overtaken(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let Some(details) = &status.details else {
        return status.code == 409;
    };
    match status.code {
        // The object is gone; not its namespace, which would not come back.
        404 => !details.name.is_empty() && details.kind != "namespaces",
        409 => true,
        // An object of another uid is refused as a change of that field.
        422 => details.causes.iter().any(|cause| cause.field == "metadata.uid"),
        _ => false,
    }
}

/// Whether a dry run was refused for what it is: by a webhook that has effects of its own.
fn is_unrehearsable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 400 && status.message.contains("does not support dry run"))
}

/// Whether the object that a write would have made is invalid.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422) && !is_overtaken(error)
}

/// What is to be applied, and where.
struct Target<'a, K> {
    kind: String,
    name: String,
    key: Key,
    /// The uid of the controller.
    owner: String,
    desired: &'a K,
    /// Of what is desired.
    digest: u64,
    others: Others,
    api: Api<DynamicObject>,
}

impl<'a, K: Resource<DynamicType = ()>> Target<'a, K> {
    fn of(client: &Client, desired: &'a K, others: Others) -> Result<Self, ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize,
    {
        let kind = K::kind(&()).into_owned();
        let malformed = |problem: &str| ApplyError::Malformed {
            kind: kind.clone(),
            problem: problem.to_owned(),
        };
        let meta = desired.meta();
        let name = meta.name.clone().ok_or_else(|| malformed("it has no name"))?;
        let namespace = meta.namespace.as_deref();
        let namespace = namespace.ok_or_else(|| malformed("it has no namespace"))?;
        let owner = controller_of(meta).ok_or_else(|| malformed("it has no controller"))?;
        let mut digest = DefaultHasher::new();
        let text = serde_json::to_vec(desired).map_err(|error| malformed(&error.to_string()))?;
        text.hash(&mut digest);
        Ok(Self {
            key: (kind.clone(), namespace.to_owned(), name.clone()),
            owner: owner.uid.clone(),
            digest: digest.finish(),
            api: Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&())),
            name,
            kind,
            desired,
            others,
        })
    }
}

impl<K> Target<'_, K> {
    fn failed(&self, operation: Operation, source: kube::Error) -> ApplyError {
        ApplyError::Api {
            kind: self.kind.clone(),
            name: self.name.clone(),
            operation,
            source,
        }
    }

    fn malformed(&self, error: &serde_json::Error) -> ApplyError {
        ApplyError::Malformed {
            kind: self.kind.clone(),
            problem: error.to_string(),
        }
    }

    fn foreign(&self, live: &DynamicObject) -> ApplyError {
        let owner = match controller_of(&live.metadata) {
            Some(owner) => format!(
                "is controlled by {} {} (uid {})",
                owner.kind, owner.name, owner.uid
            ),
            None => "has no controller".to_owned(),
        };
        ApplyError::Foreign {
            kind: self.kind.clone(),
            name: self.name.clone(),
            owner,
        }
    }
}
