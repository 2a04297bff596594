//! The environment as a table: what each variable means, and what is said of those that mean nothing.

use proptest::prelude::*;

use super::*;

const REQUIRED: [(&str, &str); 3] = [
    ("AGENT_NAME", "ann"),
    ("MODEL_API_URL", "http://model:8000"),
    ("MODEL_NAME", "m"),
];

fn read(variables: &[(&str, &str)]) -> Result<Config, String> {
    let all = REQUIRED
        .iter()
        .chain(variables)
        .map(|(name, value)| (name.to_string(), value.to_string()));
    Config::from_env(all).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = read(&[]).unwrap();
    assert_eq!(
        config,
        Config {
            name: "ann".to_owned(),
            description: "AI Agent".to_owned(),
            instructions: "You are a helpful assistant.".to_owned(),
            port: 8000,
            model_api_url: Url::parse("http://model:8000").unwrap(),
            model: "m".to_owned(),
            mcp_servers: Vec::new(),
            max_steps: 5,
            request_timeout: Duration::from_secs(600),
            strict_errors: false,
            tool_calls: ToolCalls::Auto,
            enable_tools: true,
            peers: Vec::new(),
            enable_delegation: true,
            delegation_timeout: Duration::from_secs(60),
            context_limit: 6,
            memory: Some(Limits {
                sessions: 1000,
                session_events: 500,
            }),
            memory_endpoints: true,
            mock_responses: Vec::new(),
            tool_timeout: Duration::from_secs(60),
            model_timeout: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(25),
            hosts: HostPolicy::default(),
            access_log: false,
        }
    );
}

#[test]
fn every_variable_takes_effect() {
    let config = read(&[
        ("AGENT_DESCRIPTION", "adds"),
        ("AGENT_INSTRUCTIONS", "Be exact."),
        ("AGENT_PORT", "9000"),
        ("AGENTIC_LOOP_MAX_STEPS", "3"),
        ("AGENTIC_LOOP_ENABLE_TOOLS", "False"),
        ("AGENT_REQUEST_TIMEOUT_SECONDS", "30"),
        ("AGENT_STRICT_ERRORS", "yes"),
        ("TOOL_CALL_MODE", "string"),
        ("AGENT_TOOL_TIMEOUT_SECONDS", "0.5"),
        ("AGENT_MODEL_TIMEOUT_SECONDS", "120"),
        ("AGENT_SHUTDOWN_GRACE_SECONDS", "1"),
        ("AGENT_ACCESS_LOG", "true"),
        ("AGENTIC_LOOP_ENABLE_DELEGATION", "false"),
        ("AGENT_DELEGATION_TIMEOUT_SECONDS", "90"),
        ("KAOS_ALLOWED_HOSTS", "box.lan"),
        ("MEMORY_TYPE", "local"),
        ("MEMORY_CONTEXT_LIMIT", "100"),
        ("MEMORY_MAX_SESSIONS", "7"),
        ("MEMORY_MAX_SESSION_EVENTS", "8"),
        ("AGENT_DEBUG_MEMORY_ENDPOINTS", "false"),
        ("DEBUG_MOCK_RESPONSES", "[\"a\", \"b\"]"),
    ])
    .unwrap();
    assert_eq!(
        (config.description.as_str(), config.instructions.as_str()),
        ("adds", "Be exact.")
    );
    assert_eq!(config.port, 9000);
    assert_eq!(config.hosts, HostPolicy::listed("box.lan"));
    assert_eq!((config.max_steps, config.enable_tools), (3, false));
    assert_eq!((config.strict_errors, config.tool_calls), (true, ToolCalls::Text));
    assert_eq!(
        (config.enable_delegation, config.memory_endpoints),
        (false, false)
    );
    let seconds = [
        config.tool_timeout,
        config.model_timeout,
        config.shutdown_grace,
        config.delegation_timeout,
        config.request_timeout,
    ];
    assert_eq!(seconds.map(|d| d.as_secs_f64()), [0.5, 120.0, 1.0, 90.0, 30.0]);
    assert_eq!(config.context_limit, 100);
    let limits = Limits {
        sessions: 7,
        session_events: 8,
    };
    assert_eq!(config.memory, Some(limits));
    assert_eq!(
        config.mock_responses,
        [Message::assistant("a"), Message::assistant("b")]
    );
    assert_eq!(read(&[("MEMORY_ENABLED", "false")]).unwrap().memory, None);
    assert!(config.access_log);
}

#[test]
fn mcp_servers_are_a_list_with_a_url_each() {
    let urls = [
        ("MCP_SERVER_b-tools_URL", "http://b/base/mcp"),
        ("MCP_SERVER_a_URL", "http://a:8000"),
    ];
    for list in ["b-tools,a", "[b-tools, a]", "[\"b-tools\",'a',]", "b-tools,a,a"] {
        let config = read(&[urls[0], urls[1], ("MCP_SERVERS", list)]).unwrap();
        let found: Vec<_> = config
            .mcp_servers
            .iter()
            .map(|s| (s.name.as_str(), s.url.as_str()))
            .collect();
        assert_eq!(
            found,
            [("b-tools", "http://b/base/mcp"), ("a", "http://a:8000/")],
            "{list}"
        );
    }
    assert_eq!(read(&[("MCP_SERVERS", "[]")]).unwrap().mcp_servers, []);
}

fn peers(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let peers = read(variables).unwrap().peers.into_iter();
    peers.map(|peer| (peer.name, peer.url.to_string())).collect()
}

