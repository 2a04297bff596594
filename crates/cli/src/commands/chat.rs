//! `kaos chat`: talk to an agent through the API's Service proxy, which works the same on a cluster and on
//! this machine.

use std::io::{IsTerminal, Read, Write, stdin, stdout};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use futures::TryStreamExt;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kaos_api::v1alpha1::Agent;
use kaos_openai::{ChatRequest, Message, sse};
use kube::{Api, Client, client::Body};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{
    args::Global,
    commands::interrupted,
    target::{Target, connect},
};

/// The most that one event of the answer may hold.
const EVENT_LIMIT: usize = 16 << 20;

/// Sends one message and prints the answer, or holds a conversation.
pub(crate) async fn chat(global: &Global, agent: &str, message: Option<String>) -> Result<()> {
    let target = connect(global).await?;
    let mut conversation = Conversation::with(&target, agent).await?;
    let message = match message {
        None if stdin().is_terminal() => return conversation.hold().await,
        None => {
            let mut text = String::new();
            stdin()
                .read_to_string(&mut text)
                .context("failed to read the message from standard input")?;
            text
        }
        Some(message) => message,
    };
    if message.trim().is_empty() {
        bail!("the message is empty");
    }
    tokio::select! {
        said = conversation.say(message) => said,
        ended = interrupted() => ended.and(Err(anyhow!("interrupted"))),
    }
}

struct Conversation {
    client: Client,
    url: String,
    model: String,
    messages: Vec<Message>,
}

impl Conversation {
    async fn with(target: &Target, name: &str) -> Result<Self> {
        let agents = Api::<Agent>::namespaced(target.client.clone(), &target.namespace);
        let agent = agents.get_opt(name).await?.with_context(|| {
            format!(
                "no agent is called {name} in namespace {}; `kaos status` lists what there is",
                target.namespace
            )
        })?;
        let status = agent.status.unwrap_or_default();
        let endpoint = status.endpoint.unwrap_or_default();
        let Some((service, port)) = service_of(&endpoint) else {
            bail!(
                "agent {name} has no endpoint: {}",
                status
                    .message
                    .filter(|message| !message.is_empty())
                    .unwrap_or_else(|| {
                        "it is not set up yet, or spec.agentNetwork.expose is false".to_owned()
                    })
            );
        };
        let url = format!(
            "/api/v1/namespaces/{}/services/{service}:{port}/proxy/v1/chat/completions",
            target.namespace
        );
        Ok(Self {
            client: target.client.clone(),
            url,
            model: name.to_owned(),
            messages: Vec::new(),
        })
    }

    /// Reads messages from the terminal until it ends.
    async fn hold(&mut self) -> Result<()> {
        eprintln!("Each line is a message; Ctrl-D ends.");
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        loop {
            eprint!("> ");
            let line = tokio::select! {
                line = lines.next_line() => line?,
                ended = interrupted() => return ended,
            };
            let Some(line) = line else { break };
            if line.trim().is_empty() {
                continue;
            }
            tokio::select! {
                said = self.say(line) => if let Err(error) = said { eprintln!("error: {error:#}") },
                ended = interrupted() => return ended,
            }
        }
        eprintln!();
        Ok(())
    }

    /// Sends a message, prints the answer as it comes, and keeps both for the next one.
    async fn say(&mut self, text: String) -> Result<()> {
        self.messages.push(Message::user(text));
        let answer = self.ask().await;
        match answer {
            Ok(answer) => {
                self.messages.push(Message::assistant(answer));
                Ok(())
            }
            Err(error) => {
                // What was not answered is not part of the conversation.
                self.messages.pop();
                Err(error)
            }
        }
    }

