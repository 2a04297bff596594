//! Jobs, as kubectl makes them and waits for them.

use anyhow::{Result, ensure};
use kaos_product::Folder;

const JOBS: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: version}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: kaos
        args: [--version]
---
apiVersion: batch/v1
kind: Job
metadata: {name: broken}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: kaos
        args: [serve, proxy, --config, /no/such/file]
---
apiVersion: batch/v1
kind: Job
metadata: {name: foreign}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: example.org/nowhere
";

#[test]
fn a_job_is_made_waited_for_read_and_deleted() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    let kubectl = |arguments: &[&str]| -> Result<String> { Ok(folder.kubectl(arguments)?.ok()?.stdout) };
    folder.write("jobs.yaml", JOBS)?;
    kubectl(&["apply", "-f", "jobs.yaml"])?;

    let made = ["create", "job", "made", "--image=kaos", "--", "kaos", "--version"];
    kubectl(&made)?;
    let complete = "--for=condition=complete";
    kubectl(&["wait", complete, "job/version", "job/made", "--timeout=80s"])?;
    let log = kubectl(&["logs", "job/version"])?;
    ensure!(log.starts_with("kaos "), "{log}");
    let listed = kubectl(&["get", "jobs"])?;
    for part in [
        "NAME",
        "STATUS",
        "COMPLETIONS",
        "DURATION",
        "AGE",
        "Complete",
        "1/1",
    ] {
        ensure!(listed.contains(part), "no {part:?} in:\n{listed}");
    }
    let told = kubectl(&["describe", "job", "version"])?;
    for part in ["SuccessfulCreate", "Completed", "Job completed", "1 Succeeded"] {
        ensure!(told.contains(part), "no {part:?} in:\n{told}");
    }

    kubectl(&["wait", "--for=condition=failed", "job/broken", "--timeout=80s"])?;
    let told = kubectl(&["describe", "job", "broken"])?;
    ensure!(told.contains("BackoffLimitExceeded"), "{told}");
    let log = kubectl(&["logs", "job/broken"])?;
    ensure!(log.contains("/no/such/file"), "{log}");
    let pod = kubectl(&["get", "pods", "-l", "job-name=broken", "-o", "name"])?;
    let previous = folder.kubectl(&["logs", pod.trim(), "--previous"])?.failed()?;
    let missing = "previous terminated container \"main\" in pod";
    ensure!(
        previous.contains(missing) && previous.contains("not found"),
        "{previous}"
    );

    let foreign = kubectl(&["get", "pods", "-l", "job-name=foreign", "-o", "name"])?;
    let waits = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImageNeverPull";
    kubectl(&["wait", waits, foreign.trim(), "--timeout=80s"])?;

    kubectl(&["delete", "job", "--all", "--timeout=80s"])?;
    kubectl(&["wait", "--for=delete", foreign.trim(), "--timeout=80s"])?;
    let left = kubectl(&["get", "pods", "-l", "job-name", "-o", "name"])?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}
