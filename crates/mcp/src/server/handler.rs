//! The tools as an MCP server: what `rmcp` asks, answered by the [pool](super::pool).

use std::sync::Arc;

use axum::http::request::Parts;
use kaos_telemetry::{KeyValue, Kind, Measure, Operation, Telemetry, TraceContext};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, PaginatedRequestParams, ResourceContents, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::Value;

use super::{
    pool::Pool,
    worker::{Answer, Content, Definition},
};

/// One per request, which is answered by the pool that was there when it came.
#[derive(Clone)]
pub(super) struct Tools {
    pool: Arc<Pool>,
    telemetry: Telemetry,
    calls: Measure,
}

/// The upper bounds of the buckets of durations, in seconds, as the conventions give them.
const BOUNDS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// Where calls are measured, with the tool: an instrument, made once.
pub(super) fn measure(telemetry: &Telemetry) -> Measure {
    telemetry.duration("mcp.server.operation.duration", &BOUNDS)
}

impl Tools {
    pub(super) fn new(pool: Arc<Pool>, telemetry: Telemetry, calls: Measure) -> Self {
        Self {
            pool,
            telemetry,
            calls,
        }
    }

    /// A call of `tool`, as part of what the request says in its metadata (SEP-414), else in its headers.
    fn calling(&self, tool: &str, context: &RequestContext<RoleServer>) -> Operation {
        let said = |field: &str| Some(context.meta.get(field)?.as_str()?.to_owned());
        let trace = match (said("traceparent"), context.extensions.get::<Parts>()) {
            (None, Some(request)) => TraceContext::of_headers(&request.headers),
            _ => TraceContext::read(said),
        };
        let attributes = [
            KeyValue::new("mcp.method.name", "tools/call"),
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", tool.to_owned()),
            KeyValue::new("tool.name", tool.to_owned()),
        ];
        let name = format!("tools/call {tool}");
        let labels = [
            KeyValue::new("mcp.method.name", "tools/call"),
            KeyValue::new("gen_ai.tool.name", tool.to_owned()),
        ];
        self.telemetry
            .begin(&trace, Kind::Server, name, attributes)
            .measured(&self.calls, labels)
    }

    fn unknown(&self, name: &str) -> ErrorData {
        let known = self.pool.names();
        ErrorData::invalid_params(format!("unknown tool {name:?}; the tools are: {known}"), None)
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("kaos-tools", env!("CARGO_PKG_VERSION")))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.pool
            .tools()
            .iter()
            .find(|tool| tool.name == name)
            .map(described)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.pool.tools().iter().map(described).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        if self.get_tool(&name).is_none() {
            return Err(self.unknown(&name));
        }
        let calling = self.calling(&name, &context);
        let answer = tokio::select! {
            answer = self.pool.call(name.clone(), request.arguments.unwrap_or_default()) => answer,
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
        };
        let result = match answer {
            Ok(Answer::Returned { content, structured }) => {
                calling.succeed();
                let blocks = content.into_iter().map(|part| block(part, &name)).collect();
                let mut result = CallToolResult::success(blocks);
                result.structured_content = structured.map(Value::Object);
                result
            }
            Ok(Answer::Failed(message)) => {
                calling.fail("tool_error", &message);
                CallToolResult::error(vec![ContentBlock::text(message)])
            }
            Err(error) => {
                calling.fail("call_failed", &error);
                CallToolResult::error(vec![ContentBlock::text(format!("{name}: {error}"))])
            }
        };
        Ok(result.into())
    }
}

fn described(tool: &Definition) -> Tool {
    let description = (!tool.description.is_empty()).then(|| tool.description.clone().into());
    let described = Tool::new_with_raw(tool.name.clone(), description, tool.schema.clone());
    match &tool.output {
        Some(output) => described.with_raw_output_schema(Arc::new(output.clone())),
        None => described,
    }
}

fn block(part: Content, tool: &str) -> ContentBlock {
    match part {
        Content::Text { text } => ContentBlock::text(text),
        Content::Data { data, mime } if mime.starts_with("image/") => ContentBlock::image(data, mime),
        Content::Data { data, mime } => {
            let uri = format!("tool://{tool}/result");
            ContentBlock::resource(ResourceContents::blob(data, uri).with_mime_type(mime))
        }
    }
}
