//! What `/readyz` tells while something cannot be listed, and once it can.

use std::sync::Arc;

use axum::http::StatusCode;
use kaos_apiserver::{Call, Fault};
use kaos_operator::{Connection, Options, ProbeAddress, run, settings};
use kaos_testkit::{Builder, Faults, PATIENCE, eventually, install_crds};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_kind_that_cannot_be_listed_is_named_until_it_is() {
    let faults = Faults::default();
    let api = Builder::default()
        .embedded()
        .faults(Arc::new(faults.clone()))
        .start()
        .await;
    install_crds(&api).await;
    let refused = faults.inject(
        usize::MAX,
        Fault::Error(StatusCode::SERVICE_UNAVAILABLE, "not now".to_owned()),
        |call: &Call| call.resource == "deployments",
    );
    let address: ProbeAddress = "127.0.0.1:0".parse().unwrap();
    let probes = address.bind().await.unwrap().unwrap();
    let address = probes.local_addr().unwrap();
    let ready = async || {
        let mut connection = TcpStream::connect(address).await?;
        let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };

    let shutdown = CancellationToken::new();
    let connection = Connection {
        client: api.client.clone(),
        api: "the embedded API".to_owned(),
    };
    let options = Options {
        probes: Some(probes),
        ..Options::default()
    };
    let operator = tokio::spawn(run(
        connection,
        settings([]).unwrap(),
        options,
        api.seams.clone(),
        shutdown.clone(),
    ));
    let missing = "[-]deployments failed: not listed yet\n";
    let others = ["[+]api-server ok\n", "[+]agents ok\n", "[+]configmaps ok\n"];
    eventually("all but one are listed", PATIENCE, async || match ready().await {
        Ok(answer)
            if answer.starts_with("HTTP/1.1 500")
                && answer.contains(missing)
                && others.iter().all(|other| answer.contains(other)) =>
        {
            Ok(())
        }
        other => Err(other),
    })
    .await;
    assert!(refused.fired() > 0);

    faults.stop();
    eventually("all are listed", PATIENCE, async || match ready().await {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") => Ok(()),
        other => Err(other),
    })
    .await;
    shutdown.cancel();
    operator.await.unwrap().unwrap();
}
