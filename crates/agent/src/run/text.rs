//! Tools for models that take none: the system message describes them, and fenced blocks in an answer call them.
//!
//! ````text
//! ```tool_call
//! {"tool": "add", "arguments": {"a": 1, "b": 2}}
//! ```
//! ```delegate
//! {"agent": "worker", "task": "dig"}
//! ```
//! ````
//!
//! The object may begin on the line of the fence, an answer may have several blocks, and the last may lack its
//! closing fence, as models leave it out where they stop. What is not such an object is text like any other.

use std::ops::Range;

use kaos_openai::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Deserializer, Map, Value};

use super::Delegate;

/// What a fence is made of.
const FENCE: &str = "```";
/// What a block begins with.
const TOOL: &str = "```tool_call";
const AGENT: &str = "```delegate";

/// How the model calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Calling {
    /// By the API: the request lists the tools, the answer has calls.
    #[default]
    Native,
    /// By blocks in its text.
    Text,
}

/// What a block asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    /// A call of the tool `name`, with arguments as they are written.
    Tool { name: String, arguments: String },
    /// A call of the tool that hands tasks to the agent `name`.
    Agent { name: String, arguments: String },
}

/// The blocks of a text, in order, each with where it is.
pub(crate) fn blocks(text: &str) -> Vec<(Range<usize>, Asked)> {
    let mut blocks = Vec::new();
    let mut from = 0;
    while let Some((start, marker)) = opening(text, from) {
        let body = start + marker.len();
        from = match object(text, body) {
            Some((object, end)) => {
                let end = closing(text, end);
                blocks.push((start..end, asked(marker, object)));
                end
            }
            None => body,
        };
    }
    blocks
}

/// A text without its blocks.
pub(crate) fn beside(text: &str, blocks: &[(Range<usize>, Asked)]) -> String {
    let mut beside = String::new();
    let mut from = 0;
    for (range, _) in blocks {
        beside.push_str(text.get(from..range.start).unwrap_or_default());
        from = range.end;
    }
    beside.push_str(text.get(from..).unwrap_or_default());
    beside
}

/// Where the next block may begin, and with what.
fn opening(text: &str, from: usize) -> Option<(usize, &'static str)> {
    let rest = text.get(from..)?;
    let found = [TOOL, AGENT].map(|marker| Some((from + rest.find(marker)?, marker)));
    found.into_iter().flatten().min()
}

/// The object that begins at `from`, and where it ends.
fn object(text: &str, from: usize) -> Option<(Map<String, Value>, usize)> {
    let mut objects = Deserializer::from_str(text.get(from..)?).into_iter();
    let object = objects.next()?.ok()?;
    Some((object, from + objects.byte_offset()))
}

/// Where a block ends whose object ends at `from`.
fn closing(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    match rest.trim_start().strip_prefix(FENCE) {
        Some(after) => text.len() - after.len(),
        None => from,
    }
}

fn asked(marker: &str, mut object: Map<String, Value>) -> Asked {
    let named = |value: Option<Value>| match value {
        Some(Value::String(name)) => name,
        _ => String::new(),
    };
    if marker == TOOL {
        return Asked::Tool {
            name: named(object.remove("tool")),
            arguments: written(&object.remove("arguments").unwrap_or_default()),
        };
    }
    Asked::Agent {
        name: named(object.remove("agent")),
        arguments: written(&Value::Object(object)),
    }
}

/// Arguments as a model writes them in a call of the API.
pub(crate) fn written(arguments: &Value) -> String {
    match arguments {
        Value::Null => String::new(),
        Value::String(written) => written.clone(),
        other => other.to_string(),
    }
}

/// The text of an answer as it comes, of which nothing is told that may be a call.
#[derive(Debug, Default)]
pub(crate) struct Held {
    text: String,
    /// How much of it was told, in bytes.
    told: usize,
}

impl Held {
    /// What can be told now that `piece` has come.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        let end = match opening(&self.text, self.told) {
            Some((start, _)) => start,
            None => self.text.len() - begun(&self.text),
        };
        let told = self.text.get(self.told..end).unwrap_or_default().to_owned();
        self.told = end.max(self.told);
        told
    }

    /// What can be told once nothing more comes.
    pub(crate) fn finish(self) -> String {
        let rest = self.text.get(self.told..).unwrap_or_default();
        let blocks = blocks(rest);
        let beside = beside(rest, &blocks);
        if blocks.is_empty() {
            beside
        } else {
            beside.trim_end().to_owned()
        }
    }
}

