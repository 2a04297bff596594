//! One embedded server on which cases are run, one after the other.
//!
//! Starting a server and its definitions takes longer than a case. So a case cleans up behind the one before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kaos_apiserver::{ApiServer, Options, Storage};
use kaos_seams::{Seams, SeededRandom};
use kube::client::ClientBuilder;
use serde_json::{Value, json};
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Oracle, Subject, Violation,
    cluster::{self, Cluster, SOMEBODY, USER},
    edit,
    fault::{Fault, Tamper, Through},
    mirror::{Key, World},
    normal::Names,
    panics,
    run::{Phase, Plan, Run},
    scenario::{Step, inverse},
    wire::Board,
};

/// How long it takes until crashed controllers are started again.
const RESTART: Duration = Duration::from_secs(1);
/// How long the controllers are away where they are.
const AWAY: Duration = Duration::from_secs(30);
/// Long enough for everything that needs no other's help.
const MOMENT: Duration = Duration::from_secs(10);

/// A server with what the subject needs.
#[derive(Debug)]
pub(crate) struct Lab {
    subject: Arc<Subject>,
    server: ApiServer,
    cluster: Cluster,
    seams: Seams,
    /// What is there between cases.
    base: BTreeSet<Key>,
}

impl Lab {
    pub(crate) async fn open(subject: Arc<Subject>) -> Self {
        panics::watch();
        let seams = Seams::simulated(1);
        let options = Options {
            storage: Storage::Memory,
            seams: seams.clone(),
            faults: None,
        };
        let server = ApiServer::open(options).await.expect("a server in memory opens");
        let cluster = Cluster::open(server.clone(), &subject.definitions, &subject.namespace).await;
        let mut namespaces = BTreeSet::from([subject.namespace.clone()]);
        let named = subject.fixed.iter().map(|object| Key::of(object).namespace);
        namespaces.extend(named.filter(|namespace| !namespace.is_empty()));
        for name in namespaces {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            must(cluster.apply(&namespace, USER).await);
        }
        sleep(MOMENT).await;
        let base = cluster.world().iter().map(|(key, _)| key.clone()).collect();
        Self {
            subject,
            server,
            cluster,
            seams,
            base,
        }
    }

    /// Deletes what the case before has left.
    async fn clean(&self) {
        const ROUNDS: usize = 20;
        for _ in 0..ROUNDS {
            let world = self.cluster.world();
            let left: Vec<_> = world.iter().filter(|(key, _)| !self.base.contains(key)).collect();
            if left.is_empty() {
                return;
            }
            for (key, object) in left {
                // Either may find it gone with its owner.
                if object["metadata"].get("finalizers").is_some() {
                    let patch = json!({"metadata": {"finalizers": null}});
                    let _ = self.cluster.merge(key, &patch, USER).await;
                }
                let _ = self.cluster.delete(key).await;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("the objects of a case cannot be deleted");
    }

    /// Runs a case, from nothing to its end.
    pub(crate) async fn run(&self, plan: &Plan<'_>) -> Run {
        self.clean().await;
        self.cluster.install_all_but(&plan.scenario.absent).await;
        panics::take();
        let mut running = Running::new(self, plan);
        running.prepare().await;
        running.steps().await;
        running.tampers().await;
        running.finish().await
    }
}

fn must(result: Result<Value, cluster::Refused>) -> Value {
    result.unwrap_or_else(|(code, message)| panic!("{code}: {message}"))
}

/// A case while it runs.
struct Running<'a> {
    lab: &'a Lab,
    plan: &'a Plan<'a>,
    board: Arc<Board>,
    surroundings: Option<AbortHandle>,
    controllers: Option<(CancellationToken, JoinHandle<()>)>,
    processes: u64,
    began: Instant,
    start: World,
    phases: Vec<Phase>,
    users: BTreeSet<Key>,
    foreign: BTreeSet<Key>,
    violations: Vec<Violation>,
    /// Something is so wrong that the rest tells nothing.
    hopeless: bool,
    /// How to take back the last step.
    undo: Vec<Step>,
}

impl<'a> Running<'a> {
    fn new(lab: &'a Lab, plan: &'a Plan<'a>) -> Self {
        let wired = plan
            .fault
            .filter(|fault| matches!(fault, Fault::Write { .. } | Fault::Watch { .. }));
        Self {
            lab,
            plan,
            board: Board::new(wired.cloned(), plan.most),
            surroundings: None,
            controllers: None,
            processes: 0,
            began: Instant::now(),
            start: World::default(),
            phases: Vec::new(),
            users: BTreeSet::new(),
            foreign: BTreeSet::new(),
            violations: Vec::new(),
            hopeless: false,
            undo: Vec::new(),
        }
    }

