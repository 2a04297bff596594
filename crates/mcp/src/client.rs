//! A client of one MCP server over streamable HTTP.
//!
//! Owns the session: it is opened when first needed, shared by concurrent callers, and opened anew when the
//! server has forgotten it (a restart) or has moved (the dialer is asked each time). Every operation has a
//! deadline. A tool call is repeated on a new session only where the server cannot have run it the first
//! time; otherwise the caller is told, because a tool may have effects.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kaos_seams::{Dialer, Seams};
use kaos_telemetry::TraceContext;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock,
        Implementation, ProtocolVersion, RequestParamsMeta, ResourceContents, Tool,
    },
    service::{ClientCacheConfig, ClientInitializeError, RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
        streamable_http_client::StreamableHttpError,
    },
};
use serde_json::{Map, Value};
use tokio::{sync::Mutex, time::Instant};
use url::Url;

/// How long the TCP connection may take, within the deadline of the operation.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What requests are sent with that a proxy may lead to.
static OUTSIDE: OnceLock<reqwest::Client> = OnceLock::new();
/// What requests to servers nearby are sent with, and to those of them that encrypt.
static NEAR: OnceLock<reqwest::Client> = OnceLock::new();
static NEAR_ENCRYPTED: OnceLock<reqwest::Client> = OnceLock::new();

/// Whether a server is on this machine or in this cluster, where the proxy of the environment, which leads to
/// the internet, does not reach it.
pub fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback() || address.is_private(),
        Some(url::Host::Ipv6(address)) => address.is_loopback() || address.is_unique_local(),
        Some(url::Host::Domain(name)) => {
            !name.contains('.') || name.ends_with(".svc") || name.contains(".svc.")
        }
        None => false,
    }
}

/// The client in `made`, built when it is first asked for: building one that encrypts reads all certificates of the
/// system, which takes longer than all else about a session.
fn http_client(
    made: &OnceLock<reqwest::Client>,
    builder: reqwest::ClientBuilder,
) -> reqwest::Result<reqwest::Client> {
    if let Some(client) = made.get() {
        return Ok(client.clone());
    }
    let client = builder
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would leave the server that was named (and may turn the POST into a GET).
        .redirect(reqwest::redirect::Policy::none())
        // Connections are not reused: rmcp leaves bodies half read, and a restarted server would be
        // met through a dead connection.
        .pool_max_idle_per_host(0)
        .build()?;
    Ok(made.get_or_init(|| client).clone())
}

/// A tool that a server offers.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInfo {
    /// The name it is called by, unique within its server.
    pub name: String,
    /// What it does, for the model; empty where the server says nothing.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub input_schema: Map<String, Value>,
}

/// What a tool call came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutcome {
    /// The result as text. Content that is not text is named in brackets with its type.
    pub text: String,
    /// The structured result, where the tool gives one.
    pub structured: Option<Value>,
    /// The tool ran and failed, or refused its arguments; `text` says why.
    pub is_error: bool,
}

/// Why an MCP server could not be reached or asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is not one.
    #[error("MCP server URL {url:?} is not valid: {reason}; use http://HOST:PORT")]
    InvalidUrl {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No session could be opened.
    #[error("MCP server {url} cannot be reached: {reason}")]
    Connect {
        /// The endpoint.
        url: String,
        /// What happened, innermost cause included.
        reason: String,
    },
    /// The deadline passed first.
    #[error("MCP server {url} did not answer {operation} within {seconds} s")]
    Deadline {
        /// The endpoint.
        url: String,
        /// The operation, such as `tools/call add`.
        operation: String,
        /// The deadline in seconds.
        seconds: f64,
    },
    /// The server answered with an error, or the connection broke before its answer.
    #[error("MCP server {url} failed {operation}: {reason}")]
    Operation {
        /// The endpoint.
        url: String,
        /// The operation, such as `tools/call add`.
        operation: String,
        /// The server's message or what happened to the connection.
        reason: String,
    },
}

type Session = RunningService<RoleClient, ClientConfig>;

