//! From a chat completion's request to one of Messages.

use kaos_openai::{ChatRequest, Content, ContentPart, Extra, Message, Role, Tool, ToolCall};
use serde_json::{Map, Value, json};

use crate::{
    error::Failure,
    provider::{
        Remote,
        images::data_url,
        parameters::{Parameters, ToolChoice, arguments},
        turns::{Turns, unknown_role},
    },
};

/// The API wants a limit; this is LiteLLM's where the request has none.
const MAX_TOKENS: u64 = 4096;

pub(super) fn body(remote: &Remote, request: ChatRequest, model: &str) -> Result<Value, Failure> {
    let mut parameters = Parameters::new(request.extra);
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    let limit = parameters.max_tokens().unwrap_or_else(|| MAX_TOKENS.into());
    body.insert("max_tokens".to_owned(), limit);
    let (system, messages) = conversation(request.messages)?;
    if !system.is_empty() {
        body.insert("system".to_owned(), system.into());
    }
    body.insert("messages".to_owned(), messages.into());
    if !request.tools.is_empty() {
        let tools = request
            .tools
            .into_iter()
            .map(tool)
            .collect::<Result<Vec<_>, _>>()?;
        body.insert("tools".to_owned(), tools.into());
    }
    let parallel = parameters.take("parallel_tool_calls");
    if let Some(choice) = tool_choice(request.tool_choice.as_ref(), parallel.as_ref())?
        && body.contains_key("tools")
    {
        body.insert("tool_choice".to_owned(), choice);
    }
    for name in ["temperature", "top_p"] {
        if let Some(value) = parameters.take(name) {
            body.insert(name.to_owned(), value);
        }
    }
    if let Some(stop) = parameters.stop() {
        body.insert("stop_sequences".to_owned(), stop);
    }
    if let Some(user) = parameters.take("user") {
        body.insert("metadata".to_owned(), json!({ "user_id": user }));
    }
    if let Some(format) = parameters.take("response_format") {
        match format["type"].as_str() {
            Some("text") => {}
            Some("json_schema") => {
                let schema = &format["json_schema"]["schema"];
                body.insert(
                    "output_config".to_owned(),
                    json!({"format": {"type": "json_schema", "schema": schema}}),
                );
            }
            // The API has no JSON without a schema.
            _ if remote.drop_params => {}
            _ => {
                return Err(Failure::parameter(
                    "response_format",
                    "the provider anthropic has response_format of the types text and json_schema only; give a schema",
                ));
            }
        }
    }
    if request.stream {
        body.insert("stream".to_owned(), true.into());
    }
    for (name, value) in parameters.rest(remote)? {
        body.entry(name).or_insert(value);
    }
    Ok(Value::Object(body))
}

/// The instructions, and the turns of the two sides, which alternate.
fn conversation(messages: Vec<Message>) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let mut system = Vec::new();
    let mut turns = Turns::default();
    for (at, message) in messages.into_iter().enumerate() {
        let (side, blocks) = match message.role {
            Role::System | Role::Developer => {
                system.extend(content(message.content, at)?);
                continue;
            }
            Role::User => ("user", content(message.content, at)?),
            Role::Tool => ("user", vec![tool_result(message, at)?]),
            Role::Assistant => ("assistant", assistant(message, at)?),
            Role::Other(role) => return Err(unknown_role(&role, at)),
        };
        turns.say(side, blocks);
    }
    Ok((system, turns.with_parts_in("content")))
}

fn assistant(message: Message, at: usize) -> Result<Vec<Value>, Failure> {
    // What the model thought goes back to it, signed; it insists where it called tools.
    let mut blocks = match message.extra.get("thinking_blocks") {
        Some(Value::Array(thoughts)) => thoughts.clone(),
        _ => Vec::new(),
    };
    blocks.extend(content(message.content, at)?);
    blocks.extend(message.tool_calls.into_iter().map(|ToolCall { id, function, .. }| {
        json!({
            "type": "tool_use", "id": id, "name": function.name, "input": arguments(&function.arguments),
        })
    }));
    Ok(blocks)
}

