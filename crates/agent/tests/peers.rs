//! Two agents that name each other, as their pods run them.

// A test that cannot go on should panic, in its helpers as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kaos_agent::Config;
use kaos_seams::{FixedDialer, Seams};
use kaos_telemetry::Telemetry;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine; nothing waits for it unless something is wrong.
const LONG: Duration = Duration::from_secs(60);

struct Agents {
    http: reqwest::Client,
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    dialer: FixedDialer,
}

fn host(name: &str) -> String {
    format!("agent-{name}.default.svc.cluster.local")
}

impl Agents {
    fn new() -> Self {
        kaos_telemetry::install_crypto_provider();
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            shutdown: CancellationToken::new(),
            tasks: Vec::new(),
            dialer: FixedDialer::default(),
        }
    }

    /// A place for an agent, known to all that start after.
    async fn place(&mut self, name: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.dialer = std::mem::take(&mut self.dialer).with(&host(name), 8000, address);
        listener
    }

    /// An agent with one peer, which answers what it is told to answer.
    fn start(&mut self, name: &str, peer: &str, listener: TcpListener, answers: &Value) -> SocketAddr {
        self.start_with(name, peer, listener, answers, &[])
    }

    /// As [`Agents::start`], with more variables.
    fn start_with(
        &mut self,
        name: &str,
        peer: &str,
        listener: TcpListener,
        answers: &Value,
        more: &[(&str, &str)],
    ) -> SocketAddr {
        let address = listener.local_addr().unwrap();
        let url = format!("http://{}:8000", host(peer));
        let variables = [
            ("AGENT_NAME".to_owned(), name.to_owned()),
            ("AGENT_DESCRIPTION".to_owned(), format!("what {name} does")),
            ("MODEL_API_URL".to_owned(), "http://model.invalid:8000".to_owned()),
            ("MODEL_NAME".to_owned(), "m".to_owned()),
            ("PEER_AGENTS".to_owned(), peer.to_owned()),
            (
                format!("PEER_AGENT_{}_CARD_URL", peer.to_uppercase().replace('-', "_")),
                url,
            ),
            ("DEBUG_MOCK_RESPONSES".to_owned(), answers.to_string()),
        ];
        let more = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = Config::from_env(variables.into_iter().chain(more)).unwrap();
        let seams = Seams::system().with_dialer(Arc::new(self.dialer.clone()));
        let serving = kaos_agent::serve(config, listener, seams, Telemetry::off(), self.shutdown.clone());
        self.tasks
            .push(tokio::spawn(async move { serving.await.unwrap() }));
        address
    }

    async fn get(&self, address: SocketAddr, path: &str) -> (u16, Value) {
        let answer = self
            .http
            .get(format!("http://{address}{path}"))
            .send()
            .await
            .unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn ask(&self, address: SocketAddr, body: Value) -> reqwest::Response {
        let url = format!("http://{address}/v1/chat/completions");
        self.http.post(url).json(&body).send().await.unwrap()
    }

    async fn end(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            tokio::time::timeout(LONG, task)
                .await
                .expect("everything ends")
                .unwrap();
        }
    }
}

/// The type and content of an agent's events.
fn happened(memory: &Value) -> Vec<(&str, &Value)> {
    let events = memory["events"].as_array().unwrap().iter();
    events
        .map(|event| (event["event_type"].as_str().unwrap(), &event["content"]))
        .collect()
}

#[tokio::test]
async fn agents_that_name_each_other_work_together_and_not_in_circles() {
    let mut agents = Agents::new();
    let (ann, worker) = (agents.place("ann").await, agents.place("worker-1").await);
    let delegate = |to: &str, task: &str| json!({"tool_calls": [{"name": format!("delegate_to_{to}"), "arguments": {"task": task}}]});
    let ann = agents.start(
        "ann",
        "worker-1",
        ann,
        &json!([delegate("worker-1", "dig"), "the worker dug"]),
    );
    let worker = agents.start(
        "worker-1",
        "ann",
        worker,
        &json!([delegate("ann", "dig yourself"), "dug"]),
    );

    let asked = async {
        while agents.get(ann, "/ready").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        agents
            .ask(
                ann,
                json!({"stream": true, "messages": [{"role": "user", "content": "a hole!"}]}),
            )
            .await
    };
    let answer = tokio::time::timeout(LONG, asked).await.expect("an answer");
    let stream = answer.text().await.unwrap();
    assert!(
        stream.contains(r#""tool":"delegate_to_worker-1","result":"dug","is_error":false"#),
        "{stream}"
    );
    assert!(stream.contains("the worker dug"), "{stream}");

    let (_, memory) = agents.get(worker, "/memory/events").await;
    let circle = "the task came by way of \"ann\", which waits for this answer: do it without \"ann\"";
    assert_eq!(
        happened(&memory),
        [
            ("user_message", &json!("a hole!")),
            ("task_delegation_received", &json!("dig")),
            (
                "delegation_request",
                &json!({"agent": "ann", "task": "dig yourself"})
            ),
            ("delegation_error", &json!({"agent": "ann", "error": circle})),
            ("agent_response", &json!("dug")),
        ]
    );
    agents.end().await;
}

#[tokio::test]
async fn an_agent_answers_without_a_peer_that_never_came() {
    let mut agents = Agents::new();
    let ann = agents.place("ann").await;
    // A place where nobody is.
    drop(agents.place("bob").await);
    let delegate = "```delegate\n{\"agent\": \"bob\", \"task\": \"dig\"}\n```";
    let ann = agents.start("ann", "bob", ann, &json!([delegate, "nobody is there"]));
    let answer = agents
        .ask(ann, json!({"messages": [{"role": "user", "content": "a hole!"}]}))
        .await;
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "nobody is there");
    let (_, memory) = agents.get(ann, "/memory/events").await;
    let error = happened(&memory)[2].1["error"].as_str().unwrap();
    let url = format!("agent http://{}:8000/ is not reachable: ", host("bob"));
    assert!(error.starts_with(&url), "{error}");
    assert_eq!(agents.get(ann, "/.well-known/agent").await.0, 200);
    agents.end().await;
}

#[tokio::test]
async fn delegation_can_be_switched_off() {
    for (switch, delegates) in [("true", true), ("false", false)] {
        let mut agents = Agents::new();
        let (ann, bob) = (agents.place("ann").await, agents.place("bob").await);
        let call = json!({"tool_calls": [{"name": "delegate_to_bob", "arguments": {"task": "dig"}}]});
        let switched = [("AGENTIC_LOOP_ENABLE_DELEGATION", switch)];
        let ann = agents.start_with("ann", "bob", ann, &json!([call, "done"]), &switched);
        let bob = agents.start("bob", "ann", bob, &json!(["dug"]));
        let answer = agents
            .ask(ann, json!({"messages": [{"role": "user", "content": "a hole!"}]}))
            .await;
        assert_eq!(answer.status(), 200);
        let (_, memory) = agents.get(bob, "/memory/events").await;
        assert_eq!(!happened(&memory).is_empty(), delegates, "{memory}");
        let (_, card) = agents.get(ann, "/.well-known/agent").await;
        assert_eq!(
            card["capabilities"].to_string().contains("task_delegation"),
            delegates
        );
        let (_, memory) = agents.get(ann, "/memory/events").await;
        let refused = memory
            .to_string()
            .contains("there is no tool \\\"delegate_to_bob\\\"");
        assert_eq!(refused, !delegates, "{memory}");
        agents.end().await;
    }
}
