//! Manifests in, objects out.

use k8s_openapi::api::core::v1::ConfigMap;
use kaos_api::{names::Kind, v1alpha1::MCPServer};

use super::{
    McpServers,
    registry::{Runtimes, Unavailable},
    resolve,
};
use crate::{
    common::{
        driver::Workload,
        plan::{Note, Objects, Plan},
        testing::{config, gateway, owner, stored, yaml},
    },
    config::{Config, ConfigMapRef, TelemetryDefaults},
};

/// What a registry adds to the configuration.
const REGISTRY: &str = r#"
runtimes:
  slack:
    image: example.com/slack:1
    args: [--port, "8000"]
    requiredEnv: [SLACK_BOT_TOKEN, SLACK_TEAM_ID]
  broken:
    image: example.com/broken:1
    transport: stdio
"#;

fn runtimes(config: &Config, text: &str) -> Runtimes {
    let place = ConfigMapRef {
        namespace: "system".to_owned(),
        name: "kaos-mcp-runtimes".to_owned(),
    };
    let data = [("runtimes.yaml".to_owned(), text.to_owned())];
    let config_map = ConfigMap {
        data: Some(data.into()),
        ..ConfigMap::default()
    };
    Runtimes::read(config, Some((&place, &config_map)))
}

fn plan_with(spec: &str, config: &Config) -> Plan {
    let server = stored::<MCPServer>("calc", spec);
    let resolved = resolve::resolve(&server, &runtimes(config, REGISTRY));
    McpServers::plan(&owner(Kind::McpServer, "calc"), &server, &resolved, config)
}

fn plan(spec: &str) -> Plan {
    plan_with(spec, &config())
}

fn objects(spec: &str) -> Objects {
    plan(spec).objects.unwrap()
}

fn notes(spec: &str) -> Vec<(&'static str, String)> {
    let plan = plan(spec);
    assert!(plan.objects.is_ok(), "{plan:?}");
    let told = |note: Note| (note.reason, note.text);
    plan.notes.into_iter().map(told).collect()
}

#[test]
fn python_functions() {
    let spec = r#"
runtime: python-string
params: |
  def cost(x: int) -> str:
      "Price of $(x)"
      return f"$${x}"
container:
  env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}]
"#;
    insta::assert_snapshot!(yaml(&objects(spec)));
}

#[test]
fn a_runtime_without_parameters() {
    insta::assert_snapshot!(yaml(&objects("runtime: plain").deployment));
}

#[test]
fn everything_that_a_user_can_change() {
    let spec = r#"
runtime: custom
serviceAccountName: reader
telemetry: {enabled: true}
gatewayRoute: {timeout: 5m}
container:
  image: example.com/mine:1
  command: [/serve]
  args: [--all]
  resources: {limits: {memory: 1Gi}}
  env: [{name: LOG_LEVEL, value: TRACE}, {name: OTEL_RESOURCE_ATTRIBUTES, value: mine=yes}]
podSpec:
  nodeSelector: {disk: fast}
  containers:
    - name: mcp-server
      readinessProbe: {periodSeconds: 7}
"#;
    let config = Config {
        gateway: Some(gateway()),
        telemetry: TelemetryDefaults {
            enabled: false,
            endpoint: Some("http://collector:4317".to_owned()),
        },
        ..config()
    };
    insta::assert_snapshot!(yaml(&plan_with(spec, &config).objects.unwrap()));
}

#[test]
fn source_from_a_secret_is_a_file_of_the_tool_server() {
    let spec = "type: python-runtime\nconfig: {tools: {fromSecretKeyRef: {name: source, key: main.py}}}";
    insta::assert_snapshot!(yaml(&objects(spec).deployment.spec.template));
}