/// A client of one MCP server. Cheap to clone; clones share the session.
///
/// A TLS provider must be installed before the first use (`kaos_telemetry::install_crypto_provider`).
#[derive(Clone)]
pub struct McpClient {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Url,
    dialer: Arc<dyn Dialer>,
    session: Mutex<Option<Arc<Session>>>,
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient")
            .field("endpoint", &self.inner.endpoint.as_str())
            .finish_non_exhaustive()
    }
}

impl McpClient {
    /// A client of the server at `url`, with or without the path `/mcp`. Connects when first used.
    ///
    /// # Errors
    /// When `url` is no http(s) URL.
    pub fn new(url: &str, seams: &Seams) -> Result<Self, ClientError> {
        let inner = Inner {
            endpoint: endpoint(url)?,
            dialer: seams.dialer.clone(),
            session: Mutex::new(None),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A client of the server at `url`, connected.
    ///
    /// # Errors
    /// When `url` is no http(s) URL, or no session could be opened within `deadline`.
    pub async fn connect(url: &str, seams: &Seams, deadline: Duration) -> Result<Self, ClientError> {
        let client = Self::new(url, seams)?;
        client.within(deadline, "initialize", client.session()).await?;
        Ok(client)
    }

    /// The address asked, `/mcp` included, before the dialer.
    pub fn endpoint(&self) -> &Url {
        &self.inner.endpoint
    }

    /// Every tool of the server, in its order.
    ///
    /// # Errors
    /// When the server cannot be reached or does not answer within `deadline`.
    pub async fn list_tools(&self, deadline: Duration) -> Result<Vec<ToolInfo>, ClientError> {
        let operation = "tools/list";
        let list = async {
            let session = self.session().await?;
            let tools = match session.list_all_tools().await {
                // Listing has no effects: whatever happened, ask once more on a fresh session.
                Err(error) if broken(&error) => {
                    self.forget(&session).await;
                    self.session().await?.list_all_tools().await
                }
                answer => answer,
            };
            tools.map_err(|error| self.failed(operation, &error))
        };
        let tools = self.within(deadline, operation, list).await?;
        Ok(tools.into_iter().map(tool_info).collect())
    }

    /// Calls one tool. A tool that fails is an outcome with `is_error`, not an error.
    ///
    /// # Errors
    /// When the server cannot be reached, does not know the tool, or does not answer within `deadline`.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
    ) -> Result<ToolOutcome, ClientError> {
        let trace = TraceContext::default();
        self.call_tool_in(&trace, name, arguments, deadline).await
    }

    /// Calls one tool, as part of `trace`, which the request carries in its metadata (SEP-414).
    ///
    /// # Errors
    /// As [`McpClient::call_tool`].
    pub async fn call_tool_in(
        &self,
        trace: &TraceContext,
        name: &str,
        arguments: Map<String, Value>,
        deadline: Duration,
    ) -> Result<ToolOutcome, ClientError> {
        let operation = format!("tools/call {name}");
        let call = async {
            let session = self.session().await?;
            let mut request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
            for (field, value) in trace.fields() {
                request.meta_or_default().insert(field, value.into());
            }
            let result = match session.call_tool(request.clone()).await {
                Err(error) if broken(&error) => {
                    self.forget(&session).await;
                    if !never_arrived(&error) {
                        return Err(self.failed(&operation, &error));
                    }
                    self.session().await?.call_tool(request).await
                }
                answer => answer,
            };
            result.map_err(|error| self.failed(&operation, &error))
        };
        Ok(outcome(self.within(deadline, &operation, call).await?))
    }

    /// The open session, or a new one. Callers that arrive together wait for the same one.
    async fn session(&self) -> Result<Arc<Session>, ClientError> {
        let mut slot = self.inner.session.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.is_closed()) {
            return Ok(session.clone());
        }
        let session = Arc::new(self.open().await?);
        *slot = Some(session.clone());
        Ok(session)
    }