    async fn ask(&self) -> Result<String> {
        let request = ChatRequest {
            model: self.model.clone(),
            messages: self.messages.clone(),
            stream: true,
            ..ChatRequest::default()
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream")
            .body(Body::from(serde_json::to_vec(&request)?))?;
        let response = self
            .client
            .send(request)
            .await
            .context("failed to reach the agent")?;
        let status = response.status();
        let mut body = response.into_body().into_data_stream();
        if !status.is_success() {
            let mut bytes = Vec::new();
            while let Some(chunk) = body.try_next().await? {
                bytes.extend_from_slice(&chunk);
            }
            bail!("the agent answered {status}: {}", refusal(&bytes));
        }
        let mut decoder = sse::Decoder::new(EVENT_LIMIT);
        let mut printer = Printer::default();
        while let Some(chunk) = body.try_next().await.context("the answer broke off")? {
            let chunk: Bytes = chunk;
            for event in decoder.feed(&chunk)? {
                printer.event(&event.data)?;
            }
        }
        printer.finish()
    }
}

/// Prints the events of one answer.
#[derive(Default)]
struct Printer {
    answer: String,
    done: bool,
    failed: Option<String>,
}

impl Printer {
    fn event(&mut self, data: &str) -> Result<()> {
        if data == sse::DONE {
            self.done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data)
            .with_context(|| format!("the agent sent an event that is no JSON: {data}"))?;
        if let Some(message) = chunk["error"]["message"].as_str() {
            self.failed = Some(message.to_owned());
        }
        if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str() {
            self.answer.push_str(text);
            let mut out = stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        self.progress(&chunk["kaos"])
    }

    /// Tool calls and errors, as they happen.
    fn progress(&mut self, progress: &Value) -> Result<()> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let line = match progress["type"].as_str() {
            Some("tool_call") => format!("→ {} {}", text(&progress["tool"]), text(&progress["arguments"])),
            Some("tool_result") if progress["is_error"] == true => {
                format!("✗ {} {}", text(&progress["tool"]), text(&progress["result"]))
            }
            Some("tool_result") => format!("← {} {}", text(&progress["tool"]), text(&progress["result"])),
            Some("error") => {
                let message = text(&progress["result"]);
                self.failed = Some(message.clone());
                format!("✗ {message}")
            }
            _ => return Ok(()),
        };
        // What was printed of the answer so far is one line; this is another.
        if stdout().is_terminal() && !self.answer.is_empty() && !self.answer.ends_with('\n') {
            writeln!(stdout())?;
        }
        eprintln!("{line}");
        Ok(())
    }

    fn finish(self) -> Result<String> {
        if !self.answer.is_empty() {
            writeln!(stdout())?;
        }
        if let Some(message) = self.failed {
            bail!("{message}");
        }
        if !self.done {
            bail!("the answer broke off before its end");
        }
        Ok(self.answer)
    }
}

/// The Service and port of `http://SERVICE.NAMESPACE.svc.DOMAIN:PORT`.
pub(crate) fn service_of(endpoint: &str) -> Option<(String, u16)> {
    let uri: http::Uri = endpoint.parse().ok()?;
    let service = uri.host()?.split('.').next()?.to_owned();
    Some((service, uri.port_u16().unwrap_or(80)))
}

/// The message in an error body of the agent, of OpenAI's form or of Kubernetes', or the body itself.
fn refusal(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    [&value["error"]["message"], &value["detail"], &value["message"]]
        .into_iter()
        .find_map(Value::as_str)
        .map_or_else(|| text.trim().to_owned(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_names_its_service() {
        let endpoint = "http://agent-a.default.svc.cluster.local:8000";
        assert_eq!(service_of(endpoint), Some(("agent-a".to_owned(), 8000)));
        assert_eq!(service_of(""), None);
    }

    #[test]
    fn the_message_of_an_error_is_found_in_each_form() {
        for (body, expected) in [
            (r#"{"detail":"messages are required"}"#, "messages are required"),
            (r#"{"error":{"message":"no such model"}}"#, "no such model"),
            (
                r#"{"kind":"Status","message":"no endpoints available"}"#,
                "no endpoints available",
            ),
            ("plain\n", "plain"),
        ] {
            assert_eq!(refusal(body.as_bytes()), expected);
        }
    }
}
