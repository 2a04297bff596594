//! The arguments of a call, taken from the message by the types that the tool's schema asks for.
//!
//! Each piece of the message is used once: numbers in order, quoted strings in order, words that name a value
//! of an enum or a truth value; and what is left of the words for required strings. What is handed on to
//! somebody who reads, such as a task, is the whole message.

use std::collections::VecDeque;

use kaos_openai::Tool;
use serde_json::{Map, Number, Value};

use super::words::{Piece, alike, is_common, pieces, split_name};

/// What the message yields for a tool.
#[derive(Debug, PartialEq)]
pub(super) enum Filled {
    /// All required arguments, and those optional ones that the message has values for.
    Arguments(Map<String, Value>),
    /// A required argument without a value.
    Missing {
        /// The argument.
        name: String,
        /// Its type.
        kind: String,
    },
}

/// Fills the arguments of `tool` from `text`.
pub(super) fn fill(tool: &Tool, text: &str) -> Filled {
    let empty = Map::new();
    let schema = tool.function.parameters.as_ref().unwrap_or(&Value::Null);
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let is_required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|required| required == name))
    };
    let mut stock = Stock::new(tool, text);
    let mut found: Map<String, Value> = Map::new();
    for (name, property) in properties {
        if let Some(value) = stock.take(property) {
            found.insert(name.clone(), value);
        }
    }
    // Plain words are the last resort, so that they do not take the place of what fits better.
    let open: Vec<&String> = properties
        .iter()
        .filter(|(name, property)| {
            !found.contains_key(*name) && is_required(name) && matches!(kind(property), "string" | "any")
        })
        .map(|(name, _)| name)
        .collect();
    for (place, name) in open.iter().enumerate() {
        if HANDED_ON.contains(&name.as_str()) {
            found.insert((*name).clone(), text.trim().into());
        } else if let Some(words) = stock.words(place + 1 == open.len()) {
            found.insert((*name).clone(), words.into());
        }
    }
    let missing = properties
        .iter()
        .find(|(name, _)| is_required(name) && !found.contains_key(*name));
    if let Some((name, property)) = missing {
        return Filled::Missing {
            name: name.clone(),
            kind: kind(property).to_owned(),
        };
    }
    // In the order of the schema, whatever order they were found in.
    let arguments = properties
        .keys()
        .filter_map(|name| found.remove_entry(name))
        .collect();
    Filled::Arguments(arguments)
}

/// Parameters whose value somebody reads who understands sentences.
const HANDED_ON: [&str; 3] = ["prompt", "question", "task"];

/// What of the message is not used yet.
struct Stock {
    numbers: VecDeque<String>,
    quoted: VecDeque<String>,
    words: VecDeque<String>,
}

impl Stock {
    fn new(tool: &Tool, text: &str) -> Self {
        let mut stock = Self {
            numbers: VecDeque::new(),
            quoted: VecDeque::new(),
            words: VecDeque::new(),
        };
        let named = split_name(&tool.function.name);
        for piece in pieces(text) {
            match piece {
                Piece::Number(number) => stock.numbers.push_back(number),
                Piece::Quoted(text) => stock.quoted.push_back(text),
                // The words that made the tool be chosen are not its arguments.
                Piece::Word(word) if named.iter().any(|own| alike(own, &word)) => {}
                Piece::Word(word) => stock.words.push_back(word),
            }
        }
        stock
    }

    /// A value for a property, if the message has a sure one.
    fn take(&mut self, property: &Value) -> Option<Value> {
        if let Some(values) = choices(property) {
            return self.choice(values);
        }
        match kind(property) {
            "integer" => self.number(true),
            "number" => self.number(false),
            "boolean" => self.truth(),
            "string" => self.quoted.pop_front().map(Value::String),
            "array" => self.list(&property["items"]),
            _ => None,
        }
    }

    fn number(&mut self, whole: bool) -> Option<Value> {
        let parsed = |text: &String| number(text, whole);
        let at = self.numbers.iter().position(|text| parsed(text).is_some())?;
        self.numbers.remove(at).as_ref().and_then(parsed)
    }

