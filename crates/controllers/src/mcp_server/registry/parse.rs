//! The runtime registry as text: a document `runtimes`, by name what serves the tools.
//!
//! One bad entry does not spoil the others. A document that is no YAML is taken apart at its entries, so that a
//! slip in one of them is that entry's alone.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Spanned, UserMessageFormatter};

use crate::config::Runtime;

/// What a registry says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// The runtimes, or what is wrong with them.
    pub(super) entries: BTreeMap<String, Result<Runtime, Problem>>,
    /// What is wrong with the document as a whole. There may be entries all the same.
    pub(super) problem: Option<Problem>,
}

/// Something to be corrected in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// From 1.
    line: Option<u64>,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Reads a registry, as much of it as can be read.
pub(super) fn parse(text: &str) -> Document {
    match serde_saphyr::from_str::<Option<Top>>(text) {
        Ok(top) => {
            let entries = top.and_then(|top| top.runtimes).map(|runtimes| runtimes.0);
            let mut document = Document::default();
            for (name, node) in entries.unwrap_or_default() {
                document.put(name, node, 0);
            }
            document
        }
        Err(error) => {
            let mut document = Document::default();
            document.salvage(text);
            document.problem = Some(problem(&error, 0));
            document
        }
    }
}

fn problem(error: &serde_saphyr::Error, lines_before: u64) -> Problem {
    let plain = error.without_snippet();
    let text = plain.render_with_formatter(&UserMessageFormatter);
    // The place stands first in our messages, and only once.
    let what = match text.split_once(" at line ") {
        Some((what, _)) if !what.is_empty() => what.to_owned(),
        _ => text,
    };
    Problem {
        line: plain.location().map(|location| location.line() + lines_before),
        what,
    }
}

impl Document {
    fn put(&mut self, name: String, node: Spanned<Node>, lines_before: u64) {
        let line = node.referenced.line() + lines_before;
        let entry = runtime(&name, node, lines_before);
        let twice = || {
            Err(Problem {
                line: Some(line),
                what: format!("runtime {name} is there twice; remove one of them"),
            })
        };
        match self.entries.get_mut(&name) {
            Some(there) => *there = twice(),
            None => {
                self.entries.insert(name, entry);
            }
        }
    }

