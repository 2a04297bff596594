//! Every case of every scenario, on a few threads, and what came of it.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use serde::Serialize;
use serde_json::Value;

pub use crate::sample::Sample;
use crate::{
    Case, Fault, Key, Scenario, Subject, Tamper, Violation, judge,
    lab::Lab,
    run::{Plan, Run},
    sample::{bystanders_of, faults_of, tampers_of},
};

/// Requests that a run may make of which nothing is known yet.
const MANY: usize = 5_000;
/// After so long in real time a case is stuck: nothing that waits in simulated time takes so long.
const STUCK: Duration = Duration::from_secs(120);

/// What came of a scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Its name.
    pub scenario: String,
    /// Writes of the controllers in the undisturbed run, without those before the first step.
    pub writes: usize,
    /// Cases that were run.
    pub cases: usize,
    /// Those of them whose fault happened.
    pub fired: usize,
    /// How often each class of fault happened.
    pub classes: BTreeMap<&'static str, usize>,
    /// Cases whose fault could not happen, with the reason where there is one.
    pub unfired: Vec<String>,
    /// Cases in which something did not hold.
    pub failures: Vec<Failure>,
    /// How long it took, in milliseconds of one thread.
    pub took: u128,
}

/// A case in which something did not hold.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// What did not hold, in words.
    pub violations: Vec<String>,
    /// Which oracles.
    pub oracles: Vec<crate::Oracle>,
}

impl Failure {
    fn new(scenario: &Scenario, fault: Option<Fault>, violations: &[Violation]) -> Self {
        Self {
            case: Case {
                scenario: scenario.clone(),
                fault,
            },
            violations: violations.iter().map(ToString::to_string).collect(),
            oracles: violations.iter().map(|violation| violation.oracle).collect(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            writes,
            cases,
            fired,
            failures,
            took,
            ..
        } = self;
        let each = took / u128::try_from((*cases).max(1)).unwrap_or(1);
        write!(
            f,
            "{scenario}: {writes} writes, {cases} cases, {fired} faults fired, {} violations ({each} ms each)",
            failures.len()
        )
    }
}

/// The undisturbed run, and what the controllers make in it.
pub(crate) struct Reference {
    pub(crate) run: Run,
    pub(crate) bystanders: Vec<Value>,
    pub(crate) violations: Vec<Violation>,
}

/// What a thread does next.
enum Job {
    /// The undisturbed run of a scenario, from which the others follow.
    Begin(usize),
    Fault(usize, Fault),
    /// Tamperings one after the other in one run.
    Tour(usize, Vec<(Key, Tamper)>),
}

/// What the threads share.
struct Shared<'a> {
    subject: Arc<Subject>,
    scenarios: Vec<Scenario>,
    sample: Sample,
    jobs: Mutex<VecDeque<Job>>,
    references: Vec<Mutex<Option<Arc<Reference>>>>,
    outcomes: Vec<Mutex<Outcome>>,
    busy: Mutex<BTreeMap<usize, (Instant, String)>>,
    /// How many jobs of each scenario are still to be done.
    open: Vec<Mutex<usize>>,
    /// Told of each scenario that is done.
    done: &'a (dyn Fn(&Outcome) + Sync),
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs every scenario undisturbed, and then the sample of its cases, on `threads` threads. `done` is told of
/// each scenario when its last case has ended.
///
/// # Panics
/// When the scenario itself is refused by the server, or a case hangs.
pub fn sweep(
    subject: &Arc<Subject>,
    scenarios: Vec<Scenario>,
    sample: Sample,
    threads: usize,
    done: &(dyn Fn(&Outcome) + Sync),
) -> Vec<Outcome> {
    let outcome = |scenario: &Scenario| {
        Mutex::new(Outcome {
            scenario: scenario.name.clone(),
            ..Outcome::default()
        })
    };
    let shared = Shared {
        subject: subject.clone(),
        sample,
        jobs: Mutex::new((0..scenarios.len()).map(Job::Begin).collect()),
        open: scenarios.iter().map(|_| Mutex::new(1)).collect(),
        done,
        references: scenarios.iter().map(|_| Mutex::default()).collect(),
        outcomes: scenarios.iter().map(outcome).collect(),
        busy: Mutex::default(),
        scenarios,
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || shared.work(number))
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            shared.watch_for_stuck_cases();
            thread::sleep(Duration::from_millis(50));
        }
    });
    let outcomes = shared.outcomes.into_iter();
    outcomes
        .map(|outcome| outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// Runs a future on a thread of its own time.
pub(crate) fn in_simulated_time<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime starts")
        .block_on(future)
}

