//! On which line each field of a YAML document stands.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// Lines by field, with fields written as the Kubernetes API writes them: `spec.tools[0].name`, and
/// `metadata.labels[app.kubernetes.io/name]` where a key is no plain word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Positions(BTreeMap<String, usize>);

/// A mapping or list that is being read.
enum Open {
    Mapping { path: String, key: Option<String> },
    List { path: String, next: usize },
}

impl Positions {
    /// Reads the document that `text` begins with, of which the first line is `first_line` of its file. What comes
    /// after a mistake has no position.
    pub(crate) fn of(text: &str, first_line: usize) -> Self {
        let mut lines = BTreeMap::new();
        let mut open: Vec<Open> = Vec::new();
        for event in Parser::new_from_str(text).map_while(Result::ok) {
            let (event, span) = event;
            let line = first_line + span.start.line().saturating_sub(1);
            match event {
                Event::Scalar(text, ..) => {
                    if let Some(Open::Mapping {
                        path,
                        key: key @ None,
                    }) = open.last_mut()
                    {
                        let field = join(path, &text);
                        lines.insert(field.clone(), line);
                        *key = Some(field);
                    } else {
                        value(&mut open, &mut lines, line);
                    }
                }
                Event::Alias(_) => drop(value(&mut open, &mut lines, line)),
                Event::MappingStart(..) => {
                    let path = value(&mut open, &mut lines, line);
                    open.push(Open::Mapping { path, key: None });
                }
                Event::SequenceStart(..) => {
                    let path = value(&mut open, &mut lines, line);
                    open.push(Open::List { path, next: 0 });
                }
                Event::MappingEnd | Event::SequenceEnd => drop(open.pop()),
                Event::DocumentEnd | Event::StreamEnd => break,
                _ => {}
            }
        }
        Self(lines)
    }

    /// Adds a field.
    pub(crate) fn insert(&mut self, field: String, line: usize) {
        self.0.insert(field, line);
    }

    /// The line of `field`, or of the nearest one above it that is written down.
    pub(crate) fn line(&self, field: &str) -> Option<usize> {
        let mut field = field;
        loop {
            if let Some(line) = self.0.get(field) {
                return Some(*line);
            }
            field = above(field)?;
        }
    }

    /// Whether the field is written down.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }
}

/// Takes note of a value that begins, and returns its path.
fn value(open: &mut [Open], lines: &mut BTreeMap<String, usize>, line: usize) -> String {
    match open.last_mut() {
        // A key that is no scalar has no name; what is below it is not found, which is no harm.
        Some(Open::Mapping { path, key }) => key.take().unwrap_or_else(|| path.clone()),
        Some(Open::List { path, next }) => {
            let field = format!("{path}[{next}]");
            *next += 1;
            lines.insert(field.clone(), line);
            field
        }
        None => String::new(),
    }
}

/// A field of a mapping.
pub(crate) fn join(path: &str, key: &str) -> String {
    if key.contains(['.', '/']) {
        format!("{path}[{key}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// The field that holds `field`.
pub(crate) fn above(field: &str) -> Option<&str> {
    let end = match field.strip_suffix(']') {
        Some(inner) => inner.rfind('[')?,
        None => field.rfind('.')?,
    };
    (end > 0).then(|| &field[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kind: Agent\nmetadata:\n  name: a\n  labels: {app.kubernetes.io/name: x}\nspec:\n  # why\n  \
                        tools:\n  - one\n  - name: two\n    args: [a,\n      b]\n  text: |\n    last: 1\n  after: 2\n";

    #[test]
    fn each_field_has_its_line() {
        let positions = Positions::of(TEXT, 11);
        for (field, line) in [
            ("kind", 11),
            ("metadata.name", 13),
            ("metadata.labels[app.kubernetes.io/name]", 14),
            ("spec.tools", 17),
            ("spec.tools[0]", 18),
            ("spec.tools[1].name", 19),
            ("spec.tools[1].args[1]", 21),
            ("spec.text", 22),
            ("spec.after", 24),
            // What is not written down is missing from what is.
            ("spec.tools[1].absent.deep", 19),
            ("spec.absent", 15),
        ] {
            assert_eq!(positions.line(field), Some(line), "{field}");
        }
        assert_eq!(positions.line("absent"), None);
        assert!(positions.has("spec.text") && !positions.has("spec.text.last"));
    }

    #[test]
    fn a_mistake_ends_the_positions_and_nothing_else() {
        let positions = Positions::of("a: 1\nb: [1\n", 1);
        assert_eq!(positions.line("a"), Some(1));
    }
}
