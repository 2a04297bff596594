//! The agent's loop as a state machine: what to do next, given what has happened so far.
//!
//! It owns the conversation with the model, the count of steps and the rules for tool calls. It never does
//! I/O and never looks at the time: a driver asks for the [`Step`], does it and feeds the result back. A run
//! is plain data, so that it can be stored between any two steps and taken up again, or replayed.

mod delegation;
mod prompt;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::collections::BTreeSet;

use kaos_openai::{
    ChatRequest, ChatResponse, Extra, FinishReason, Message, Role, StreamOptions, Tool, ToolCall, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use delegation::function_name;
pub use delegation::{
    DELEGATION_FAILED, Delegate, Delegation, delegation_failed, delegation_tool, delegation_tools,
};
pub use prompt::{Identity, TASK_DELEGATION, conversation, is_asked};
pub use text::Calling;

/// What starts the result of every call that failed, as the model sees it.
pub const TOOL_FAILED: &str = "Tool execution failed: ";
/// What starts a tool's result in a message of a user.
const TOOL_RESULT: &str = "Tool result: ";
/// What starts another agent's answer in a message of a user.
const AGENT_RESPONSE: &str = "Agent response: ";

/// What a run is limited to and passes on to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The model that is asked.
    pub model: String,
    /// How often it is asked at most.
    pub max_steps: u32,
    /// How many messages of the conversation go with a task to another agent.
    pub context_limit: usize,
    /// Whether and what the model has to call. A demand to call a tool holds for the first step only; after
    /// that it would keep the model from ever answering.
    pub tool_choice: Option<Value>,
    /// How the model calls tools. Blocks in its text are calls in either case.
    #[serde(default)]
    pub calling: Calling,
    /// Sampling parameters and other fields of the request, as they were given.
    pub parameters: Extra,
}

/// One run of the loop, from the conversation it starts with to its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRun {
    settings: Settings,
    messages: Vec<Message>,
    tools: Vec<Tool>,
    delegates: Vec<Delegate>,
    /// How often the model has answered.
    steps: u32,
    usage: Usage,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    /// The model is to be asked.
    Model,
    /// Calls of the model's last answer, made as `by` says, with the results there are so far.
    Tools { calls: Vec<Call>, by: Calling },
    /// Nothing is left to do.
    Done(Outcome),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Call {
    invocation: Invocation,
    result: Option<ToolResult>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the model; then [`AgentRun::model_answered`] or [`AgentRun::model_failed`].
    CallModel(Box<ChatRequest>),
    /// Call these tools, in any order or at once; then [`AgentRun::tool_answered`] for each.
    CallTools(Vec<Invocation>),
    /// Nothing.
    Done(Outcome),
}

/// A tool to be called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    /// Identifies the call within its step.
    pub id: String,
    /// The tool, by the name it was offered under.
    pub tool: String,
    /// The arguments. What the model wrote, as a string, in a call that is refused for its arguments.
    pub arguments: Value,
    /// The task to hand to another agent, where that is what the tool does.
    pub delegation: Option<Delegation>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// What the model is told.
    pub text: String,
    /// The call failed.
    pub is_error: bool,
}