impl Shared<'_> {
    /// Takes jobs until there are none left.
    fn work(&self, number: usize) {
        while in_simulated_time(self.some_jobs(number)) {}
    }

    /// Does jobs on one server. What controllers have left running despite being stopped ends with its runtime,
    /// and costs the next ones nothing. Says whether there may be more.
    async fn some_jobs(&self, number: usize) -> bool {
        let lab = Lab::open(self.subject.clone()).await;
        for _ in 0..JOBS {
            let Some(job) = self.next_job(number) else {
                return false;
            };
            let began = Instant::now();
            let index = match job {
                Job::Begin(index) => {
                    self.begin(&lab, index).await;
                    index
                }
                Job::Fault(index, fault) => {
                    self.fault(&lab, index, fault).await;
                    index
                }
                Job::Tour(index, tampers) => {
                    self.tour(&lab, index, tampers).await;
                    index
                }
            };
            lock(&self.outcomes[index]).took += began.elapsed().as_millis();
            let mut open = lock(&self.open[index]);
            *open -= 1;
            if *open == 0 {
                (self.done)(&lock(&self.outcomes[index]));
            }
            drop(open);
            lock(&self.busy).remove(&number);
        }
        true
    }

    /// The next job; waits while another thread may be about to add some.
    fn next_job(&self, number: usize) -> Option<Job> {
        loop {
            let mut busy = lock(&self.busy);
            if let Some(job) = lock(&self.jobs).pop_front() {
                let name = match &job {
                    Job::Begin(index) => format!("{}, undisturbed", self.scenarios[*index].name),
                    Job::Fault(index, fault) => format!("{}, {fault}", self.scenarios[*index].name),
                    Job::Tour(index, tampers) => {
                        format!("{}, {} tamperings", self.scenarios[*index].name, tampers.len())
                    }
                };
                busy.insert(number, (Instant::now(), name));
                return Some(job);
            }
            if busy.is_empty() {
                return None;
            }
            drop(busy);
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn watch_for_stuck_cases(&self) {
        for (began, name) in lock(&self.busy).values() {
            if began.elapsed() > STUCK {
                eprintln!("a case hangs: {name}");
                std::process::exit(101);
            }
        }
    }

    async fn begin(&self, lab: &Lab, index: usize) {
        let scenario = &self.scenarios[index];
        let reference = refer(lab, &self.subject, scenario).await;
        let jobs = self.jobs_of(index, &reference);
        {
            let mut outcome = lock(&self.outcomes[index]);
            outcome.cases += 1;
            outcome.writes = reference
                .run
                .sent
                .iter()
                .filter(|sent| sent.writes && sent.step.is_some())
                .count();
            if !reference.violations.is_empty() {
                outcome
                    .failures
                    .push(Failure::new(scenario, None, &reference.violations));
            }
        }
        // A world that is wrong by itself tells nothing about faults.
        if reference.run.phases.len() == scenario.steps.len() + 1 {
            *lock(&self.references[index]) = Some(Arc::new(reference));
            *lock(&self.open[index]) += jobs.len();
            // First what is begun: a scenario's cases before the next scenario.
            let mut all = lock(&self.jobs);
            for job in jobs.into_iter().rev() {
                all.push_front(job);
            }
        }
    }

    fn jobs_of(&self, index: usize, reference: &Reference) -> Vec<Job> {
        // From the name: a scenario that is run alone has the cases that it has among others.
        let name = self.scenarios[index].name.bytes();
        let seed = name.fold(0_u64, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(byte.into())
        });
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let faults = faults_of(&reference.run, &self.scenarios[index], self.sample, &mut random);
        let mut jobs: Vec<Job> = faults.into_iter().map(|fault| Job::Fault(index, fault)).collect();
        if self.scenarios[index].tamper {
            let tampers = tampers_of(&reference.run, self.sample, &mut random);
            jobs.extend(
                tampers
                    .chunks(TOUR)
                    .map(|tampers| Job::Tour(index, tampers.to_vec())),
            );
        }
        jobs
    }

    fn reference(&self, index: usize) -> Arc<Reference> {
        let reference = lock(&self.references[index]).clone();
        reference.expect("the cases of a scenario come after its undisturbed run")
    }

    async fn fault(&self, lab: &Lab, index: usize, fault: Fault) {
        let (scenario, reference) = (&self.scenarios[index], self.reference(index));
        let (fired, violations) = try_fault(lab, &self.subject, scenario, &reference, &fault).await;
        let mut outcome = lock(&self.outcomes[index]);
        outcome.count(&fault, fired, || fault.to_string());
        if fired && !violations.is_empty() {
            outcome
                .failures
                .push(Failure::new(scenario, Some(fault), &violations));
        }
    }

    async fn tour(&self, lab: &Lab, index: usize, mut tampers: Vec<(Key, Tamper)>) {
        let (scenario, reference) = (&self.scenarios[index], self.reference(index));
        while !tampers.is_empty() {
            let run = lab
                .run(&reference.plan(scenario, None, &tampers, self.subject.limits.vigil))
                .await;
            let results = judge_tour(&self.subject, &reference, &run, &tampers);
            let done = results.len();
            let mut outcome = lock(&self.outcomes[index]);
            for ((object, how), result) in tampers.drain(..done).zip(results) {
                let fault = Fault::Tamper { object, how };
                let fired = result.refused.is_none();
                outcome.count(&fault, fired, || {
                    format!("{fault}: {}", result.refused.as_deref().unwrap_or_default())
                });
                if !result.violations.is_empty() {
                    outcome
                        .failures
                        .push(Failure::new(scenario, Some(fault), &result.violations));
                }
            }
        }
    }
}

