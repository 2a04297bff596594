//! Manifests in, objects out.

use k8s_openapi::api::core::v1::PodSpec;
use kaos_api::{names::Kind, v1alpha1::ModelAPI};

use super::{ModelApis, hosted};
use crate::{
    common::{
        driver::Workload,
        objects::Owner,
        plan::{Objects, Plan},
        status::Standing,
        testing::{config, gateway, owner, stored, yaml},
    },
    config::{Config, TelemetryDefaults},
};

fn plan_with(config: &Config, spec: &str) -> Plan {
    let model_api = stored::<ModelAPI>("m", spec);
    ModelApis::plan(&owner(Kind::ModelApi, "m"), &model_api, &(), config)
}

fn objects(spec: &str) -> Result<Objects, Standing> {
    plan_with(&config(), spec).objects
}

fn file(spec: &str) -> String {
    let objects = objects(spec).unwrap();
    objects.config_maps[0].data.as_ref().unwrap()["config.yaml"].clone()
}

fn pod(objects: &Objects) -> &PodSpec {
    objects.deployment.spec.template.spec.as_ref().unwrap()
}

/// `NAME=VALUE`, or `NAME<-SOURCE`, in order.
fn env(objects: &Objects) -> Vec<String> {
    let variables = pod(objects).containers[0].env.iter().flatten();
    variables
        .map(|variable| match &variable.value_from {
            Some(source) => format!("{}<-{}", variable.name, serde_json::to_string(source).unwrap()),
            None => format!(
                "{}={}",
                variable.name,
                variable.value.as_deref().unwrap_or_default()
            ),
        })
        .collect()
}

fn notes(config: &Config, spec: &str) -> Vec<String> {
    let plan = plan_with(config, spec);
    assert!(plan.objects.is_ok(), "{:?}", plan.objects);
    plan.notes
        .into_iter()
        .map(|note| format!("{}: {}", note.reason, note.text))
        .collect()
}

/// An installation that sends telemetry unless told otherwise.
fn telling() -> Config {
    Config {
        telemetry: TelemetryDefaults {
            enabled: true,
            endpoint: Some("http://collector:4317".to_owned()),
        },
        ..config()
    }
}

#[test]
fn the_owner_is_the_resource() {
    let model_api: ModelAPI = stored("m", "mode: Proxy");
    assert_eq!(
        Owner::of(Kind::ModelApi, &model_api),
        Some(owner(Kind::ModelApi, "m"))
    );
}

#[test]
fn litellm_with_a_provider_an_address_and_a_secret() {
    let spec = "
mode: Proxy
gatewayRoute: {timeout: 5m}
proxyConfig:
  provider: openai
  apiBase: https://models.example.com/v1
  models: [gpt-4o, 'gpt-4o-mini']
  apiKey: {valueFrom: {secretKeyRef: {name: keys, key: openai}}}
container:
  env: [{name: EXTRA, value: '1'}]
";
    let config = Config {
        gateway: Some(gateway()),
        ..telling()
    };
    insta::assert_snapshot!(yaml(&plan_with(&config, spec).objects.unwrap()));
}

#[test]
fn the_native_mock() {
    let spec = "{mode: Proxy, proxyConfig: {runtime: Native, provider: mock, models: [smart]}}";
    insta::assert_snapshot!(yaml(&objects(spec).unwrap()));
}

#[test]
fn ollama_and_the_step_that_pulls() {
    let spec = "{mode: Hosted, hostedConfig: {model: 'smollm2:135m'}}";
    insta::assert_snapshot!(yaml(&objects(spec).unwrap()));
}

