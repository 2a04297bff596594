//! What running programs are asked, beside the passes: one that answers slowly holds nothing up.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures::{Stream, channel::mpsc};
use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::children::Deployed;

/// How many programs of a kind are asked at a time.
const AT_A_TIME: usize = 16;

/// One rollout of a Deployment: what may have changed the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rollout {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Rollout {
    /// The present rollout of `deployment`.
    pub(crate) fn of(deployment: &Deployed) -> Self {
        Self {
            uid: deployment.metadata.uid.clone(),
            generation: deployment.metadata.generation,
        }
    }
}

/// What is known of the programs of a kind's resources, an `A` for each that is asked.
pub(crate) struct Asked<K: Resource<DynamicType = ()> + 'static, A> {
    inner: Arc<Inner<K, A>>,
}

struct Inner<K: Resource<DynamicType = ()> + 'static, A> {
    entries: Mutex<HashMap<ObjectRef<K>, Entry<A>>>,
    changed: mpsc::UnboundedSender<ObjectRef<K>>,
    permits: Semaphore,
}

struct Entry<A> {
    rollout: Rollout,
    known: A,
    /// Ends with the entry.
    _task: AbortOnDropHandle<()>,
}

impl<K: Resource<DynamicType = ()>, A> fmt::Debug for Asked<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

impl<K: Resource<DynamicType = ()>, A: Clone + Send + 'static> Asked<K, A> {
    /// Nobody is asked yet, and the stream of the resources of whose program there is news.
    pub(crate) fn new() -> (Self, impl Stream<Item = ObjectRef<K>> + Send + 'static) {
        let (changed, news) = mpsc::unbounded();
        let inner = Inner {
            entries: Mutex::default(),
            changed,
            permits: Semaphore::new(AT_A_TIME),
        };
        (
            Self {
                inner: Arc::new(inner),
            },
            news,
        )
    }

    /// What is known of the program of this resource, and of which rollout it is.
    pub(crate) fn known(&self, key: &ObjectRef<K>) -> Option<(Rollout, A)> {
        let entries = self.inner.entries();
        let entry = entries.get(key)?;
        Some((entry.rollout.clone(), entry.known.clone()))
    }

    /// From now on `known` is what is known of the program of this rollout, and `ask` asks it for more, in the place
    /// of who asked before. It ends when the resource is forgotten or asked anew.
    pub(crate) fn ask<F>(
        &self,
        key: ObjectRef<K>,
        rollout: Rollout,
        known: A,
        ask: impl FnOnce(Asking<K, A>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let asking = Asking {
            inner: Arc::downgrade(&self.inner),
            key: key.clone(),
            rollout: rollout.clone(),
        };
        let task = tokio::spawn(ask(asking));
        let entry = Entry {
            rollout,
            known,
            _task: AbortOnDropHandle::new(task),
        };
        self.inner.entries().insert(key, entry);
    }

    /// Asks no more, and knows nothing any more.
    pub(crate) fn forget(&self, key: &ObjectRef<K>) {
        self.inner.entries().remove(key);
    }
}

impl<K: Resource<DynamicType = ()>, A> Inner<K, A> {
    fn entries(&self) -> MutexGuard<'_, HashMap<ObjectRef<K>, Entry<A>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In the hand of who asks the program of one resource. It does not hold what is known: that holds who asks.
pub(crate) struct Asking<K: Resource<DynamicType = ()> + 'static, A> {
    inner: Weak<Inner<K, A>>,
    pub(crate) key: ObjectRef<K>,
    rollout: Rollout,
}

impl<K: Resource<DynamicType = ()>, A> Asking<K, A> {
    /// The answer to a question, when it is this program's turn. Nothing where nobody wants to know any more.
    pub(crate) async fn answer<T>(&self, question: impl Future<Output = T>) -> Option<T> {
        let inner = self.inner.upgrade()?;
        let _permit = inner.permits.acquire().await.ok()?;
        Some(question.await)
    }

    /// Changes what is known, unless another rollout is asked by now. Where `change` says that this is news, the
    /// resource is looked at.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut A) -> bool) {
        let Some(inner) = self.inner.upgrade() else {
            return;
        };
        let is_news = inner
            .entries()
            .get_mut(&self.key)
            .filter(|entry| entry.rollout == self.rollout)
            .is_some_and(|entry| change(&mut entry.known));
        if is_news {
            // Nobody listens any more when the controller ends.
            let _ = inner.changed.unbounded_send(self.key.clone());
        }
    }
}
