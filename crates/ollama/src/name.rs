//! Model names, as Ollama writes them: `[[HOST/]NAMESPACE/]MODEL[:TAG]`.

use std::{fmt, str::FromStr};

/// The parts that Ollama takes where a name leaves them out.
const DEFAULT_HOST: &str = "registry.ollama.ai";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";

/// The longest host, and the longest of each other part, in characters (Ollama's `types/model/name.go`).
const MAX_HOST: usize = 350;
const MAX_PART: usize = 80;

/// The name of a model, known to be one.
#[derive(Clone, Debug)]
pub struct ModelName {
    text: String,
    /// All four parts in lower case: Ollama compares names without regard to case.
    full: [String; 4],
}

/// Why a text is not the name of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not the name of an Ollama model: {problem}; write MODEL or MODEL:TAG, such as smollm2:135m"
)]
pub struct NameError {
    name: String,
    problem: String,
}

impl FromStr for ModelName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = |problem: String| NameError {
            name: text.to_owned(),
            problem,
        };
        // A colon before the last slash is that of a host's port.
        let (path, tag) = match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (host, namespace, model) = match parts.as_slice() {
            [model] => (None, None, *model),
            [namespace, model] => (None, Some(*namespace), *model),
            [host, namespace, model] => (Some(*host), Some(*namespace), *model),
            _ => return Err(wrong("it has more than HOST/NAMESPACE/MODEL".to_owned())),
        };
        let checked = |what: &str, part: Option<&str>, max: usize, extra: &str, default: &str| {
            let Some(part) = part else {
                return Ok(default.to_owned());
            };
            if part.is_empty() {
                return Err(wrong(format!("its {what} is empty")));
            }
            if part.len() > max {
                return Err(wrong(format!("its {what} is longer than {max} characters")));
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            match part
                .chars()
                .enumerate()
                .find(|(at, c)| !plain(*c) && (*at == 0 || !extra.contains(*c)))
            {
                None => Ok(part.to_ascii_lowercase()),
                Some((0, c)) => Err(wrong(format!("its {what} begins with {c:?}"))),
                Some((_, c)) => Err(wrong(format!("its {what} has {c:?}"))),
            }
        };
        let full = [
            checked("host", host, MAX_HOST, "-.:", DEFAULT_HOST)?,
            checked("namespace", namespace, MAX_PART, "-", DEFAULT_NAMESPACE)?,
            checked("model", Some(model), MAX_PART, "-.", "")?,
            checked("tag", tag, MAX_PART, "-.", DEFAULT_TAG)?,
        ];
        Ok(Self {
            text: text.to_owned(),
            full,
        })
    }
}

impl ModelName {
    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `listed`, a name that Ollama gave, is this model: `smollm2` is `smollm2:latest`.
    pub fn is(&self, listed: &str) -> bool {
        listed.parse::<Self>().is_ok_and(|listed| listed == *self)
    }
}

impl PartialEq for ModelName {
    /// Whether both name the same model.
    fn eq(&self, other: &Self) -> bool {
        self.full == other.full
    }
}

impl Eq for ModelName {}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_ollama_takes_are_taken() {
        for name in [
            "smollm2",
            "smollm2:135m",
            "qwen2.5-coder:0.5b-instruct-q4_K_M",
            "user/model:tag",
            "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
            "localhost:5000/library/m",
            "_x",
        ] {
            assert_eq!(name.parse::<ModelName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_part_that_is_wrong() {
        for (name, problem) in [
            ("", "its model is empty"),
            ("m:", "its tag is empty"),
            ("/m", "its namespace is empty"),
            ("a/b/c/d", "it has more than HOST/NAMESPACE/MODEL"),
            ("m; id", "its model has ';'"),
            ("$(id)", "its model begins with '$'"),
            ("m:`id`", "its tag begins with '`'"),
            ("m\nFROM x", "its model has '\\n'"),
            ("-m", "its model begins with '-'"),
            ("a.b/m", "its namespace has '.'"),
            ("https://host/ns/m", "it has more than HOST/NAMESPACE/MODEL"),
            ("modèle", "its model has 'è'"),
        ] {
            let error = name.parse::<ModelName>().unwrap_err().to_string();
            let expected = format!(
                "{name:?} is not the name of an Ollama model: {problem}; write MODEL or MODEL:TAG, such as smollm2:135m"
            );
            assert_eq!(error, expected);
        }
        let long = "m".repeat(81);
        assert!(
            long.parse::<ModelName>()
                .unwrap_err()
                .to_string()
                .contains("longer than 80")
        );
    }

    #[test]
    fn a_name_is_found_again_as_ollama_lists_it() {
        let is = |name: &str, listed: &str| name.parse::<ModelName>().unwrap().is(listed);
        assert!(is("smollm2", "smollm2:latest"));
        assert!(is("SmolLM2:135M", "smollm2:135m"));
        assert!(is("registry.ollama.ai/library/smollm2:135m", "smollm2:135m"));
        assert!(!is("smollm2:135m", "smollm2:latest"));
        assert!(!is("user/smollm2:135m", "smollm2:135m"));
        assert!(!is("smollm2", "?"));
    }

    proptest! {
        #[test]
        fn what_is_taken_has_no_character_that_a_shell_or_url_reads(name in "\\PC*") {
            if let Ok(name) = name.parse::<ModelName>() {
                prop_assert!(name.as_str().chars().all(|c| c.is_ascii_alphanumeric() || "_-.:/".contains(c)));
                prop_assert!(name.is(name.as_str()));
            }
        }
    }
}
