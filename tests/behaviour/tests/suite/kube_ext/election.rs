//! One leader at any time, whoever else stands for election and whatever becomes of the Lease.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::StatusCode;
use k8s_openapi::api::coordination::v1::Lease;
use kaos_apiserver::{Call, Fault};
use kaos_kube_ext::{Candidate, Leader, Lost, Terms};
use kaos_seams::{Clock, Seams, SimulatedClock};
use kaos_testkit::{Faults, TestApi};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, timeout};

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// As by default, but quick where time is not the tests'.
fn terms() -> Terms {
    Terms {
        retry: Duration::from_millis(20),
        ..Terms::default()
    }
}

fn candidate(api: &TestApi, identity: &str, terms: Terms) -> Candidate {
    candidate_with(api, identity, terms, Seams::system())
}

fn candidate_with(api: &TestApi, identity: &str, terms: Terms, seams: Seams) -> Candidate {
    let lease = (api.namespace.as_str(), "operator");
    Candidate::new(api.client.clone(), lease, identity.to_owned(), terms, seams)
}

async fn elected(candidate: Candidate) -> Leader {
    timeout(PATIENCE, candidate.win()).await.expect("elected")
}

async fn lease(api: &TestApi) -> Lease {
    api.api().get("operator").await.unwrap()
}

async fn holder(api: &TestApi) -> Option<String> {
    lease(api).await.spec.unwrap().holder_identity
}

#[tokio::test]
async fn the_next_leads_when_the_first_gives_back() {
    let api = TestApi::start().await;
    let mut first = elected(candidate(&api, "first", terms())).await;
    let lease_of_first = lease(&api).await.spec.unwrap();
    assert_eq!(lease_of_first.holder_identity.as_deref(), Some("first"));
    assert_eq!(lease_of_first.lease_duration_seconds, Some(15));
    assert_eq!(lease_of_first.lease_transitions, Some(0));

    let second = tokio::spawn(candidate(&api, "second", terms()).win());
    assert!(timeout(Duration::from_millis(300), first.keep()).await.is_err());
    assert!(!second.is_finished());
    let renewed = lease(&api).await.spec.unwrap();
    assert!(renewed.renew_time > lease_of_first.renew_time);
    assert_eq!(renewed.acquire_time, lease_of_first.acquire_time);

    first.resign().await;
    let _second = timeout(PATIENCE, second).await.unwrap().unwrap();
    let lease_of_second = lease(&api).await.spec.unwrap();
    assert_eq!(lease_of_second.holder_identity.as_deref(), Some("second"));
    // Nobody had it between the two: that is one more, and the taking another.
    assert_eq!(lease_of_second.lease_transitions, Some(1));
}

#[tokio::test]
async fn of_many_at_once_one_is_elected() {
    let api = TestApi::start().await;
    let candidates: Vec<_> = (0..8)
        .map(|index| tokio::spawn(candidate(&api, &format!("c{index}"), terms()).win()))
        .collect();
    let mut first = Box::pin(futures::future::select_all(candidates));
    let (won, index, others) = timeout(PATIENCE, &mut first).await.unwrap();
    let mut won = won.unwrap();
    assert_eq!(holder(&api).await, Some(format!("c{index}")));
    assert!(timeout(Duration::from_millis(300), won.keep()).await.is_err());
    assert!(others.iter().all(|other| !other.is_finished()));
}

#[tokio::test]
async fn what_others_do_to_a_lease_costs_its_holder_nothing_until_they_take_it() {
    let api = TestApi::start().await;
    let mut leader = elected(candidate(&api, "us", terms())).await;
    let leases = api.api::<Lease>();
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"theirs": "yes"}}}));
    leases
        .patch("operator", &PatchParams::default(), &labelled)
        .await
        .unwrap();
    assert!(timeout(Duration::from_millis(200), leader.keep()).await.is_err());
    let theirs = BTreeMap::from([("theirs".to_owned(), "yes".to_owned())]);
    assert_eq!(lease(&api).await.metadata.labels, Some(theirs));

    leases.delete("operator", &DeleteParams::default()).await.unwrap();
    assert!(timeout(Duration::from_millis(200), leader.keep()).await.is_err());
    assert_eq!(holder(&api).await.as_deref(), Some("us"));

    let taken = Patch::Merge(json!({"spec": {"holderIdentity": "them"}}));
    leases
        .patch("operator", &PatchParams::default(), &taken)
        .await
        .unwrap();
    let lost = timeout(PATIENCE, leader.keep()).await.unwrap();
    assert_eq!(
        lost.to_string(),
        format!("Lease {}/operator is held by them now", api.namespace)
    );
    assert_eq!(holder(&api).await.as_deref(), Some("them"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_another_may_lead() {
    let faults = Faults::default();
    let api = kaos_testkit::Builder::default()
        .embedded()
        .faults(Arc::new(faults.clone()))
        .start()
        .await;
    let mut leader = elected(candidate_with(
        &api,
        "leader",
        Terms::default(),
        Seams::simulated(1),
    ))
    .await;
    let unavailable = Fault::Error(StatusCode::SERVICE_UNAVAILABLE, "not now".to_owned());
    let refused = faults.inject(usize::MAX, unavailable, |call: &Call| call.resource == "leases");
    let begun = Instant::now();
    let lost = leader.keep().await;
    assert_eq!(begun.elapsed().as_secs(), Terms::default().renew.as_secs());
    let Lost::Late { reason, within, .. } = &lost else {
        panic!("{lost}");
    };
    assert!(reason.contains("not now"), "{lost}");
    assert_eq!(*within, Terms::default().renew);
    assert!(refused.fired() > 1);
}

/// A machine whose clock is a day ahead.
fn ahead() -> Seams {
    let clock = SimulatedClock::default().now() + Duration::from_secs(24 * 3600);
    Seams {
        clock: Arc::new(SimulatedClock::starting_at(clock)),
        ..Seams::simulated(3)
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_runs_out_by_the_clock_of_who_waits_for_it() {
    let api = TestApi::embedded().await;
    // It leads, and then is gone without a word.
    let gone = elected(candidate_with(
        &api,
        "gone",
        Terms::default(),
        Seams::simulated(1),
    ))
    .await;
    drop(gone);
    let begun = Instant::now();
    let candidate = candidate_with(&api, "candidate", Terms::default(), ahead());
    let _leader = candidate.win().await;
    let waited = begun.elapsed();
    let Terms { duration, retry, .. } = Terms::default();
    assert!((duration..=duration + retry).contains(&waited), "{waited:?}");
    assert_eq!(lease(&api).await.spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_never_runs_out() {
    let api = TestApi::embedded().await;
    let mut leader = elected(candidate_with(
        &api,
        "leader",
        Terms::default(),
        Seams::simulated(1),
    ))
    .await;
    let candidate = tokio::spawn(candidate_with(&api, "candidate", Terms::default(), ahead()).win());
    assert!(timeout(Duration::from_secs(600), leader.keep()).await.is_err());
    assert!(!candidate.is_finished());
    assert_eq!(holder(&api).await.as_deref(), Some("leader"));
}