#[test]
fn the_configuration_file_is_laid_out_as_others_read_it() {
    let entry = |name: &str, model: &str, more: &str| {
        format!("  - model_name: \"{name}\"\n    litellm_params:\n      model: \"{model}\"\n{more}")
    };
    let (base, key) = (
        "      api_base: \"os.environ/PROXY_API_BASE\"\n",
        "      api_key: \"os.environ/PROXY_API_KEY\"\n",
    );
    let otel = "  success_callback: [\"otel\"]\n  failure_callback: [\"otel\"]\n";
    for (spec, entries, settings) in [
        (
            "proxyConfig: {provider: nebius, models: ['*'], apiBase: 'http://x', apiKey: {value: k}}",
            entry("*", "nebius/*", &format!("{base}{key}")),
            "",
        ),
        (
            "proxyConfig: {models: [openai/gpt-4o, ollama/x]}",
            entry("openai/gpt-4o", "openai/gpt-4o", "") + &entry("ollama/x", "ollama/x", ""),
            "",
        ),
        ("proxyConfig: {apiBase: 'http://x'}", entry("*", "*", base), ""),
        (
            "proxyConfig: {apiBase: 'http://x', provider: openai}",
            entry("*", "openai/*", base),
            "",
        ),
        ("proxyConfig: {model: gpt-4o}", entry("gpt-4o", "gpt-4o", ""), ""),
        (
            "proxyConfig: {models: [a], model: b, apiKey: {value: k}}",
            entry("a", "a", key),
            "",
        ),
        (
            "proxyConfig: {models: [a]}, telemetry: {enabled: true}",
            entry("a", "a", ""),
            otel,
        ),
        (
            "proxyConfig: {models: [a], runtime: Native, provider: mock}, telemetry: {enabled: true}",
            entry("a", "mock/a", ""),
            "",
        ),
    ] {
        assert_eq!(
            file(&format!("{{mode: Proxy, {spec}}}")),
            format!(
                "# Auto-generated LiteLLM config\nmodel_list:\n{entries}\nlitellm_settings:\n  drop_params: true\n{settings}"
            ),
            "{spec}"
        );
    }
}

#[test]
fn each_combination_has_the_file_and_the_variables_of_its_parts() {
    for (models, of_provider) in [
        (vec![], vec!["openai/*"]),
        (vec!["*"], vec!["openai/*"]),
        (vec!["a"], vec!["openai/a"]),
        (vec!["x/*", "b"], vec!["openai/x/*", "openai/b"]),
    ] {
        for bits in 0..16_u8 {
            let given = |bit: u8, text: &'static str| if bits & bit == 0 { "" } else { text };
            let spec = format!(
                "{{mode: Proxy, proxyConfig: {{{}{}{}{}}}{}}}",
                if models.is_empty() {
                    String::new()
                } else {
                    format!("models: {models:?}, ")
                },
                given(1, "provider: openai, "),
                given(2, "apiBase: 'http://x', "),
                given(4, "apiKey: {value: k}, "),
                given(8, ", telemetry: {enabled: true, endpoint: 'http://c:4317'}"),
            );
            if models.is_empty() && bits & 2 == 0 {
                assert_eq!(objects(&spec).unwrap_err().reason, "InvalidSpec", "{spec}");
                continue;
            }
            let names = if models.is_empty() {
                vec!["*"]
            } else {
                models.clone()
            };
            let asked = if bits & 1 == 0 { &names } else { &of_provider };
            let list: String = names
                .iter()
                .zip(asked)
                .map(|(name, asked)| {
                    format!(
                        "  - model_name: \"{name}\"\n    litellm_params:\n      model: \"{asked}\"\n{}{}",
                        given(2, "      api_base: \"os.environ/PROXY_API_BASE\"\n"),
                        given(4, "      api_key: \"os.environ/PROXY_API_KEY\"\n"),
                    )
                })
                .collect();
            let traces = given(
                8,
                "  success_callback: [\"otel\"]\n  failure_callback: [\"otel\"]\n",
            );
            assert_eq!(
                file(&spec),
                format!(
                    "# Auto-generated LiteLLM config\nmodel_list:\n{list}\nlitellm_settings:\n  drop_params: true\n{traces}"
                ),
                "{spec}"
            );
            let expected = [
                given(2, "PROXY_API_BASE=http://x"),
                given(4, "PROXY_API_KEY=k"),
                "LITELLM_LOG=INFO",
                given(8, "OTEL_EXPORTER=otlp_grpc"),
                given(8, "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317"),
                given(8, "OTEL_SERVICE_NAME=m"),
                given(8, "OTEL_PYTHON_EXCLUDED_URLS=/health"),
            ];
            let expected: Vec<&str> = expected.into_iter().filter(|text| !text.is_empty()).collect();
            assert_eq!(env(&objects(&spec).unwrap()), expected, "{spec}");
        }
    }
}