    /// Drops `broken` unless another caller has replaced it already.
    async fn forget(&self, broken: &Arc<Session>) {
        let mut slot = self.inner.session.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            *slot = None;
        }
    }

    async fn open(&self) -> Result<Session, ClientError> {
        let located = self.inner.dialer.locate(&self.inner.endpoint);
        let auto = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let session = match self.handshake(&located, auto).await {
            // The probe for the newest protocol puts older servers off in many ways (an uncorrelated
            // error, a bare 400): anything but a dead connection is worth the older handshake.
            Err(ref error) if !unreachable(error) => {
                self.handshake(&located, ClientLifecycleMode::Initialize).await
            }
            answer => answer,
        };
        let session = session.map_err(|error| ClientError::Connect {
            url: self.inner.endpoint.to_string(),
            reason: initialize_reason(&error),
        })?;
        // A list of tools is asked for in order to know what is true now.
        session
            .peer()
            .set_response_cache_config(ClientCacheConfig::disabled())
            .await;
        Ok(session)
    }

    async fn handshake(
        &self,
        located: &Url,
        mode: ClientLifecycleMode,
    ) -> Result<Session, ClientInitializeError> {
        let moved = *located != self.inner.endpoint;
        let builder = reqwest::Client::builder();
        let http = match (moved || is_near(located), located.scheme()) {
            (true, "http") => http_client(&NEAR, builder.no_proxy().tls_certs_only([])),
            (true, _) => http_client(&NEAR_ENCRYPTED, builder.no_proxy()),
            (false, _) => http_client(&OUTSIDE, builder),
        };
        let http = http.map_err(|error| {
            ClientInitializeError::ConnectionClosed(format!("the HTTP client could not be set up: {error}"))
        })?;
        let config = StreamableHttpClientTransportConfig::with_uri(located.as_str());
        let transport = StreamableHttpClientTransport::with_client(http, config);
        let identity = Implementation::new("kaos", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), identity)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .serve_with_lifecycle(transport, mode)
            .await
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        operation: &str,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let until = Instant::now() + deadline;
        tokio::time::timeout_at(until, work).await.unwrap_or_else(|_| {
            Err(ClientError::Deadline {
                url: self.inner.endpoint.to_string(),
                operation: operation.to_owned(),
                seconds: deadline.as_secs_f64(),
            })
        })
    }

    fn failed(&self, operation: &str, error: &ServiceError) -> ClientError {
        let reason = match error {
            ServiceError::McpError(error) => error.message.to_string(),
            ServiceError::TransportSend(error) => transport_reason(error.error.as_ref()),
            other => other.to_string(),
        };
        ClientError::Operation {
            url: self.inner.endpoint.to_string(),
            operation: operation.to_owned(),
            reason,
        }
    }
}

/// `url` with the path of the MCP endpoint.
fn endpoint(url: &str) -> Result<Url, ClientError> {
    let invalid = |reason: String| ClientError::InvalidUrl {
        url: url.to_owned(),
        reason,
    };
    let mut parsed = Url::parse(url.trim()).map_err(|error| invalid(error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(invalid(format!(
            "the scheme {:?} is not http or https",
            parsed.scheme()
        )));
    }
    let path = parsed.path().trim_end_matches('/');
    let path = if path.ends_with("/mcp") {
        path.to_owned()
    } else {
        format!("{path}/mcp")
    };
    parsed.set_path(&path);
    Ok(parsed)
}

type HttpFailure = StreamableHttpError<reqwest::Error>;

/// The session is of no use any more.
fn broken(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::TransportSend(_) | ServiceError::TransportClosed
    )
}

/// The request cannot have been acted on: no connection, or the server no longer knew the session.
fn never_arrived(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else {
        return false;
    };
    match error.error.downcast_ref::<HttpFailure>() {
        Some(HttpFailure::SessionExpired) => true,
        Some(HttpFailure::Client(error)) => error.is_connect(),
        // How servers from before the 404 rule refuse a session they do not know.
        Some(HttpFailure::UnexpectedServerResponse(text)) => text.starts_with("HTTP 400"),
        _ => false,
    }
}

