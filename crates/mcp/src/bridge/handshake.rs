//! How a client and a server begin: `initialize`, its answer, and `notifications/initialized`.

use std::time::Duration;

use serde_json::Value;

use super::process::{Output, Process, begins};
use crate::message::{Kind, Message};

/// How the session began, to begin a restarted server in the same way.
pub(super) struct Handshake {
    pub(super) initialize: Message,
    /// What the server said of itself.
    pub(super) answer: Option<Value>,
    pub(super) initialized: Option<String>,
}

/// Sends `initialize` and returns what the server says of itself.
///
/// # Errors
/// What it said or did instead.
pub(super) async fn initialize(
    process: &mut Process,
    hello: &Message,
    limit: Duration,
) -> Result<Value, String> {
    let Kind::Request { id: wanted, .. } = &hello.kind else {
        return Err("initialize is no request".to_owned());
    };
    process.send(hello.text.clone());
    let answered = async {
        loop {
            let line = match process.next().await {
                Some(Output::Line(line)) => line,
                Some(Output::TooLong { begins } | Output::NoText { begins } | Output::Broken { begins }) => {
                    begins
                }
                None => return Err("it ended before it answered initialize".to_owned()),
            };
            match Message::parse(&line) {
                Ok(Message {
                    kind: Kind::Response { id },
                    text,
                }) if id == *wanted => {
                    return result_of(&text)
                        .ok_or_else(|| format!("it refused initialize: {}", begins(text.as_bytes())));
                }
                // Before the answer nobody could take them.
                Ok(_) => {}
                Err(why) => {
                    let line = begins(line.as_bytes());
                    tracing::error!(line, %why, "the MCP server wrote to standard output what is no message");
                }
            }
        }
    };
    tokio::time::timeout(limit, answered).await.unwrap_or_else(|_| {
        Err(format!(
            "it did not answer initialize within {} s on its standard output",
            limit.as_secs_f64()
        ))
    })
}

/// What an answer brings, unless it is an error.
pub(super) fn result_of(answer: &str) -> Option<Value> {
    let mut answer: Value = serde_json::from_str(answer).ok()?;
    answer.get_mut("result").map(Value::take)
}

/// Whether two answers to `initialize` are of servers that a client cannot tell apart.
pub(super) fn same_server(before: &Value, after: &Value) -> bool {
    ["protocolVersion", "capabilities", "serverInfo"]
        .iter()
        .all(|field| before.get(field) == after.get(field))
}
