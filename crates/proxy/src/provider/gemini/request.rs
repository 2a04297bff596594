//! From a chat completion's request to one of generateContent.

use std::collections::BTreeMap;

use kaos_openai::{ChatRequest, Content, ContentPart, Extra, Message, Role, Tool, ToolCall};
use serde_json::{Map, Value, json};

use super::EXTRA;
use crate::{
    error::Failure,
    provider::{
        Remote,
        images::{data_url, guessed},
        parameters::{Parameters, ToolChoice, arguments},
        turns::{Turns, unknown_role},
    },
};

/// What stands for the signature of a call that this family of models insists on and that was lost on the way,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const UNSIGNED: &str = "skip_thought_signature_validator";
const INSISTING: &str = "gemini-3";

/// Parameters that go into `generationConfig` with the values they have, by both APIs' names.
const GENERATION: [(&str, &str); 8] = [
    ("temperature", "temperature"),
    ("top_p", "topP"),
    ("top_k", "topK"),
    ("n", "candidateCount"),
    ("seed", "seed"),
    ("presence_penalty", "presencePenalty"),
    ("frequency_penalty", "frequencyPenalty"),
    ("top_logprobs", "logprobs"),
];

pub(super) fn body(remote: &Remote, request: ChatRequest, model: &str) -> Result<Value, Failure> {
    let mut parameters = Parameters::new(request.extra);
    let mut body = Map::new();
    let (system, contents) = conversation(request.messages, model.starts_with(INSISTING))?;
    if !system.is_empty() {
        body.insert("systemInstruction".to_owned(), json!({ "parts": system }));
    }
    body.insert("contents".to_owned(), contents.into());
    if !request.tools.is_empty() {
        let tools = request
            .tools
            .into_iter()
            .map(tool)
            .collect::<Result<Vec<_>, _>>()?;
        body.insert("tools".to_owned(), json!([{ "functionDeclarations": tools }]));
        if let Some(choice) = request.tool_choice.filter(|choice| !choice.is_null()) {
            let calling = match ToolChoice::read(&choice)? {
                ToolChoice::Auto => json!({"mode": "AUTO"}),
                ToolChoice::None => json!({"mode": "NONE"}),
                ToolChoice::Required => json!({"mode": "ANY"}),
                ToolChoice::One(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
            };
            body.insert(
                "toolConfig".to_owned(),
                json!({ "functionCallingConfig": calling }),
            );
        }
    }
    let generation = generation(&mut parameters)?;
    if !generation.is_empty() {
        body.insert("generationConfig".to_owned(), generation.into());
    }
    for (name, value) in parameters.rest(remote)? {
        match (body.get_mut(&name), value) {
            // The provider's own options beside those that were translated.
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                body.insert(name, value);
            }
        }
    }
    Ok(Value::Object(body))
}

fn generation(parameters: &mut Parameters) -> Result<Extra, Failure> {
    let mut generation = Extra::new();
    if let Some(limit) = parameters.max_tokens() {
        generation.insert("maxOutputTokens".to_owned(), limit);
    }
    for (name, here) in GENERATION {
        if let Some(value) = parameters.take(name) {
            generation.insert(here.to_owned(), value);
        }
    }
    if parameters.take("logprobs") == Some(Value::Bool(true)) {
        generation.insert("responseLogprobs".to_owned(), true.into());
    }
    if let Some(stop) = parameters.stop() {
        generation.insert("stopSequences".to_owned(), stop);
    }
    if let Some(format) = parameters.take("response_format") {
        let json = "application/json";
        match format["type"].as_str() {
            Some("text") => {}
            Some("json_object") => {
                generation.insert("responseMimeType".to_owned(), json.into());
            }
            Some("json_schema") => {
                generation.insert("responseMimeType".to_owned(), json.into());
                let schema = format["json_schema"]["schema"].clone();
                generation.insert("responseJsonSchema".to_owned(), schema);
            }
            _ => {
                return Err(Failure::parameter(
                    "response_format",
                    "response_format.type must be text, json_object or json_schema",
                ));
            }
        }
    }
    Ok(generation)
}

/// The instructions, and the turns of the two sides.
fn conversation(messages: Vec<Message>, insisting: bool) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let mut system = Vec::new();
    let mut turns = Turns::default();
    // Results name their function here, and only their call with OpenAI.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (at, message) in messages.into_iter().enumerate() {
        let (side, parts) = match message.role {
            Role::System | Role::Developer => {
                system.extend(content(message.content, at)?);
                continue;
            }
            Role::User => ("user", content(message.content, at)?),
            Role::Tool => ("user", vec![result(&message, &names, at)?]),
            Role::Assistant => {
                let mut parts = content(message.content, at)?;
                for (place, call) in message.tool_calls.into_iter().enumerate() {
                    names.insert(call.id.clone(), call.function.name.clone());
                    parts.push(self::call(&call, insisting && place == 0));
                }
                ("model", parts)
            }
            Role::Other(role) => return Err(unknown_role(&role, at)),
        };
        turns.say(side, parts);
    }
    Ok((system, turns.with_parts_in("parts")))
}

