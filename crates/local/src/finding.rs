//! What is wrong with a manifest, or worth knowing of it, and where.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot work as it is.
    Error,
    /// It works, perhaps not as meant, or needs something that is not among the files.
    Warning,
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The line of the field, or of the object where no field is meant, from 1. `None` where it is about the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The object as `kind/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field, as `spec.config.memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was found, and the fix.
    pub message: String,
}

impl Finding {
    /// An error about a whole file, or about a line of it.
    pub(crate) fn of_file(file: &Path, line: Option<usize>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            line,
            object: None,
            field: None,
            message: message.into(),
        }
    }

    /// The same as a warning.
    #[must_use]
    pub(crate) fn into_warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `file:line: kind/name: message`, as compilers write it, so that editors can jump there.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        match &self.field {
            Some(field) if !self.message.contains(field.as_str()) => write!(f, "{field}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

/// Several findings, as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, finding) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_a_compilers_message() {
        let mut finding = Finding::of_file(Path::new("a.yaml"), Some(3), "too large");
        finding.object = Some("agent/a".to_owned());
        finding.field = Some("spec.replicas".to_owned());
        assert_eq!(finding.to_string(), "a.yaml:3: agent/a: spec.replicas: too large");
        finding.message = "spec.replicas: Invalid value: -1".to_owned();
        assert_eq!(
            finding.clone().into_warning().to_string(),
            "a.yaml:3: warning: agent/a: spec.replicas: Invalid value: -1"
        );
        let several = Findings(vec![finding, Finding::of_file(Path::new("b"), None, "empty")]);
        assert_eq!(several.to_string().lines().nth(1), Some("b: empty"));
    }
}
