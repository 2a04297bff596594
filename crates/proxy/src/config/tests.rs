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

fn with(variables: &[(&str, &str)], text: &str) -> Result<Config, ConfigError> {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::parse(text, variables)
}

/// Where a request for `model` goes: base, name there, key.
fn going(config: &Config, model: &str) -> String {
    let Some(group) = config.group(model) else {
        return "nowhere".to_owned();
    };
    let all = group
        .deployments
        .iter()
        .map(|deployment| match &deployment.upstream {
            Upstream::Mock => "mock".to_owned(),
            Upstream::Remote(remote) => format!(
                "{} {} {} {}",
                remote.provider.name,
                remote.base,
                config.upstream_model(model, deployment),
                remote.key.as_ref().map_or("-", Secret::reveal)
            ),
        });
    all.collect::<Vec<_>>().join("; ")
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
    let local = "http://models.default.svc:8000/v1";
    for (model, target) in [
        ("gpt-4o", format!("openai {local} gpt-4o sk-1")),
        ("llama3:8b", format!("custom_openai {local} llama3:8b -")),
        ("a/b", format!("custom_openai {local} a/b -")),
        (
            "team/small",
            "openai https://example.com/v1 inner-small -".to_owned(),
        ),
        ("quickstart", "mock".to_owned()),
    ] {
        assert_eq!(going(&config, model), target);
    }
}