/// How many jobs are done on one server.
const JOBS: usize = 16;
/// How many tamperings are done in one run.
const TOUR: usize = 25;

impl Outcome {
    fn count(&mut self, fault: &Fault, fired: bool, unfired: impl FnOnce() -> String) {
        self.cases += 1;
        if fired {
            self.fired += 1;
            *self.classes.entry(fault.class()).or_default() += 1;
        } else {
            self.unfired.push(unfired());
        }
    }
}

impl Reference {
    fn plan<'a>(
        &'a self,
        scenario: &'a Scenario,
        fault: Option<&'a Fault>,
        tampers: &'a [(Key, Tamper)],
        vigil: Duration,
    ) -> Plan<'a> {
        Plan {
            scenario,
            fault,
            tampers,
            bystanders: &self.bystanders,
            vigil,
            most: self.run.sent.len() * 10 + 2_000 + tampers.len() * 500,
        }
    }
}

/// Runs a scenario undisturbed: first to see what the controllers make, then with others' objects that look
/// like it.
pub(crate) async fn refer(lab: &Lab, subject: &Subject, scenario: &Scenario) -> Reference {
    let mut plan = Plan {
        scenario,
        fault: None,
        tampers: &[],
        bystanders: &[],
        vigil: Duration::ZERO,
        most: MANY,
    };
    let scout = lab.run(&plan).await;
    let bystanders = bystanders_of(&scout, &subject.namespace);
    plan.bystanders = &bystanders;
    plan.vigil = subject.limits.vigil * 3;
    let run = lab.run(&plan).await;
    let mut violations = judge::undisturbed(subject, scenario, &run);
    if let Some(never) = scenario.without_what_is_deleted() {
        plan.scenario = &never;
        plan.vigil = Duration::ZERO;
        violations.extend(judge::left(&run, &lab.run(&plan).await));
    }
    Reference {
        run,
        bystanders,
        violations,
    }
}