fn tool_result(message: Message, at: usize) -> Result<Value, Failure> {
    let id = message.tool_call_id.unwrap_or_default();
    let mut result = json!({"type": "tool_result", "tool_use_id": id});
    let mut blocks = content(message.content, at)?;
    // The cache's mark of the only part is one of the result.
    if let [Value::Object(block)] = blocks.as_mut_slice()
        && let Some(mark) = block.shift_remove("cache_control")
    {
        result["cache_control"] = mark;
    }
    result["content"] = blocks.into();
    Ok(result)
}

fn content(content: Option<Content>, at: usize) -> Result<Vec<Value>, Failure> {
    let parts = match content {
        None => Vec::new(),
        Some(Content::Text(text)) => vec![ContentPart {
            kind: "text".to_owned(),
            text: Some(text),
            extra: Extra::new(),
        }],
        Some(Content::Parts(parts)) => parts,
    };
    let mut blocks = Vec::with_capacity(parts.len());
    for (place, mut part) in parts.into_iter().enumerate() {
        let mark = part.extra.shift_remove("cache_control");
        let Some(mut block) = block(part, at, place)? else {
            continue;
        };
        if let Some(mark) = mark {
            block["cache_control"] = mark;
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// A part of a message; `None` for an empty text, which the API refuses.
fn block(part: ContentPart, at: usize, place: usize) -> Result<Option<Value>, Failure> {
    let path = format!("messages[{at}].content[{place}]");
    match part.kind.as_str() {
        "text" | "refusal" => {
            let text = part
                .text
                .or_else(|| Some(part.extra.get("refusal")?.as_str()?.to_owned()));
            let text = text.filter(|text| !text.trim().is_empty());
            Ok(text.map(|text| json!({"type": "text", "text": text})))
        }
        "image_url" => {
            let image = part.extra.get("image_url").unwrap_or(&Value::Null);
            let url = image["url"].as_str().or(image.as_str()).unwrap_or_default();
            let source = match data_url(url) {
                Some((kind, data)) => json!({"type": "base64", "media_type": kind, "data": data}),
                None if url.starts_with("https://") || url.starts_with("http://") => {
                    json!({"type": "url", "url": url})
                }
                None => {
                    let message = format!("{path}.image_url.url is neither an http nor a base64 data URL");
                    return Err(Failure::parameter(&path, message));
                }
            };
            Ok(Some(json!({"type": "image", "source": source})))
        }
        "file" => {
            let data = part.extra.get("file").and_then(|file| file["file_data"].as_str());
            let Some((kind, data)) = data.and_then(data_url) else {
                let message =
                    format!("{path}.file.file_data is no base64 data URL, which is all that can be sent on");
                return Err(Failure::parameter(&path, message));
            };
            let source = json!({"type": "base64", "media_type": kind, "data": data});
            Ok(Some(json!({"type": "document", "source": source})))
        }
        other => {
            let message = format!("{path} is of the type {other:?}, which the provider anthropic has not");
            Err(Failure::parameter(&path, message))
        }
    }
}

fn tool(tool: Tool) -> Result<Value, Failure> {
    if tool.kind != "function" {
        let message = format!(
            "a tool is of the type {:?}; the provider anthropic is offered functions",
            tool.kind
        );
        return Err(Failure::parameter("tools", message));
    }
    let function = tool.function;
    let schema = function
        .parameters
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let mut offered = json!({"name": function.name, "input_schema": schema});
    if let Some(description) = function.description {
        offered["description"] = description.into();
    }
    if function.extra.get("strict") == Some(&Value::Bool(true)) {
        offered["strict"] = true.into();
    }
    let mark = tool
        .extra
        .get("cache_control")
        .or(function.extra.get("cache_control"));
    if let Some(mark) = mark {
        offered["cache_control"] = mark.clone();
    }
    Ok(offered)
}

fn tool_choice(choice: Option<&Value>, parallel: Option<&Value>) -> Result<Option<Value>, Failure> {
    let choice = choice
        .filter(|choice| !choice.is_null())
        .map(ToolChoice::read)
        .transpose()?;
    let one_by_one = parallel == Some(&Value::Bool(false));
    let mut said = match choice {
        None if !one_by_one => return Ok(None),
        None | Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::None) => return Ok(Some(json!({"type": "none"}))),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::One(name)) => json!({"type": "tool", "name": name}),
    };
    if one_by_one {
        said["disable_parallel_tool_use"] = true.into();
    }
    Ok(Some(said))
}
