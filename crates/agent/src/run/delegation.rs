//! Handing a task to another agent: a call of a tool as the model sees it, a request that carries the
//! conversation as the other agent does.

use std::collections::BTreeSet;

use kaos_openai::{ChatRequest, Content, Message, Role, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{TOOL_RESULT, ToolResult, prompt::TASK_DELEGATION};

/// What starts the result of every delegation that failed, as the model sees it.
pub const DELEGATION_FAILED: &str = "Delegation failed: ";

/// How long a function's name may be in the Chat Completions API, in characters.
const NAME_LIMIT: usize = 64;
/// How much of an agent's description the model is shown, in bytes.
const DESCRIPTION_LIMIT: usize = 4 << 10;
/// How much of the conversation another agent is told, in bytes of JSON: well below what an agent takes.
const CONTEXT_LIMIT: usize = 1 << 20;

/// Another agent that the model may hand tasks to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegate {
    /// Its name.
    pub agent: String,
    /// The tool that the model calls for it.
    pub tool: String,
    /// What it does, in its own words; empty: unknown.
    pub description: String,
    /// Why it seems not to be there. It may be tried all the same.
    pub missing: Option<String>,
    /// Why it gets no task from this run.
    pub barred: Option<String>,
}

/// A task for another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// The agent.
    pub agent: String,
    /// What it is to do; empty in a call that is refused for it.
    pub task: String,
}

impl Delegate {
    /// The tool as a request to the model lists it.
    pub(super) fn definition(&self) -> Tool {
        let described = match self.description.trim() {
            "" => format!(
                "Hands a task to the agent {:?} and returns its answer.",
                self.agent
            ),
            text => format!(
                "Hands a task to the agent {:?} and returns its answer. What it says of itself: {}",
                self.agent,
                text.get(..text.floor_char_boundary(DESCRIPTION_LIMIT))
                    .unwrap_or_default()
            ),
        };
        let schema = json!({
            "type": "object",
            "properties": {"task": {
                "type": "string",
                "description": "What the agent is to do, with everything it has to know.",
            }},
            "required": ["task"],
        });
        Tool::function(&self.tool, Some(described), schema)
    }

    /// The task of a call with `arguments`, and the result of a call that is refused.
    pub(super) fn plan(&self, arguments: &Map<String, Value>) -> (Delegation, Option<ToolResult>) {
        let task = match arguments.get("task") {
            Some(Value::String(task)) => task.trim(),
            _ => "",
        };
        let delegation = Delegation {
            agent: self.agent.clone(),
            task: task.to_owned(),
        };
        let refusal = match (&self.barred, task) {
            (Some(reason), _) => Some(delegation_failed(reason)),
            (None, "") => Some(ToolResult {
                text: "Invalid delegation: missing 'task'".to_owned(),
                is_error: true,
            }),
            (None, _) => None,
        };
        (delegation, refusal)
    }

    /// Why the model should not count on it, if it should not.
    pub(super) fn unavailable(&self) -> Option<&str> {
        self.barred.as_deref().or(self.missing.as_deref())
    }
}

/// The result of a delegation that failed for `reason`.
pub fn delegation_failed(reason: impl std::fmt::Display) -> ToolResult {
    ToolResult {
        text: format!("{DELEGATION_FAILED}{reason}"),
        is_error: true,
    }
}

/// The tool by which a task is handed to `agent`.
pub fn delegation_tool(agent: &str) -> String {
    function_name(&format!("delegate_to_{agent}"))
}

/// The tools by which tasks are handed to `agents`, in their order. Names that become the same are numbered.
pub fn delegation_tools<'a>(agents: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let tools = agents.into_iter().map(|agent| {
        let mut tool = delegation_tool(agent);
        let mut number = 1;
        while !taken.insert(tool.clone()) {
            number += 1;
            let suffix = format!("_{number}");
            let room = NAME_LIMIT - suffix.len();
            tool = delegation_tool(agent).chars().take(room).collect();
            tool.push_str(&suffix);
        }
        tool
    });
    tools.collect()
}

/// A name that the API takes for a function: letters, digits, `_` and `-` only.
pub(crate) fn function_name(name: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            c
        } else {
            '_'
        }
    };
    name.chars().take(NAME_LIMIT).map(allowed).collect()
}

/// The request that hands a task to another agent: the last `limit` messages of the conversation, fewer where
/// they are long, and the task.
pub(super) fn request(delegation: &Delegation, messages: &[Message], limit: usize) -> ChatRequest {
    let mut context = Vec::new();
    let mut room = CONTEXT_LIMIT;
    for message in messages.iter().rev().filter_map(passed_on).take(limit) {
        let size = serde_json::to_vec(&message).map_or(usize::MAX, |json| json.len());
        let Some(left) = room.checked_sub(size) else { break };
        room = left;
        context.push(message);
    }
    context.reverse();
    let task = Message::new(Role::Other(TASK_DELEGATION.to_owned()), &delegation.task);
    context.push(task);
    ChatRequest {
        model: delegation.agent.clone(),
        messages: context,
        ..ChatRequest::default()
    }
}

