//! Peers, scripted, in paused time.

use http::HeaderMap;
use tokio::time::{Instant, advance};

use super::*;
use crate::testing::ScriptedPeer;

const DEADLINE: Duration = Duration::from_secs(60);

fn peers(sources: &[&Arc<ScriptedPeer>]) -> Peers {
    let sources = sources
        .iter()
        .map(|source| Arc::<ScriptedPeer>::clone(source) as Arc<dyn PeerSource>);
    Peers::new("me", sources.collect())
}

fn came(path: &str) -> Hop {
    let mut headers = HeaderMap::new();
    headers.insert("x-kaos-delegation-path", path.parse().unwrap());
    Hop::of(&headers)
}

fn task(text: &str) -> ChatRequest {
    ChatRequest {
        messages: vec![kaos_openai::Message::user(text)],
        ..ChatRequest::default()
    }
}

async fn delegates(peers: &Peers) -> Vec<Delegate> {
    peers.delegates(&Hop::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_peer_is_asked_once_what_it_is() {
    let (bob, eve) = (ScriptedPeer::new("bob"), ScriptedPeer::new("eve"));
    let peers = peers(&[&bob, &eve]);
    assert_eq!(*bob.cards.lock().unwrap(), 0, "nobody needs it yet");
    let (first, second) = tokio::join!(delegates(&peers), delegates(&peers));
    assert_eq!(first, second);
    assert_eq!(
        first[0],
        Delegate {
            agent: "bob".to_owned(),
            tool: "delegate_to_bob".to_owned(),
            description: "what bob does".to_owned(),
            missing: None,
            barred: None,
        }
    );
    assert_eq!((first.len(), *bob.cards.lock().unwrap()), (2, 1));
    advance(FRESH).await;
    delegates(&peers).await;
    assert_eq!(*bob.cards.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn peers_that_are_not_there_are_waited_for_once_and_together() {
    let (bob, eve) = (ScriptedPeer::new("bob"), ScriptedPeer::new("eve"));
    for peer in [&bob, &eve] {
        *peer.takes.lock().unwrap() = Duration::from_secs(100);
    }
    let peers = peers(&[&bob, &eve]);
    let start = Instant::now();
    let missing = "agent \"bob\" did not say what it is within 5 s";
    assert_eq!(delegates(&peers).await[0].missing.as_deref(), Some(missing));
    assert_eq!(start.elapsed(), CARD_TIMEOUT);
    assert_eq!(delegates(&peers).await[0].missing.as_deref(), Some(missing));
    assert_eq!(start.elapsed(), CARD_TIMEOUT, "not a second time");
    *bob.takes.lock().unwrap() = Duration::ZERO;
    advance(FIRST_RETRY).await;
    let found = delegates(&peers).await;
    assert_eq!(
        (&found[0].missing, found[0].description.as_str()),
        (&None, "what bob does")
    );
    assert!(found[1].missing.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stays_away_is_seldom_asked() {
    let bob = ScriptedPeer::new("bob");
    *bob.away.lock().unwrap() = Some("connection refused");
    let peers = peers(&[&bob]);
    for _ in 0..600 {
        delegates(&peers).await;
        advance(Duration::from_secs(1)).await;
    }
    let asked = *bob.cards.lock().unwrap();
    assert!((10..=16).contains(&asked), "{asked}");
    *bob.away.lock().unwrap() = None;
    peers
        .ask(
            "bob",
            &task("dig"),
            &Hop::default(),
            DEADLINE,
            &TraceContext::default(),
        )
        .await;
    let found = &delegates(&peers).await[0];
    assert_eq!(found.missing, None, "its answer showed that it is back");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_found_gone_is_looked_at_again() {
    let bob = ScriptedPeer::new("bob");
    let peers = peers(&[&bob]);
    delegates(&peers).await;
    *bob.away.lock().unwrap() = Some("connection refused");
    let result = peers
        .ask(
            "bob",
            &task("dig"),
            &Hop::default(),
            DEADLINE,
            &TraceContext::default(),
        )
        .await;
    assert_eq!(
        result,
        delegation_failed("agent http://bob/ is not reachable: connection refused")
    );
    let found = &delegates(&peers).await[0];
    let missing = "agent http://bob/ is not reachable: connection refused";
    assert_eq!(found.missing.as_deref(), Some(missing));
    assert_eq!(found.description, "what bob does", "what it was stays known");
}

#[tokio::test(start_paused = true)]
async fn what_comes_of_a_task_is_a_result() {
    let bob = ScriptedPeer::new("bob");
    let peers = peers(&[&bob]);
    let ask = async |agent: &str| {
        peers
            .ask(
                agent,
                &task("dig"),
                &came("a"),
                DEADLINE,
                &TraceContext::default(),
            )
            .await
    };
    assert_eq!(ask("bob").await, ToolResult::success("bob did: dig"));
    assert_eq!(bob.asked.lock().unwrap()[0].1, came("a"));
    assert_eq!(ask("eve").await, delegation_failed("there is no agent \"eve\""));
    *bob.answer.lock().unwrap() = Some("é".repeat(RESULT_LIMIT));
    let long = ask("bob").await.text;
    assert!(
        long.len() < RESULT_LIMIT + 100
            && long.ends_with(&format!("[{RESULT_LIMIT} more bytes are left out]"))
    );
    *bob.takes.lock().unwrap() = Duration::from_secs(61);
    let start = Instant::now();
    assert_eq!(
        ask("bob").await,
        delegation_failed("agent \"bob\" did not answer within 60 s")
    );
    assert_eq!(start.elapsed(), DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn agents_that_wait_for_the_answer_are_barred_under_either_name() {
    let (bob, eve, me) = (
        ScriptedPeer::new("bob"),
        ScriptedPeer::new("eve"),
        ScriptedPeer::new("me"),
    );
    let peers = peers(&[&bob, &eve, &me]);
    let barred = |path: &'static str| {
        let peers = &peers;
        async move {
            let delegates = peers.delegates(&came(path)).await;
            delegates
                .iter()
                .map(|delegate| delegate.barred.is_some())
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(barred("").await, [false, false, true]);
    assert_eq!(barred("bob").await, [true, false, true]);
    assert_eq!(barred("the-real-eve,x").await, [false, true, true]);
    assert_eq!(barred("1,2,3,4,5").await, [true, true, true]);
}