    fn cluster(&self) -> &'a Cluster {
        &self.lab.cluster
    }

    /// Everything that is there before the first step.
    async fn prepare(&mut self) {
        let subject = &self.lab.subject;
        let surroundings = (subject.surroundings)(self.cluster().clone(), self.lab.seams.clone());
        self.surroundings = Some(tokio::spawn(surroundings).abort_handle());
        let bystanders = self.plan.bystanders.iter();
        for object in self.plan.scenario.foreign.iter().chain(bystanders) {
            if !self.cluster().serves(&Key::of(object).kind) {
                continue;
            }
            let object = must(self.apply_foreign(object).await);
            self.foreign.insert(Key::of(&object));
        }
        for object in &subject.fixed {
            self.apply(object).await;
        }
        for object in &self.plan.scenario.before {
            self.apply(object).await;
        }
        sleep(MOMENT).await;
        self.began = Instant::now();
        self.cluster().mirror().forget();
        self.start = self.cluster().world();
        self.start_controllers();
        self.settle("start").await;
    }

    /// An object of others may belong to another of them, which is named without its uid.
    async fn apply_foreign(&self, object: &Value) -> Result<Value, cluster::Refused> {
        let mut object = object.clone();
        let namespace = self.cluster().full(&Key::of(&object)).namespace;
        let world = self.cluster().world();
        for owner in object["metadata"]["ownerReferences"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            let kind = owner["kind"].as_str().unwrap_or_default();
            let key = Key::new(kind, &namespace, owner["name"].as_str().unwrap_or_default());
            if let Some(found) = world.get(&self.cluster().full(&key)) {
                owner["uid"] = found["metadata"]["uid"].clone();
            }
        }
        let applied = self.cluster().apply(&object, SOMEBODY).await;
        // The mirror has seen it by then.
        sleep(Duration::from_millis(1)).await;
        applied
    }

    async fn apply(&mut self, object: &Value) {
        let applied = must(self.cluster().apply(object, USER).await);
        self.users.insert(Key::of(&applied));
    }

    fn start_controllers(&mut self) {
        self.processes += 1;
        let wire = self.board.wire(self.lab.server.clone());
        let client = ClientBuilder::new(wire, "default").build();
        let seams = Seams {
            random: Arc::new(SeededRandom::new(self.processes)),
            ..self.lab.seams.clone()
        };
        let stop = CancellationToken::new();
        let controllers = (self.lab.subject.start)(client, seams, stop.clone());
        self.controllers = Some((stop, tokio::spawn(controllers)));
    }

    /// Stops the controllers as a crash does: nothing that they still do reaches the server.
    async fn stop_controllers(&mut self) {
        self.board.cut();
        if let Some((stop, handle)) = self.controllers.take() {
            handle.abort();
            stop.cancel();
            // It ends with an error: it was aborted.
            let _ = handle.await;
        }
    }

    async fn steps(&mut self) {
        let steps = self.plan.scenario.steps.clone();
        for (number, step) in steps.iter().enumerate() {
            if self.hopeless {
                return;
            }
            self.board.begin(number);
            let away = matches!(self.plan.fault, Some(Fault::Away { step }) if *step == number);
            if away {
                self.stop_controllers().await;
                self.board.fire();
            }
            self.step(step).await;
            if away {
                sleep(AWAY).await;
                self.start_controllers();
            }
            self.settle(&format!("step {number}")).await;
            if matches!(self.plan.fault, Some(Fault::Restart { step }) if *step == number) {
                self.restart().await;
            }
        }
    }

    /// What was at rest stays so when the controllers are started anew.
    async fn restart(&mut self) {
        self.board.fire();
        let (_, before) = self.board.counts();
        let phase = self.phases.pop();
        self.stop_controllers().await;
        sleep(RESTART).await;
        self.start_controllers();
        self.settle(phase.as_ref().map_or("restart", |phase| &phase.name))
            .await;
        let (_, after) = self.board.counts();
        if after > before {
            let sent = self.board.sent();
            let writes: Vec<_> = sent
                .iter()
                .filter(|sent| sent.writes)
                .skip(before)
                .map(|sent| &*sent.what)
                .collect();
            self.violate(
                Oracle::QuietOnceConverged,
                format!("restarted, the controllers send {writes:?}"),
            );
        }
    }

