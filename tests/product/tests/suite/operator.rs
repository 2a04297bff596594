//! `kaos serve operator` on a cluster that has nothing of KAOS yet.

use std::time::Duration;

use anyhow::{Result, ensure};
use kaos_product::{Cluster, Folder};
use rustix::process::Signal;

const OPERATOR: [&str; 4] = ["serve", "operator", "--kubeconfig", ".kaos/kubeconfig"];

#[test]
fn a_quickstart_becomes_ready_on_a_cluster() -> Result<()> {
    let folder = Folder::new()?;
    let cluster = Cluster::start(&folder)?;
    let namespace = cluster.namespace();
    // As docs/operator.md has it.
    folder
        .shell("export KUBECONFIG=.kaos/kubeconfig; kaos crds | kubectl apply --server-side -f -")?
        .ok()?;
    for kind in ["agents", "modelapis", "mcpservers"] {
        let definition = format!("crd/{kind}.kaos.tools");
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            &definition,
        ];
        folder.kubectl(&established)?.ok()?;
    }
    let mut operator = folder.start(&OPERATOR)?;
    operator.prints("controllers started")?;
    folder
        .kubectl(&["apply", "-n", namespace, "-f", "samples/quickstart.yaml"])?
        .ok()?;
    let ready = ["wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s"];
    folder
        .kubectl(
            &[
                &ready[..],
                &["modelapi/models", "mcpserver/calculator", "agent/assistant"],
            ]
            .concat(),
        )?
        .ok()?;

    let made = folder
        .kubectl(&["get", "-n", namespace, "deployments,services", "-o", "name"])?
        .ok()?
        .stdout;
    for child in ["modelapi-models", "mcpserver-calculator", "agent-assistant"] {
        for kind in ["deployment.apps", "service"] {
            let name = format!("{kind}/{child}");
            ensure!(made.contains(&name), "no {name} in:\n{made}");
        }
    }
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let image = folder
        .kubectl(&["get", "-n", namespace, "deployment/agent-assistant", "-o", image])?
        .ok()?
        .stdout;
    ensure!(image == concat!("kaos:", env!("CARGO_PKG_VERSION")), "{image}");

    operator.signal(Signal::TERM)?;
    let ended = operator.ended()?.ok()?;
    ensure!(ended.stderr.contains("controllers stopped"), "{}", ended.stderr);
    ensure!(!ended.stderr.contains("ERROR"), "{}", ended.stderr);
    Ok(())
}

#[test]
fn the_environment_decides_what_the_pods_run() -> Result<()> {
    let folder = Folder::new()?;
    let cluster = Cluster::embedded(&folder)?;
    folder
        .shell("export KUBECONFIG=.kaos/kubeconfig; kaos crds | kubectl apply --server-side -f -")?
        .ok()?;
    let image = "registry.example.com/kaos:9";
    let mut operator = folder.start_with(&OPERATOR, &[("DEFAULT_AGENT_IMAGE", image)])?;
    operator.prints("controllers started")?;
    let namespace = cluster.namespace();
    folder
        .kubectl(&["apply", "-n", namespace, "-f", "samples/quickstart.yaml"])?
        .ok()?;
    let found = format!("--for=jsonpath={{.spec.template.spec.containers[0].image}}={image}");
    // kubectl waits for what is there, and for what is not yet only with --for=create.
    let deployment = "deployment/modelapi-models";
    for until in ["--for=create", found.as_str()] {
        folder
            .kubectl(&["wait", "-n", namespace, until, "--timeout=60s", deployment])?
            .ok()?;
    }
    Ok(())
}

#[test]
fn without_the_kinds_it_says_how_to_install_them() -> Result<()> {
    let folder = Folder::new()?;
    let _cluster = Cluster::embedded(&folder)?;
    let told = folder.run("kaos", &OPERATOR)?.failed()?;
    ensure!(
        told.contains("does not serve ModelAPI; install what is missing with `kaos crds | kubectl apply --server-side -f -`"),
        "{told}"
    );
    Ok(())
}

#[test]
fn a_wrong_environment_is_told_before_anything_is_asked() -> Result<()> {
    let folder = Folder::new()?;
    let variables = "GATEWAY_API_ENABLED=true GATEWAY_DEFAULT_MCP_TIMEOUT=30";
    let told = folder
        .shell(&format!("{variables} kaos serve operator"))?
        .failed()?;
    for part in [
        r#"GATEWAY_API_ENABLED is "true": write the Gateway's name to GATEWAY_NAME"#,
        r#"GATEWAY_DEFAULT_MCP_TIMEOUT is "30": write one to four numbers"#,
    ] {
        ensure!(told.contains(part), "{told}");
    }
    Ok(())
}

#[test]
fn without_a_cluster_it_says_how_to_name_one() -> Result<()> {
    let folder = Folder::new()?;
    let told = folder.run("kaos", &["serve", "operator"])?.failed()?;
    ensure!(
        told.contains("name a kubeconfig with --kubeconfig or KUBECONFIG"),
        "{told}"
    );
    let told = folder
        .run("kaos", &["serve", "operator", "--kubeconfig", "nowhere"])?
        .failed()?;
    ensure!(told.contains("nowhere leads to no cluster"), "{told}");
    Ok(())
}

#[test]
fn flags_of_earlier_operators_are_refused_with_what_to_do() -> Result<()> {
    let folder = Folder::new()?;
    for (flags, fix) in [
        (vec!["--leader-elect"], "run one operator"),
        (vec!["--leader-elect=true"], "run one operator"),
        (
            vec!["--metrics-bind-address", ":8080"],
            "there are no metrics yet",
        ),
        (
            vec!["--health-probe-bind-address=:8081"],
            "there are no health probes yet",
        ),
        (vec!["--zap-log-level=debug"], "LOG_LEVEL=debug"),
        (vec!["--namespace", "mine"], "all namespaces"),
    ] {
        let told = folder
            .run("kaos", &[&["serve", "operator"], &flags[..]].concat())?
            .failed()?;
        ensure!(told.contains(fix), "{flags:?}: {told}");
    }
    Ok(())
}

/// A process that was told to end must not need a second signal while it waits for an API server that is away.
#[test]
fn it_ends_while_the_cluster_does_not_answer() -> Result<()> {
    let folder = Folder::new()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: u, user: {{}}}}], \
          clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}], \
          contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}",
        listener.local_addr()?
    );
    folder.write("silent", &kubeconfig)?;
    let mut operator = folder.start(&["serve", "operator", "--kubeconfig", "silent"])?;
    operator.prints("working for the API server")?;
    std::thread::sleep(Duration::from_millis(200));
    operator.signal(Signal::TERM)?;
    operator.ended()?.ok()?;
    Ok(())
}