fn call(call: &ToolCall, insisting: bool) -> Value {
    let mut part = json!({
        "functionCall": {"name": call.function.name, "args": arguments(&call.function.arguments)},
    });
    let signature = call
        .extra
        .get(EXTRA)
        .and_then(|extra| extra.pointer("/google/thought_signature"));
    match signature.and_then(Value::as_str) {
        Some(signature) => part["thoughtSignature"] = signature.into(),
        None if insisting => part["thoughtSignature"] = UNSIGNED.into(),
        None => {}
    }
    part
}

fn result(message: &Message, names: &BTreeMap<String, String>, at: usize) -> Result<Value, Failure> {
    let id = message.tool_call_id.as_deref().unwrap_or_default();
    let Some(name) = names.get(id).or(message.name.as_ref()) else {
        let path = format!("messages[{at}].tool_call_id");
        let message = format!("{path} is {id:?}, which no call before it has");
        return Err(Failure::parameter(&path, message));
    };
    let text = message.text();
    // The API takes an object.
    let response = match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => json!({ "result": text }),
    };
    Ok(json!({"functionResponse": {"name": name, "response": response}}))
}

fn content(content: Option<Content>, at: usize) -> Result<Vec<Value>, Failure> {
    match content {
        None => Ok(Vec::new()),
        Some(Content::Text(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Content::Text(text)) => Ok(vec![json!({ "text": text })]),
        Some(Content::Parts(parts)) => {
            let parts = parts.into_iter().enumerate();
            let parts = parts.map(|(place, item)| part(item, at, place));
            parts.filter_map(Result::transpose).collect()
        }
    }
}

fn part(part: ContentPart, at: usize, place: usize) -> Result<Option<Value>, Failure> {
    let path = format!("messages[{at}].content[{place}]");
    let field = |name: &str| part.extra.get(name).unwrap_or(&Value::Null);
    let inline = |kind: &str, data: &str| json!({"inlineData": {"mimeType": kind, "data": data}});
    match part.kind.as_str() {
        "text" | "refusal" => {
            let text = part.text.as_deref().or(field("refusal").as_str());
            let text = text.filter(|text| !text.is_empty());
            Ok(text.map(|text| json!({ "text": text })))
        }
        "image_url" => {
            let image = field("image_url");
            let url = image["url"].as_str().or(image.as_str()).unwrap_or_default();
            match data_url(url) {
                Some((kind, data)) => Ok(Some(inline(kind, data))),
                None if ["https://", "http://", "gs://"]
                    .iter()
                    .any(|scheme| url.starts_with(scheme)) =>
                {
                    Ok(Some(
                        json!({"fileData": {"mimeType": guessed(url), "fileUri": url}}),
                    ))
                }
                None => {
                    let message = format!("{path}.image_url.url is neither an http nor a base64 data URL");
                    Err(Failure::parameter(&path, message))
                }
            }
        }
        "input_audio" => {
            let audio = field("input_audio");
            let (data, format) = (audio["data"].as_str(), audio["format"].as_str());
            let (Some(data), Some(format)) = (data, format) else {
                let message = format!("{path}.input_audio needs data and format");
                return Err(Failure::parameter(&path, message));
            };
            Ok(Some(inline(&format!("audio/{format}"), data)))
        }
        "file" => match field("file")["file_data"].as_str().and_then(data_url) {
            Some((kind, data)) => Ok(Some(inline(kind, data))),
            None => {
                let message =
                    format!("{path}.file.file_data is no base64 data URL, which is all that can be sent on");
                Err(Failure::parameter(&path, message))
            }
        },
        other => {
            let message = format!("{path} is of the type {other:?}, which the provider gemini has not");
            Err(Failure::parameter(&path, message))
        }
    }
}

fn tool(tool: Tool) -> Result<Value, Failure> {
    if tool.kind != "function" {
        let message = format!(
            "a tool is of the type {:?}; the provider gemini is offered functions",
            tool.kind
        );
        return Err(Failure::parameter("tools", message));
    }
    let function = tool.function;
    let mut offered = json!({"name": function.name});
    if let Some(description) = function.description {
        offered["description"] = description.into();
    }
    // Takes JSON schemas as they are, which `parameters` does not.
    if let Some(schema) = function.parameters.filter(Value::is_object) {
        offered["parametersJsonSchema"] = schema;
    }
    Ok(offered)
}