    async fn step(&mut self, step: &Step) {
        let revert;
        let steps = match step {
            Step::Revert => {
                revert = std::mem::take(&mut self.undo);
                revert.as_slice()
            }
            step => std::slice::from_ref(step),
        };
        let mut undo = Vec::new();
        for step in steps {
            match step {
                Step::Apply(objects) => {
                    for object in objects {
                        let key = self.cluster().full(&Key::of(object));
                        let before = self.cluster().world().get(&key).map(as_given);
                        self.apply(object).await;
                        undo.push(before.map_or(Step::Delete(key), |object| Step::Apply(vec![object])));
                    }
                }
                Step::Merge { object, patch } => {
                    let key = self.cluster().full(object);
                    if let Some(live) = self.cluster().world().get(&key) {
                        let patch = inverse(patch, live);
                        undo.push(Step::Merge {
                            object: key.clone(),
                            patch,
                        });
                    }
                    let live = self.cluster().world().get(&key).cloned().unwrap_or_default();
                    let merged = self.cluster().merge(&key, patch, USER).await;
                    must(self.changing(&key, &live, merged));
                }
                Step::Delete(key) => {
                    let key = self.cluster().full(key);
                    let live = self.cluster().world().get(&key).map(as_given);
                    undo.extend(live.map(|object| Step::Apply(vec![object])));
                    must(self.cluster().delete(&key).await);
                }
                Step::Install(definition) => {
                    self.cluster().install(definition).await;
                    undo.push(Step::Uninstall(definition.clone()));
                }
                Step::Uninstall(definition) => {
                    self.cluster().uninstall(definition).await;
                    undo.push(Step::Install(definition.clone()));
                }
                Step::Revert => {}
            }
        }
        undo.reverse();
        self.undo = undo;
    }

    async fn tampers(&mut self) {
        for (key, how) in self.plan.tampers {
            if self.hopeless {
                return;
            }
            self.board.begin(self.phases.len() - 1);
            let outcome = self.tamper(key, how).await;
            let name = format!("{key}: {how:?}");
            if let Err((code, message)) = outcome {
                let last = self.phases.last().cloned();
                self.phases.extend(last.map(|phase| Phase {
                    name: format!("{name} is refused: {code} {message}"),
                    refused: true,
                    ..phase
                }));
                continue;
            }
            self.board.fire();
            self.settle(&name).await;
        }
    }

    async fn tamper(&self, key: &Key, how: &Tamper) -> Result<Value, cluster::Refused> {
        let world = self.cluster().world();
        let Some(object) = world.get(key) else {
            return Err((404, "it is not there".to_owned()));
        };
        let absent = || (404, "the field is not there".to_owned());
        match how {
            Tamper::Delete => self.cluster().delete(key).await,
            Tamper::Remove { field } => {
                let mut without = object.clone();
                if !edit::remove(&mut without, field) {
                    return Err(absent());
                }
                self.changing(key, object, self.cluster().replace(key, &without, SOMEBODY).await)
            }
            Tamper::Change { field, through } => {
                let value = edit::get(object, field).ok_or_else(absent)?;
                let mut refused = absent();
                for other in edit::others(value) {
                    let outcome = match through {
                        Through::Update => {
                            let mut changed = object.clone();
                            edit::set(&mut changed, field, other);
                            self.cluster().replace(key, &changed, SOMEBODY).await
                        }
                        Through::Apply => {
                            let only = edit::only(object, field, other);
                            self.cluster().apply(&only, SOMEBODY).await
                        }
                    };
                    match self.changing(key, object, outcome) {
                        Ok(changed) => return Ok(changed),
                        Err(error) => refused = error,
                    }
                }
                Err(refused)
            }
        }
    }

