//! The workers of the server: who runs the next call, and what becomes of a worker that failed.
//!
//! Each slot owns one worker and runs one call at a time. A worker that ends, answers nonsense or is still
//! busy at the deadline is killed and replaced; only the call it was running fails. Nothing is retried: a
//! tool may have effects. A pool serves one source from its start to its end; another source is another pool.

use std::{
    path::Path,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kaos_seams::Seams;
use serde_json::{Map, Value};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use super::{
    config::ToolServerConfig,
    source::Loaded,
    worker::{Answer, Broken, Definition, StartError, Worker},
};

/// Waits between attempts to replace a worker.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(10);
/// A worker that has lived this long was sound: the next one is started at once.
const SOUND_LIFE: Duration = Duration::from_secs(10);

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no worker was free within {0} s; the tools are busy")]
    Busy(f64),
    #[error("the call was stopped after {0} s, its time limit")]
    TimedOut(f64),
    #[error("the call failed: {0}")]
    Broken(#[from] Broken),
    #[error("the caller has left")]
    Abandoned,
    #[error("the tool server is stopping")]
    Stopping,
}

struct Job {
    tool: String,
    arguments: Map<String, Value>,
    reply: oneshot::Sender<Result<Answer, CallError>>,
}

/// A call that no worker has begun. Its caller hears through `begun` when one does.
struct Waiting {
    begun: oneshot::Sender<()>,
    job: Job,
}

/// Running workers. Dropping it kills them.
pub(super) struct Pool {
    jobs: mpsc::UnboundedSender<Waiting>,
    tools: Arc<[Definition]>,
    living: Arc<AtomicUsize>,
    call_timeout: Duration,
    slots: std::sync::Mutex<JoinSet<()>>,
}

/// What all slots share.
#[derive(Clone)]
struct Shared {
    config: Arc<ToolServerConfig>,
    /// The interpreter that has the packages of the source.
    python: Arc<Path>,
    source: Arc<Loaded>,
    seams: Seams,
    jobs: Arc<Mutex<mpsc::UnboundedReceiver<Waiting>>>,
    living: Arc<AtomicUsize>,
}

impl Pool {
    /// Starts a worker, which shows whether the source can be served, and then the others beside it.
    pub(super) async fn start(
        config: Arc<ToolServerConfig>,
        source: Loaded,
        seams: Seams,
    ) -> Result<Self, StartError> {
        let python: Arc<Path> = source.python(&config).await?.into();
        let first = Worker::start(&python, &source).await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let shared = Shared {
            config,
            python,
            source: Arc::new(source),
            seams,
            jobs: Arc::new(Mutex::new(receiver)),
            living: Arc::new(AtomicUsize::new(0)),
        };
        let tools = first.tools.clone();
        let mut slots = JoinSet::new();
        let mut first = Some(Living::new(first, &shared.living));
        for _ in 0..shared.config.workers {
            slots.spawn(slot(shared.clone(), first.take()));
        }
        Ok(Self {
            jobs: sender,
            tools,
            living: shared.living,
            call_timeout: shared.config.call_timeout,
            slots: std::sync::Mutex::new(slots),
        })
    }

    /// Lets the calls that have come end, and the workers with them. New calls are for another pool: this one
    /// takes them for as long as somebody holds it.
    pub(super) async fn retire(self: Arc<Self>) {
        let mut slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        // A call waits for a worker for one limit at most, and then runs for one.
        let limit = self.call_timeout * 2;
        // The slots end when nobody can send a call any more.
        drop(self);
        let ended = async { while slots.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, ended).await.is_err() {
            tracing::warn!("tool workers of the source before were still busy and are stopped");
        }
    }

    /// The tools of the source, in its order.
    pub(super) fn tools(&self) -> &[Definition] {
        &self.tools
    }

    /// Their names, for messages.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        names.join(", ")
    }

    /// How many workers can run a call, or are running one.
    pub(super) fn living(&self) -> usize {
        self.living.load(Ordering::Relaxed)
    }

    /// Runs a call on the next free worker. Dropping the future takes the call back; a worker that has begun it
    /// is stopped and replaced, as at the deadline.
    pub(super) async fn call(
        &self,
        tool: String,
        arguments: Map<String, Value>,
    ) -> Result<Answer, CallError> {
        let (reply, answer) = oneshot::channel();
        let (begun, begins) = oneshot::channel();
        let job = Job {
            tool,
            arguments,
            reply,
        };
        self.jobs
            .send(Waiting { begun, job })
            .map_err(|_| CallError::Stopping)?;
        match tokio::time::timeout(self.call_timeout, begins).await {
            Ok(Ok(())) => answer.await.unwrap_or(Err(CallError::Stopping)),
            Ok(Err(_)) => Err(CallError::Stopping),
            Err(_) => Err(CallError::Busy(self.call_timeout.as_secs_f64())),
        }
    }
}