#[test]
fn no_name_can_break_out_of_its_place_in_the_file() {
    let name = "a\"\n- model_name: b\\ # $(X)";
    let spec = format!(
        "{{mode: Proxy, proxyConfig: {{models: [{}]}}}}",
        serde_json::to_string(name).unwrap()
    );
    let parsed: serde_json::Value = serde_saphyr::from_str(&file(&spec)).unwrap();
    assert_eq!(parsed["model_list"].as_array().unwrap().len(), 1);
    assert_eq!(parsed["model_list"][0]["model_name"], name);
}

#[test]
fn the_users_file_is_used_to_the_letter_and_a_change_replaces_the_pods() {
    let spec = |text: &str| {
        let text = serde_json::to_string(text).unwrap();
        format!("{{mode: Proxy, proxyConfig: {{models: [a, 'b/*'], configYaml: {{fromString: {text}}}}}}}")
    };
    let one = "# mine\nmodel_list: [{model_name: a, litellm_params: {model: x}}, {model_name: b/c}]\nother: {kept: yes}\n";
    let two = "# mine, too\nmodel_list: [{model_name: a, litellm_params: {model: x}}]\n";
    assert_eq!(file(&spec(one)), one);
    let template = |text: &str| objects(&spec(text)).unwrap().deployment.spec.template;
    assert_ne!(template(one), template(two));
}

#[test]
fn a_file_in_a_secret_is_mounted_by_name_and_read_by_nobody_here() {
    let spec = "{mode: Proxy, proxyConfig: {configYaml: {fromSecretKeyRef: {name: s, key: proxy.yml, optional: true}}}}";
    let objects = objects(spec).unwrap();
    assert!(objects.config_maps.is_empty());
    let secret = pod(&objects).volumes.as_ref().unwrap()[0].secret.clone().unwrap();
    assert_eq!(
        (secret.secret_name.as_deref(), secret.optional),
        (Some("s"), Some(true))
    );
    let items = secret.items.unwrap();
    assert_eq!(
        (items[0].key.as_str(), items[0].path.as_str()),
        ("proxy.yml", "config.yaml")
    );
    let notes = notes(&config(), spec);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("NotChecked: "), "{notes:?}");
}

#[test]
fn variables_come_in_the_order_that_users_know() {
    let spec = "
mode: Proxy
telemetry: {enabled: true, endpoint: 'http://c:4317'}
proxyConfig:
  models: [m]
  apiBase: http://x
  apiKey: {value: 'k$(X)'}
  env: [{name: OLDER, value: '1'}, {name: BOTH, value: older}]
container: {env: [{name: BOTH, value: newer}, {name: OTEL_SERVICE_NAME, value: mine}]}
";
    assert_eq!(
        env(&objects(spec).unwrap()),
        [
            "PROXY_API_BASE=http://x",
            "PROXY_API_KEY=k$$(X)",
            "OLDER=1",
            "BOTH=newer",
            "OTEL_SERVICE_NAME=mine",
            "LITELLM_LOG=INFO",
            "OTEL_EXPORTER=otlp_grpc",
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317",
            "OTEL_PYTHON_EXCLUDED_URLS=/health",
        ]
    );
    assert!(notes(&config(), spec)[0].contains("spec.proxyConfig.env sets BOTH"));
}

