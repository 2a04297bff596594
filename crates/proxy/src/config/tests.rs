//! What a configuration file may say, and what is said about one that is wrong.

use super::*;

/// As the controller writes it.
const GENERATED: &str = r#"# Auto-generated LiteLLM config
model_list:
- model_name: "gpt-4o"
  litellm_params:
    model: "openai/gpt-4o"
    api_base: "os.environ/PROXY_API_BASE"
    api_key: "os.environ/PROXY_API_KEY"
- model_name: "*"
  litellm_params:
    model: "*"
    api_base: "os.environ/PROXY_API_BASE"
- model_name: "team/*"
  litellm_params:
    model: "openai/inner-*"
    api_base: "https://example.com/v1/"
- model_name: "quickstart"
  litellm_params:
    model: "mock/quickstart"

litellm_settings:
  drop_params: true
"#;

fn environment() -> Vec<(String, String)> {
    [
        ("PROXY_API_BASE", "http://models.default.svc:8000/v1"),
        ("PROXY_API_KEY", "sk-1"),
        ("EMPTY", " "),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

fn going(config: &Config, model: &str) -> String {
    match config.target(model) {
        None => "nowhere".to_owned(),
        Some(Target::Mock) => "mock".to_owned(),
        Some(Target::OpenAi {
            completions,
            key,
            model,
        }) => {
            format!(
                "{completions} {model} {}",
                key.as_ref().map_or("-", Secret::reveal)
            )
        }
    }
}

fn refused(text: &str) -> String {
    Config::parse(text, environment()).unwrap_err().to_string()
}

/// The refusal of one entry with these parameters.
fn refused_entry(name: &str, params: &str) -> String {
    refused(&format!(
        "model_list:\n- model_name: {name}\n  litellm_params: {{{params}}}\n"
    ))
}

#[test]
fn a_generated_file_is_served() {
    let config = Config::parse(GENERATED, environment()).unwrap();
    assert_eq!(
        config.names().collect::<Vec<_>>(),
        ["gpt-4o", "*", "team/*", "quickstart"]
    );
    let local = "http://models.default.svc:8000/v1/chat/completions";
    for (model, target) in [
        ("gpt-4o", format!("{local} gpt-4o sk-1")),
        ("llama3:8b", format!("{local} llama3:8b -")),
        (
            "team/small",
            "https://example.com/v1/chat/completions inner-small -".to_owned(),
        ),
        ("quickstart", "mock".to_owned()),
    ] {
        assert_eq!(going(&config, model), target);
    }
}

#[test]
fn only_listed_models_are_served() {
    let text = "model_list: [{model_name: a, litellm_params: {model: mock}}]";
    let config = Config::parse(text, environment()).unwrap();
    assert_eq!(
        (going(&config, "a"), going(&config, "ab")),
        ("mock".to_owned(), "nowhere".to_owned())
    );
}

#[test]
fn openai_itself_needs_a_key_only() {
    let text = "model_list: [{model_name: a, litellm_params: {model: openai/gpt-4o}}]";
    let with_key = Config::parse(text, [("OPENAI_API_KEY".to_owned(), "sk-2".to_owned())]).unwrap();
    assert_eq!(
        going(&with_key, "a"),
        "https://api.openai.com/v1/chat/completions gpt-4o sk-2"
    );
    assert_eq!(
        refused(text),
        "proxy configuration, line 1: model \"openai/gpt-4o\" has no api_key, and OPENAI_API_KEY is not set; set \
         one of them"
    );
}

#[test]
fn keys_are_not_shown() {
    assert!(!format!("{:?}", Config::parse(GENERATED, environment()).unwrap()).contains("sk-1"));
}

#[test]
fn what_is_not_served_is_refused_with_its_line() {
    assert_eq!(
        refused("model_list:\n- model_name: a\n  litellm_params:\n    model: mock\n    rpm: 6\n"),
        "proxy configuration, line 5: unknown field `rpm`, expected one of model, api_base, api_key"
    );
    assert_eq!(
        refused("model_list: []\nrouter_settings: {}\n"),
        "proxy configuration, line 2: unknown field `router_settings`, expected one of model_list, \
         litellm_settings"
    );
    assert_eq!(
        refused("litellm_settings:\n  drop_params: true\n  success_callback: [otel]\n"),
        "proxy configuration, line 3: unknown field `success_callback`, expected one of drop_params"
    );
    assert_eq!(
        refused("litellm_settings: {}\n"),
        "proxy configuration, line 1: missing field `model_list`"
    );
    assert_eq!(
        refused("model_list: []\n"),
        "proxy configuration: model_list is empty; list at least one model"
    );
    assert!(
        refused("model_list: [\n").starts_with("proxy configuration, line "),
        "{}",
        refused("model_list: [\n")
    );
}

#[test]
fn each_wrong_value_is_named_with_the_fix() {
    for (name, params, problem) in [
        (
            "a",
            "model: anthropic/claude",
            "model \"anthropic/claude\" names the provider \"anthropic\", which this proxy does not serve; for a \
             server that speaks the OpenAI API write \"openai/claude\" and its api_base, for a test \
             \"mock/claude\", for anything else use LiteLLM",
        ),
        (
            "a",
            "model: gpt-4o",
            "model \"gpt-4o\" names no provider and there is no api_base; write \"openai/gpt-4o\", or the api_base \
             of a server that speaks the OpenAI API",
        ),
        (
            "a",
            "model: mock, api_key: x",
            "api_key has no effect on the provider mock; remove it",
        ),
        (
            "a",
            "model: gpt, api_base: os.environ/NOWHERE",
            "api_base refers to the environment variable NOWHERE, which is not set; set it",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', api_key: os.environ/EMPTY",
            "api_key is empty; give it a value or remove it",
        ),
        (
            "a",
            "model: gpt, api_base: 'models:8000'",
            "api_base \"models:8000\" is no URL; write http://HOST:PORT/v1 or https://HOST/v1",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://user:word@a'",
            "api_base carries a user name or password; use api_key instead",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a/v1/chat/completions'",
            "api_base ends in /chat/completions, which the proxy adds itself; leave it out",
        ),
        (
            "'a*b'",
            "model: mock",
            "model_name \"a*b\" has a * before its end; use a name, * or PREFIX*",
        ),
        (
            "a",
            "model: 'openai/*', api_base: 'http://a'",
            "model \"openai/*\" has a * that nothing stands for, since model_name \"a\" has none; name one model",
        ),
        ("''", "model: mock", "model_name is empty; name a model"),
    ] {
        let line = if problem.starts_with("model_name") { 2 } else { 3 };
        assert_eq!(
            refused_entry(name, params),
            format!("proxy configuration, line {line}: {problem}")
        );
    }
    let twice = "model_list:\n- {model_name: a, litellm_params: {model: mock}}\n\
                 - {model_name: a, litellm_params: {model: mock}}\n";
    assert_eq!(
        refused(twice),
        "proxy configuration, line 3: model_name \"a\" is there twice; this proxy does not balance load between \
         deployments of one name, so give each its own"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::load(Path::new("/nowhere/config.yaml"), environment()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "proxy configuration \"/nowhere/config.yaml\" cannot be read: No such file or directory (os error 2); \
         give the path of the file with --config"
    );
}
