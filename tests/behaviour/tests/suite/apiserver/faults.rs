//! Faults on demand: each shows to the caller as what it stands for, and no more.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kaos_apiserver::{ApiServer, Fault, Options, Outcome, Storage};
use kaos_seams::Seams;
use kaos_testkit::{Builder, Faults, TestApi};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

async fn start() -> (TestApi, Faults, String) {
    let faults = Faults::default();
    let api = Builder::default().faults(Arc::new(faults.clone())).start().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", api.namespace);
    (api, faults, path)
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn an_error_is_answered_instead_of_the_call() {
    let (api, faults, path) = start().await;
    let injection = faults.inject(
        1,
        Fault::Error(StatusCode::TOO_MANY_REQUESTS, "slow down".to_owned()),
        |call| call.verb == "create" && call.resource == "configmaps",
    );
    let (code, status) = api
        .raw("POST", &path, &[], json!({"metadata": {"name": "a"}}))
        .await;
    assert_eq!((code, &status["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(status["message"], "slow down");
    assert_eq!(
        api.raw("GET", &format!("{path}/a"), &[], ()).await.0,
        404,
        "nothing was stored"
    );
    assert_eq!(
        api.raw("POST", &path, &[], json!({"metadata": {"name": "a"}}))
            .await
            .0,
        201
    );
    assert_eq!(injection.fired(), 1);
    let seen = faults.seen();
    assert!(seen.iter().any(|(call, _, outcome)| call.verb == "create"
        && call.resource == "configmaps"
        && *outcome == Outcome::Answered(StatusCode::TOO_MANY_REQUESTS)));
}

#[tokio::test(start_paused = true)]
async fn a_delay_holds_the_answer_back() {
    let (api, faults, path) = start().await;
    let injection = faults.inject(1, Fault::Delay(Duration::from_secs(30)), |call| {
        call.verb == "list"
    });
    let start = Instant::now();
    assert_eq!(api.raw("GET", &path, &[], ()).await.0, 200);
    assert!(start.elapsed() >= Duration::from_secs(30));
    assert_eq!(injection.fired(), 1);
}

#[tokio::test]
async fn a_crash_before_the_commit_stores_nothing() {
    let (api, faults, _) = start().await;
    let maps = api.api::<ConfigMap>();
    let injection = faults.inject(1, Fault::CrashBeforeCommit, |call| call.verb == "create");
    let error = maps.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(
        !matches!(error, kube::Error::Api(_)),
        "a dead server answers nothing: {error}"
    );
    assert_eq!(injection.fired(), 1);
    assert!(maps.get_opt("a").await.unwrap().is_none());
    assert!(
        faults.seen().iter().any(
            |(_, fault, outcome)| *fault == Fault::CrashBeforeCommit && *outcome == Outcome::Disconnected
        )
    );
}

#[tokio::test]
async fn a_crash_after_the_commit_has_stored_it() {
    let (api, faults, _) = start().await;
    let maps = api.api::<ConfigMap>();
    let injection = faults.inject(1, Fault::CrashAfterCommit, |call| call.verb == "create");
    let error = maps.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(
        !matches!(error, kube::Error::Api(_)),
        "a dead server answers nothing: {error}"
    );
    assert_eq!(injection.fired(), 1);
    assert!(maps.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_dropped_watch_breaks_off_and_can_be_resumed() {
    let (api, faults, path) = start().await;
    let injection = faults.inject(1, Fault::DropWatch { after_events: 1 }, |call| {
        call.verb == "watch"
    });
    let (_, list) = api.raw("GET", &path, &[], ()).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.watch(&format!("{path}?resourceVersion={version}")).await;
    for name in ["a", "b"] {
        api.raw("POST", &path, &[], json!({"metadata": {"name": name}}))
            .await;
    }
    let first = watch.next().await.unwrap();
    assert_eq!(first["object"]["metadata"]["name"], "a");
    assert_eq!(watch.next().await, None);
    drop(watch);
    assert_eq!(injection.fired(), 1);
    assert!(
        faults
            .seen()
            .iter()
            .any(|(_, _, outcome)| *outcome == Outcome::WatchEnded { events: 1 })
    );

    let seen = first["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut again = api.watch(&format!("{path}?resourceVersion={seen}")).await;
    assert_eq!(again.next().await.unwrap()["object"]["metadata"]["name"], "b");
}

#[tokio::test]
async fn a_stale_read_shows_the_past() {
    let (api, faults, path) = start().await;
    api.raw(
        "POST",
        &path,
        &[],
        json!({"metadata": {"name": "a"}, "data": {"k": "1"}}),
    )
    .await;
    api.raw(
        "PUT",
        &format!("{path}/a"),
        &[],
        json!({"metadata": {"name": "a"}, "data": {"k": "2"}}),
    )
    .await;
    api.raw("POST", &path, &[], json!({"metadata": {"name": "b"}}))
        .await;
    let injection = faults.inject(2, Fault::StaleRead { versions_back: 2 }, |call| {
        call.resource == "configmaps"
    });
    let (_, old) = api.raw("GET", &format!("{path}/a"), &[], ()).await;
    assert_eq!(old["data"]["k"], "1");
    let (_, list) = api.raw("GET", &path, &[], ()).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(injection.fired(), 2);
    let (_, now) = api.raw("GET", &format!("{path}/a"), &[], ()).await;
    assert_eq!(now["data"]["k"], "2");
}

#[tokio::test]
async fn what_a_crash_left_is_what_the_next_start_finds() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::Disk(dir.path().join("objects.redb"));
    let faults = Faults::default();
    let before = faults.inject(1, Fault::CrashBeforeCommit, |call| {
        call.name.is_none() && call.verb == "create"
    });
    let options = |faults| Options {
        storage: storage.clone(),
        seams: Seams::simulated(7),
        faults,
    };
    let server = ApiServer::open(options(Some(Arc::new(faults.clone()))))
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(Client::new(server.clone(), "default"), "default");
    assert!(maps.create(&PostParams::default(), &map("lost")).await.is_err());
    let after = faults.inject(1, Fault::CrashAfterCommit, |call| call.verb == "create");
    assert!(maps.create(&PostParams::default(), &map("kept")).await.is_err());
    assert_eq!((before.fired(), after.fired()), (1, 1));
    let kept = maps.get("kept").await.unwrap();
    server.shutdown().await;
    let error = maps
        .create(&PostParams::default(), &map("late"))
        .await
        .unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 503));

    let server = ApiServer::open(options(None)).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(Client::new(server.clone(), "default"), "default");
    assert!(maps.get_opt("lost").await.unwrap().is_none());
    assert_eq!(
        maps.get("kept").await.unwrap(),
        kept,
        "with its uid and its version"
    );
    server.shutdown().await;
}