/// A message as another agent is told it. Calls of tools that it does not have would confuse its model, so
/// that only their results are passed on, as messages of a user.
fn passed_on(message: &Message) -> Option<Message> {
    let empty = match &message.content {
        None => true,
        Some(Content::Text(text)) => text.trim().is_empty(),
        Some(Content::Parts(parts)) => parts.is_empty(),
    };
    let said = |role| Message {
        content: message.content.clone(),
        ..Message::new(role, "")
    };
    match &message.role {
        Role::User | Role::Assistant if empty => None,
        Role::User => Some(said(Role::User)),
        Role::Assistant => Some(said(Role::Assistant)),
        Role::Tool => {
            let text = message.text();
            let failed = [super::TOOL_FAILED, DELEGATION_FAILED];
            if failed.iter().any(|prefix| text.starts_with(prefix)) {
                return Some(Message::user(text));
            }
            Some(Message::user(format!("{TOOL_RESULT}{text}")))
        }
        Role::System | Role::Developer | Role::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use kaos_openai::ToolCall;
    use proptest::prelude::*;

    use super::*;

    fn delegation() -> Delegation {
        Delegation {
            agent: "bob".to_owned(),
            task: "dig".to_owned(),
        }
    }

    #[test]
    fn tools_have_names_the_api_takes_and_of_their_own() {
        let long = "x".repeat(80);
        let tools = delegation_tools(["worker-1", "a.b", "a b", &long, &long]);
        assert_eq!(
            tools[..3],
            ["delegate_to_worker-1", "delegate_to_a_b", "delegate_to_a_b_2"]
        );
        assert_eq!((tools[3].len(), tools[4].len()), (64, 64));
        assert!(tools[4].ends_with("x_2"));
    }

    #[test]
    fn a_request_tells_what_was_said_and_the_task() {
        let mut calling = Message::assistant("let me see");
        calling.tool_calls = vec![ToolCall::new("a", "add", "{}")];
        let mut silent = calling.clone();
        silent.content = None;
        let messages = [
            Message::system("s"),
            Message::user("1+2?"),
            silent,
            Message::tool("a", "3"),
            Message::tool("b", "Tool execution failed: boom"),
            calling,
        ];
        let request = request(&delegation(), &messages, 6);
        assert_eq!(
            serde_json::to_value(&request).unwrap(),
            json!({"model": "bob", "stream": false, "messages": [
                {"role": "user", "content": "1+2?"},
                {"role": "user", "content": "Tool result: 3"},
                {"role": "user", "content": "Tool execution failed: boom"},
                {"role": "assistant", "content": "let me see"},
                {"role": "task-delegation", "content": "dig"},
            ]})
        );
    }

    #[test]
    fn a_request_tells_the_last_messages_only_and_no_more_than_an_agent_takes() {
        let messages: Vec<Message> = (0..10).map(|n| Message::user(n.to_string())).collect();
        let texts = |messages: &[Message], limit| -> Vec<String> {
            let request = request(&delegation(), messages, limit);
            request.messages.iter().map(Message::text).collect()
        };
        assert_eq!(texts(&messages, 2), ["8", "9", "dig"]);
        let large = Message::user("x".repeat(CONTEXT_LIMIT / 2));
        let messages = [
            Message::user("first"),
            large.clone(),
            large,
            Message::user("last"),
        ];
        assert_eq!(
            texts(&messages, 6).len(),
            3,
            "one large message, the last and the task"
        );
    }

    #[test]
    fn calls_without_a_task_and_barred_agents_are_refused() {
        let delegate = |barred: Option<&str>| Delegate {
            agent: "bob".to_owned(),
            tool: "delegate_to_bob".to_owned(),
            description: String::new(),
            missing: Some("gone".to_owned()),
            barred: barred.map(str::to_owned),
        };
        let plan = |barred, arguments: Value| {
            let (delegation, refusal) = delegate(barred).plan(arguments.as_object().unwrap());
            (delegation.task, refusal.map(|result| result.text))
        };
        let invalid = Some("Invalid delegation: missing 'task'".to_owned());
        for arguments in [json!({}), json!({"task": 7}), json!({"task": " "})] {
            assert_eq!(plan(None, arguments), (String::new(), invalid.clone()));
        }
        assert_eq!(plan(None, json!({"task": " dig "})), ("dig".to_owned(), None));
        assert_eq!(
            plan(Some("it asks"), json!({"task": "dig"})),
            ("dig".to_owned(), Some("Delegation failed: it asks".to_owned()))
        );
        assert_eq!(delegate(Some("it asks")).unavailable(), Some("it asks"));
        assert_eq!(delegate(None).unavailable(), Some("gone"));
    }

    proptest! {
        #[test]
        fn every_agent_gets_a_tool_of_its_own(agents in proptest::collection::vec(".{0,70}", 0..20)) {
            let tools = delegation_tools(agents.iter().map(String::as_str));
            prop_assert_eq!(tools.iter().collect::<BTreeSet<_>>().len(), agents.len());
            for tool in tools {
                prop_assert!(tool.len() <= NAME_LIMIT && function_name(&tool) == tool, "{}", tool);
            }
        }
    }
}