/// How many bytes at the end of a text may be the beginning of a block.
fn begun(text: &str) -> usize {
    let begins = |length: &usize| {
        let end = text.get(text.len() - length..);
        end.is_some_and(|end| [TOOL, AGENT].iter().any(|marker| marker.starts_with(end)))
    };
    let longest = TOOL.len().max(AGENT.len()).min(text.len());
    (1..=longest).rev().find(begins).unwrap_or_default()
}

/// What the system message says of the tools and the agents, and of what the next answer has to be.
pub(super) fn description(tools: &[Tool], delegates: &[Delegate], demand: Option<&str>) -> String {
    let mut paragraphs = Vec::new();
    let own = tools.iter().filter(|tool| {
        delegates
            .iter()
            .all(|delegate| delegate.tool != tool.function.name)
    });
    let listed: Vec<String> = own.map(listed).collect();
    if !listed.is_empty() {
        paragraphs.push(format!("## Available Tools\n{}", listed.join("\n")));
        paragraphs.push(format!(
            "To call a tool, answer with a block of this form, and say nothing after it. The next message has \
             its result.\n{TOOL}\n{{\"tool\": \"NAME\", \"arguments\": {{\"PARAMETER\": \"VALUE\"}}}}\n{FENCE}"
        ));
    }
    let there = delegates
        .iter()
        .filter(|delegate| delegate.unavailable().is_none());
    let agents: Vec<String> = there
        .map(|delegate| format!("- **{}**: {}", delegate.agent, delegate.description.trim()))
        .collect();
    if !agents.is_empty() {
        paragraphs.push(format!(
            "## Available Agents for Delegation\n{}",
            agents.join("\n")
        ));
        paragraphs.push(format!(
            "To hand a task to an agent, answer with a block of this form, and say nothing after it. The next \
             message has its answer.\n{AGENT}\n{{\"agent\": \"NAME\", \"task\": \"WHAT IT IS TO DO\"}}\n{FENCE}"
        ));
    }
    paragraphs.extend(demand.map(str::to_owned));
    paragraphs.join("\n\n")
}

