//! What a definition refuses: its rules in the Common Expression Language, and the bounds of its schema. Where each
//! stands, and what it says.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// The field that it refuses, from the object: of items and of entries of a map as `*`.
    field: Vec<String>,
    rule: String,
    /// The texts that its message has, in this order.
    texts: Vec<String>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field.join("."), self.rule)
    }
}

impl Rule {
    fn new(place: &[String], rule: &Value) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let below = text("fieldPath").split('.').filter(|part| !part.is_empty());
        let texts = match (text("message"), text("messageExpression")) {
            ("", "") => panic!("a rule without a message: {rule}"),
            // What is in quotes is said as it is, the rest is worked out.
            ("", expression) => expression.split('\'').skip(1).step_by(2).collect(),
            (message, _) => vec![message],
        };
        Self {
            field: place
                .iter()
                .cloned()
                .chain(below.map(ToOwned::to_owned))
                .collect(),
            rule: text("rule").to_owned(),
            texts: texts.into_iter().map(ToOwned::to_owned).collect(),
        }
    }

    /// Whether this is the field, as `spec.list.0.name`.
    pub(super) fn is_at(&self, field: &str) -> bool {
        is_at(&self.field, field)
    }

    /// Whether `text` is what it says.
    pub(super) fn says(&self, text: &str) -> bool {
        let mut rest = Some(text);
        for part in &self.texts {
            rest = rest.and_then(|rest| Some(rest.split_once(part.as_str())?.1));
        }
        rest.is_some()
    }
}

fn is_at(place: &[String], field: &str) -> bool {
    let parts: Vec<&str> = field.split('.').filter(|part| !part.is_empty()).collect();
    let fits = |(here, part): (&String, &&str)| here == "*" || here == part;
    parts.len() == place.len() && place.iter().zip(&parts).all(fits)
}

/// What a schema asks of a value beside its type.
#[derive(Debug)]
pub(super) struct Bound {
    field: Vec<String>,
    keyword: &'static str,
    /// What a refusal names.
    names: Vec<String>,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({})",
            self.field.join("."),
            self.keyword,
            self.names.join(", ")
        )
    }
}

impl Bound {
    /// Whether this is the field, as `spec.list.0.name`.
    pub(super) fn is_at(&self, field: &str) -> bool {
        is_at(&self.field, field)
    }

    /// Whether a refusal that names these is one for this.
    pub(super) fn is_named(&self, texts: &str) -> bool {
        self.names.iter().any(|name| texts.contains(name.as_str()))
    }
}

/// All rules of a kind.
pub(super) fn of(definition: &CustomResourceDefinition) -> Vec<Rule> {
    let mut rules = Vec::new();
    walk(&schema(definition), &mut Vec::new(), &mut |schema, place| {
        let here = schema["x-kubernetes-validations"].as_array();
        rules.extend(here.into_iter().flatten().map(|rule| Rule::new(place, rule)));
    });
    rules
}

/// The bounds of a kind's spec. Those of a pod and of where a variable comes from are Kubernetes' own.
pub(super) fn bounds(definition: &CustomResourceDefinition) -> Vec<Bound> {
    let mut bounds = Vec::new();
    walk(&schema(definition), &mut Vec::new(), &mut |schema, place| {
        let inner = place.iter().zip(place.iter().skip(1)).rev().skip(1);
        let is_kubernetes = place.iter().any(|part| part == "podSpec")
            || inner
                .into_iter()
                .any(|(one, next)| one == "*" && next == "valueFrom");
        if is_kubernetes || place.first().is_some_and(|part| part != "spec") {
            return;
        }
        bounds.extend(bounds_at(schema, place));
    });
    bounds
}

fn bounds_at(schema: &Value, place: &[String]) -> Vec<Bound> {
    let below = |part: &str| place.iter().cloned().chain([part.to_owned()]).collect();
    let mut bounds = Vec::new();
    for (keyword, before) in [
        ("minLength", "at least "),
        ("minItems", "at least "),
        ("minProperties", "at least "),
        ("maxProperties", "at most "),
        ("maxLength", ""),
        ("maxItems", ""),
        ("minimum", "greater than or equal to "),
        ("maximum", "less than or equal to "),
    ] {
        if let Some(bound) = schema[keyword].as_f64() {
            let names = vec![format!("{before}{bound}")];
            let field = place.to_vec();
            bounds.push(Bound {
                field,
                keyword,
                names,
            });
        }
    }
    let mut more = |keyword, field, names: Vec<&str>| {
        let names = names.into_iter().map(ToOwned::to_owned).collect();
        bounds.push(Bound {
            field,
            keyword,
            names,
        });
    };
    if let Some(choices) = schema["enum"].as_array() {
        more(
            "enum",
            place.to_vec(),
            choices.iter().filter_map(Value::as_str).collect(),
        );
    }
    if schema["pattern"].is_string() {
        more("pattern", place.to_vec(), vec!["should match"]);
    }
    if ["set", "map"]
        .iter()
        .any(|type_| schema["x-kubernetes-list-type"] == *type_)
    {
        more("a list without duplicates", below("*"), vec!["Duplicate value"]);
    }
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        more("required", below(name), vec!["Required value"]);
    }
    bounds
}

fn schema(definition: &CustomResourceDefinition) -> Value {
    json!(definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// Looks at the schema of every field.
fn walk(schema: &Value, place: &mut Vec<String>, look: &mut impl FnMut(&Value, &[String])) {
    look(schema, place);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let inner = ["items", "additionalProperties"].map(|key| ("*", &schema[key]));
    for (name, schema) in properties
        .map(|(name, schema)| (name.as_str(), schema))
        .chain(inner)
        .filter(|(_, schema)| schema.is_object())
    {
        place.push(name.to_owned());
        walk(schema, place, look);
        place.pop();
    }
}
