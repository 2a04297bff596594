//! Logs, as kubectl asks for them.

use anyhow::{Result, ensure};
use kaos_product::Folder;

/// A pod whose main container fails beside a sidecar, and one that fails again and again.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: failing}
spec:
  restartPolicy: Never
  initContainers:
  - name: side
    image: kaos
    restartPolicy: Always
    args: [serve, model-pull, --model, 'smollm2:135m']
    ports: [{containerPort: 11435}]
  containers:
  - name: main
    image: kaos
    args: [serve, proxy, --config, /no/such/file]
---
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  containers:
  - name: main
    image: kaos
    args: [serve, proxy, --config, /no/such/file]
";

#[test]
fn every_way_to_ask_for_a_log_is_understood() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    folder.write("pods.yaml", PODS)?;
    folder.kubectl(&["apply", "-f", "pods.yaml"])?.ok()?;
    let over = "--for=jsonpath={.status.phase}=Failed";
    folder
        .kubectl(&["wait", over, "pod/failing", "--timeout=80s"])?
        .ok()?;
    let logs = |more: &[&str]| -> Result<String> {
        let output = folder.kubectl(&[&["logs", "failing"], more].concat())?.ok()?;
        Ok(output.stdout)
    };
    let all = logs(&["-c", "main"])?;
    ensure!(all.contains("/no/such/file"), "{all}");
    ensure!(logs(&[])? == all, "the main container is the one that is meant");
    ensure!(logs(&["-c", "main", "--since=1h"])? == all);
    ensure!(logs(&["-c", "main", "-f"])? == all, "it ends with the container");
    let last = all.lines().last().unwrap_or_default();
    ensure!(logs(&["-c", "main", "--tail=1"])?.trim_end() == last);
    ensure!(logs(&["-c", "main", "--limit-bytes=5"])? == all[..5]);
    let timed = logs(&["-c", "main", "--tail=1", "--timestamps"])?;
    let (time, text) = timed.trim_end().split_once(' ').unwrap_or_default();
    ensure!(
        text == last && time.ends_with('Z') && time.contains('T'),
        "{timed}"
    );
    let restarted = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff";
    folder
        .kubectl(&["wait", restarted, "pod/again", "--timeout=80s"])?
        .ok()?;
    let previous = folder.kubectl(&["logs", "again", "--previous"])?.ok()?.stdout;
    ensure!(previous.contains("/no/such/file"), "{previous}");
    let unknown = folder.kubectl(&["logs", "failing", "-c", "none"])?.failed()?;
    ensure!(
        unknown.contains("container none is not valid for pod failing"),
        "{unknown}"
    );
    Ok(())
}
