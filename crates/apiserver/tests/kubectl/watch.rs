//! Calls that wait: watches and `kubectl wait`.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout},
    time::timeout,
};

use crate::{fixtures::*, harness::start};

fn lines(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    timeout(Duration::from_secs(30), lines.next_line())
        .await
        .expect("a line comes")
        .unwrap()
        .expect("not the end")
}

#[tokio::test]
async fn a_watch_prints_changes_as_they_happen() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], CONFIG).await;
    let mut watch = kubectl.spawn(&["get", "cm", "-w"]);
    let mut printed = lines(&mut watch);
    assert!(next(&mut printed).await.starts_with("NAME"));
    assert!(next(&mut printed).await.starts_with("settings   2"));
    kubectl
        .run(&[
            "patch",
            "cm",
            "settings",
            "--type",
            "merge",
            "-p",
            r#"{"data":{"c":"3"}}"#,
        ])
        .await;
    assert!(next(&mut printed).await.starts_with("settings   3"));
    kubectl
        .pipe(&["create", "-f", "-"], &CONFIG.replace("settings", "new"))
        .await;
    assert!(next(&mut printed).await.starts_with("new        2"));
    watch.kill().await.unwrap();
}

#[tokio::test]
async fn wait_sees_conditions_values_and_deletions() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], DEFINITION).await;
    let crd = "crd/widgets.example.com";
    kubectl
        .run(&["wait", "--for=condition=Established", crd, "--timeout=30s"])
        .await;
    kubectl.pipe(&["apply", "-f", "-"], WIDGET).await;
    let (_, message) = kubectl
        .fails(
            &["wait", "--for=condition=Ready", "widget/one", "--timeout=1s"],
            None,
        )
        .await;
    assert!(
        message.contains("timed out waiting for the condition on widgets/one"),
        "{message}"
    );

    let ready = kubectl.spawn(&["wait", "--for=condition=Ready", "widget/one", "--timeout=30s"]);
    let phase = kubectl.spawn(&[
        "wait",
        "--for=jsonpath={.status.phase}=Done",
        "widget/one",
        "--timeout=30s",
    ]);
    let status = r#"{"status":{"phase":"Done","conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl
        .run(&[
            "patch",
            "widget",
            "one",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ])
        .await;
    for child in [ready, phase] {
        let output = timeout(Duration::from_secs(40), child.wait_with_output())
            .await
            .unwrap()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            text,
            "widget.example.com/one condition met\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut gone = kubectl.spawn(&["wait", "--for=delete", "widget/one", "--timeout=30s"]);
    kubectl.run(&["delete", "widget", "one"]).await;
    assert!(
        timeout(Duration::from_secs(40), gone.wait())
            .await
            .unwrap()
            .unwrap()
            .success()
    );
}
