//! `kaos serve operator` on a cluster that has nothing of KAOS yet.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kaos_product::{Cluster, Folder, Up};
use rustix::process::Signal;

/// Where the probes are served is a port that no other test has.
const OPERATOR: [&str; 6] = [
    "serve",
    "operator",
    "--kubeconfig",
    ".kaos/kubeconfig",
    "--health-probe-bind-address",
    "127.0.0.1:0",
];

/// What a probe of an operator is answered.
fn probe(operator: &mut Up, path: &str) -> Result<String> {
    operator.prints("serving health probes")?;
    let text = operator.text();
    let line = text
        .lines()
        .find(|line| line.contains("serving health probes"))
        .context("no line")?;
    let (_, address) = line.split_once("address=").context("no address")?;
    let address = address.split_whitespace().next().context("no address")?;
    let mut connection = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

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
        // A definition that has just been made has `conditions: null`, which kubectl takes for an error.
        let accepted = format!("--for=jsonpath={{.status.acceptedNames.plural}}={kind}");
        for until in [accepted.as_str(), "--for=condition=Established"] {
            folder
                .kubectl(&["wait", until, "--timeout=60s", &definition])?
                .ok()?;
        }
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

    let answer = probe(&mut operator, "/readyz")?;
    ensure!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nok"),
        "{answer}"
    );
    let answer = probe(&mut operator, "/readyz?verbose")?;
    for check in ["[+]api-server ok", "[+]agents ok", "[+]deployments ok"] {
        ensure!(answer.contains(check), "{answer}");
    }

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
        (
            vec!["--metrics-bind-address", ":8080"],
            "there are no metrics yet",
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
    for election in ["--leader-elect=false", "--leader-elect"] {
        let mut operator = folder.start(&[
            "serve",
            "operator",
            "--kubeconfig",
            "silent",
            "--health-probe-bind-address=127.0.0.1:0",
            election,
        ])?;
        operator.prints("working for the API server")?;
        let answer = probe(&mut operator, "/readyz")?;
        let missing = "[-]api-server failed: it has not answered yet\nreadyz check failed\n";
        ensure!(
            answer.starts_with("HTTP/1.1 500") && answer.ends_with(missing),
            "{answer}"
        );
        let answer = probe(&mut operator, "/healthz")?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        std::thread::sleep(Duration::from_millis(200));
        operator.signal(Signal::TERM)?;
        operator.ended()?.ok()?;
    }
    Ok(())
}

/// An API server with the kinds, and nobody else's operator.
fn cluster_with_kinds(folder: &Folder) -> Result<Cluster> {
    let cluster = Cluster::embedded(folder)?;
    folder
        .shell("export KUBECONFIG=.kaos/kubeconfig; kaos crds | kubectl apply --server-side -f -")?
        .ok()?;
    Ok(cluster)
}

#[test]
fn another_replica_takes_over_when_the_leader_ends() -> Result<()> {
    let folder = Folder::new()?;
    let cluster = cluster_with_kinds(&folder)?;
    let namespace = cluster.namespace();
    let replica = [&OPERATOR[..], &["--leader-elect"]].concat();
    let system = [("SYSTEM_NAMESPACE", namespace)];
    let mut first = folder.start_with(&replica, &system)?;
    first.prints("controllers started")?;
    let mut second = folder.start_with(&replica, &system)?;
    second.prints("another leads; waiting")?;
    let answer = probe(&mut second, "/readyz?verbose")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    ensure!(answer.contains("[+]leader-election ok"), "{answer}");

    let works = |manifest: &str, kind: &str| -> Result<()> {
        folder
            .kubectl(&["apply", "-n", namespace, "-f", manifest])?
            .ok()?;
        let wait = ["wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s"];
        folder.kubectl(&[&wait[..], &[kind]].concat())?.ok()?;
        Ok(())
    };
    folder.write("first.yaml", &model_api("first"))?;
    works("first.yaml", "modelapi/first")?;
    let holder = ["-o", "jsonpath={.spec.holderIdentity}"];
    let lease = ["get", "-n", namespace, "lease", "kaos-operator.kaos.tools"];
    let lease = [&lease[..], &holder].concat();
    let leader = folder.kubectl(&lease)?.ok()?.stdout;
    ensure!(
        !second.text().contains("controllers started"),
        "{}",
        second.text()
    );

    first.signal(Signal::TERM)?;
    let ended = first.ended()?.ok()?.stderr;
    let (stopped, given_back) = (ended.find("controllers stopped"), ended.find("given back"));
    ensure!(stopped.is_some() && stopped < given_back, "{ended}");
    second.prints("controllers started")?;
    let next = folder.kubectl(&lease)?.ok()?.stdout;
    ensure!(!next.is_empty() && next != leader, "{leader}, then {next}");
    folder.write("second.yaml", &model_api("second"))?;
    works("second.yaml", "modelapi/second")?;

    // Whoever takes the Lease may begin at once: this one has to stop.
    let theirs = r#"{"spec":{"holderIdentity":"them"}}"#;
    let take = ["patch", "-n", namespace, "lease", "kaos-operator.kaos.tools"];
    let theirs = ["--type", "merge", "-p", theirs];
    folder.kubectl(&[&take[..], &theirs].concat())?.ok()?;
    let lost = second.ended()?.failed()?;
    ensure!(lost.contains("this operator leads no longer: "), "{lost}");
    ensure!(lost.contains("is held by them now"), "{lost}");
    Ok(())
}

fn model_api(name: &str) -> String {
    format!(
        "apiVersion: kaos.tools/v1alpha1\nkind: ModelAPI\nmetadata: {{name: {name}}}\n\
         spec:\n  mode: Proxy\n  proxyConfig: {{runtime: Native, provider: mock, models: [any]}}\n"
    )
}

#[test]
fn an_election_that_cannot_be_held_is_told_with_what_to_do() -> Result<()> {
    let folder = Folder::new()?;
    let _cluster = cluster_with_kinds(&folder)?;
    let told = folder
        .run("kaos", &[&OPERATOR[..], &["--leader-elect"]].concat())?
        .failed()?;
    ensure!(
        told.contains("has no namespace kaos-system")
            && told.contains("kubectl create namespace kaos-system"),
        "{told}"
    );
    Ok(())
}

#[test]
fn an_address_of_the_probes_that_cannot_be_had_is_told() -> Result<()> {
    let folder = Folder::new()?;
    let _cluster = Cluster::embedded(&folder)?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let operator = &OPERATOR[..4];
    let told = |address: &str| {
        let flag = format!("--health-probe-bind-address={address}");
        folder
            .run("kaos", &[operator, &[flag.as_str()]].concat())?
            .failed()
    };
    let address = taken.local_addr()?.to_string();
    let text = told(&address)?;
    ensure!(
        text.contains(&format!("cannot be served at {address}: Address already in use")),
        "{text}"
    );
    let text = told("8081")?;
    ensure!(text.contains("write :8081 for a port on every address"), "{text}");
    Ok(())
}