    /// A write that changed nothing, because the server put back what was taken away, is none.
    fn changing(
        &self,
        key: &Key,
        before: &Value,
        outcome: Result<Value, cluster::Refused>,
    ) -> Result<Value, cluster::Refused> {
        let after = outcome?;
        if after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"] {
            return Err((200, format!("{key} stays as it is")));
        }
        Ok(after)
    }

    /// Waits until nothing happens any more, and starts crashed controllers again.
    async fn settle(&mut self, name: &str) {
        let limits = self.lab.subject.limits;
        let began = Instant::now();
        loop {
            let changed = self.cluster().mirror().last_change();
            let last = self
                .board
                .last_write()
                .map_or(changed, |write| write.max(changed))
                .max(began);
            let now = Instant::now();
            if self.board.ran_away() {
                self.violate(
                    Oracle::HotLoop,
                    format!("{} requests, and no end: {}", self.plan.most, self.tail()),
                );
                self.hopeless = true;
                break;
            }
            if now >= last + limits.quiet {
                break;
            }
            if now >= began + limits.patience {
                let still = now >= changed + limits.quiet;
                let (oracle, what) = match still {
                    true => (
                        Oracle::QuietOnceConverged,
                        "nothing changes any more, and still there are writes",
                    ),
                    false => (Oracle::Settles, "the world does not come to rest"),
                };
                self.violate(oracle, format!("{what}: {}", self.tail()));
                self.hopeless = true;
                break;
            }
            let ended = async {
                match &mut self.controllers {
                    Some((_, handle)) => handle.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.board.crashed.notified() => {
                    self.stop_controllers().await;
                    sleep(RESTART).await;
                    self.start_controllers();
                }
                ended = ended => {
                    self.controllers = None;
                    if ended.is_ok() {
                        self.violate(Oracle::StaysUp, "the controllers end, and were not stopped".to_owned());
                    }
                    self.hopeless = true;
                    break;
                }
                () = sleep_until(last + limits.quiet) => {}
            }
        }
        let (requests, writes) = self.board.counts();
        self.phases.push(Phase {
            name: name.to_owned(),
            began,
            last_write: self.board.last_write().filter(|last| *last >= began),
            requests,
            writes,
            world: self.cluster().world(),
            refused: false,
        });
    }

    fn violate(&mut self, oracle: Oracle, detail: String) {
        self.violations.push(Violation::new(oracle, detail));
    }

    /// The last requests.
    fn tail(&self) -> String {
        let sent = self.board.sent();
        let last: Vec<_> = sent.iter().rev().take(8).map(|sent| &*sent.what).collect();
        format!("the last requests are {last:?}")
    }

    async fn finish(mut self) -> Run {
        if !self.hopeless && !self.plan.vigil.is_zero() {
            let (_, before) = self.board.counts();
            sleep(self.plan.vigil).await;
            let (_, after) = self.board.counts();
            if after > before {
                self.violate(
                    Oracle::QuietOnceConverged,
                    format!("{} writes: {}", after - before, self.tail()),
                );
            }
        }
        let ended = Instant::now();
        self.stop_controllers().await;
        for panic in panics::take() {
            self.violate(Oracle::StaysUp, panic);
        }
        if let Some(surroundings) = self.surroundings.take() {
            surroundings.abort();
        }
        let (_, history) = self.cluster().mirror().history();
        let mut names = Names::new();
        let start = self.start.iter();
        let later = history
            .iter()
            .filter_map(|change| Some((&change.key, change.after.as_deref()?)));
        for (key, object) in start.chain(later) {
            if let Some(uid) = object["metadata"]["uid"].as_str() {
                names.insert(uid.to_owned(), format!("the uid of {key}"));
            }
        }
        let sent = self.board.sent();
        Run {
            steps: self.plan.scenario.steps.len(),
            began: self.began,
            watches: self.board.events(),
            fired: self.board.fired(),
            ended,
            start: self.start,
            history,
            names,
            managers: self.board.managers(),
            users: self.users,
            foreign: self.foreign,
            by_others: self.lab.cluster.by_others(),
            base: self.lab.base.clone(),
            violations: self.violations,
            phases: self.phases,
            sent,
        }
    }
}

/// An object as its user gave it, before the server added to it.
fn as_given(object: &Value) -> Value {
    let mut given = json!({"apiVersion": object["apiVersion"], "kind": object["kind"]});
    for name in ["name", "namespace", "labels", "annotations", "finalizers"] {
        if let Some(value) = object["metadata"].get(name) {
            given["metadata"][name] = value.clone();
        }
    }
    let fields: BTreeMap<_, _> = object.as_object().into_iter().flatten().collect();
    for (name, value) in fields {
        if !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) {
            given[name] = value.clone();
        }
    }
    given
}