#[test]
fn peers_are_a_list_with_a_url_each_or_in_it() {
    let url = [
        ("PEER_AGENT_WORKER_1_CARD_URL", "http://w:8000"),
        ("PEER_AGENT_B_CARD_URL", "http://b"),
    ];
    let expected =
        [("worker-1", "http://w:8000/"), ("b", "http://b/")].map(|(n, u)| (n.to_owned(), u.to_owned()));
    for list in ["worker-1,b", "[worker-1, \"b\"]", "worker-1,b,worker-1"] {
        assert_eq!(
            peers(&[url[0], url[1], ("PEER_AGENTS", list)]),
            expected,
            "{list}"
        );
    }
    let sub_agents = ("AGENT_SUB_AGENTS", "worker-1:http://w:8000, b: http://b");
    assert_eq!(peers(&[sub_agents]), expected);
    assert_eq!(
        peers(&[sub_agents, ("PEER_AGENTS", "without-a-url")]),
        expected,
        "it wins"
    );
    assert_eq!(peers(&[("PEER_AGENTS", "[]")]), []);
}

proptest! {
    #[test]
    fn no_environment_makes_it_panic(
        names in "[a-b,:\\[\\]\"' -]{0,12}", text in ".{0,20}", number in any::<i64>(),
        at in proptest::sample::select(VARIABLES.as_slice()),
    ) {
        let number = number.to_string();
        for value in [names.as_str(), &text, &number, &format!("a:http://{text}"), &format!("[{text}")] {
            let _ = read(&[(at, value), ("PEER_AGENT_A_CARD_URL", &text), ("MCP_SERVER_a_URL", "http://a")]);
        }
    }

    #[test]
    fn a_limit_is_within_its_range_or_refused(number in any::<i64>()) {
        for (variable, highest) in
            [("MEMORY_CONTEXT_LIMIT", 100), ("MEMORY_MAX_SESSIONS", 100_000), ("MEMORY_MAX_SESSION_EVENTS", 10_000)]
        {
            for number in [number, number.rem_euclid(2 * highest)] {
                let good = read(&[(variable, &number.to_string())]).is_ok();
                prop_assert_eq!(good, (1..=highest).contains(&number), "{} {}", variable, number);
            }
        }
    }
}

const VARIABLES: [&str; 12] = [
    "AGENT_PORT",
    "MODEL_API_URL",
    "MCP_SERVERS",
    "PEER_AGENTS",
    "AGENT_SUB_AGENTS",
    "AGENTIC_LOOP_MAX_STEPS",
    "AGENTIC_LOOP_ENABLE_DELEGATION",
    "AGENT_DELEGATION_TIMEOUT_SECONDS",
    "MEMORY_ENABLED",
    "MEMORY_TYPE",
    "MEMORY_CONTEXT_LIMIT",
    "DEBUG_MOCK_RESPONSES",
];

#[test]
fn what_is_wrong_is_named() {
    let cases: [(&[(&str, &str)], &str); 17] = [
        (
            &[("AGENT_NAME", " ")],
            "AGENT_NAME is required: set it to the agent's name",
        ),
        (&[("MODEL_API_URL", "")], "MODEL_API_URL is required"),
        (&[("MODEL_NAME", "")], "MODEL_NAME is required"),
        (
            &[("MODEL_API_URL", "model:8000")],
            "MODEL_API_URL is \"model:8000\", which is not an http or https URL",
        ),
        (
            &[("AGENT_PORT", "70000")],
            "AGENT_PORT is \"70000\", which is not a port number",
        ),
        (
            &[("AGENTIC_LOOP_MAX_STEPS", "0")],
            "AGENTIC_LOOP_MAX_STEPS is \"0\", which is not a number of at least 1",
        ),
        (
            &[("AGENTIC_LOOP_MAX_STEPS", "-1")],
            "AGENTIC_LOOP_MAX_STEPS is \"-1\"",
        ),
        (
            &[("AGENTIC_LOOP_ENABLE_TOOLS", "maybe")],
            "AGENTIC_LOOP_ENABLE_TOOLS is \"maybe\", which is not true or false",
        ),
        (
            &[("AGENT_TOOL_TIMEOUT_SECONDS", "NaN")],
            "AGENT_TOOL_TIMEOUT_SECONDS is \"NaN\"",
        ),
        (
            &[("MCP_SERVERS", "a")],
            "MCP_SERVER_a_URL is required: set it to the URL of the MCP server",
        ),
        (
            &[("PEER_AGENTS", "worker-1")],
            "PEER_AGENT_WORKER_1_CARD_URL is required: set it to the URL of the agent",
        ),
        (
            &[("AGENT_SUB_AGENTS", "bob")],
            "AGENT_SUB_AGENTS is \"bob\", which is not a list NAME:URL,NAME:URL with each name once",
        ),
        (
            &[("AGENT_SUB_AGENTS", "a:http://a,a:http://b")],
            "AGENT_SUB_AGENTS is",
        ),
        (
            &[("MEMORY_TYPE", "redis")],
            "MEMORY_TYPE is \"redis\", which is not local, the only kind of memory there is",
        ),
        (
            &[("MEMORY_CONTEXT_LIMIT", "0")],
            "MEMORY_CONTEXT_LIMIT is \"0\", which is not a number from 1 to 100",
        ),
        (
            &[("MEMORY_MAX_SESSIONS", "many")],
            "MEMORY_MAX_SESSIONS is \"many\", which is not a number from 1 to 100000",
        ),
        (
            &[("DEBUG_MOCK_RESPONSES", "[1]")],
            "DEBUG_MOCK_RESPONSES is \"[1]\", which is not a JSON list of answers",
        ),
    ];
    for (variables, expected) in cases {
        let error = read(variables).unwrap_err();
        assert!(error.contains(expected), "{variables:?}: {error}");
    }
}