    fn truth(&mut self) -> Option<Value> {
        let truth = |word: &String| match word.to_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        };
        let at = self.words.iter().position(|word| truth(word).is_some())?;
        self.words.remove(at).as_ref().and_then(truth).map(Value::Bool)
    }

    fn choice(&mut self, values: &[Value]) -> Option<Value> {
        let named = |text: &String| {
            values.iter().find(|value| {
                value
                    .as_str()
                    .is_some_and(|value| value.eq_ignore_ascii_case(text))
            })
        };
        for stock in [&mut self.quoted, &mut self.words] {
            if let Some(at) = stock.iter().position(|text| named(text).is_some()) {
                return stock.remove(at).as_ref().and_then(named).cloned();
            }
        }
        let counted = |text: &String| {
            values
                .iter()
                .find(|value| number(text, false).as_ref() == Some(value))
        };
        let at = self.numbers.iter().position(|text| counted(text).is_some())?;
        self.numbers.remove(at).as_ref().and_then(counted).cloned()
    }

    /// All that is left and fits: numbers for a list of numbers, quoted strings for one of strings.
    fn list(&mut self, items: &Value) -> Option<Value> {
        let mut values = Vec::new();
        while let Some(value) = self.take(items) {
            values.push(value);
        }
        (!values.is_empty()).then_some(Value::Array(values))
    }

    /// The next word that is not a common one, or all that are left, joined.
    fn words(&mut self, all: bool) -> Option<String> {
        self.words.retain(|word| !is_common(word));
        let count = if all {
            self.words.len()
        } else {
            self.words.len().min(1)
        };
        let words: Vec<String> = self.words.drain(..count).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// The type of a property. Of alternatives the first that is not `null` counts.
fn kind(property: &Value) -> &str {
    let named = |value: &'_ Value| value.as_str().is_some_and(|name| name != "null");
    match &property["type"] {
        Value::String(name) => return name,
        Value::Array(names) => {
            return names
                .iter()
                .find(|name| named(name))
                .and_then(Value::as_str)
                .unwrap_or("any");
        }
        _ => {}
    }
    alternatives(property)
        .map(kind)
        .find(|kind| *kind != "null")
        .unwrap_or("any")
}

fn alternatives(property: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| property[key].as_array())
        .flatten()
}

fn choices(property: &Value) -> Option<&Vec<Value>> {
    property["enum"]
        .as_array()
        .or_else(|| alternatives(property).find_map(|one| one["enum"].as_array()))
}

fn number(text: &str, whole: bool) -> Option<Value> {
    let integer = text
        .parse::<i64>()
        .map(Number::from)
        .or_else(|_| text.parse::<u64>().map(Number::from));
    match integer {
        Ok(number) => Some(Value::Number(number)),
        Err(_) if whole => None,
        Err(_) => text
            .parse::<f64>()
            .ok()
            .and_then(Number::from_f64)
            .map(Value::Number),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(properties: Value, required: Value, text: &str) -> Value {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        match fill(&Tool::function("get_weather", None, schema), text) {
            Filled::Arguments(arguments) => Value::Object(arguments),
            Filled::Missing { name, kind } => Value::String(format!("{name}: {kind}")),
        }
    }

    #[test]
    fn numbers_go_to_the_parameters_that_take_them() {
        let types = json!({"n": {"type": "integer"}, "x": {"type": "number"}, "m": {"type": "integer"}});
        let text = "2.5 then 3 and 4,000";
        assert_eq!(
            filled(types.clone(), json!(["n"]), text),
            json!({"n": 3, "x": 2.5, "m": 4000})
        );
        assert_eq!(
            filled(types.clone(), json!(["n", "x", "m"]), "only 7 and 8"),
            json!("m: integer")
        );
        assert_eq!(filled(types, json!([]), "none"), json!({}));
    }

    #[test]
    fn strings_come_from_quotations_before_words() {
        let city = json!({"city": {"type": "string"}});
        let weather = |text: &str| filled(city.clone(), json!(["city"]), text);
        assert_eq!(
            weather("What is the weather in \"São Paulo\" now?"),
            json!({"city": "São Paulo"})
        );
        assert_eq!(
            weather("What is the weather in New York?"),
            json!({"city": "New York"})
        );
        assert_eq!(weather("weather?"), json!("city: string"));
        let two = json!({"from": {"type": "string"}, "to": {"type": "string"}});
        let trip = filled(two, json!(["from", "to"]), "from Paris to New York");
        assert_eq!(trip, json!({"from": "Paris", "to": "New York"}));
    }

    #[test]
    fn a_task_is_the_whole_message() {
        let task = json!({"task": {"type": "string"}});
        assert_eq!(
            filled(task.clone(), json!(["task"]), "Ask her: what is 3 times 4?"),
            json!({"task": "Ask her: what is 3 times 4?"})
        );
        assert_eq!(
            filled(task, json!(["task"]), "Ask her \"Who are you?\" now"),
            json!({"task": "Who are you?"})
        );
    }

    #[test]
    fn enums_truth_values_lists_and_alternatives_are_understood() {
        let properties = json!({
            "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
            "days": {"enum": [1, 7]},
            "exact": {"type": "boolean"},
            "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "points": {"type": "array", "items": {"type": "number"}},
        });
        assert_eq!(
            filled(
                properties,
                json!(["unit", "points"]),
                "Kelvin, 7 days, exact: yes, \"a note\", 1 2.5 3"
            ),
            json!({"unit": "kelvin", "days": 7, "exact": true, "note": "a note", "points": [1, 2.5, 3]})
        );
    }

    #[test]
    fn what_cannot_be_taken_from_text_is_missing() {
        let nested = json!({"where": {"type": "object"}});
        assert_eq!(
            filled(nested, json!(["where"]), "in Paris"),
            json!("where: object")
        );
        let huge = json!({"n": {"type": "integer"}});
        assert_eq!(
            filled(huge, json!(["n"]), "99999999999999999999999"),
            json!("n: integer")
        );
    }
}
