//! Faults a test injects into the embedded server, and proof that they fired.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaos_apiserver::{Call, Fault, FaultInjector, Outcome};

/// An injector that does what the test has asked for so far, and records every call. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    rules: Vec<Rule>,
    seen: Vec<(Call, Fault, Outcome)>,
}

struct Rule {
    matches: Box<dyn Fn(&Call) -> bool + Send + Sync>,
    fault: Fault,
    times: usize,
    fired: Arc<AtomicUsize>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            fault, times, fired, ..
        } = self;
        formatter
            .debug_struct("Rule")
            .field("fault", fault)
            .field("times", times)
            .field("fired", fired)
            .finish()
    }
}

/// One fault that was asked for.
#[derive(Clone, Debug)]
#[must_use = "a test must show that its fault fired"]
pub struct Injection(Arc<AtomicUsize>);

impl Injection {
    /// How often it fired.
    pub fn fired(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Faults {
    /// The next `times` calls for which `matches` says yes go wrong with `fault`.
    pub fn inject(
        &self,
        times: usize,
        fault: Fault,
        matches: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> Injection {
        let fired = Arc::new(AtomicUsize::new(0));
        self.lock().rules.push(Rule {
            matches: Box::new(matches),
            fault,
            times,
            fired: fired.clone(),
        });
        Injection(fired)
    }

    /// Injects nothing from now on.
    pub fn stop(&self) {
        self.lock().rules.clear();
    }

    /// Every call that has been answered, what was injected into it, and what its caller saw.
    pub fn seen(&self) -> Vec<(Call, Fault, Outcome)> {
        self.lock().seen.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultInjector for Faults {
    fn decide(&self, call: &Call) -> Fault {
        for rule in &self.lock().rules {
            if rule.fired.load(Ordering::SeqCst) < rule.times && (rule.matches)(call) {
                rule.fired.fetch_add(1, Ordering::SeqCst);
                return rule.fault.clone();
            }
        }
        Fault::None
    }

    fn observe(&self, call: &Call, fault: &Fault, outcome: &Outcome) {
        self.lock()
            .seen
            .push((call.clone(), fault.clone(), outcome.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_fires_as_often_as_asked_and_only_where_it_matches() {
        let faults = Faults::default();
        let stale = faults.inject(2, Fault::StaleRead { versions_back: 1 }, |call| {
            call.verb == "get"
        });
        let call = |verb| Call {
            verb,
            ..Call::default()
        };
        assert_eq!(faults.decide(&call("list")), Fault::None);
        for _ in 0..3 {
            faults.decide(&call("get"));
        }
        assert_eq!(stale.fired(), 2);
        assert_eq!(faults.decide(&call("get")), Fault::None);
    }
}