impl ToolResult {
    /// The tool answered `text`.
    pub fn success(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: false,
        }
    }

    /// The call failed for `reason`.
    pub fn failure(reason: impl std::fmt::Display) -> Self {
        Self {
            text: format!("{TOOL_FAILED}{reason}"),
            is_error: true,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The model answered without calling a tool.
    Answered {
        /// Its answer.
        text: String,
        /// Why it stopped.
        finish_reason: FinishReason,
    },
    /// The model still called tools in its last step.
    StepsExhausted {
        /// How many steps it had.
        max_steps: u32,
    },
    /// The model could not be asked or gave no answer.
    ModelFailed {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// What whoever asked is told.
    pub fn text(&self) -> String {
        match self {
            Self::Answered { text, .. } => text.clone(),
            Self::StepsExhausted { max_steps } => format!("Reached maximum reasoning steps ({max_steps})"),
            Self::ModelFailed { reason } => format!("Sorry, I encountered an error: {reason}"),
        }
    }

    /// Why the answer ends.
    pub fn finish_reason(&self) -> FinishReason {
        match self {
            Self::Answered { finish_reason, .. } => finish_reason.clone(),
            Self::StepsExhausted { .. } | Self::ModelFailed { .. } => FinishReason::Stop,
        }
    }
}

/// A result was fed to a run that did not wait for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfTurn {
    /// The run does not wait for the model.
    #[error("the model's answer was not asked for")]
    Model,
    /// The run does not wait for this call.
    #[error("the result of the tool call {id:?} was not asked for")]
    Tool {
        /// The call.
        id: String,
    },
}

impl AgentRun {
    /// A run that continues `messages` (see [`conversation`]) and offers `tools` and `delegates` to the model.
    /// A tool with the name of one that hands tasks to a delegate is left out.
    pub fn new(
        settings: Settings,
        messages: Vec<Message>,
        mut tools: Vec<Tool>,
        delegates: Vec<Delegate>,
    ) -> Self {
        tools.retain(|tool| {
            let name = &tool.function.name;
            delegates.iter().all(|delegate| delegate.tool != *name)
        });
        tools.extend(delegates.iter().map(Delegate::definition));
        let state = match settings.max_steps {
            0 => State::Done(Outcome::StepsExhausted { max_steps: 0 }),
            _ => State::Model,
        };
        Self {
            settings,
            messages,
            tools,
            delegates,
            steps: 0,
            usage: Usage::default(),
            state,
        }
    }

    /// What is to be done next. Asking again without feeding a result gives the same step.
    pub fn next_step(&self) -> Step {
        match &self.state {
            State::Model => Step::CallModel(Box::new(self.request())),
            State::Tools { calls, .. } => Step::CallTools(
                calls
                    .iter()
                    .filter(|call| call.result.is_none())
                    .map(|call| call.invocation.clone())
                    .collect(),
            ),
            State::Done(outcome) => Step::Done(outcome.clone()),
        }
    }

    /// The current step, counted from 1.
    pub fn step(&self) -> u32 {
        match self.state {
            State::Model => self.steps + 1,
            State::Tools { .. } | State::Done(_) => self.steps.max(1),
        }
    }

    /// How often the model is asked at most.
    pub fn max_steps(&self) -> u32 {
        self.settings.max_steps
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The request that hands a task of this run to another agent.
    pub fn delegated(&self, delegation: &Delegation) -> ChatRequest {
        delegation::request(delegation, &self.messages, self.settings.context_limit)
    }

    /// The tokens of all answers so far.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Takes the model's answer. Returns the calls in it that are refused, with the result that the model is
    /// told: calls of tools that were not offered, and calls whose arguments are not a JSON object.
    ///
    /// # Errors
    /// If the run does not wait for the model.
    pub fn model_answered(
        &mut self,
        answer: ChatResponse,
    ) -> Result<Vec<(Invocation, ToolResult)>, OutOfTurn> {
        if self.state != State::Model {
            return Err(OutOfTurn::Model);
        }
        self.steps += 1;
        if let Some(usage) = &answer.usage {
            self.usage += usage;
        }
        let Some(choice) = answer.choices.into_iter().next() else {
            self.model_failed("the model's answer has no choices");
            return Ok(Vec::new());
        };
        let mut message = choice.message;
        let (mut calls, by) = match message.tool_calls.as_slice() {
            [] => (self.written_calls(&message.text()), Calling::Text),
            calls => (calls.to_vec(), Calling::Native),
        };
        if calls.is_empty() {
            let finish_reason = choice.finish_reason.unwrap_or(FinishReason::Stop);
            self.state = State::Done(Outcome::Answered {
                text: spoken(&message),
                finish_reason,
            });
            self.messages.push(message);
            return Ok(Vec::new());
        }
        self.give_ids(&mut calls);
        if by == Calling::Native {
            message.tool_calls.clone_from(&calls);
        }
        let calls: Vec<Call> = calls.iter().map(|call| self.plan(call)).collect();
        self.messages.push(message);
        let refused = calls
            .iter()
            .filter_map(|call| Some((call.invocation.clone(), call.result.clone()?)))
            .collect();
        self.state = State::Tools { calls, by };
        self.close_step();
        Ok(refused)
    }

    /// Whether blocks in the text of the next answer are calls.
    pub fn reads_calls(&self) -> bool {
        !self.tools.is_empty() && self.choice().is_none_or(|choice| choice != "none")
    }

    /// Has the model asked again without tools, and called by its text: it takes no others. Whether it can be:
    /// once it has called tools otherwise, it takes them.
    pub fn call_by_text(&mut self) -> bool {
        let can = self.settings.calling == Calling::Native && self.steps == 0 && self.reads_calls();
        if can {
            self.settings.calling = Calling::Text;
        }
        can
    }

    /// Ends the run: the model could not be asked, for `reason`. A run that is done stays as it is.
    pub fn model_failed(&mut self, reason: impl Into<String>) {
        if !matches!(self.state, State::Done(_)) {
            self.state = State::Done(Outcome::ModelFailed {
                reason: reason.into(),
            });
        }
    }

    /// Takes the result of the call `id`.
    ///
    /// # Errors
    /// If the run does not wait for this call.
    pub fn tool_answered(&mut self, id: &str, result: ToolResult) -> Result<(), OutOfTurn> {
        let waiting = match &mut self.state {
            State::Tools { calls, .. } => calls
                .iter_mut()
                .find(|call| call.invocation.id == id && call.result.is_none()),
            State::Model | State::Done(_) => None,
        };
        waiting
            .ok_or_else(|| OutOfTurn::Tool { id: id.to_owned() })?
            .result = Some(result);
        self.close_step();
        Ok(())
    }

    fn request(&self) -> ChatRequest {
        let native = self.settings.calling == Calling::Native;
        ChatRequest {
            model: self.settings.model.clone(),
            messages: if native {
                self.messages.clone()
            } else {
                self.described()
            },
            stream: true,
            stream_options: Some(StreamOptions {
                include_usage: true,
                ..StreamOptions::default()
            }),
            tools: if native { self.tools.clone() } else { Vec::new() },
            tool_choice: self.choice().filter(|_| native).cloned(),
            extra: self.settings.parameters.clone(),
        }
    }

    /// What holds of the choice of tools for the next answer.
    fn choice(&self) -> Option<&Value> {
        let choice = self.settings.tool_choice.as_ref();
        // Servers refuse a choice among no tools.
        choice.filter(|choice| {
            !self.tools.is_empty() && (self.steps == 0 || matches!(choice.as_str(), Some("none" | "auto")))
        })
    }

    /// The conversation, with the tools in its system message.
    fn described(&self) -> Vec<Message> {
        let mut messages = self.messages.clone();
        if !self.reads_calls() {
            return messages;
        }
        let demand = match self.choice() {
            Some(Value::String(choice)) if choice == "required" => {
                Some("Your next answer has to be such a block.".to_owned())
            }
            Some(Value::Object(choice)) => {
                let tool = choice.get("function").and_then(|function| function.get("name"));
                tool.and_then(Value::as_str)
                    .map(|tool| format!("Your next answer has to be such a block, for {tool}."))
            }
            _ => None,
        };
        let described = text::description(&self.tools, &self.delegates, demand.as_deref());
        match messages.first_mut().filter(|first| first.role == Role::System) {
            Some(system) => *system = Message::system(format!("{}\n\n{described}", system.text())),
            None => messages.insert(0, Message::system(described)),
        }
        messages
    }

    /// The calls that blocks of a text are, where they may be any.
    fn written_calls(&self, text: &str) -> Vec<ToolCall> {
        if !self.reads_calls() {
            return Vec::new();
        }
        let calls = text::blocks(text).into_iter().map(|(_, asked)| match asked {
            text::Asked::Tool { name, arguments } => ToolCall::new("", name, arguments),
            text::Asked::Agent { name, arguments } => {
                let delegate = self.delegates.iter().find(|delegate| delegate.agent == name);
                let tool = delegate.map_or_else(|| delegation_tool(&name), |delegate| delegate.tool.clone());
                ToolCall::new("", tool, arguments)
            }
        });
        calls.collect()
    }

    /// Gives an identifier to the calls without one of their own, because results refer to it.
    fn give_ids(&self, calls: &mut [ToolCall]) {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (position, call) in calls.iter_mut().enumerate() {
            let mut attempt = 0;
            while call.id.is_empty() || !taken.insert(call.id.clone()) {
                call.id = match attempt {
                    0 => format!("call_{}_{position}", self.steps),
                    _ => format!("call_{}_{position}_{attempt}", self.steps),
                };
                attempt += 1;
            }
        }
    }

    fn plan(&self, call: &ToolCall) -> Call {
        let tool = &call.function.name;
        let delegate = self.delegates.iter().find(|delegate| delegate.tool == *tool);
        let mut delegation = None;
        let (arguments, result) = match arguments(&call.function.arguments) {
            Ok(arguments) => {
                let refusal = match delegate.map(|delegate| delegate.plan(&arguments)) {
                    Some((task, refusal)) => {
                        delegation = Some(task);
                        refusal
                    }
                    None if self.is_offered(tool) => None,
                    None => Some(ToolResult::failure(self.not_offered(tool))),
                };
                (Value::Object(arguments), refusal)
            }
            Err(reason) => {
                let reason = format!("the arguments of {tool:?} are not a JSON object: {reason}");
                let written = call.function.arguments.clone();
                (Value::String(written), Some(ToolResult::failure(reason)))
            }
        };
        Call {
            invocation: Invocation {
                id: call.id.clone(),
                tool: tool.clone(),
                arguments,
                delegation,
            },
            result,
        }
    }

    fn is_offered(&self, tool: &str) -> bool {
        self.tools.iter().any(|offered| offered.function.name == tool)
    }

    fn not_offered(&self, tool: &str) -> String {
        let names: Vec<&str> = self
            .tools
            .iter()
            .map(|offered| offered.function.name.as_str())
            .collect();
        match names.as_slice() {
            [] => format!("there is no tool {tool:?}; no tools are available"),
            _ => format!("there is no tool {tool:?}; available are {}", names.join(", ")),
        }
    }

    /// Goes on to the next step once every call has its result. The calls of the last step are still made,
    /// because they may be what was asked for; only the model does not see their results any more.
    fn close_step(&mut self) {
        let State::Tools { calls, by } = &self.state else {
            return;
        };
        let results: Option<Vec<_>> = calls
            .iter()
            .map(|call| Some((&call.invocation, call.result.as_ref()?)))
            .collect();
        let Some(results) = results else { return };
        let told: Vec<Message> = match by {
            Calling::Native => {
                let results = results.into_iter();
                results
                    .map(|(invocation, result)| Message::tool(&invocation.id, &result.text))
                    .collect()
            }
            Calling::Text => {
                let results: Vec<String> = results.into_iter().map(told_in_text).collect();
                vec![Message::user(results.join("\n\n"))]
            }
        };
        self.messages.extend(told);
        self.state = match self.settings.max_steps {
            max_steps if self.steps >= max_steps => State::Done(Outcome::StepsExhausted { max_steps }),
            _ => State::Model,
        };
    }
}

/// A result as a message of a user tells it.
fn told_in_text((invocation, result): (&Invocation, &ToolResult)) -> String {
    match (result.is_error, &invocation.delegation) {
        // It says so itself.
        (true, _) => result.text.clone(),
        (false, None) => format!("{TOOL_RESULT}{}", result.text),
        (false, Some(_)) => format!("{AGENT_RESPONSE}{}", result.text),
    }
}

/// What an answer says: its text, or the text by which the model refuses to give one.
fn spoken(message: &Message) -> String {
    match message.extra.get("refusal") {
        Some(Value::String(refusal)) if message.text().is_empty() => refusal.clone(),
        _ => message.text(),
    }
}

/// The arguments that a model wrote. Nothing at all stands for no arguments.
fn arguments(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    match text.trim() {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text),
    }
}
