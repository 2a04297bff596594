//! JSON paths of `additionalPrinterColumns`: the part of `k8s.io/client-go/util/jsonpath` that definitions use.
//!
//! `.a.b`, `.a\.b`, `['a']`, `[0]`, `[-1]`, `[*]`, `.*` and `[?(@.a.b == "x")]`. Slices, unions, recursive
//! descent and templates with text are not read: a definition with one is refused.

use serde_json::Value;

/// A path, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// From the end where negative.
    Index(i64),
    All,
    Filter(Filter),
}

/// Elements of a list whose value at `path` compares with `literal`; without a comparison, that have one.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    path: JsonPath,
    comparison: Option<(Operator, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The operators, longer ones before their beginnings.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`, in braces or not.
    ///
    /// # Errors
    /// What cannot be read in it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let inner = text.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(inner);
        if inner.is_empty() {
            return Err("the path is empty".to_owned());
        }
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = next_step(rest)?;
            steps.extend(step);
            rest = after;
        }
        Ok(Self { steps })
    }

    /// The values at this path, in order; none where a field is missing.
    pub(crate) fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

fn next_step(text: &str) -> Result<(Option<Step>, &str), String> {
    if text.starts_with("..") {
        return Err(format!("\"{text}\": recursive descent is not read here"));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let end = closing_bracket(rest).ok_or_else(|| format!("\"{text}\": unterminated array"))?;
        return Ok((Some(bracket(&rest[..end])?), &rest[end + 1..]));
    }
    let Some(rest) = text.strip_prefix('.') else {
        return Err(format!("\"{text}\": a field starts with a dot"));
    };
    let (name, after) = field_name(rest);
    let step = match name.as_str() {
        // `.` alone is the object, and `.['a']` is `['a']`.
        "" if after.is_empty() || after.starts_with('[') => None,
        "" => return Err(format!("\"{text}\": a field has no name")),
        "*" => Some(Step::All),
        _ => Some(Step::Field(name)),
    };
    Ok((step, after))
}

/// A name up to the next dot or bracket that is not escaped by a backslash.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket closes, quotes and nested brackets left out.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn bracket(text: &str) -> Result<Step, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return Ok(Step::Filter(Filter::parse(filter)?));
    }
    if let Some(name) = quoted(text) {
        return Ok(Step::Field(name.to_owned()));
    }
    text.parse()
        .map(Step::Index)
        .map_err(|_| format!("\"[{text}]\": not a name in quotes, a number, * or a filter"))
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    })
}

impl Filter {
    fn parse(text: &str) -> Result<Self, String> {
        let inner = text
            .trim()
            .strip_prefix('@')
            .ok_or_else(|| format!("\"?({text})\": a filter starts with @, the element"))?;
        for (at, _) in inner.char_indices() {
            for (sign, operator) in OPERATORS {
                if let Some(literal) = inner[at..].strip_prefix(sign) {
                    let path = JsonPath::parse(element_path(inner[..at].trim()))?;
                    let literal = Self::literal(literal.trim())?;
                    return Ok(Self {
                        path,
                        comparison: Some((operator, literal)),
                    });
                }
            }
        }
        Ok(Self {
            path: JsonPath::parse(element_path(inner.trim()))?,
            comparison: None,
        })
    }

    fn literal(text: &str) -> Result<Value, String> {
        if let Some(text) = quoted(text) {
            return Ok(text.into());
        }
        match serde_json::from_str(text) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value),
            _ => Err(format!(
                "\"{text}\": a filter compares with text in quotes, a number, true or false"
            )),
        }
    }

    fn takes(&self, element: &Value) -> bool {
        let found = self.path.find(element);
        let Some(value) = found.first() else { return false };
        self.comparison
            .as_ref()
            .is_none_or(|(operator, literal)| operator.holds(value, literal))
    }
}

/// `@` alone compares the element itself.
fn element_path(text: &str) -> &str {
    if text.is_empty() { "." } else { text }
}

impl Operator {
    fn holds(self, value: &Value, literal: &Value) -> bool {
        let ordering = match (value, literal) {
            (Value::String(a), Value::String(b)) => a.partial_cmp(b),
            (Value::Bool(a), Value::Bool(b)) => a.partial_cmp(b),
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            // Values of different types do not compare: the element is left out.
            _ => return false,
        };
        let Some(ordering) = ordering else { return false };
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let from_end = |index: i64| items.len().checked_sub(usize::try_from(-index).ok()?);
                let index = if *index < 0 {
                    from_end(*index)
                } else {
                    usize::try_from(*index).ok()
                };
                index.and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(fields)) => fields.values().collect(),
            (Self::Filter(filter), Value::Array(items)) => {
                items.iter().filter(|item| filter.takes(item)).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(path: &str) -> Vec<Value> {
        let object = json!({
            "spec": { "replicas": 3, "a.b": "dotted", "list": [1, 2, 3] },
            "metadata": { "labels": { "app.kubernetes.io/name": "x" } },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "n": 5 },
                { "type": "a]b", "status": "False" },
            ] },
        });
        JsonPath::parse(path)
            .unwrap()
            .find(&object)
            .into_iter()
            .cloned()
            .collect()
    }

    #[test]
    fn paths_find_values() {
        assert_eq!(find(".spec.replicas"), [json!(3)]);
        assert_eq!(find("{.spec.replicas}"), [json!(3)]);
        assert_eq!(find("$.spec['replicas']"), [json!(3)]);
        assert_eq!(find(r".spec.a\.b"), [json!("dotted")]);
        assert_eq!(find(r".metadata.labels.app\.kubernetes\.io/name"), [json!("x")]);
        assert_eq!(find(".metadata.labels['app.kubernetes.io/name']"), [json!("x")]);
        assert_eq!(find(".spec.list[0]"), [json!(1)]);
        assert_eq!(find(".spec.list[-1]"), [json!(3)]);
        assert_eq!(find(".spec.list[-4]"), Vec::<Value>::new());
        assert_eq!(find(".spec.list[*]"), [json!(1), json!(2), json!(3)]);
        assert_eq!(find(".status.conditions[*].type"), [json!("Ready"), json!("a]b")]);
        assert_eq!(find(".nope.x"), Vec::<Value>::new());
    }

    #[test]
    fn filters_choose_elements() {
        assert_eq!(
            find(r#".status.conditions[?(@.type=="Ready")].status"#),
            [json!("True")]
        );
        assert_eq!(
            find(".status.conditions[?(@.type == 'a]b')].status"),
            [json!("False")]
        );
        assert_eq!(
            find(".status.conditions[?(@.type != 'Ready')].status"),
            [json!("False")]
        );
        assert_eq!(find(".status.conditions[?(@.n)].type"), [json!("Ready")]);
        assert_eq!(find(".status.conditions[?(@.n >= 5)].type"), [json!("Ready")]);
        assert_eq!(find(".status.conditions[?(@.n < 5)].type"), Vec::<Value>::new());
        assert_eq!(find(".spec.list[?(@ > 2)]"), [json!(3)]);
    }

    #[test]
    fn what_is_not_read_is_refused() {
        for path in [
            "",
            "spec.x",
            ".a..b",
            "..x",
            ".a[",
            ".a[0:2]",
            ".a['x','y']",
            ".a[?(x)]",
            ".a[?(@.x == y)]",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