/// In the form of LiteLLM's own documentation, with everything that is served.
#[test]
fn a_file_written_by_hand_is_served() {
    let config = with(
        &[
            ("OPENAI_API_KEY", "sk-o"),
            ("ANTHROPIC_API_KEY", "sk-a"),
            ("AZURE_API_KEY", "sk-z"),
            ("AZURE_API_VERSION", "2024-06-01"),
            ("GEMINI_API_KEY", "sk-g"),
            ("MASTER", "sk-master"),
            ("RPM", "30"),
        ],
        r#"
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o
      rpm: 60
      timeout: 30
      stream_timeout: 5
      max_retries: 1
      organization: org-1
      temperature: 0
      extra_headers: {x-team: os.environ/MASTER}
    model_info: {id: main, mode: chat}
  - model_name: gpt-4o
    litellm_params:
      model: azure/my-deployment
      api_base: https://x.openai.azure.com/
      rpm: os.environ/RPM
      tpm: 100000
  - model_name: claude
    litellm_params: {model: claude-sonnet-4-5}
  - model_name: gemini/*
    litellm_params: {model: gemini/*, api_key: null}
  - model_name: local
    litellm_params: {model: ollama/llama3.2, api_base: 'http://localhost:11434'}
  - model_name: fast
    litellm_params: {model: custom, custom_llm_provider: hosted_vllm, base_url: 'http://vllm:8000/v1'}

litellm_settings:
  drop_params: true
  num_retries: 3
  request_timeout: 10
  fallbacks: [{gpt-4o: [claude, local]}]
  default_fallbacks: [local]
  telemetry: false
  callbacks: [otel, prometheus]
  ssl_verify: true

router_settings:
  routing_strategy: simple-shuffle
  num_retries: 4
  allowed_fails: 1
  cooldown_time: 30
  retry_after: 1
  model_group_alias: {gpt-4: gpt-4o}

general_settings:
  master_key: os.environ/MASTER

environment_variables: {UNUSED: "1"}
"#,
    )
    .unwrap();
    for (model, target) in [
        (
            "gpt-4o",
            "openai https://api.openai.com/v1 gpt-4o sk-o; azure https://x.openai.azure.com/ my-deployment sk-z",
        ),
        (
            "gpt-4",
            "openai https://api.openai.com/v1 gpt-4o sk-o; azure https://x.openai.azure.com/ my-deployment sk-z",
        ),
        (
            "claude",
            "anthropic https://api.anthropic.com/ claude-sonnet-4-5 sk-a",
        ),
        (
            "gemini/gemini-2.5-flash",
            "gemini https://generativelanguage.googleapis.com/v1beta gemini-2.5-flash sk-g",
        ),
        ("local", "ollama http://localhost:11434/v1 llama3.2 -"),
        ("fast", "hosted_vllm http://vllm:8000/v1 custom -"),
        ("other", "nowhere"),
    ] {
        assert_eq!(going(&config, model), target, "{model}");
    }
    assert_eq!(config.fallbacks("gpt-4o"), ["claude", "local"]);
    assert_eq!(config.fallbacks("claude"), ["local"]);
    assert_eq!(
        (config.retries.count, config.retries.wait, config.tolerance.fails),
        (4, Duration::from_secs(1), 1)
    );
    assert_eq!(config.master_key.as_ref().unwrap().reveal(), "sk-master");
    let first = &config.group("gpt-4o").unwrap().deployments;
    let seconds = Duration::from_secs;
    let limits = |at: usize| (first[at].limits.whole, first[at].limits.first);
    assert_eq!(
        (limits(0), limits(1)),
        ((seconds(30), seconds(5)), (seconds(10), seconds(10)))
    );
    assert_eq!((first[0].weight, first[1].weight), (60.0, 30.0));
    assert!(first[1].allowance.limits_tokens() && !first[0].allowance.limits_tokens());
    assert_eq!((first[0].retries, first[0].id.as_str()), (Some(1), "main"));
    let Upstream::Remote(remote) = &first[0].upstream else {
        panic!("it is a server");
    };
    assert_eq!(remote.headers["openai-organization"], "org-1");
    assert_eq!(remote.headers["x-team"], "sk-master");
    assert_eq!(remote.defaults[0].1.get(), "0");
    assert!(remote.drop_params);
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
fn a_provider_needs_a_key_only_and_gets_its_own_only() {
    let text = "model_list: [{model_name: a, litellm_params: {model: openai/gpt-4o}}]";
    let key = [("OPENAI_API_KEY", "sk-2")];
    assert_eq!(
        going(&with(&key, text).unwrap(), "a"),
        "openai https://api.openai.com/v1 gpt-4o sk-2"
    );
    assert_eq!(
        refused(text),
        "proxy configuration, line 1: model_list[0].litellm_params.model is a model of openai, for which there is \
         no api_key, and OPENAI_API_KEY is not set; set one of them"
    );
    // The key of the environment is OpenAI's: nobody else gets it.
    let elsewhere = text.replace("gpt-4o}", "gpt-4o, api_base: 'http://x/v1'}");
    assert_eq!(
        going(&with(&key, &elsewhere).unwrap(), "a"),
        "openai http://x/v1 gpt-4o -"
    );
    // Unless the environment says that OpenAI is elsewhere.
    let moved = [("OPENAI_API_KEY", "sk-2"), ("OPENAI_BASE_URL", "http://x/v1/")];
    assert_eq!(
        going(&with(&moved, text).unwrap(), "a"),
        "openai http://x/v1 gpt-4o sk-2"
    );
}

#[test]
fn everything_goes_to_whom_there_is_a_key_for() {
    let text = "model_list: [{model_name: '*', litellm_params: {model: '*'}}]";
    let keys = [
        ("OPENAI_API_KEY", "o"),
        ("ANTHROPIC_API_KEY", "a"),
        ("GROQ_API_KEY", "g"),
    ];
    let config = with(&keys, text).unwrap();
    for (model, target) in [
        (
            "anthropic/claude-x",
            "anthropic https://api.anthropic.com/ claude-x a",
        ),
        ("claude-x", "anthropic https://api.anthropic.com/ claude-x a"),
        ("gpt-4o", "openai https://api.openai.com/v1 gpt-4o o"),
        (
            "groq/openai/gpt-oss-20b",
            "groq https://api.groq.com/openai/v1 openai/gpt-oss-20b g",
        ),
        ("gemini/x", "nowhere"),
        ("llama", "nowhere"),
    ] {
        assert_eq!(going(&config, model), target);
    }
    assert!(refused(text).contains("set one of OPENAI_API_KEY, AZURE_API_KEY, ANTHROPIC_API_KEY"));
}

#[test]
fn keys_are_not_shown() {
    let text = format!("{GENERATED}general_settings: {{master_key: sk-1}}\n");
    assert!(!format!("{:?}", Config::parse(&text, environment()).unwrap()).contains("sk-1"));
}

#[test]
fn what_is_not_served_is_refused_with_its_line_and_path() {
    for (text, problem) in [
        (
            "model_list:\n- model_name: a\n  litellm_params:\n    model: mock\n    vertex_project: 6\n",
            "proxy configuration, line 5: model_list[0].litellm_params.vertex_project is not implemented by this \
             proxy; of the providers that need it none is here; run LiteLLM itself",
        ),
        (
            "model_list: []\nguardrails: {}\n",
            "proxy configuration, line 2: guardrails is not implemented by this proxy; remove it, or run LiteLLM \
             itself",
        ),
        (
            "litellm_settings:\n  drop_params: true\n  success_callback: [langfuse]\n",
            "proxy configuration, line 3: litellm_settings.success_callback[0] is \"langfuse\", which this proxy has \
             not; it has otel (where OTEL_EXPORTER_OTLP_ENDPOINT says where to) and prometheus (GET /metrics)",
        ),
        (
            "litellm_settings: {cache: true}\n",
            "proxy configuration, line 1: litellm_settings.cache is not implemented by this proxy; this proxy keeps \
             nothing; remove it, or run LiteLLM itself",
        ),
        (
            "router_settings:\n  routing_strategy: least-busy\n",
            "proxy configuration, line 2: router_settings.routing_strategy is \"least-busy\"; this proxy has \
             simple-shuffle only",
        ),
        (
            "general_settings:\n  master_key: os.environ/NONE\n",
            "proxy configuration, line 2: general_settings.master_key refers to the environment variable NONE, which \
             is not set; set it",
        ),
        (
            "litellm_settings:\n  fallbacks: [{a: [b]}]\nmodel_list: [{model_name: a, litellm_params: {model: mock}}]\n",
            "proxy configuration, line 2: litellm_settings.fallbacks[0].a[0] names the model \"b\", which model_list \
             has not; add it there",
        ),
        (
            "litellm_settings: {}\n",
            "proxy configuration, line 1: model_list is missing; add it",
        ),
        (
            "model_list: []\n",
            "proxy configuration, line 1: model_list is empty; list at least one model",
        ),
        (
            "model_list: 7\n",
            "proxy configuration, line 1: model_list is a number; write a list",
        ),
        (
            "- a\n",
            "proxy configuration, line 1: the file is a list; it needs at least model_list",
        ),
        (
            "model_list:\n- litellm_params: {model: mock}\n",
            "proxy configuration, line 2: model_list[0] has no model_name; add it",
        ),
        (
            "model_list:\n- model_name: a\n",
            "proxy configuration, line 2: model_list[0] has no litellm_params; add it",
        ),
    ] {
        assert_eq!(refused(text), problem);
    }
    let broken = refused("model_list: [\n");
    assert!(broken.starts_with("proxy configuration, line "), "{broken}");
}

#[test]
fn each_wrong_value_is_named_with_the_fix() {
    for (name, params, problem) in [
        (
            "a",
            "model: mock, rpm: 0",
            "litellm_params.rpm is 0, with which it would never be asked; remove the entry instead",
        ),
        (
            "a",
            "model: mock, tpm: 1.5",
            "litellm_params.tpm must be a whole number, 0 or more",
        ),
        (
            "a",
            "model: gpt-x, api_base: 'http://a', api_key: os.environ/NOWHERE",
            "litellm_params.api_key refers to the environment variable NOWHERE, which is not set; set it",
        ),
        (
            "a",
            "model: llama",
            "litellm_params.model is \"llama\", which names no provider, and there is no api_base; write \
             PROVIDER/llama with one of openai, azure, anthropic, ",
        ),
        (
            "a",
            "model: bedrock/claude",
            "litellm_params.model names the provider \"bedrock\", which this proxy has not; it has openai, azure, \
             anthropic, gemini, ",
        ),
        (
            "a",
            "model: mock, api_key: x",
            "litellm_params.api_key has no effect on the provider mock; remove it",
        ),
        (
            "a",
            "model: mock, timeout: 3",
            "litellm_params.timeout has no effect on the provider mock; remove it",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', api_key: os.environ/EMPTY",
            "litellm_params.api_key is empty; give it a value or remove it",
        ),
        (
            "a",
            "model: gpt, api_base: 'models:8000'",
            "litellm_params.api_base \"models:8000\" is no URL; write http://HOST:PORT/v1 or https://HOST/v1",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://user:word@a'",
            "litellm_params.api_base carries a user name or password; use api_key instead",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a/v1/chat/completions'",
            "litellm_params.api_base ends in /chat/completions, which the proxy adds itself; leave it out",
        ),
        (
            "'a*b'",
            "model: mock",
            "model_name is \"a*b\", with a * before its end; use a name, * or PREFIX*",
        ),
        (
            "a",
            "model: 'openai/*', api_base: 'http://a'",
            "litellm_params.model has a * that nothing stands for, since model_name \"a\" has none; name one model",
        ),
        ("''", "model: mock", "model_name is empty; name a model"),
        (
            "a",
            "model: hosted_vllm/m",
            "litellm_params.model is a model of hosted_vllm, which is no server that everybody knows; add its \
             api_base, or set HOSTED_VLLM_API_BASE",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', timeout: -1",
            "litellm_params.timeout must be a number above 0",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', max_retries: many",
            "litellm_params.max_retries must be a whole number, 0 or more",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', api_version: x",
            "litellm_params.api_version has no effect on the provider custom_openai; remove it",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', drop_params: 'yes'",
            "litellm_params.drop_params is a text; write true or false",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', extra_headers: {'x y': b}",
            "litellm_params.extra_headers.x y is no name of an HTTP header; correct it",
        ),
        (
            "a",
            "model: gpt, api_base: 'http://a', api_key: \"a\\nb\"",
            "litellm_params.api_key is a key with characters that no HTTP header may have; correct it",
        ),
        ("a", "model: 7", "litellm_params.model is a number; write a text"),
    ] {
        let line = if problem.starts_with("model_name") { 2 } else { 3 };
        let found = refused_entry(name, params);
        let expected = format!("proxy configuration, line {line}: model_list[0].{problem}");
        assert!(found.starts_with(&expected), "{found}\n{expected}");
    }
}

#[test]
fn what_the_environment_says_is_checked() {
    let text = "model_list: [{model_name: a, litellm_params: {model: mock}}]";
    for (variable, value, problem) in [
        (
            "HTTPS_PROXY",
            "socks5://user:secret@x",
            "HTTPS_PROXY: is no address of an HTTP proxy; write http://HOST:PORT",
        ),
        (
            "SSL_CERT_FILE",
            "/nowhere",
            "SSL_CERT_FILE: \"/nowhere\" cannot be read: ",
        ),
        (
            "SSL_CERT_FILE",
            "/dev/null",
            "SSL_CERT_FILE: \"/dev/null\" has no certificate; ",
        ),
        (
            "SSL_VERIFY",
            "False",
            "SSL_VERIFY: certificates are always checked here; ",
        ),
    ] {
        let found = with(&[(variable, value)], text).unwrap_err().to_string();
        assert!(found.starts_with(problem), "{found}");
    }
    assert!(with(&[("SSL_VERIFY", "True"), ("HTTPS_PROXY", "proxy:3128")], text).is_ok());
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

#[test]
fn the_document_shows_a_file_that_is_served_and_names_every_provider() {
    let document = include_str!("../../../../docs/models.md");
    let (_, shown) = document.split_once("fromString: |\n").unwrap();
    let lines = shown.lines().take_while(|line| *line != "```");
    let file: Vec<&str> = lines.map(|line| line.strip_prefix("        ").unwrap()).collect();
    let config = Config::parse(&file.join("\n"), []).unwrap();
    assert_eq!(going(&config, "chat"), "mock; mock");
    assert_eq!(
        going(&config, "team/small"),
        "hosted_vllm http://vllm.default.svc:8000/v1 small -"
    );
    assert_eq!(config.fallbacks("team/small"), ["chat"]);
    for known in crate::provider::known::PROVIDERS {
        assert!(document.contains(&format!("`{}`", known.name)), "{}", known.name);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z_:\\-{}\\[\\]'\"*/ \n]{0,200}") {
        let _ = Config::parse(&format!("model_list:\n{text}"), environment());
        let _ = Config::parse(&text, environment());
    }
}
