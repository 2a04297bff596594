//! Label and field selectors, in the syntax and with the messages of Kubernetes.

use serde_json::Value;

use super::meta;
use crate::{error::ApiError, resource::ResourceType};

/// A parsed `labelSelector`. Empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// # Errors
    /// Where the text is not a selector.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = Parser {
            tokens: tokens(text),
            at: 0,
        };
        let mut requirements = Vec::new();
        if parser.peek() == Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                Token::End => return Ok(Self { requirements }),
                Token::Symbol(",") => {
                    if !matches!(parser.peek(), Token::Word(_) | Token::Symbol("!")) {
                        return Err(unparsable(&parser.peek(), ", expected: identifier after ','"));
                    }
                }
                other => return Err(unparsable(&other, ", expected: ',' or 'end of string'")),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = meta::labels(object);
        self.requirements.iter().all(|requirement| {
            let value = labels
                .and_then(|labels| labels.get(&requirement.key))
                .and_then(Value::as_str);
            requirement.test.holds(value)
        })
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            // An object without the label is not in the set either.
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(text) | Self::Symbol(text) => f.write_str(text),
            Self::End => Ok(()),
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", "<", ">"];

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!,()<>".contains(c))
                .unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens
}

/// A key or a value of a label selector that no label can have.
fn refused_part(place: &str, value: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "unable to parse requirement: {place}: Invalid value: \"{value}\": {why}"
    ))
}

fn unparsable(found: &Token<'_>, expected: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: found '{found}'{expected}"))
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn word(&mut self) -> Result<&'a str, ApiError> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(unparsable(&other, ", expected: identifier")),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, ApiError> {
        if self.peek() == Token::Symbol("!") {
            self.next();
            let key = self.key()?;
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        let key = self.key()?;
        let test = match self.peek() {
            Token::End | Token::Symbol(",") => Test::Exists,
            Token::Symbol("=" | "==") => {
                self.next();
                Test::In(vec![self.value()?])
            }
            Token::Symbol("!=") => {
                self.next();
                Test::NotIn(vec![self.value()?])
            }
            Token::Symbol(">") => {
                self.next();
                Test::Greater(self.number()?)
            }
            Token::Symbol("<") => {
                self.next();
                Test::Less(self.number()?)
            }
            Token::Word("in") => {
                self.next();
                Test::In(self.values()?)
            }
            Token::Word("notin") => {
                self.next();
                Test::NotIn(self.values()?)
            }
            other => return Err(unparsable(&other, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        if let Test::In(values) | Test::NotIn(values) = &test {
            for (index, value) in values.iter().enumerate() {
                if let Some(why) = super::names::label_value(value).first() {
                    return Err(refused_part(&format!("values[{index}][{key}]"), value, why));
                }
            }
        }
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<String, ApiError> {
        let key = self.word()?;
        let problems = super::names::qualified_name(key);
        match problems.first() {
            None => Ok(key.to_owned()),
            Some(problem) => Err(refused_part("<nil>", key, problem)),
        }
    }

    /// The value after `=`, which may be left out.
    fn value(&mut self) -> Result<String, ApiError> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            _ => self.word().map(str::to_owned),
        }
    }

    fn number(&mut self) -> Result<i64, ApiError> {
        let word = self.word()?;
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        word.parse().map_err(|_| refused_part("values[0]", word, why))
    }

    fn values(&mut self) -> Result<Vec<String>, ApiError> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(unparsable(&other, " expected: '('")),
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(word) => {
                    values.push(word.to_owned());
                    match self.next() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        other => return Err(unparsable(&other, ", expected: ',' or ')'")),
                    }
                }
                // `(a,)` and `()` hold an empty value, as in Kubernetes.
                Token::Symbol(")") => {
                    values.push(String::new());
                    return Ok(values);
                }
                Token::Symbol(",") => values.push(String::new()),
                other => return Err(unparsable(&other, ", expected: ',', ')' or identifier")),
            }
        }
    }
}

