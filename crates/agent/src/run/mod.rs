//! The agent's loop as a state machine: what to do next, given what has happened so far.
//!
//! It owns the conversation with the model, the count of steps and the rules for tool calls. It never does
//! I/O and never looks at the time: a driver asks for the [`Step`], does it and feeds the result back. A run
//! is plain data, so that it can be stored between any two steps and taken up again, or replayed.

mod delegation;
mod prompt;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use kaos_openai::{
    ChatRequest, ChatResponse, Extra, FinishReason, Message, StreamOptions, Tool, ToolCall, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use delegation::function_name;
pub use delegation::{
    DELEGATION_FAILED, Delegate, Delegation, delegation_failed, delegation_tool, delegation_tools,
};
pub use prompt::{Identity, TASK_DELEGATION, conversation, is_asked};

/// What starts the result of every call that failed, as the model sees it.
pub const TOOL_FAILED: &str = "Tool execution failed: ";

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
    /// Calls of the model's last answer, with the results there are so far.
    Tools(Vec<Call>),
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
            State::Tools(calls) => Step::CallTools(
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
            State::Tools(_) | State::Done(_) => self.steps.max(1),
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
        if message.tool_calls.is_empty() {
            let finish_reason = choice.finish_reason.unwrap_or(FinishReason::Stop);
            self.state = State::Done(Outcome::Answered {
                text: spoken(&message),
                finish_reason,
            });
            self.messages.push(message);
            return Ok(Vec::new());
        }
        self.give_ids(&mut message.tool_calls);
        let calls: Vec<Call> = message.tool_calls.iter().map(|call| self.plan(call)).collect();
        self.messages.push(message);
        let refused = calls
            .iter()
            .filter_map(|call| Some((call.invocation.clone(), call.result.clone()?)))
            .collect();
        self.state = State::Tools(calls);
        self.close_step();
        Ok(refused)
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
            State::Tools(calls) => calls
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
        let offered = !self.tools.is_empty();
        ChatRequest {
            model: self.settings.model.clone(),
            messages: self.messages.clone(),
            stream: true,
            stream_options: Some(StreamOptions {
                include_usage: true,
                ..StreamOptions::default()
            }),
            tools: self.tools.clone(),
            // Servers refuse a choice among no tools.
            tool_choice: self.settings.tool_choice.clone().filter(|choice| {
                offered && (self.steps == 0 || matches!(choice.as_str(), Some("none" | "auto")))
            }),
            extra: self.settings.parameters.clone(),
        }
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
        let State::Tools(calls) = &self.state else { return };
        let Some(results) = calls
            .iter()
            .map(|call| Some(Message::tool(&call.invocation.id, &call.result.as_ref()?.text)))
            .collect::<Option<Vec<_>>>()
        else {
            return;
        };
        self.messages.extend(results);
        self.state = match self.settings.max_steps {
            max_steps if self.steps >= max_steps => State::Done(Outcome::StepsExhausted { max_steps }),
            _ => State::Model,
        };
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
