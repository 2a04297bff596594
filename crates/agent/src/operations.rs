//! The operations of an agent as traces and metrics show them: the names that dashboards for KAOS agents know,
//! and beside them the attributes of OpenTelemetry's conventions for generative AI.
//!
//! What people write and models answer is not part of it, nor are the arguments and results of tools.

use std::{borrow::Cow, time::Duration};

use kaos_openai::{ChatRequest, ChatResponse, FinishReason, Usage};
use kaos_telemetry::{
    Array, KeyValue, Kind, Measure, Operation, StringValue, Telemetry, TraceContext, Value,
    buckets::{FIRST_TOKEN_SECONDS, SECONDS, TOKENS},
    metrics::Histogram,
};
use serde_json::Value as Json;
use url::Url;

use crate::memory::SessionId;

/// The form of API that models are asked by; who serves the model is not known here.
const PROVIDER: &str = "openai";

/// Begins the operations of one agent.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    telemetry: Telemetry,
    agent: String,
    asked: Measure,
    first: Histogram<f64>,
    tokens: Histogram<u64>,
    requests: Measure,
    models: Measure,
    tools: Measure,
    delegations: Measure,
}

impl Operations {
    pub(crate) fn new(telemetry: Telemetry, agent: &str) -> Self {
        let meter = telemetry.meter();
        Self {
            asked: telemetry.duration("gen_ai.client.operation.duration", &SECONDS),
            first: meter
                .f64_histogram("gen_ai.client.operation.time_to_first_chunk")
                .with_unit("s")
                .with_boundaries(FIRST_TOKEN_SECONDS.to_vec())
                .build(),
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            requests: telemetry.measure("kaos.requests", "kaos.request.duration"),
            models: telemetry.measure("kaos.model.calls", "kaos.model.duration"),
            tools: telemetry.measure("kaos.tool.calls", "kaos.tool.duration"),
            delegations: telemetry.measure("kaos.delegations", "kaos.delegation.duration"),
            agent: agent.to_owned(),
            telemetry,
        }
    }

    /// An answer to a request that came with the context `parent`.
    pub(crate) fn request(
        &self,
        parent: &TraceContext,
        session: Option<&SessionId>,
        max_steps: u32,
        stream: bool,
    ) -> Operation {
        let attributes = [
            KeyValue::new("agent.max_steps", i64::from(max_steps)),
            KeyValue::new("stream", stream),
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", self.agent.clone()),
        ];
        let request = self
            .begin(parent, Kind::Internal, "agent.agentic_loop", attributes)
            .measured(&self.requests, [self.agent()]);
        let session = session.map(|session| session.as_str().to_owned());
        request.set_some("session.id", session.clone());
        request.set_some("gen_ai.conversation.id", session);
        request
    }

    /// A step of an answer.
    pub(crate) fn step(&self, parent: &TraceContext, step: u32, max_steps: u32) -> Operation {
        let attributes = [
            KeyValue::new("step", i64::from(step)),
            KeyValue::new("max_steps", i64::from(max_steps)),
        ];
        self.begin(parent, Kind::Internal, format!("agent.step.{step}"), attributes)
    }

    /// A question to the model.
    pub(crate) fn model(&self, parent: &TraceContext, question: &ChatRequest) -> Operation {
        let attributes = [
            KeyValue::new("gen_ai.operation.name", "chat"),
            KeyValue::new("gen_ai.provider.name", PROVIDER),
            KeyValue::new("gen_ai.request.model", question.model.clone()),
        ];
        let asking = self
            .begin(parent, Kind::Client, "model.inference", attributes)
            .measured(
                &self.models,
                [self.agent(), KeyValue::new("model", question.model.clone())],
            )
            .measured(&self.asked, chat(&question.model));
        let parameter = |name: &str| question.extra.get(name);
        for (name, key) in [
            ("temperature", "gen_ai.request.temperature"),
            ("top_p", "gen_ai.request.top_p"),
        ] {
            asking.set_some(key, parameter(name).and_then(Json::as_f64));
        }
        let limit = parameter("max_completion_tokens").or_else(|| parameter("max_tokens"));
        asking.set_some("gen_ai.request.max_tokens", limit.and_then(Json::as_i64));
        asking
    }

    /// A call of the tool that the model knows as `name`.
    pub(crate) fn tool(&self, parent: &TraceContext, name: &str, call: &str) -> Operation {
        let attributes = [
            KeyValue::new("tool.name", name.to_owned()),
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", name.to_owned()),
            KeyValue::new("gen_ai.tool.type", "function"),
            KeyValue::new("gen_ai.tool.call.id", call.to_owned()),
        ];
        self.begin(parent, Kind::Client, format!("tool.{name}"), attributes)
            .measured(
                &self.tools,
                [self.agent(), KeyValue::new("tool", name.to_owned())],
            )
    }