    /// The entries of a document that is not YAML as a whole: each by itself.
    fn salvage(&mut self, text: &str) {
        let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let is_top = |line: &str| {
            line.strip_prefix("runtimes:")
                .is_some_and(|rest| !is_content(rest))
        };
        let below: Vec<(&str, u64)> = text
            .lines()
            .zip(0..)
            .skip_while(|(line, _)| !is_top(line))
            .skip(1)
            .collect();
        let first = below.iter().find(|(line, _)| is_content(line));
        let depth = match first.map(|(line, _)| indent(line)) {
            None | Some(0) => return,
            Some(depth) => depth,
        };
        let is_within = |line: &str| !is_content(line) || indent(line) >= depth;
        // Where each entry begins, and its lines.
        let mut entries: Vec<(u64, Vec<&str>)> = Vec::new();
        for (line, at) in below.into_iter().take_while(|(line, _)| is_within(line)) {
            if is_content(line) && indent(line) == depth {
                entries.push((at, vec![line]));
            } else if let Some((_, lines)) = entries.last_mut() {
                lines.push(line);
            }
        }
        for (lines_before, lines) in entries {
            match serde_saphyr::from_str::<Entries>(&lines.join("\n")) {
                Ok(entries) => {
                    for (name, node) in entries.0 {
                        self.put(name, node, lines_before);
                    }
                }
                Err(error) => {
                    let first = lines.first().copied().unwrap_or_default();
                    let name = first.split(':').next().unwrap_or_default();
                    let name = name.trim().trim_matches(['"', '\'']);
                    let problem = problem(&error, lines_before);
                    self.entries.insert(name.to_owned(), Err(problem));
                }
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Top {
    #[serde(default)]
    runtimes: Option<Entries>,
}

/// Entries in their order, those of one name too.
struct Entries(Vec<(String, Spanned<Node>)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Node::deserialize(deserializer)? {
            Node::Map(entries) => Ok(Self(entries)),
            other => Err(de::Error::custom(format!(
                "runtimes is {}; write runtimes by name below it, such as mine: {{image: example.com/mine:1}}",
                other.kind()
            ))),
        }
    }
}

/// A value of any type, with the places of what is in it.
#[derive(Clone, Debug)]
enum Node {
    Null,
    Text(String),
    /// A number or a truth value, as it reads.
    Other(&'static str, String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl Node {
    fn kind(&self) -> String {
        match self {
            Self::Null => "empty".to_owned(),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Other(kind, text) => format!("the {kind} {text}"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a mapping".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Other("truth value", value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Other("number", value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Other("number", value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Other("number", value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut map = Vec::new();
                while let Some(item) = items.next_entry()? {
                    map.push(item);
                }
                Ok(Node::Map(map))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// An entry, judged.
struct Reader<'a> {
    runtime: &'a str,
    lines_before: u64,
}

impl Reader<'_> {
    fn problem(&self, node: &Spanned<Node>, what: impl fmt::Display) -> Problem {
        Problem {
            line: Some(node.referenced.line() + self.lines_before),
            what: format!("runtime {}: {what}", self.runtime),
        }
    }

    fn text(&self, field: &str, node: &Spanned<Node>) -> Result<String, Problem> {
        match &node.value {
            Node::Text(text) => Ok(text.clone()),
            Node::Other(kind, text) => {
                Err(self.problem(node, format!("{field} is the {kind} {text}; write it in quotes")))
            }
            other => Err(self.problem(node, format!("{field} is {}; give a text", other.kind()))),
        }
    }

    fn texts(&self, field: &str, node: &Spanned<Node>) -> Result<Vec<String>, Problem> {
        match &node.value {
            Node::Null => Ok(Vec::new()),
            Node::List(items) => items
                .iter()
                .enumerate()
                .map(|(at, item)| self.text(&format!("{field}[{at}]"), item))
                .collect(),
            other => Err(self.problem(node, format!("{field} is {}; give a list of texts", other.kind()))),
        }
    }

    /// The name of an environment variable.
    fn variable(&self, field: &str, node: &Spanned<Node>, name: String) -> Result<String, Problem> {
        // What Kubernetes takes for one since 1.30.
        if !name.is_empty()
            && name
                .chars()
                .all(|character| matches!(character, ' '..='~' if character != '='))
        {
            return Ok(name);
        }
        Err(self.problem(
            node,
            format!(
                "{field} is {name:?}, which is no name of an environment variable; use letters, digits and _"
            ),
        ))
    }
}

fn runtime(name: &str, node: Spanned<Node>, lines_before: u64) -> Result<Runtime, Problem> {
    let reader = Reader {
        runtime: name,
        lines_before,
    };
    let Node::Map(fields) = &node.value else {
        return Err(reader.problem(
            &node,
            format!("it is {}; give it at least an image", node.value.kind()),
        ));
    };
    let mut runtime = Runtime::default();
    for (field, value) in fields {
        let is_null = matches!(value.value, Node::Null);
        match field.as_str() {
            // Words for people.
            "type" | "description" if !is_null => {
                reader.text(field, value)?;
            }
            "transport" if !is_null => transport(&reader, value)?,
            "image" => {
                let image = reader.text(field, value)?;
                if image.is_empty() || image.contains(char::is_whitespace) {
                    return Err(reader.problem(
                        value,
                        format!("image is {image:?}; name one, such as example.com/tools:1"),
                    ));
                }
                runtime.image = image;
            }
            "command" => {
                runtime.command = reader.texts(field, value)?;
                if let Some(flag) = runtime.command.first().filter(|word| word.starts_with('-')) {
                    return Err(reader.problem(
                        value,
                        format!("command begins with {flag:?}, which is no program; write it under args"),
                    ));
                }
            }
            "args" => runtime.args = reader.texts(field, value)?,
            "paramsEnvVar" if !is_null => {
                let variable = reader.text(field, value)?;
                if !variable.is_empty() {
                    runtime.params_env_var = Some(reader.variable(field, value, variable)?);
                }
            }
            "requiredEnv" => {
                for variable in reader.texts(field, value)? {
                    runtime
                        .required_env
                        .push(reader.variable(field, value, variable)?);
                }
            }
            "type" | "description" | "transport" | "paramsEnvVar" => {}
            unknown => {
                return Err(reader.problem(
                    value,
                    format!(
                        "{unknown} is no field of a runtime; remove it, or write one of image, command, args, \
                         paramsEnvVar, requiredEnv, transport, type and description"
                    ),
                ));
            }
        }
    }
    if runtime.image.is_empty() {
        return Err(reader.problem(&node, "it has no image; name the one that serves the tools"));
    }
    Ok(runtime)
}

fn transport(reader: &Reader<'_>, value: &Spanned<Node>) -> Result<(), Problem> {
    match reader.text("transport", value)?.as_str() {
        "" | "http" | "streamable-http" => Ok(()),
        "stdio" => Err(reader.problem(
            value,
            "transport stdio cannot be reached by agents; name an image that serves streamable HTTP on port \
             8000 at /mcp, and write transport: http",
        )),
        other => Err(reader.problem(
            value,
            format!("transport is {other:?}, which agents do not speak; it is http or streamable-http"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(document: &Document) -> Vec<String> {
        let entries = document.entries.iter().map(|(name, entry)| match entry {
            Ok(runtime) => format!("{name}: {}", runtime.image),
            Err(problem) => format!("{name} is broken: {problem}"),
        });
        let problem = document.problem.iter().map(|problem| format!("all: {problem}"));
        entries.chain(problem).collect()
    }

    #[test]
    fn the_registry_of_kaos_is_read_and_flags_are_no_program() {
        let document = parse(
            r#"
runtimes:
  python-string:
    type: python
    image: "example.com/python:1"
    description: "Python functions"
    paramsEnvVar: "MCP_TOOLS_STRING"
    transport: http
  kubernetes:
    image: example.com/kubernetes:1
    args: ["--port", "8000"]
  slack:
    image: example.com/slack:1
    command: ["--transport", "http", "--port", "8000"]
    requiredEnv: [SLACK_BOT_TOKEN, SLACK_TEAM_ID]
"#,
        );
        assert_eq!(
            said(&document),
            [
                "kubernetes: example.com/kubernetes:1",
                "python-string: example.com/python:1",
                "slack is broken: line 14: runtime slack: command begins with \"--transport\", which is no program; \
                 write it under args",
            ]
        );
        let Some(Ok(python)) = document.entries.get("python-string") else {
            panic!("{document:?}");
        };
        assert_eq!(python.params_env_var.as_deref(), Some("MCP_TOOLS_STRING"));
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_told_with_its_line_and_the_fix() {
        for (entry, problem) in [
            (
                "{}",
                "line 2: runtime x: it has no image; name the one that serves the tools",
            ),
            (
                "7",
                "line 2: runtime x: it is the number 7; give it at least an image",
            ),
            (
                "{image: a, args: [--port, 8000]}",
                "line 2: runtime x: args[1] is the number 8000; write it in quotes",
            ),
            (
                "{image: a, args: --port}",
                "line 2: runtime x: args is the text \"--port\"; give a list of texts",
            ),
            (
                "{image: a b}",
                "line 2: runtime x: image is \"a b\"; name one, such as example.com/tools:1",
            ),
            (
                "\n    image: a\n    transport: stdio",
                "line 4: runtime x: transport stdio cannot be reached by agents; name an image that serves \
                 streamable HTTP on port 8000 at /mcp, and write transport: http",
            ),
            (
                "{image: a, transport: sse}",
                "line 2: runtime x: transport is \"sse\", which agents do not speak; it is http or streamable-http",
            ),
            (
                "\n    image: a\n    paramEnvVar: A",
                "line 4: runtime x: paramEnvVar is no field of a runtime; remove it, or write one of image, command, \
                 args, paramsEnvVar, requiredEnv, transport, type and description",
            ),
            (
                "{image: a, paramsEnvVar: A=B}",
                "line 2: runtime x: paramsEnvVar is \"A=B\", which is no name of an environment variable; use \
                 letters, digits and _",
            ),
        ] {
            let document = parse(&format!("runtimes:\n  x: {entry}\n  z: {{image: other}}\n"));
            assert_eq!(
                said(&document),
                [format!("x is broken: {problem}"), "z: other".to_owned()]
            );
        }
    }

    #[test]
    fn a_slip_in_one_entry_leaves_the_others() {
        let document = parse(
            "# Ours.\nruntimes:\n  one:\n    image: one\n  two:\n    image: \"two\n    args: [\n  three:\n    image: three\n",
        );
        let said = said(&document);
        assert_eq!(said[0], "one: one");
        assert_eq!(said[1], "three: three");
        assert!(said[2].starts_with("two is broken: line "), "{said:?}");
        assert!(said[3].starts_with("all: line "), "{said:?}");
        let document = parse("runtimes:\n  one: {image: one}\n  two: {image: two}\n  two: {image: other}\n");
        assert_eq!(
            self::said(&document)[..2],
            [
                "one: one",
                "two is broken: line 4: runtime two is there twice; remove one of them"
            ]
        );
    }

    #[test]
    fn a_registry_may_be_empty_and_one_that_is_something_else_is_refused() {
        for text in ["", "# nothing\n", "runtimes:\n", "runtimes: {}\n"] {
            assert_eq!(parse(text), Document::default(), "{text:?}");
        }
        for text in [
            "runtime: {}\n",
            "runtimes: [1]\n",
            "[]",
            "7",
            "runtimes: {a: {image: b}, a: {image: c}}",
        ] {
            let document = parse(text);
            assert!(document.problem.is_some(), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(runtimes:\n)?([ ]{0,4}[a-z:\\[\\]{}'\"&*!|>#-]{0,8}[ \n]){0,12}|\\PC*") {
            let document = parse(&text);
            if document.problem.is_some() {
                proptest::prop_assert!(!said(&document).is_empty());
            }
        }
    }
}
