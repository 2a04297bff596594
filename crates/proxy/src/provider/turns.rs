//! The turns of a conversation, for APIs whose two sides alternate.

use serde_json::{Value, json};

use crate::error::Failure;

/// What the sides say, in turn.
#[derive(Debug, Default)]
pub(super) struct Turns(Vec<(&'static str, Vec<Value>)>);

impl Turns {
    /// Adds to the last turn of a side, or begins its next one: what several calls returned belongs into one turn.
    pub(super) fn say(&mut self, side: &'static str, parts: Vec<Value>) {
        match self.0.last_mut() {
            Some((last, known)) if *last == side => known.extend(parts),
            _ => self.0.push((side, parts)),
        }
    }

    /// The turns in which something is said, each with its parts in this field.
    pub(super) fn with_parts_in(self, field: &str) -> Vec<Value> {
        let turns = self.0.into_iter().filter(|(_, parts)| !parts.is_empty());
        turns
            .map(|(side, parts)| json!({"role": side, (field): parts}))
            .collect()
    }
}

/// Refuses the message at this place, whose role is none.
pub(super) fn unknown_role(role: &str, at: usize) -> Failure {
    let path = format!("messages[{at}].role");
    let message = format!("{path} is {role:?}; use system, developer, user, assistant or tool");
    Failure::parameter(&path, message)
}
