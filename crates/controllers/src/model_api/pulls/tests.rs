//! What is made of what a step tells.

use super::*;

#[test]
fn progress_is_told_in_words() {
    let told = |state, completed: u64, total: u64, error: Option<&str>| {
        let percent = (completed * 100_u64)
            .checked_div(total)
            .map(|share| u8::try_from(share).unwrap());
        let observed = Told::Progress(Progress {
            model: "m:1".to_owned(),
            state,
            completed,
            total,
            percent,
            error: error.map(str::to_owned),
        })
        .observed();
        (observed.status, observed.reason, observed.message)
    };
    let said = |status, reason: &str, message: &str| (status, reason.to_owned(), message.to_owned());
    assert_eq!(
        told(State::Waiting, 0, 0, None),
        said(Some(false), "Waiting", "Ollama does not answer yet")
    );
    assert_eq!(
        told(State::Pulling, 0, 0, None),
        said(Some(false), "Pulling", "m:1 is asked for")
    );
    assert_eq!(
        told(State::Pulling, 61_000_000, 135_500_000, None),
        said(Some(false), "Pulling", "pulled 45 % (61 of 135 MB)")
    );
    assert_eq!(
        told(State::Pulled, 1, 1, None),
        said(Some(true), "Pulled", "the model is there")
    );
    assert_eq!(
        told(
            State::Failed,
            0,
            0,
            Some("pull model manifest: file does not exist")
        ),
        said(
            Some(false),
            "PullFailed",
            "m:1: pull model manifest: file does not exist; check spec.hostedConfig.model and the way of the pods to \
             its registry, it is tried again"
        )
    );
    assert_eq!(Told::Nothing.observed().status, None);
}

#[test]
fn only_a_rollout_is_explained_by_the_model() {
    let told = |state| {
        Told::Progress(Progress {
            state,
            ..Progress::default()
        })
    };
    let stuck = Standing::pending(
        ROLLOUT_STUCK,
        "Deployment ready replicas: 0/1: it has timed out: x",
    );
    let explained = told(State::Pulling).explains(stuck.clone());
    assert_eq!(
        explained.message,
        "Deployment ready replicas: 0/1: its model is being pulled"
    );
    assert_eq!(explained.reason, ROLLING_OUT);
    let explained = told(State::Failed).explains(stuck.clone());
    assert_eq!(
        explained.message,
        "Deployment ready replicas: 0/1: its model could not be pulled"
    );
    assert_eq!(told(State::Pulled).explains(stuck.clone()), stuck);
    assert_eq!(Told::Nothing.explains(stuck.clone()), stuck);
    let failed = Standing::failed("NameTaken", "taken");
    assert_eq!(told(State::Pulling).explains(failed.clone()), failed);
}

#[test]
fn progress_is_news_only_by_its_steps() {
    let at = |percent, error: Option<&str>| {
        Told::Progress(Progress {
            state: State::Pulling,
            completed: percent,
            total: 100,
            percent: u8::try_from(percent).ok(),
            error: error.map(str::to_owned),
            ..Progress::default()
        })
    };
    assert!(Told::Nothing.is_news(&at(0, None)));
    assert!(!at(10, None).is_news(&at(14, None)));
    assert!(at(10, None).is_news(&at(15, None)));
    assert!(at(10, None).is_news(&at(10, Some("x"))));
}