/// A worker that counts as living.
struct Living {
    worker: Worker,
    since: Instant,
    count: Arc<AtomicUsize>,
}

impl Living {
    fn new(worker: Worker, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self {
            worker,
            since: Instant::now(),
            count: count.clone(),
        }
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs calls one after another until the pool is dropped.
async fn slot(shared: Shared, first: Option<Living>) {
    let mut delay = Duration::ZERO;
    let mut current = first;
    loop {
        let mut living = match current.take() {
            Some(living) => living,
            None => replace(&shared, &mut delay).await,
        };
        let job = tokio::select! {
            job = next(&shared) => job,
            how = living.worker.ended() => {
                tracing::warn!(how, "an idle tool worker ended; it is replaced");
                delay = delay_after(living.since, delay);
                continue;
            }
        };
        let Some(mut job) = job else { return };
        let limit = shared.config.call_timeout;
        let call = living.worker.call(&job.tool, &job.arguments);
        let result = tokio::select! {
            result = tokio::time::timeout(limit, call) => match result {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(broken)) => Err(CallError::Broken(broken)),
                Err(_) => Err(CallError::TimedOut(limit.as_secs_f64())),
            },
            () = job.reply.closed() => Err(CallError::Abandoned),
        };
        match &result {
            Ok(_) => {
                delay = Duration::ZERO;
                current = Some(living);
            }
            Err(error) => {
                tracing::warn!(tool = job.tool, %error, "a tool worker is replaced");
                delay = match error {
                    // Nothing is wrong with the tools.
                    CallError::Abandoned => Duration::ZERO,
                    _ => delay_after(living.since, delay),
                };
                // Killed before the caller hears of it: a stopped call has no effects from then on.
                drop(living);
            }
        }
        // The caller may have gone; its answer then goes nowhere.
        let _ = job.reply.send(result);
    }
}

/// The next call that still has a caller; `None` when the pool is gone.
async fn next(shared: &Shared) -> Option<Job> {
    let mut jobs = shared.jobs.lock().await;
    loop {
        let Waiting { begun, job } = jobs.recv().await?;
        if begun.send(()).is_ok() {
            return Some(job);
        }
    }
}

/// A new worker, however long it takes.
async fn replace(shared: &Shared, delay: &mut Duration) -> Living {
    loop {
        if !delay.is_zero() {
            tokio::time::sleep(shared.seams.random.jitter(*delay)).await;
        }
        match Worker::start(&shared.python, &shared.source).await {
            Ok(worker) => return Living::new(worker, &shared.living),
            Err(error) => {
                *delay = longer(*delay);
                tracing::error!(%error, "a tool worker cannot be started; trying again");
            }
        }
    }
}

fn delay_after(since: Instant, delay: Duration) -> Duration {
    if since.elapsed() >= SOUND_LIFE {
        Duration::ZERO
    } else {
        longer(delay)
    }
}

fn longer(delay: Duration) -> Duration {
    (delay * 2).clamp(FIRST_DELAY, LAST_DELAY)
}
