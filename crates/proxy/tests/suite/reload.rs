//! A configuration file that changes while it is served.

use std::{fs, sync::Arc, time::Duration};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use futures::{StreamExt, stream};
use kaos_proxy::Config;
use kaos_seams::Seams;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc},
};
use tokio_util::sync::CancellationToken;

const CHUNK: &str = "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"inner\",\
                     \"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n";

/// On paused time, which moves on to the next look at the file whenever nothing else is to be done.
#[tokio::test(start_paused = true)]
async fn what_has_begun_goes_on_and_what_comes_next_is_answered_by_the_new_file() {
    kaos_telemetry::install_crypto_provider();
    let (send, receive) = mpsc::unbounded_channel::<&'static str>();
    let receive = Arc::new(Mutex::new(receive));
    let upstream = Router::new().route(
        "/v1/chat/completions",
        post(async move || {
            let body = Body::from_stream(stream::unfold(receive, async |receive| {
                let part = receive.lock().await.recv().await?;
                Some((Ok::<_, std::io::Error>(Bytes::from(part)), receive))
            }));
            ([("content-type", "text/event-stream")], body)
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, upstream).await });

    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config.yaml");
    let old = format!(
        "model_list:\n- model_name: old\n  litellm_params:\n    model: openai/inner\n    api_base: {base}\n    api_key: k\n"
    );
    fs::write(&path, &old).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let config = Config::load(&path, []).unwrap();
    let proxy = tokio::spawn(kaos_proxy::serve(
        config,
        listener,
        Seams::simulated(1),
        kaos_telemetry::Telemetry::off(),
        stop.clone(),
    ));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| -> Value {
        client
            .get(format!("{url}{path}"))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    };
    let until = async |path: &str, what: &str| {
        for _ in 0..10 {
            if get(path).await.to_string().contains(what) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{path} never told of {what:?}: {}", get(path).await);
    };

    send.send(CHUNK).unwrap();
    let question = json!({"model": "old", "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let mut open = client
        .post(format!("{url}/v1/chat/completions"))
        .json(&question)
        .send()
        .await
        .unwrap()
        .bytes_stream();
    assert!(open.next().await.unwrap().unwrap().starts_with(b"data: "));

    fs::write(
        &path,
        "model_list:\n- model_name: new\n  litellm_params: {model: mock/new}\n",
    )
    .unwrap();
    until("/v1/models", "\"new\"").await;
    let answer = client
        .post(format!("{url}/v1/chat/completions"))
        .json(&question)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 404, "the model is not in the new file");

    fs::write(&path, "model_list: 1\n").unwrap();
    until("/health/readiness", "cannot be served").await;
    assert_eq!(get("/health/readiness").await["status"], "ready");
    assert_eq!(get("/v1/models").await["data"][0]["id"], "new");

    send.send(CHUNK).unwrap();
    send.send("data: [DONE]\n\n").unwrap();
    let mut rest = String::new();
    while let Some(part) = open.next().await {
        rest.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
    }
    assert!(
        rest.contains("hi") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    stop.cancel();
    proxy.await.unwrap().unwrap();
}
