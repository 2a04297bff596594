//! The keeper before sources that behave well and badly, on paused time.

use std::{collections::VecDeque, sync::Mutex};

use kaos_seams::SeededRandom;
use tokio::time::Instant;

use super::*;

/// One answer to a pull: its lines, how long each takes, and its end.
struct Pull(Vec<Frame>, Duration, Result<(), Error>);

/// A source with scripted pulls; a pull that ends well brings the model.
#[derive(Default)]
struct Script {
    tags: Mutex<Vec<String>>,
    unreachable_until: Option<Instant>,
    pulls: Mutex<VecDeque<Pull>>,
    asked: Mutex<Vec<Instant>>,
}

impl Source for &Script {
    async fn tags(&self) -> Result<Vec<String>, Error> {
        if self.unreachable_until.is_some_and(|end| Instant::now() < end) {
            return Err(Error::Unreachable("connection refused".to_owned()));
        }
        Ok(self.tags.lock().unwrap().clone())
    }

    async fn pull(&self, model: &ModelName, mut on: impl FnMut(&Frame) + Send) -> Result<(), Error> {
        self.asked.lock().unwrap().push(Instant::now());
        let pull = self.pulls.lock().unwrap().pop_front();
        let Pull(frames, pace, end) = pull.expect("one pull more than the script has");
        for frame in &frames {
            on(frame);
            sleep(pace).await;
        }
        if end.is_ok() {
            self.tags.lock().unwrap().push(model.to_string());
        }
        end
    }
}

fn bytes(completed: u64, total: u64) -> Frame {
    Frame {
        status: "pulling".to_owned(),
        digest: Some("sha256:1".to_owned()),
        total: Some(total),
        completed: Some(completed),
        error: None,
    }
}

/// Runs a keeper of `script` beside `check`.
async fn beside(script: &Script, check: impl AsyncFnOnce(watch::Receiver<Progress>)) {
    let (tell, told) = watch::channel(Progress::default());
    let keeper = Keeper {
        model: "smollm2:135m".parse().unwrap(),
        source: script,
        tell,
        random: Arc::new(SeededRandom::new(1)),
    };
    tokio::select! {
        never = keeper.keep() => match never {},
        () = check(told) => {}
    }
}

async fn until(told: &mut watch::Receiver<Progress>, state: State) -> Progress {
    told.wait_for(|progress| progress.state == state)
        .await
        .unwrap()
        .clone()
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_ollama_then_pulls_and_tells_how_far_it_is() {
    let script = Script {
        unreachable_until: Some(Instant::now() + Duration::from_secs(7)),
        pulls: Mutex::new(
            [Pull(
                vec![Frame::default(), bytes(50, 200), bytes(200, 200)],
                Duration::from_secs(2),
                Ok(()),
            )]
            .into(),
        ),
        ..Script::default()
    };
    let began = Instant::now();
    beside(&script, async |mut told| {
        let pulling = until(&mut told, State::Pulling).await;
        assert_eq!(
            (pulling.total, pulling.percent),
            (0, None),
            "nothing is known of its size yet"
        );
        let known = told
            .wait_for(|progress| progress.total > 0)
            .await
            .unwrap()
            .clone();
        assert_eq!((known.completed, known.total, known.percent), (50, 200, Some(25)));
        let pulled = until(&mut told, State::Pulled).await;
        assert_eq!(
            (pulled.completed, pulled.percent, pulled.error),
            (200, Some(100), None)
        );
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_told_in_ollamas_words_and_tried_again_ever_more_slowly() {
    let refused = || {
        Pull(
            vec![],
            Duration::ZERO,
            Err(Error::Refused(
                "pull model manifest: file does not exist".to_owned(),
            )),
        )
    };
    let mut pulls: VecDeque<Pull> = (0..12).map(|_| refused()).collect();
    pulls.push_back(Pull(vec![bytes(1, 1)], Duration::ZERO, Ok(())));
    let script = Script {
        pulls: Mutex::new(pulls),
        ..Script::default()
    };
    beside(&script, async |mut told| {
        let failed = until(&mut told, State::Failed).await;
        assert_eq!(
            failed.error.as_deref(),
            Some("pull model manifest: file does not exist")
        );
        let mut others = 0;
        loop {
            told.changed().await.unwrap();
            match told.borrow_and_update().state {
                State::Pulled => break,
                State::Failed => {}
                _ => others += 1,
            }
        }
        assert!(others <= 1, "a try that fails again is no news");
        assert_eq!(told.borrow().error, None);
    })
    .await;
    let asked = script.asked.lock().unwrap();
    let gaps: Vec<u64> = asked
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert!(gaps[0] <= 1 && gaps[2] > gaps[0], "{gaps:?}");
    assert!(gaps[8..].iter().all(|gap| (29..=60).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_breaks_off_goes_on() {
    let script = Script {
        pulls: Mutex::new(
            [
                Pull(vec![bytes(50, 100)], Duration::ZERO, Err(Error::CutOff)),
                Pull(vec![bytes(60, 100)], Duration::from_secs(1), Ok(())),
            ]
            .into(),
        ),
        ..Script::default()
    };
    beside(&script, async |mut told| {
        let failed = until(&mut told, State::Failed).await;
        assert_eq!(failed.percent, Some(50));
        assert_eq!(
            failed.error.as_deref(),
            Some("the connection ended before the model was complete")
        );
        let again = until(&mut told, State::Pulling).await;
        assert_eq!((again.percent, again.error), (Some(60), None));
        until(&mut told, State::Pulled).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_vanishes_is_pulled_again() {
    let pull = || {
        Pull(
            vec![Frame::default(), bytes(1, 2)],
            Duration::from_secs(1),
            Ok(()),
        )
    };
    let script = Script {
        pulls: Mutex::new([pull(), pull()].into()),
        ..Script::default()
    };
    beside(&script, async |mut told| {
        until(&mut told, State::Pulled).await;
        script.tags.lock().unwrap().clear();
        let again = until(&mut told, State::Pulling).await;
        assert_eq!(again.total, 0, "it begins anew");
        until(&mut told, State::Pulled).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_there_already_is_not_pulled() {
    let script = Script {
        tags: Mutex::new(vec!["SmolLM2:135m".to_owned()]),
        ..Script::default()
    };
    beside(&script, async |mut told| {
        until(&mut told, State::Pulled).await;
        sleep(CHECK * 3).await;
    })
    .await;
    assert!(script.asked.lock().unwrap().is_empty());
}