fn listed(tool: &Tool) -> String {
    let function = &tool.function;
    let description = function.description.as_deref().unwrap_or_default().trim();
    let parameters = function.parameters.as_ref().map(|schema| {
        let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
        format!("\n  Parameters: {schema}")
    });
    format!(
        "- **{}**: {description}{}",
        function.name,
        parameters.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use kaos_fuzz::Corpus;
    use proptest::prelude::*;

    use super::*;

    fn tool(name: &str, arguments: &str) -> Asked {
        Asked::Tool {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    fn agent(name: &str, arguments: &str) -> Asked {
        Asked::Agent {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    /// What a text asks for, and what it says beside that.
    fn read(text: &str) -> (Vec<Asked>, String) {
        let found = blocks(text);
        let beside = beside(text, &found);
        (found.into_iter().map(|(_, asked)| asked).collect(), beside)
    }

    #[test]
    fn blocks_are_found_however_they_are_fenced() {
        let add = || tool("add", r#"{"a":1}"#);
        for text in [
            "```tool_call\n{\"tool\": \"add\", \"arguments\": {\"a\": 1}}\n```",
            "```tool_call {\"tool\": \"add\", \"arguments\": {\"a\": 1}}```",
            "```tool_call{\"tool\": \"add\", \"arguments\": {\"a\": 1}}\n```",
            "```tool_call\r\n{\n \"tool\": \"add\",\n \"arguments\": {\"a\": 1}\n}\r\n\r\n```",
            "```tool_call\n{\"tool\": \"add\", \"arguments\": {\"a\": 1}}",
            "```tool_call\n{\"tool\": \"add\", \"arguments\": \"{\\\"a\\\":1}\"}\n```",
        ] {
            assert_eq!(read(text), (vec![add()], String::new()), "{text}");
        }
        let text = "Both:\n```tool_call\n{\"tool\": \"add\", \"arguments\": {\"a\": 1}}\n```\n```delegate\n\
                    {\"agent\": \"bob\", \"task\": \"a ``` b\"}\n```\nSo.";
        let bob = agent("bob", r#"{"task":"a ``` b"}"#);
        assert_eq!(read(text), (vec![add(), bob], "Both:\n\n\nSo.".to_owned()));
    }

    #[test]
    fn what_is_no_call_is_text() {
        for text in [
            "```tool_call\n{\"tool\": \n```",
            "```tool_call\nadd(1)\n```",
            "```tool_call",
            "```json\n{\"tool\": \"add\"}\n```",
            "``` tool_call\n{}\n```",
            "```tool_calls\n{}\n```",
            "```delegate\n[1]\n```",
        ] {
            assert_eq!(read(text), (Vec::new(), text.to_owned()), "{text}");
        }
        let then = "```tool_call\nno\n```\n```tool_call\n{\"tool\": \"add\"}\n```";
        assert_eq!(read(then).0, [tool("add", "")]);
        assert_eq!(read("```tool_call\n{}\n```").0, [tool("", "")]);
        assert_eq!(
            read("```delegate\n{\"task\": 1}\n```").0,
            [agent("", r#"{"task":1}"#)]
        );
    }

    #[test]
    fn an_answer_is_told_as_it_comes_but_for_its_calls() {
        let mut held = Held::default();
        let told: Vec<String> = [
            "Let me ",
            "see `x`. ``",
            "`rust\n``",
            "`tool_",
            "call\n{\"tool\":",
            "\"a\"}\n```\n",
        ]
        .map(|piece| held.push(piece))
        .to_vec();
        assert_eq!(told, ["Let me ", "see `x`. ", "```rust\n", "", "", ""]);
        assert_eq!(held.finish(), "");
        let mut held = Held::default();
        assert_eq!(held.push("a ```tool_call oh"), "a ");
        assert_eq!(held.push(" dear"), "");
        assert_eq!(held.finish(), "```tool_call oh dear");
    }

    const PIECES: &str = "(```tool_call|```delegate|```|`|\\{|\\}|\"tool\":|\"a\"|,|\n| |é|.){0,12}";

    #[test]
    fn fuzzed_blocks_lose_nothing() {
        let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/text"));
        let words = [
            TOOL,
            AGENT,
            FENCE,
            "``",
            "\"tool\":",
            "\"arguments\":",
            "\"agent\":",
            "{}",
        ];
        corpus.with_words(&words).fuzz_text(|text| {
            let found = blocks(text);
            let mut from = 0;
            for (range, _) in &found {
                assert!(from <= range.start && range.start < range.end, "{found:?}");
                assert!(
                    text.get(range.clone())
                        .is_some_and(|block| block.starts_with(FENCE)),
                    "{found:?}"
                );
                from = range.end;
            }
            let mut held = Held::default();
            let mut told: String = text
                .split_inclusive(['`', ' '])
                .map(|piece| held.push(piece))
                .collect();
            told.push_str(&held.finish());
            let beside = beside(text, &found);
            if found.is_empty() {
                assert_eq!(told, text);
            } else {
                assert!(
                    beside.starts_with(&told) && beside.trim_end() == told.trim_end(),
                    "{told:?}"
                );
            }
        });
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_nothing_is_lost(pieces in proptest::collection::vec(PIECES, 0..8)) {
            let text = pieces.concat();
            let found = blocks(&text);
            let mut told = String::new();
            let mut held = Held::default();
            for piece in &pieces {
                told.push_str(&held.push(piece));
            }
            told.push_str(&held.finish());
            if found.is_empty() {
                prop_assert_eq!(told, text);
            } else {
                let beside = beside(&text, &found);
                prop_assert!(beside.starts_with(&told) && beside.trim_end() == told.trim_end());
            }
        }

        #[test]
        fn any_object_is_read_as_it_was_written(name in ".{0,20}", value in ".{0,40}", beside in "[a-z \n]{0,20}") {
            let object = serde_json::json!({"tool": name, "arguments": {"x": value}});
            let text = format!("{beside}```tool_call\n{object}\n```");
            let arguments = serde_json::json!({"x": value}).to_string();
            prop_assert_eq!(read(&text), (vec![tool(&name, &arguments)], beside));
        }
    }
}