    /// What a call of a tool is to its server. It is part of a [`tool`](Self::tool), which counts it.
    pub(crate) fn mcp_tool(
        &self,
        parent: &TraceContext,
        name: &str,
        server: &str,
        url: Option<&Url>,
    ) -> Operation {
        let attributes = [
            KeyValue::new("tool.name", name.to_owned()),
            KeyValue::new("mcp.server", server.to_owned()),
            KeyValue::new("mcp.method.name", "tools/call"),
            KeyValue::new("gen_ai.tool.name", name.to_owned()),
        ];
        let calling = self.begin(parent, Kind::Client, format!("mcp.tool.{name}"), attributes);
        calling.set_some("mcp.url", url.map(without_secrets));
        calling.set_some("server.address", url.and_then(Url::host_str).map(str::to_owned));
        calling.set_some(
            "server.port",
            url.and_then(Url::port_or_known_default).map(i64::from),
        );
        calling
    }

    /// A task that is handed to `agent`.
    pub(crate) fn delegation(&self, parent: &TraceContext, agent: &str) -> Operation {
        let attributes = [
            KeyValue::new("agent.delegation.target", agent.to_owned()),
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", agent.to_owned()),
        ];
        self.begin(parent, Kind::Client, format!("delegate.{agent}"), attributes)
            .measured(
                &self.delegations,
                [self.agent(), KeyValue::new("target", agent.to_owned())],
            )
    }

    /// The model took so long to begin its answer.
    pub(crate) fn begun(&self, model: &str, after: Duration) {
        self.first.record(after.as_secs_f64(), &chat(model));
    }

    /// Says what the model answered, short of the answer.
    pub(crate) fn answered(&self, asking: &Operation, model: &str, answer: &ChatResponse) {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        asking.set_some("gen_ai.response.id", given(&answer.id));
        asking.set_some("gen_ai.response.model", given(&answer.model));
        let reasons = answer
            .choices
            .iter()
            .filter_map(|choice| choice.finish_reason.as_ref());
        let reasons: Vec<StringValue> = reasons.map(reason).collect();
        asking.set(
            "gen_ai.response.finish_reasons",
            Value::Array(Array::String(reasons)),
        );
        if let Some(usage) = &answer.usage {
            used(asking, usage);
            for (kind, count) in [
                ("input", usage.prompt_tokens),
                ("output", usage.completion_tokens),
            ] {
                if count > 0 {
                    let mut labels = chat(model).to_vec();
                    labels.push(KeyValue::new("gen_ai.token.type", kind));
                    self.tokens.record(count, &labels);
                }
            }
        }
    }

    fn begin(
        &self,
        parent: &TraceContext,
        kind: Kind,
        name: impl Into<Cow<'static, str>>,
        attributes: impl IntoIterator<Item = KeyValue>,
    ) -> Operation {
        let attributes = attributes.into_iter().chain([self.agent()]);
        self.telemetry.begin(parent, kind, name, attributes)
    }

    fn agent(&self) -> KeyValue {
        KeyValue::new("agent.name", self.agent.clone())
    }
}

/// The labels of what is measured of a question to a model.
fn chat(model: &str) -> [KeyValue; 3] {
    [
        KeyValue::new("gen_ai.operation.name", "chat"),
        KeyValue::new("gen_ai.provider.name", PROVIDER),
        KeyValue::new("gen_ai.request.model", model.to_owned()),
    ]
}

/// Says how many tokens an operation took.
pub(crate) fn used(operation: &Operation, usage: &Usage) {
    let count = |tokens: u64| i64::try_from(tokens).ok().filter(|tokens| *tokens > 0);
    operation.set_some("gen_ai.usage.input_tokens", count(usage.prompt_tokens));
    operation.set_some("gen_ai.usage.output_tokens", count(usage.completion_tokens));
}

fn reason(reason: &FinishReason) -> StringValue {
    let written = serde_json::to_value(reason).unwrap_or_default();
    written.as_str().unwrap_or_default().to_owned().into()
}

/// A URL without what may be secret in it: the password and the query.
fn without_secrets(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    crate::http_client::without_password(&url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_told_without_its_password_and_its_query() {
        let url = Url::parse("https://me:secret@tools.example.com/mcp?key=1").unwrap();
        assert_eq!(without_secrets(&url), "https://tools.example.com/mcp");
    }
}
