//! What is wrong with a patch, and where.

use std::fmt;

use serde_json::Value;

/// A value is shown up to this many characters.
const SHOWN: usize = 80;

/// Why a patch cannot be merged: the place, what is there, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeError {
    /// The path in the patch, such as `containers[0].env[1]`; empty for the whole patch.
    pub path: String,
    /// What is wrong and what was found, as the middle of a sentence.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
}

impl MergeError {
    /// The same error in a document that has the patch at `prefix`.
    #[must_use]
    pub fn within(mut self, prefix: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.path = format!("{prefix}{dot}{}", self.path);
        self
    }
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "the patch"
        } else {
            &self.path
        };
        write!(f, "{path}: {}; {}", self.problem, self.fix)
    }
}

impl std::error::Error for MergeError {}

/// A place in the patch, as a chain back to its root.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(super) fn item(&'a self, index: usize) -> Path<'a> {
        Path::Item(self, index)
    }

    pub(super) fn error(&self, problem: impl Into<String>, fix: impl Into<String>) -> MergeError {
        MergeError {
            path: self.to_string(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value in a message: as JSON, cut where it is long.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
