//! The wire types of the OpenAI Chat Completions API and its event streams, used by both sides of it: the
//! agent and the model proxy each answer this API and call it.
//!
//! Reading is lenient, because the servers of this API differ: what this project does not interpret is kept
//! in `extra` and written out again unchanged, `null` counts as absent, and names that are not known
//! (roles, finish reasons, content parts) are carried along. Writing is strict: the shapes of
//! <https://platform.openai.com/docs/api-reference/chat>.
//!
//! Nothing here does I/O: [`sse::Decoder`] is fed bytes, [`ChunkAccumulator`] is fed chunks.

mod accumulate;
mod chunk;
mod error;
#[cfg(test)]
mod fuzz;
mod lenient;
mod message;
mod models;
mod request;
mod response;
pub mod sse;

pub use accumulate::ChunkAccumulator;
pub use chunk::{ChatChunk, ChunkChoice, Delta, FunctionDelta, StreamEvent, ToolCallDelta, UnreadableEvent};
pub use error::{ErrorBody, ErrorResponse};
pub use message::{Content, ContentPart, FunctionCall, Message, Role, ToolCall};
pub use models::{Model, ModelList};
pub use request::{ChatRequest, FunctionDefinition, StreamOptions, Tool};
pub use response::{ChatResponse, Choice, FinishReason, Usage};

/// Fields that are carried along without being interpreted.
pub type Extra = serde_json::Map<String, serde_json::Value>;