/// A parsed `fieldSelector`. Empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// # Errors
    /// Where the text is not a selector, or the resource does not offer a field of it.
    pub(crate) fn parse(text: &str, resource: &ResourceType) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for term in split_escaped(text).into_iter().filter(|term| !term.is_empty()) {
            let (path, value, equal) = split_term(term).ok_or_else(|| {
                ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'"))
            })?;
            if !selectable(resource).any(|field| field == path) {
                return Err(ApiError::bad_request(unknown_field(resource, path)));
            }
            terms.push(FieldTerm {
                path: path.to_owned(),
                value: unescape(value),
                equal,
            });
        }
        Ok(Self { terms })
    }

    /// The selector of one name.
    pub(crate) fn of_name(name: &str) -> Self {
        Self {
            terms: vec![FieldTerm {
                path: "metadata.name".to_owned(),
                value: name.to_owned(),
                equal: true,
            }],
        }
    }

    /// This selector and another together.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.terms.extend(other.terms);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.terms
            .iter()
            .all(|term| (field(object, &term.path) == term.value) == term.equal)
    }
}

/// The fields that a resource can be selected by: those of kube-apiserver's `SelectableFields`.
fn selectable(resource: &ResourceType) -> impl Iterator<Item = &'static str> {
    let special: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "nodes") => &["spec.unschedulable"],
        ("apps", "replicasets") => &["status.replicas"],
        _ => &[],
    };
    // A namespace's own name is all it has; the others, pods included, have both.
    let common: &[&str] = if resource.namespaced {
        &["metadata.name", "metadata.namespace"]
    } else {
        &["metadata.name"]
    };
    common.iter().chain(special).copied()
}

fn unknown_field(resource: &ResourceType, path: &str) -> String {
    if !resource.builtin || selectable(resource).count() > 2 {
        return format!("field label not supported: {path}");
    }
    format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}

fn field(object: &Value, path: &str) -> String {
    let mut value = object;
    for name in path.split('.') {
        match value.get(name) {
            Some(next) => value = next,
            None => return String::new(),
        }
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        // `source` of an event selects by its component.
        Value::Object(fields) => fields
            .get("component")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        other => other.to_string(),
    }
}

/// Splits at commas that no backslash precedes.
fn split_escaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let at = term.find(['=', '!'])?;
    let (path, rest) = term.split_at(at);
    let (operator, equal) = [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .find(|(operator, _)| rest.starts_with(operator))?;
    Some((path, &rest[operator.len()..], equal))
}

fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut escaped = false;
    for c in value.chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector)
            .unwrap()
            .matches(&json!({ "metadata": { "labels": labels } }))
    }

    #[test]
    fn label_selectors_follow_kubernetes() {
        let labels = json!({"app": "web", "tier": "2", "example.com/x": ""});
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=2", true),
            ("app != web", false),
            ("missing!=web", true),
            ("app in (api, web)", true),
            ("app notin (api,web)", false),
            ("missing notin (api)", true),
            ("missing in (api)", false),
            ("app", true),
            ("!app", false),
            ("!missing", true),
            ("tier>1", true),
            ("tier<2", false),
            ("app>1", false),
            ("example.com/x=", true),
            ("app=", false),
        ] {
            assert_eq!(selects(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn broken_label_selectors_are_named() {
        for (selector, message) in [
            (
                "a===",
                "unable to parse requirement: found '=', expected: identifier",
            ),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            (
                "a,",
                "unable to parse requirement: found '', expected: identifier after ','",
            ),
            (
                "a=b c",
                "unable to parse requirement: found 'c', expected: ',' or 'end of string'",
            ),
        ] {
            assert_eq!(
                LabelSelector::parse(selector).unwrap_err().message,
                message,
                "{selector}"
            );
        }
    }

    #[test]
    fn field_values_may_be_escaped() {
        assert_eq!(split_escaped(r"a=b\,c,d=e"), [r"a=b\,c", "d=e"]);
        assert_eq!(unescape(r"b\,c\\"), r"b,c\");
        assert_eq!(split_term("a!=b"), Some(("a", "b", false)));
        assert_eq!(split_term("a"), None);
    }
}
