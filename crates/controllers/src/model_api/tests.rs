//! Manifests in, objects out.

use kaos_api::{names::Kind, v1alpha1::ModelAPI};

use super::{build, resolve, validate};
use crate::common::{
    objects::Owner,
    status::Standing,
    testing::{config, owner, stored, yaml},
};

fn objects(name: &str, spec: &str) -> Result<build::Objects, Standing> {
    let (config, model_api) = (config(), stored::<ModelAPI>(name, spec));
    let owner = Owner::of(Kind::ModelApi, &model_api).unwrap();
    let valid = validate::validate(&owner, &model_api, resolve::program(&model_api, &config))?;
    Ok(build::build(&valid, &config.log_level).unwrap())
}

fn file(spec: &str) -> String {
    objects("m", spec).unwrap().config.data.unwrap()["config.yaml"].clone()
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
proxyConfig:
  provider: openai
  apiBase: https://models.example.com/v1
  models: [gpt-4o, 'gpt-4o-mini']
  apiKey: {valueFrom: {secretKeyRef: {name: keys, key: openai}}}
container:
  env: [{name: EXTRA, value: '1'}]
";
    insta::assert_snapshot!(yaml(&objects("models", spec).unwrap()));
}

#[test]
fn the_native_mock() {
    let spec = "
mode: Proxy
proxyConfig: {runtime: Native, provider: mock, models: [smart]}
";
    insta::assert_snapshot!(yaml(&objects("models", spec).unwrap()));
}

#[test]
fn the_configuration_file_is_laid_out_as_others_read_it() {
    assert_eq!(
        file(
            "{mode: Proxy, proxyConfig: {provider: nebius, models: ['*'], apiBase: 'http://x', apiKey: {value: k}}}"
        ),
        r#"# Auto-generated LiteLLM config
model_list:
  - model_name: "*"
    litellm_params:
      model: "nebius/*"
      api_base: "os.environ/PROXY_API_BASE"
      api_key: "os.environ/PROXY_API_KEY"

litellm_settings:
  drop_params: true
"#
    );
    assert_eq!(
        file("{mode: Proxy, proxyConfig: {models: [openai/gpt-4o, ollama/x]}}"),
        r#"# Auto-generated LiteLLM config
model_list:
  - model_name: "openai/gpt-4o"
    litellm_params:
      model: "openai/gpt-4o"
  - model_name: "ollama/x"
    litellm_params:
      model: "ollama/x"

litellm_settings:
  drop_params: true
"#
    );
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
fn a_key_in_the_spec_is_a_literal_and_changes_no_file() {
    let spec = |key: &str| {
        format!("{{mode: Proxy, proxyConfig: {{models: [m], provider: openai, apiKey: {{value: {key}}}}}}}")
    };
    let (one, other) = (
        objects("m", &spec("one")).unwrap(),
        objects("m", &spec("other")).unwrap(),
    );
    assert_eq!(one.config, other.config);
    assert_ne!(one.deployment, other.deployment);
}

#[test]
fn a_change_of_the_file_is_a_change_of_the_pod_template() {
    let template = |models: &str| {
        let spec = format!("{{mode: Proxy, proxyConfig: {{models: [{models}]}}}}");
        objects("m", &spec).unwrap().deployment.spec.template
    };
    assert_eq!(template("a"), template("a"));
    assert_ne!(template("a"), template("a, b"));
}

#[test]
fn the_user_may_set_what_would_be_generated() {
    let spec = "
mode: Proxy
proxyConfig: {models: [m], provider: openai, apiBase: 'http://x', apiKey: {value: k}}
container: {env: [{name: LITELLM_LOG, value: ERROR}, {name: PROXY_API_KEY, value: mine}]}
";
    let deployment = objects("m", spec).unwrap().deployment;
    let env = deployment.spec.template.spec.unwrap().containers[0]
        .env
        .clone()
        .unwrap();
    let env: Vec<_> = env
        .iter()
        .map(|v| format!("{}={}", v.name, v.value.as_deref().unwrap()))
        .collect();
    assert_eq!(
        env,
        [
            "PROXY_API_BASE=http://x",
            "LITELLM_LOG=ERROR",
            "PROXY_API_KEY=mine"
        ]
    );
}

#[test]
fn what_cannot_be_built_is_said() {
    for (spec, expected) in [
        ("{mode: Proxy}", "spec.proxyConfig is required"),
        (
            "{mode: Proxy, proxyConfig: {models: []}}",
            "spec.proxyConfig.models is empty",
        ),
        (
            "{mode: Proxy, proxyConfig: {models: [mock/a]}}",
            "spec.proxyConfig.runtime: Native",
        ),
        (
            "{mode: Proxy, proxyConfig: {models: [a], provider: mock}}",
            "spec.proxyConfig.runtime: Native",
        ),
        (
            "{mode: Proxy, proxyConfig: {models: [a], apiKey: {}}}",
            "exactly one of value",
        ),
    ] {
        let standing = objects("m", spec).unwrap_err();
        assert!(
            standing.message.contains(expected),
            "{spec}: {}",
            standing.message
        );
    }
    assert!(objects("m", "{mode: Proxy, proxyConfig: {models: [mockingbird]}}").is_ok());
}