fn unreachable(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            matches!(
                error.error.downcast_ref::<HttpFailure>(),
                Some(HttpFailure::Client(_))
            )
        }
        ClientInitializeError::LegacyFallbackFailed { .. } => true,
        _ => false,
    }
}

fn initialize_reason(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport_reason(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => initialize_reason(fallback),
        other => other.to_string(),
    }
}

/// The innermost cause of a failed connection, `Connection refused`; else the message itself.
fn transport_reason(error: &(dyn std::error::Error + 'static)) -> String {
    let Some(HttpFailure::Client(error)) = error.downcast_ref::<HttpFailure>() else {
        return error.to_string();
    };
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn tool_info(tool: Tool) -> ToolInfo {
    ToolInfo {
        name: tool.name.into_owned(),
        description: tool.description.map(|text| text.into_owned()).unwrap_or_default(),
        input_schema: Arc::unwrap_or_clone(tool.input_schema),
    }
}

fn outcome(result: CallToolResult) -> ToolOutcome {
    let mut parts: Vec<String> = result.content.iter().map(content_text).collect();
    if parts.is_empty() {
        parts.extend(result.structured_content.as_ref().map(Value::to_string));
    }
    ToolOutcome {
        text: parts.join("\n"),
        structured: result.structured_content,
        is_error: result.is_error.unwrap_or(false),
    }
}

fn content_text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[image {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio {}]", audio.mime_type),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
                format!(
                    "[file {uri} {}]",
                    mime_type.as_deref().unwrap_or("application/octet-stream")
                )
            }
            _ => "[resource]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[resource {}]", link.uri),
        _ => "[content of an unknown type]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_nearby_are_told_from_those_of_the_internet() {
        let near = |url: &str| is_near(&Url::parse(url).unwrap());
        for url in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://localhost",
            "http://m.default.svc.example.org:8000",
        ] {
            assert!(near(url), "{url}");
        }
        for url in ["https://api.openai.com/v1", "http://8.8.8.8"] {
            assert!(!near(url), "{url}");
        }
    }

    #[test]
    fn the_path_is_added_once() {
        for (given, asked) in [
            (
                "http://tools.default.svc:8000",
                "http://tools.default.svc:8000/mcp",
            ),
            ("http://tools:8000/", "http://tools:8000/mcp"),
            ("http://tools:8000/mcp/", "http://tools:8000/mcp"),
            (
                "https://example.com/team/mcp?key=1",
                "https://example.com/team/mcp?key=1",
            ),
            (
                "http://gateway/default/calculator",
                "http://gateway/default/calculator/mcp",
            ),
        ] {
            assert_eq!(endpoint(given).unwrap().as_str(), asked);
        }
    }

    #[test]
    fn an_unusable_url_is_named_with_the_fix() {
        assert_eq!(
            endpoint("tools:8000").unwrap_err().to_string(),
            "MCP server URL \"tools:8000\" is not valid: the scheme \"tools\" is not http or https; use \
             http://HOST:PORT"
        );
        assert!(
            endpoint("calculator")
                .unwrap_err()
                .to_string()
                .contains("\"calculator\" is not valid")
        );
    }

    #[test]
    fn content_that_is_not_text_is_named() {
        let result = CallToolResult::success(vec![
            ContentBlock::text("a chart:"),
            ContentBlock::image("aGk=", "image/png"),
            ContentBlock::resource(ResourceContents::blob("aGk=", "tool://plot/result")),
        ]);
        let outcome = outcome(result);
        assert_eq!(
            outcome.text,
            "a chart:\n[image image/png]\n[file tool://plot/result application/octet-stream]"
        );
        assert!(!outcome.is_error);
    }

    #[test]
    fn a_result_with_only_structure_is_still_text_for_a_model() {
        let mut result = CallToolResult::structured(serde_json::json!({"sum": 3}));
        result.content.clear();
        let outcome = outcome(result);
        assert_eq!(outcome.text, "{\"sum\":3}");
        assert_eq!(outcome.structured, Some(serde_json::json!({"sum": 3})));
    }
}