#[test]
fn the_native_proxy_reads_its_key_from_a_file_that_follows_the_secret() {
    let spec = |source: &str, more: &str| {
        format!(
            "{{mode: Proxy, proxyConfig: {{runtime: Native, provider: openai, models: [m], apiKey: {{valueFrom: {source}}}}}{more}}}"
        )
    };
    for (source, kind) in [
        (
            "{secretKeyRef: {name: keys, key: openai, optional: true}}",
            "secret",
        ),
        (
            "{configMapKeyRef: {name: keys, key: openai, optional: true}}",
            "configMap",
        ),
    ] {
        let objects = objects(&spec(source, "")).unwrap();
        assert_eq!(env(&objects)[0], "PROXY_API_KEY_FILE=/etc/kaos/api-key/api-key");
        let volume = serde_json::to_value(&pod(&objects).volumes.as_ref().unwrap()[1]).unwrap();
        assert_eq!(
            volume[kind]["items"],
            serde_json::json!([{"key": "openai", "path": "api-key"}])
        );
        assert_eq!(volume[kind]["optional"], true);
        let mount = &pod(&objects).containers[0].volume_mounts.as_ref().unwrap()[1];
        assert_eq!(
            (mount.name.as_str(), mount.mount_path.as_str()),
            ("api-key", "/etc/kaos/api-key")
        );
        assert!(file(&spec(source, "")).contains("os.environ/PROXY_API_KEY"));
    }
    let own = spec(
        "{secretKeyRef: {name: keys, key: openai}}",
        ", container: {env: [{name: PROXY_API_KEY, value: mine}]}",
    );
    assert_eq!(
        env(&objects(&own).unwrap()),
        ["PROXY_API_KEY=mine", "LOG_LEVEL=INFO"]
    );
    assert!(notes(&config(), &own)[0].contains("spec.proxyConfig.apiKey has no effect"));
}

#[test]
fn litellm_takes_its_key_as_a_variable_and_the_status_says_when() {
    let spec = "{mode: Proxy, proxyConfig: {models: [m], apiKey: {valueFrom: {secretKeyRef: {name: keys, key: k}}}}}";
    assert_eq!(
        env(&objects(spec).unwrap())[0],
        r#"PROXY_API_KEY<-{"secretKeyRef":{"key":"k","name":"keys"}}"#
    );
    let notes = notes(&config(), spec);
    assert!(
        notes[0].starts_with("ReadAtStart: ") && notes[0].contains("next rollout"),
        "{notes:?}"
    );
}

#[test]
fn a_key_in_the_spec_changes_no_file() {
    let spec = |key: &str| {
        format!("{{mode: Proxy, proxyConfig: {{models: [m], provider: openai, apiKey: {{value: {key}}}}}}}")
    };
    let (one, other) = (objects(&spec("one")).unwrap(), objects(&spec("other")).unwrap());
    assert_eq!(one.config_maps, other.config_maps);
    assert_ne!(one.deployment, other.deployment);
}

#[test]
fn the_container_and_the_pod_are_the_users_to_change() {
    let spec = "
mode: Hosted
hostedConfig: {model: m}
container:
  image: mine:1
  command: [run]
  args: [x]
  resources: {limits: {memory: 1Gi}}
podSpec:
  volumes: [{name: ollama-data, persistentVolumeClaim: {claimName: models}}]
  initContainers: [{name: pull-model, image: mirror/kaos:1}]
";
    let objects = objects(spec).unwrap();
    let pod = pod(&objects);
    let container = &pod.containers[0];
    assert_eq!(container.image.as_deref(), Some("mine:1"));
    assert_eq!(
        (&container.command, &container.args),
        (&Some(vec!["run".into()]), &Some(vec!["x".into()]))
    );
    let resources = container.resources.clone().unwrap();
    assert!(resources.requests.is_none() && resources.limits.is_some());
    let volumes = pod.volumes.as_ref().unwrap();
    assert_eq!(volumes.len(), 1);
    assert!(volumes[0].empty_dir.is_none());
    assert_eq!(
        volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name,
        "models"
    );
    let init = &pod.init_containers.as_ref().unwrap()[0];
    assert_eq!(init.image.as_deref(), Some("mirror/kaos:1"));
    assert_eq!(init.restart_policy.as_deref(), Some("Always"));
}