/// Runs one case. Says whether its fault happened, and what did not hold.
pub(crate) async fn try_fault(
    lab: &Lab,
    subject: &Subject,
    scenario: &Scenario,
    reference: &Reference,
    fault: &Fault,
) -> (bool, Vec<Violation>) {
    let run = run_fault(lab, subject, scenario, reference, fault).await;
    let fired = run.fired.is_some();
    let violations = match fault {
        Fault::Tamper { object, how } => {
            let tampers = [(object.clone(), how.clone())];
            let results = judge_tour(subject, reference, &run, &tampers);
            results.into_iter().flat_map(|result| result.violations).collect()
        }
        _ => judge::perturbed(subject, fault, &reference.run, &run),
    };
    (fired, violations)
}

async fn run_fault(
    lab: &Lab,
    subject: &Subject,
    scenario: &Scenario,
    reference: &Reference,
    fault: &Fault,
) -> Run {
    let vigil = subject.limits.vigil;
    match fault {
        Fault::Tamper { object, how } => {
            let tampers = [(object.clone(), how.clone())];
            lab.run(&reference.plan(scenario, None, &tampers, vigil)).await
        }
        fault => lab.run(&reference.plan(scenario, Some(fault), &[], vigil)).await,
    }
}

/// What came of one tampering of a tour.
struct Tampered {
    refused: Option<String>,
    violations: Vec<Violation>,
}

/// What came of the tamperings of a run, up to the first after which something did not hold: what comes after
/// it begins in another world.
fn judge_tour(
    subject: &Subject,
    reference: &Reference,
    run: &Run,
    tampers: &[(Key, Tamper)],
) -> Vec<Tampered> {
    let mut results = Vec::new();
    for offset in 0..tampers.len() {
        let number = reference.run.steps + 1 + offset;
        let Some(phase) = run.phases.get(number) else {
            break;
        };
        if phase.refused {
            results.push(Tampered {
                refused: Some(phase.name.clone()),
                violations: Vec::new(),
            });
            continue;
        }
        let mut violations = judge::tampered(subject, &reference.run, run, number);
        if offset + 1 == tampers.len() || run.phases.len() == number + 1 {
            violations.extend(judge::alone(subject, None, run));
        }
        let wrong = !violations.is_empty();
        results.push(Tampered {
            refused: None,
            violations,
        });
        if wrong {
            break;
        }
    }
    if results.is_empty() {
        // Not even the steps before came to rest.
        results.push(Tampered {
            refused: None,
            violations: judge::alone(subject, None, run),
        });
    }
    results
}

/// Runs one case again and returns every request and change, and what did not hold.
pub fn replay(subject: &Arc<Subject>, case: &Case) -> (String, Vec<Violation>) {
    in_simulated_time(async {
        let lab = Lab::open(subject.clone()).await;
        let reference = refer(&lab, subject, &case.scenario).await;
        let Some(fault) = &case.fault else {
            return (reference.run.trace(), reference.violations);
        };
        let (fired, mut violations) = try_fault(&lab, subject, &case.scenario, &reference, fault).await;
        let run = run_fault(&lab, subject, &case.scenario, &reference, fault).await;
        let mut trace = run.trace();
        if !fired {
            trace += "the fault did not happen\n";
            violations.clear();
        }
        (trace, violations)
    })
}
