//! How messages are written: for each the numbers of its fields, their names in JSON, their types, and what becomes
//! of them where they are empty.
//!
//! The table is made by `cargo xtask generate` of the Go types of Kubernetes, whose tags say all of it.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

/// The messages by the name of their definition in OpenAPI.
pub(super) static MESSAGES: LazyLock<BTreeMap<&str, Vec<Field>>> = LazyLock::new(|| {
    type Line<'a> = (u32, &'a str, &'a str, Presence);
    // The file is part of the program and a test reads it; an unreadable one leaves the table empty.
    let lines: BTreeMap<&str, Vec<Line<'_>>> =
        serde_json::from_str(include_str!("messages.json")).unwrap_or_default();
    let field = |(number, name, kind, presence)| Field {
        number,
        name,
        kind: Type::parse(kind),
        presence,
    };
    lines
        .into_iter()
        .map(|(name, lines)| (name, lines.into_iter().map(field).collect()))
        .collect()
});

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in JSON.
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) presence: Presence,
}

/// What becomes of a field that is not on the wire, or is empty there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Presence {
    /// It is written all the same.
    Always,
    /// It is left out.
    Filled,
    /// What is not on the wire is left out; an empty value is one.
    Pointer,
    /// The fields of this one are fields of its parent.
    Inline,
}

/// The type of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message with JSON in it.
    Json,
    /// A message of which one field is the value.
    Choice(&'static str),
    List(Box<Type>),
    Map(Box<Type>),
    Message(&'static str),
}

impl Type {
    fn parse(text: &'static str) -> Self {
        match text.split_once(' ') {
            Some(("list", items)) => return Self::List(Box::new(Self::parse(items))),
            Some(("map", values)) => return Self::Map(Box::new(Self::parse(values))),
            Some(("choice", name)) => return Self::Choice(name),
            _ => {}
        }
        match text {
            "string" => Self::Text,
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "double" => Self::Double,
            "bytes" => Self::Bytes,
            "time" => Self::Time,
            "microTime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "intOrString" => Self::IntOrString,
            "json" => Self::Json,
            name => Self::Message(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_the_table_is_in_it() {
        fn check(kind: &Type) {
            match kind {
                Type::List(inner) | Type::Map(inner) => check(inner),
                Type::Choice(name) | Type::Message(name) => {
                    assert!(MESSAGES.contains_key(name), "{name}");
                }
                _ => {}
            }
        }
        assert!(!MESSAGES.is_empty());
        MESSAGES.values().flatten().for_each(|field| check(&field.kind));
    }
}
