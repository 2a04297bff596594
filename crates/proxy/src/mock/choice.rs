//! Which tool the mock calls: the one that shares most words with the message.

use kaos_openai::{ChatRequest, Tool};
use serde_json::Value;

use super::words::{Piece, alike, is_common, pieces, split_name};

/// A word of the tool's name says more than one of its description.
const NAME: u32 = 3;
const PARAMETER: u32 = 2;
const DESCRIPTION: u32 = 1;

/// What is to be called.
pub(super) enum Choice<'a> {
    /// This tool.
    Tool(&'a Tool),
    /// Nothing.
    None,
    /// The request demands a tool that it does not offer.
    Unknown(String),
}

/// Chooses among the tools that `request` offers, as far as it leaves the choice. Of equals the first wins.
pub(super) fn choose<'a>(request: &'a ChatRequest, text: &str) -> Choice<'a> {
    let required = match &request.tool_choice {
        Some(Value::String(choice)) if choice == "none" => return Choice::None,
        Some(Value::String(choice)) => choice == "required",
        Some(choice) => {
            let name = choice["function"]["name"].as_str().unwrap_or_default();
            let named = request.tools.iter().find(|tool| tool.function.name == name);
            return named.map_or_else(|| Choice::Unknown(name.to_owned()), Choice::Tool);
        }
        None => false,
    };
    let said: Vec<String> = pieces(text)
        .into_iter()
        .filter_map(|piece| match piece {
            Piece::Word(word) if !is_common(&word) => Some(word),
            _ => None,
        })
        .collect();
    let mut best: Option<(u32, &Tool)> = None;
    for tool in &request.tools {
        let score = score(tool, &said);
        if (score > 0 || required) && best.is_none_or(|(highest, _)| score > highest) {
            best = Some((score, tool));
        }
    }
    best.map_or(Choice::None, |(_, tool)| Choice::Tool(tool))
}

/// The sum over the message's words of what each says about the tool.
fn score(tool: &Tool, said: &[String]) -> u32 {
    let function = &tool.function;
    let name = split_name(&function.name);
    let description = split_name(function.description.as_deref().unwrap_or_default());
    let properties = function
        .parameters
        .as_ref()
        .and_then(|schema| schema["properties"].as_object());
    let parameters: Vec<String> = properties
        .into_iter()
        .flat_map(|all| all.keys())
        .flat_map(|key| split_name(key))
        .collect();
    let sources = [
        (NAME, &name),
        (PARAMETER, &parameters),
        (DESCRIPTION, &description),
    ];
    let weight = |word: &String| {
        let found = sources
            .iter()
            .find(|(_, words)| words.iter().any(|own| !is_common(own) && alike(own, word)));
        found.map_or(0, |(weight, _)| *weight)
    };
    said.iter().map(weight).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(text: &str) -> Option<String> {
        let tool = |name: &str, description: &str, parameters: &[&str]| {
            let properties: serde_json::Map<String, Value> = parameters
                .iter()
                .map(|key| ((*key).to_owned(), json!({"type": "string"})))
                .collect();
            Tool::function(
                name,
                Some(description.to_owned()),
                json!({"type": "object", "properties": properties}),
            )
        };
        let request = ChatRequest {
            tools: vec![
                tool("add", "Add two numbers.", &["a", "b"]),
                tool("multiply", "Multiply two numbers: a times b.", &["a", "b"]),
                tool("get_weather", "The forecast for a city.", &["city"]),
            ],
            ..ChatRequest::default()
        };
        match choose(&request, text) {
            Choice::Tool(tool) => Some(tool.function.name.clone()),
            Choice::None | Choice::Unknown(_) => None,
        }
    }

    #[test]
    fn the_words_of_the_message_decide() {
        for (text, name) in [
            ("What is 3 times 4?", Some("multiply")),
            ("multiply 3 and 4", Some("multiply")),
            ("Add 3 and 4 numbers", Some("add")),
            ("How is the weather in Paris?", Some("get_weather")),
            ("Which city is the largest?", Some("get_weather")),
            ("two numbers", Some("add")),
            ("Who are you, and what is this?", None),
            ("", None),
        ] {
            assert_eq!(chosen(text).as_deref(), name, "{text}");
        }
    }
}