#[test]
fn a_package_of_pypi_is_run_behind_the_bridge() {
    let spec = r#"
type: python-runtime
config:
  tools: {fromPackage: "my-server[http]>=1.2"}
  env: [{name: PIP_INDEX_URL, value: https://example.com/simple}]
container: {args: [--verbose]}
"#;
    insta::assert_snapshot!(yaml(&objects(spec).deployment.spec.template));
}

#[test]
fn a_package_of_npm_is_run_by_npx() {
    let spec = "type: node-runtime\nconfig: {mcp: '@scope/server@1.2'}";
    let deployment = objects(spec).deployment;
    let container = &deployment.spec.template.spec.unwrap().containers[0];
    assert_eq!(container.image.as_deref(), Some("node:1"));
    let command = container.command.clone().unwrap();
    assert_eq!(
        command,
        [
            "kaos",
            "serve",
            "bridge",
            "--",
            "npx",
            "--yes",
            "--",
            "@scope/server@1.2"
        ]
    );
    assert_eq!(container.args, None);
}

#[test]
fn older_spellings_are_the_same_server() {
    let newer = yaml(&objects(
        "{runtime: python-string, params: 'def f(): ...', container: {env: [{name: A, value: b}]}}",
    ));
    for spec in [
        "{runtime: rawpython, params: 'def f(): ...', config: {env: [{name: A, value: b}]}}",
        "{type: python-runtime, config: {tools: {fromString: 'def f(): ...'}, env: [{name: A, value: b}]}}",
        "{type: python-runtime, config: {toolsString: 'def f(): ...', env: [{name: A, value: b}]}}",
        "{runtime: python-string, config: {toolsString: 'def f(): ...', env: [{name: A, value: b}]}}",
        "{type: python-runtime, params: 'def f(): ...', config: {env: [{name: A, value: b}]}}",
    ] {
        assert_eq!(yaml(&objects(spec)), newer, "{spec}");
        assert_eq!(notes(spec), [], "{spec}");
    }
}

#[test]
fn what_a_runtime_requires_may_come_from_anywhere() {
    for spec in [
        "{runtime: slack, container: {env: [{name: SLACK_BOT_TOKEN, value: x}]}, config: {env: [{name: \
         SLACK_TEAM_ID, value: T1}]}}",
        "{runtime: slack, container: {env: [{name: SLACK_BOT_TOKEN, value: x}]}, podSpec: {containers: [{name: \
         mcp-server, env: [{name: SLACK_TEAM_ID, value: T1}]}]}}",
        "{runtime: slack, podSpec: {containers: [{name: mcp-server, envFrom: [{secretRef: {name: slack}}]}]}}",
    ] {
        let plan = plan(spec);
        assert!(plan.objects.is_ok(), "{spec}: {plan:?}");
    }
}

#[test]
fn the_registry_wins_over_the_configuration_and_one_that_is_unreadable_over_nothing() {
    let config = config();
    let image = |runtimes: &Runtimes, name: &str| runtimes.find(name).map(|runtime| runtime.image);
    let read = |text: &str| runtimes(&config, text);

    let ours = read("runtimes: {python-string: {image: ours}}");
    for name in ["python-string", "rawpython"] {
        assert_eq!(image(&ours, name), Ok("ours".to_owned()));
    }
    let unreadable = read("runtimes: [");
    assert_eq!(image(&unreadable, "plain"), Ok("plain:1".to_owned()));
    let Err(Unavailable::Unknown {
        problem: Some(problem),
        ..
    }) = unreadable.find("slack")
    else {
        panic!("{unreadable:?}");
    };
    let place = "ConfigMap system/kaos-mcp-runtimes, runtimes.yaml, line ";
    assert!(problem.starts_with(place), "{problem}");

    // A slip in an entry that hides one of the configuration does not bring that one back.
    let slip = read("runtimes:\n  python-string:\n    image: \"ours\n  other:\n    image: other\n");
    assert!(
        matches!(slip.find("python-string"), Err(Unavailable::Broken(_))),
        "{slip:?}"
    );
    assert_eq!(image(&slip, "other"), Ok("other".to_owned()));
}
