//! What Python source says of the packages it imports: inline script metadata (PEP 723).
//!
//! ```python
//! # /// script
//! # requires-python = ">=3.11"
//! # dependencies = ["httpx<1", "rich"]
//! # ///
//! ```

use serde::Deserialize;

/// The metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Script {
    /// Requirements as pip reads them.
    #[serde(default)]
    pub(crate) dependencies: Vec<String>,
    /// Versions of Python, as PEP 440 writes them.
    pub(crate) requires_python: Option<String>,
    /// Of other programs, and for them only.
    #[serde(default)]
    tool: Option<toml::Table>,
}

/// Metadata that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// Of the source, from 1.
    pub(crate) line: usize,
    pub(crate) message: String,
}

const START: &str = "# /// script";
const END: &str = "# ///";

/// The metadata of `source`, empty where it has none.
pub(crate) fn read(source: &str) -> Result<Script, Bad> {
    let lines: Vec<&str> = source.lines().map(str::trim_end).collect();
    let mut starts = lines.iter().enumerate().filter(|(_, line)| **line == START);
    let Some((start, _)) = starts.next() else {
        return Ok(Script::default());
    };
    let bad = |line: usize, message: &str| Bad {
        line: line + 1,
        message: message.to_owned(),
    };
    let comments = lines[start + 1..]
        .iter()
        .take_while(|line| **line == "#" || line.starts_with("# "))
        .count();
    let block = &lines[start + 1..=start + comments];
    // The last one ends it: the text of a value may look like an end.
    let Some(end) = block.iter().rposition(|line| *line == END) else {
        return Err(bad(
            start,
            "the script metadata has no end; close it with a line \"# ///\" and begin each line before it with \"# \"",
        ));
    };
    if let Some((second, _)) = starts.find(|(line, _)| *line > start + end) {
        return Err(bad(second, "there is script metadata twice; keep one block"));
    }
    let text: Vec<&str> = block[..end]
        .iter()
        .map(|line| line.strip_prefix("# ").unwrap_or_default())
        .collect();
    let text = text.join("\n");
    let script: Script = toml::from_str(&text).map_err(|error| {
        let before = error
            .span()
            .map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
        bad(
            start + 1 + before,
            &format!("the script metadata cannot be read: {}", error.message()),
        )
    })?;
    if let Some(option) = script
        .dependencies
        .iter()
        .find(|text| text.trim_start().starts_with('-'))
    {
        return Err(bad(
            start,
            &format!("the script metadata names {option:?}, which is an option and no package; remove it"),
        ));
    }
    if script.tool.is_some() {
        tracing::warn!(
            "the table [tool] of the script metadata has no effect here: only dependencies and requires-python have"
        );
    }
    Ok(script)
}

/// Whether a version of Python is one of those that are required. Parts that are not understood ask for nothing:
/// the source itself will tell.
pub(crate) fn is_satisfied(required: &str, version: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.trim()
            .split('.')
            .map_while(|part| part.parse().ok())
            .collect()
    };
    let version = numbers(version);
    required.split(',').map(str::trim).all(|clause| {
        let operators = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
        let Some((operator, wanted)) = operators
            .iter()
            .find_map(|operator| Some((*operator, clause.strip_prefix(operator)?)))
        else {
            return true;
        };
        let wildcard = wanted.trim_end().ends_with(".*");
        let wanted = numbers(wanted);
        let length = if wildcard {
            wanted.len()
        } else {
            wanted.len().max(version.len())
        };
        let padded = |numbers: &[u32]| -> Vec<u32> {
            numbers
                .iter()
                .copied()
                .chain(std::iter::repeat(0))
                .take(length)
                .collect()
        };
        let (have, want) = (padded(&version), padded(&wanted));
        match operator {
            "==" | "===" => have == want,
            "!=" => have != want,
            "<=" => have <= want,
            ">=" => have >= want,
            "<" => have < want,
            ">" => have > want,
            _ => {
                let series = wanted.len().saturating_sub(1);
                have >= want && have.iter().take(series).eq(want.iter().take(series))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_anywhere_and_its_absence_is_nothing() {
        assert_eq!(read("def f(): pass\n"), Ok(Script::default()));
        assert_eq!(read("# /// pyproject\n# x = 1\n# ///\n"), Ok(Script::default()));
        let source = "import os\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"a<2\",\n#\n#   \"b\",\n# ]\n# ///\ndef f(): pass\n";
        let script = read(source).unwrap();
        assert_eq!(script.dependencies, ["a<2", "b"]);
        assert_eq!(script.requires_python.as_deref(), Some(">=3.11"));
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (source, line, message) in [
            (
                "\n# /// script\n# dependencies = []\nimport os\n",
                2,
                "has no end",
            ),
            ("# /// script\n# dependencies = [a]\n# ///\n", 2, "cannot be read"),
            (
                "# /// script\n# requires-python = \"3\"\n# dependency = []\n# ///\n",
                3,
                "unknown field",
            ),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", 4, "twice"),
            (
                "# /// script\n# dependencies = [\"--pre\"]\n# ///\n",
                1,
                "\"--pre\", which is an option",
            ),
        ] {
            let bad = read(source).unwrap_err();
            assert_eq!(bad.line, line, "{source}: {}", bad.message);
            assert!(bad.message.contains(message), "{}", bad.message);
        }
    }

    #[test]
    fn versions_of_python_are_compared_as_pep_440_says() {
        for (required, version, expected) in [
            (">=3.9", "3.11.7", true),
            (">=3.12", "3.11.7", false),
            (">=3.9,<3.11", "3.11.0", false),
            ("==3.11.*", "3.11.7", true),
            ("!=3.11.*", "3.11.7", false),
            ("~=3.10", "3.11.7", true),
            ("~=3.10.1", "3.11.7", false),
            ("==3.11", "3.11.7", false),
            ("<4", "3.13.0rc1", true),
            ("", "3.9.0", true),
        ] {
            assert_eq!(is_satisfied(required, version), expected, "{required} {version}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_source_makes_it_panic(text in "(# /// script\n)?((#| ?# ?[a-z=\\[\\]\", ]{0,12}|# ///)\n){0,6}\\PC*") {
            let _ = read(&text);
        }
    }
}
