//! One call on its way through the server: what was asked, what goes wrong with it, and the door to the
//! store that both pass through.

use std::sync::{Arc, PoisonError};

use http::{HeaderMap, Response, StatusCode};

use super::{
    Body, Shared,
    admit::Admission,
    query::{FieldValidation, Query},
    target::Target,
};
use crate::{
    crd,
    error::ApiError,
    fault::{Call, Fault},
    resource::ResourceType,
    store::{Change, CommitError, Key, Stored, Write},
};

/// Why a call gets no ordinary answer.
#[derive(Debug)]
pub(crate) enum Abort {
    /// The server says why.
    Refused(Box<ApiError>),
    /// The connection breaks: an injected crash.
    Disconnected,
}

impl From<ApiError> for Abort {
    fn from(error: ApiError) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// What handlers return.
pub(crate) type Answer = Result<Response<Body>, Abort>;

/// A call on a resource.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) server: Arc<Shared>,
    pub(crate) resource: Arc<ResourceType>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) call: Call,
    pub(crate) fault: Fault,
}

impl Context {
    /// The key of the object that the path names.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    /// The path's namespace; empty for objects outside of namespaces.
    pub(crate) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    /// The path's name; empty for collections.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn subresource(&self) -> Option<&str> {
        self.target.subresource.as_deref()
    }

    /// The object that the path names.
    pub(crate) fn current(&self) -> Result<Stored, ApiError> {
        self.server
            .store
            .get(&self.resource.storage_name(), &self.key())
            .ok_or_else(|| ApiError::not_found(&self.resource, self.name()))
    }

    /// The way to the store for this call.
    pub(crate) fn gate(&self, dry_run: bool) -> Gate {
        Gate {
            dry_run,
            fault: self.fault.clone(),
        }
    }

    /// The checks that a change of this call passes. `manager` is `None` where the patch noted it already.
    pub(crate) fn admission<'a>(
        &'a self,
        subresource: Option<&'a str>,
        validation: FieldValidation,
        manager: Option<String>,
    ) -> Admission<'a> {
        Admission {
            resource: &self.resource,
            subresource,
            validation,
            manager,
            now: self.server.now(),
        }
    }

    /// The field manager: the one given, or the first word of the user agent.
    pub(crate) fn manager(&self) -> String {
        if let Some(manager) = &self.call.field_manager {
            return manager.clone();
        }
        let agent = self.call.user_agent.as_deref().unwrap_or_default();
        let word = agent.split('/').next().unwrap_or_default();
        if word.is_empty() {
            "unknown".to_owned()
        } else {
            word.chars().take(128).collect()
        }
    }
}

/// The door to the store: writes pass it, unless nothing is to be stored or a crash was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) dry_run: bool,
    pub(crate) fault: Fault,
}

impl Gate {
    /// For the server's own writes.
    pub(crate) fn open() -> Self {
        Self {
            dry_run: false,
            fault: Fault::None,
        }
    }
}

/// Why a write did not happen.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The object changed since it was read.
    Conflict,
    /// The object that the write needs does not exist.
    Missing,
    /// There is nothing to try again.
    Abort(Abort),
}

impl Shared {
    /// Makes one change, as far as the gate lets it.
    pub(crate) async fn commit(&self, gate: &Gate, write: Write) -> Result<Stored, Failed> {
        if gate.dry_run {
            let (Change::Put(object) | Change::Delete(object)) = write.change;
            return Ok(Stored {
                revision: 0,
                object: Arc::new(object),
            });
        }
        if gate.fault == Fault::CrashBeforeCommit {
            return Err(Failed::Abort(Abort::Disconnected));
        }
        let definition = (&*write.resource == crd::DEFINITIONS).then(|| write.key.clone());
        let stored = self.store.commit(write).await.map_err(|error| match error {
            CommitError::Conflict => Failed::Conflict,
            CommitError::Missing => Failed::Missing,
            CommitError::Closed => Failed::Abort(ApiError::unavailable(error.to_string()).into()),
            CommitError::Log(_) => Failed::Abort(ApiError::internal(error).into()),
            CommitError::Full(_) => {
                let full = ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "", error.to_string());
                Failed::Abort(full.into())
            }
        })?;
        // What a definition defines is served before its caller knows that it is stored.
        if let Some(key) = definition {
            self.serve_definition(&key);
        }
        if gate.fault == Fault::CrashAfterCommit {
            return Err(Failed::Abort(Abort::Disconnected));
        }
        Ok(stored)
    }

    /// Serves what a definition says now, and nothing of it where it is gone.
    fn serve_definition(&self, key: &Key) {
        // Of two changes at once the later one is served, whoever comes first here: the store is asked inside.
        let _turn = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        match self.store.get(crd::DEFINITIONS, key) {
            Some(stored) => crd::serve(&self.registry, &stored.object),
            None => self.registry.set_custom(&key.name, Vec::new()),
        }
    }
}
