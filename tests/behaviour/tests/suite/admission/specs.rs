//! Specs made at random from the schema of a kind: what a user could write, sensible or not.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any};
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// How likely a property is that need not be there, in objects of a few properties and of many.
const FEW: f64 = 0.4;
const MANY: f64 = 0.04;

/// Texts that something may trip over, among such as work.
const TEXTS: [&str; 24] = [
    "a",
    "m",
    "t",
    "b",
    "*",
    "openai/*",
    "mock/m",
    "gpt-4o",
    "http://models.example.com/v1",
    "python-string",
    "plain",
    "custom",
    "no-such-thing",
    "agent",
    "model-api",
    "mcp-server",
    "30s",
    "1Gi",
    "$(HOME) $$(A) ${B}",
    "'\"`; # {}[]: |\n- x\t\\",
    "model_list:\n- model_name: gpt-4o\n  litellm_params: {model: openai/gpt-4o}\n",
    "{unclosed: [",
    "ünïcode\u{0}\u{202e}",
    "",
];

/// What a user means by a text of this name, so that specs get past the first look at them.
fn usual(name: &str) -> &'static [&'static str] {
    match name {
        "modelAPI" => &["m"],
        "mcpServers" => &["t"],
        "access" => &["b", "c"],
        "runtime" => &["python-string", "plain", "custom"],
        "model" => &["m", "gpt-4o", "smollm2:135m"],
        "models" => &["*", "openai/*", "m", "gpt-4o"],
        "provider" => &["openai", "mock"],
        "apiBase" => &["http://models.example.com/v1"],
        "timeout" => &["30s", "0s", "1h30m"],
        "image" => &["example.com/own:1"],
        "key" => &["api-key"],
        "serviceAccountName" => &["runner"],
        "params" | "toolsString" => &["def f(): pass"],
        "fromString" => &[
            "def f(): pass",
            "model_list: [{model_name: m, litellm_params: {model: openai/m}}]",
        ],
        "mcp" | "fromPackage" => &["tools==1.0"],
        "endpoint" => &["http://collector:4317"],
        "name" => &[
            "agent",
            "model-api",
            "mcp-server",
            "data",
            "LOG_LEVEL",
            "MODEL_NAME",
        ],
        _ => &[],
    }
}

/// Values of the field `name` that `schema` describes, mostly: what it refuses is refused by the server.
pub(super) fn values(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    let value = described(name, schema);
    if schema["nullable"] == true {
        return option::weighted(0.97, value)
            .prop_map(|value| value.unwrap_or(Value::Null))
            .boxed();
    }
    value
}

fn described(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    if let Some(choices) = schema["enum"].as_array() {
        return select(choices.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return select(vec![
            json!(1),
            json!(0),
            json!(-1),
            json!("500m"),
            json!("1Gi"),
            json!("http"),
        ])
        .boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => {
            let bound = |key: &str, default: i64| schema[key].as_f64().map_or(default, |bound| bound as i64);
            let (least, most) = (bound("minimum", -1), bound("maximum", i64::from(i32::MAX)));
            select(vec![
                least,
                least.saturating_add(1),
                8000.clamp(least, most),
                most,
            ])
            .prop_map(Value::from)
            .boxed()
        }
        Some("number") => Just(json!(0.5)).boxed(),
        Some("array") => array(name, schema),
        Some("object") => object(name, schema),
        _ => texts(name, schema),
    }
}

fn texts(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let known: Vec<&str> = TEXTS
        .into_iter()
        .filter(|text| text.chars().count() as u64 >= least)
        .collect();
    let any = proptest::prop_oneof![
        6 => select(known).prop_map(Value::from),
        1 => "[a-z=/ -]{1,8}".prop_map(Value::from),
    ];
    match usual(name) {
        [] => any.boxed(),
        usual => proptest::prop_oneof![
            19 => select(usual).prop_map(Value::from),
            1 => any,
        ]
        .boxed(),
    }
}

fn array(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
    // Lists that tell their items apart are refused where they cannot; most are to pass.
    let apart: Vec<String> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            serde_json::from_value(schema["x-kubernetes-list-map-keys"].clone()).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let set = schema["x-kubernetes-list-type"] == "set";
    vec(values(name, &schema["items"]), least..=least + 2)
        .prop_map(move |mut items| {
            let key = |item: &Value| match apart.as_slice() {
                [] if set => item.to_string(),
                [] => String::new(),
                keys => keys.iter().map(|key| item[key].to_string()).collect(),
            };
            let mut seen = Vec::new();
            items.retain(|item| {
                let key = key(item);
                let fresh = key.is_empty() || !seen.contains(&key);
                seen.push(key);
                fresh
            });
            Value::from(items)
        })
        .boxed()
}

fn object(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    let Some(properties) = schema["properties"].as_object() else {
        let values = values(name, &schema["additionalProperties"]);
        return vec((select(vec!["a", "cpu", "kubernetes.io/x"]), values), 0..=2)
            .prop_map(|entries| {
                let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(entries.collect::<Map<_, _>>())
            })
            .boxed();
    };
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let likely = if properties.len() > 12 { MANY } else { FEW };
    let fields: Vec<BoxedStrategy<Option<(String, Value)>>> = properties
        .iter()
        .map(|(name, schema)| {
            let likely = match name.as_str() {
                name if required.contains(&name) => 1.0,
                // By which items are told apart: an item without is refused, and little else.
                "name" => 0.95,
                "$patch" => 0.1,
                // Without these little gets past the rules.
                "runtime" | "proxyConfig" | "hostedConfig" | "models" | "image" => 0.85,
                _ => likely,
            };
            let name = name.clone();
            let field = values(&name, schema).prop_map(move |value| (name.clone(), value));
            if likely < 1.0 {
                option::weighted(likely, field).boxed()
            } else {
                field.prop_map(Some).boxed()
            }
        })
        .collect();
    fields
        .prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
        .boxed()
}