#[test]
fn a_hosted_model_has_the_variables_of_all_spellings_and_ollamas_level() {
    let spec = "
mode: Hosted
hostedConfig: {model: new, env: [{name: A, value: hosted}, {name: B, value: hosted}]}
serverConfig: {model: old, env: [{name: B, value: server}, {name: C, value: server}, {name: D, value: server}]}
container: {env: [{name: A, value: container}, {name: D, value: container}]}
";
    assert_eq!(
        env(&objects(spec).unwrap()),
        ["C=server", "B=hosted", "A=container", "D=container"]
    );
    let notes = notes(&config(), spec);
    for said in [
        "OlderSpelling: spec.serverConfig.model is overridden by spec.hostedConfig.model",
        "OlderSpelling: spec.serverConfig.env sets B, but spec.hostedConfig.env",
        "OlderSpelling: spec.serverConfig.env sets D, but spec.container.env",
        "OlderSpelling: spec.hostedConfig.env sets A, but spec.container.env",
    ] {
        assert!(
            notes.iter().any(|note| note.starts_with(said)),
            "{said}: {notes:?}"
        );
    }
    assert_eq!(notes.len(), 4, "{notes:?}");
    for (level, expected) in [
        ("TRACE", Some("OLLAMA_DEBUG=2")),
        ("debug", Some("OLLAMA_DEBUG=1")),
        ("INFO", None),
    ] {
        let config = Config {
            log_level: level.to_owned(),
            ..config()
        };
        let objects = plan_with(&config, "{mode: Hosted, hostedConfig: {model: m}}")
            .objects
            .unwrap();
        assert_eq!(env(&objects).first().map(String::as_str), expected);
    }
}

#[test]
fn a_file_that_is_none_is_told_in_one_line() {
    for text in ["model_list: [", "- a", "model_list: 1", "a: 1\na: 2"] {
        let text = serde_json::to_string(text).unwrap();
        let spec = format!("{{mode: Proxy, proxyConfig: {{configYaml: {{fromString: {text}}}}}}}");
        let message = objects(&spec).unwrap_err().message;
        assert!(message.starts_with("failed to parse configYaml: "), "{message}");
        assert!(
            message.ends_with("; correct spec.proxyConfig.configYaml.fromString"),
            "{message}"
        );
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_mode_that_is_left_keeps_nothing_even_where_the_other_cannot_be_built() {
    let keep = |spec: &str| plan_with(&config(), spec).keep.config_maps;
    assert!(!keep("{mode: Hosted, hostedConfig: {model: '!'}}"));
    assert!(keep("{mode: Proxy, proxyConfig: {models: []}}"));
}

#[test]
fn without_the_step_nothing_is_told_of_it() {
    let spec = |more: &str| format!("{{mode: Hosted, hostedConfig: {{model: m}}{more}}}");
    assert!(hosted::pulls(&objects(&spec("")).unwrap()));
    let without = spec(", podSpec: {initContainers: [{name: pull-model, $patch: delete}]}");
    assert!(!hosted::pulls(&objects(&without).unwrap()));
}

#[test]
fn the_route_of_each_mode_leads_to_its_port() {
    let config = Config {
        gateway: Some(gateway()),
        ..config()
    };
    for (spec, port) in [
        ("{mode: Proxy, proxyConfig: {models: [m]}}", 8000),
        ("{mode: Hosted, hostedConfig: {model: m}}", 11434),
    ] {
        let route = plan_with(&config, spec).objects.unwrap().route.unwrap();
        let rule = &route.spec.rules.unwrap()[0];
        let backend = &rule.backend_refs.as_ref().unwrap()[0];
        assert_eq!(
            (backend.name.as_str(), backend.port),
            ("modelapi-m", Some(port)),
            "{spec}"
        );
    }
}
