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
        status::Standing,
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

fn refused(spec: &str) -> Standing {
    plan(spec).objects.unwrap_err()
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
fn a_package_of_pypi_is_installed_and_run_without_a_shell() {
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
    assert_eq!(command, ["npx", "--yes", "--", "@scope/server@1.2"]);
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
fn what_is_overridden_or_without_effect_is_noted() {
    for (spec, reason, text) in [
        (
            "{runtime: python-string, type: python-runtime, params: x, config: {env: []}}",
            "OlderSpelling",
            "spec.type is an older spelling beside spec.runtime, which wins; remove spec.type",
        ),
        (
            "{runtime: python-string, params: x, config: {tools: {fromString: y}}}",
            "OlderSpelling",
            "spec.config.tools.fromString is an older spelling beside spec.params, which wins; remove \
             spec.config.tools.fromString",
        ),
        (
            "{type: python-runtime, config: {tools: {fromString: x}, toolsString: y}}",
            "OlderSpelling",
            "spec.config.toolsString is an older spelling beside spec.config.tools, which wins; remove \
             spec.config.toolsString",
        ),
        (
            "{runtime: plain, config: {env: [{name: A, value: b}]}, container: {env: [{name: A, value: c}]}}",
            "OlderSpelling",
            "spec.config.env sets A, but spec.container.env sets it too and wins; remove it from spec.config.env",
        ),
        (
            "{runtime: plain, config: {mcp: my-server}}",
            "WithoutEffect",
            "spec.config.mcp has no effect beside spec.runtime; remove one of them",
        ),
        (
            "{runtime: python-string, params: x, container: {env: [{name: MCP_TOOLS_STRING, value: y}]}}",
            "WithoutEffect",
            "spec.params has no effect: spec.container.env sets MCP_TOOLS_STRING and wins; remove one of them",
        ),
        (
            "{type: python-runtime, config: {tools: {fromSecretKeyRef: {name: s, key: k, optional: true}}}}",
            "WithoutEffect",
            "spec.config.tools.fromSecretKeyRef.optional has no effect: without its Secret the server has no \
             tools, and its pods wait for it; remove it",
        ),
    ] {
        assert_eq!(notes(spec), [(reason, text.to_owned())], "{spec}");
    }
}

#[test]
fn what_cannot_be_built_is_said() {
    for (spec, reason, message) in [
        (
            "runtime: ruby",
            "UnknownRuntime",
            "unknown runtime: ruby (not found in registry); write one of broken, plain, python-string, slack, \
             custom in spec.runtime",
        ),
        (
            "runtime: broken",
            "RuntimeBroken",
            "the runtime registry has a mistake: ConfigMap system/kaos-mcp-runtimes, runtimes.yaml, line 9: \
             runtime broken: transport stdio cannot be reached by agents; name an image that serves streamable \
             HTTP on port 8000 at /mcp, and write transport: http",
        ),
        (
            "{runtime: plain, params: x}",
            "InvalidSpec",
            "runtime plain takes no params; remove spec.params, or give what it needs in spec.container.env",
        ),
        (
            "{runtime: plain, config: {toolsString: x}}",
            "InvalidSpec",
            "runtime plain takes no params; remove spec.config.toolsString, or give what it needs in \
             spec.container.env",
        ),
        (
            "{runtime: custom, container: {args: [x]}}",
            "InvalidSpec",
            "custom runtime requires container.image to be set; name the image that serves the tools on port 8000 \
             in spec.container.image",
        ),
        (
            "{runtime: custom, params: x, container: {image: y}}",
            "InvalidSpec",
            "runtime custom takes no params; remove spec.params, and give the image what it needs in \
             spec.container.env",
        ),
        (
            "runtime: slack",
            "MissingEnvironment",
            "runtime slack needs the environment variables SLACK_BOT_TOKEN and SLACK_TEAM_ID; set them in \
             spec.container.env, a secret one by valueFrom.secretKeyRef",
        ),
        (
            "{runtime: slack, config: {env: [{name: SLACK_TEAM_ID, value: T}]}}",
            "MissingEnvironment",
            "runtime slack needs the environment variable SLACK_BOT_TOKEN; set it in spec.container.env, a secret \
             one by valueFrom.secretKeyRef",
        ),
        (
            "{}",
            "InvalidSpec",
            "spec.runtime is missing; name the runtime that serves the tools, such as python-string, or custom \
             with spec.container.image",
        ),
        (
            "{type: python-runtime, config: {env: []}}",
            "InvalidSpec",
            "spec.type says in which language the tools are, and nothing says which; write spec.runtime: \
             python-string and spec.params, or spec.config.tools",
        ),
        (
            "{type: node-runtime, config: {toolsString: x}}",
            "InvalidSpec",
            "spec.type node-runtime serves a package and spec.config.toolsString is Python source; write \
             spec.runtime: python-string, or name a package in spec.config.tools.fromPackage",
        ),
        (
            "{type: python-runtime, config: {mcp: a, toolsString: b}}",
            "InvalidSpec",
            "spec.config.toolsString and spec.config.mcp are both given; remove one of them",
        ),
        (
            "{type: python-runtime, config: {tools: {fromString: a, fromPackage: b}}}",
            "InvalidSpec",
            "spec.config.tools needs exactly one of fromPackage, fromString and fromSecretKeyRef",
        ),
        (
            "{type: python-runtime, config: {tools: {fromPackage: '-r/etc/passwd'}}}",
            "InvalidSpec",
            "spec.config.tools.fromPackage is \"-r/etc/passwd\", which is an option of pip and no package; write a \
             package of PyPI, such as my-server or my-server==1.2",
        ),
        (
            "{type: node-runtime, config: {tools: {fromPackage: 'a;id'}}}",
            "InvalidSpec",
            "spec.config.tools.fromPackage is \"a;id\", which is no package of npm; write its name, such as \
             my-server, @scope/my-server or my-server@1.2",
        ),
        (
            "{type: python-runtime, config: {tools: {fromSecretKeyRef: {name: s, key: k}}, env: [{name: \
             MCP_TOOLS_STRING, value: x}]}}",
            "InvalidSpec",
            "spec.config.tools.fromSecretKeyRef and the environment variable MCP_TOOLS_STRING both give the \
             tools; remove one of them",
        ),
        (
            "{runtime: plain, podSpec: {containers: [{name: mcp-server, $patch: delete}]}}",
            "InvalidPodSpec",
            "spec.podSpec.containers takes away the container mcp-server; keep it, it is what the Service leads to",
        ),
    ] {
        let standing = refused(spec);
        assert_eq!(
            (standing.reason, standing.message.as_str()),
            (reason, message),
            "{spec}"
        );
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

/// Both ways of a package: its program, and its module where it has none. Each sees its folder and its arguments.
#[test]
fn an_installed_package_is_started_by_its_program_or_else_by_its_module() {
    use std::{fs, os::unix::fs::PermissionsExt, process::Command};

    let folder = tempfile::tempdir().unwrap();
    let say = "import sys, helper; print(helper.NAME, *sys.argv[1:])\n";
    fs::write(folder.path().join("helper.py"), "NAME = 'found'\n").unwrap();
    fs::write(
        folder.path().join("my_module.py"),
        format!("print('module')\n{say}"),
    )
    .unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    let program = folder.path().join("bin/my-program");
    fs::write(
        &program,
        format!("#!/usr/bin/env python3\nprint('program')\n{say}"),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

    let run = |name: &str, module: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", super::build::RUN_PACKAGE]).arg(folder.path());
        let output = command.args([name, module, "--port", "$(id)"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run("my-program", "my_program"), "program\nfound --port $(id)\n");
    assert_eq!(run("my-module", "my_module"), "module\nfound --port $(id)\n");
}
