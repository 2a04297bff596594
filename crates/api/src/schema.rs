//! What is changed about generated schemas, and the defaults that they name.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::Rule;
use schemars::Schema;
use serde_json::{Value, json};

use crate::names::{self, Kind};

const RULES: &str = "x-kubernetes-validations";

/// Takes the descriptions out of an embedded Kubernetes type, except its own.
///
/// They are the same in every Kubernetes reference, and would make the definitions larger than the 256 KiB
/// that `kubectl apply` can handle.
pub(crate) fn embedded(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        for (key, value) in object.iter_mut() {
            if key != "description" {
                strip(value, key == "properties");
            }
        }
    }
}

/// `names` tells that the keys of `value` are names of properties, one of which may be "description".
fn strip(value: &mut Value, names: bool) {
    match value {
        Value::Object(object) => {
            if !names {
                object.remove("description");
            }
            for (key, value) in object.iter_mut() {
                strip(value, !names && key == "properties");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makes the schema of an embedded Kubernetes type that of a patch of it: nothing is required but what tells
/// list items apart, every value may be null, and every object may carry the directive `$patch`.
pub(crate) fn patch(schema: &mut Schema) {
    embedded(schema);
    if let Some(object) = schema.as_object_mut() {
        let mut value = Value::Object(std::mem::take(object));
        make_patch(&mut value);
        if let Value::Object(patched) = value {
            *object = patched;
        }
    }
}

/// The properties by which items of a pod's lists are told apart.
const MERGE_KEYS: [&str; 7] = [
    "containerPort",
    "devicePath",
    "ip",
    "mountPath",
    "name",
    "topologyKey",
    "uid",
];

fn make_patch(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("required");
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            make_patch(inner);
        }
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties.iter_mut() {
            make_patch(property);
            if let Some(property) = property.as_object_mut()
                && !MERGE_KEYS.contains(&name.as_str())
            {
                property.remove("default");
                property.insert("nullable".to_owned(), Value::Bool(true));
            }
        }
        let directive = json!({"type": "string", "enum": ["delete", "merge", "replace"]});
        properties.insert("$patch".to_owned(), directive);
    }
}

/// Of environment variables, as [`embedded`]: refuses what the container could not be given.
pub(crate) fn env(schema: &mut Schema) {
    embedded(schema);
    let rules = json!([{
        "rule": "!has(self.value) || self.value == '' || !has(self.valueFrom)",
        "message": "a variable has either value or valueFrom: remove one of them",
        "fieldPath": ".valueFrom",
    }]);
    // Not rules: their cost would need a bound on the number of variables.
    for bound in ["minProperties", "maxProperties"] {
        set(schema, "/items/properties/valueFrom", bound, json!(1));
    }
    set(schema, "/items/properties/name", "pattern", json!("^[^=]+$"));
    set(schema, "/items", RULES, rules);
    describe(
        schema,
        "/items/properties",
        [
            ("name", "The name of the variable."),
            (
                "value",
                "Its value. $(NAME) stands for the value of another variable, $$ for $.",
            ),
            ("valueFrom", "Where its value is, in place of value."),
        ],
    );
}

/// Of a key in a Secret or ConfigMap, as [`embedded`]: both names have to be possible ones.
pub(crate) fn key_ref(schema: &mut Schema) {
    embedded(schema);
    let key = Rule::new(r"self.matches('^[-._a-zA-Z0-9]+$')")
        .message("no key of a Secret or ConfigMap: write letters, digits, hyphens, underscores and dots");
    for (property, rule) in [("name", object_name()), ("key", key)] {
        set_rule(schema, &format!("/properties/{property}"), 253, &rule);
    }
    describe(
        schema,
        "/properties",
        [
            ("name", "The name of the object."),
            ("key", "The key in it."),
            (
                "optional",
                "Whether the object or its key may be missing. Default: false.",
            ),
        ],
    );
}

/// CEL, at a text: it may be the name of an object of whatever kind.
pub(crate) fn object_name() -> Rule {
    // A DNS subdomain.
    Rule::new(r"self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')").message(
        "no object can have this name: write that of one in this namespace, in lower-case letters, digits, hyphens \
         and dots",
    )
}

/// Of the name of a ModelAPI.
pub(crate) fn model_api(schema: &mut Schema) {
    set_rule(schema, "", 253, &names::name_of(Kind::ModelApi));
}

/// Of the names of MCPServers.
pub(crate) fn mcp_servers(schema: &mut Schema) {
    set_rule(schema, "/items", 253, &names::name_of(Kind::McpServer));
}

/// Of the names of Agents.
pub(crate) fn agents(schema: &mut Schema) {
    set_rule(schema, "/items", 253, &names::name_of(Kind::Agent));
}

/// A rule of a text, which is bounded: the API server reckons what a rule costs at worst.
fn set_rule(schema: &mut Schema, pointer: &str, longest: u16, rule: &Rule) {
    set(schema, pointer, "maxLength", json!(longest));
    set(schema, pointer, RULES, json!([rule]));
}

/// Of requested and limited resources, as [`embedded`]: refuses what is no quantity.
pub(crate) fn resources(schema: &mut Schema) {
    embedded(schema);
    for amounts in ["requests", "limits"] {
        let amounts = format!("/properties/{amounts}");
        let amount = format!("{amounts}/additionalProperties");
        let rules = json!([{
            "rule": "isQuantity(string(self))",
            "message": "not an amount: write a number with or without a unit, such as 500m, 2 or 1Gi",
        }]);
        // Without bounds the API server reckons with megabytes of text, and refuses the rule.
        set(schema, &amounts, "maxProperties", json!(100));
        set(schema, &amount, "maxLength", json!(64));
        set(schema, &amount, RULES, rules);
    }
    describe(
        schema,
        "/properties",
        [
            ("requests", "What a node has to have free for the container."),
            ("limits", "What the container may use at most."),
            (
                "claims",
                "Names of resource claims of the pod that the container uses.",
            ),
        ],
    );
    // As in the Deployment that they become part of.
    set(
        schema,
        "/properties/claims",
        "x-kubernetes-list-type",
        json!("map"),
    );
    set(
        schema,
        "/properties/claims",
        "x-kubernetes-list-map-keys",
        json!(["name"]),
    );
}

/// What `kubectl explain` says of properties that everybody sets.
fn describe(schema: &mut Schema, properties: &str, texts: [(&str, &str); 3]) {
    for (property, text) in texts {
        set(
            schema,
            &format!("{properties}/{property}"),
            "description",
            json!(text),
        );
    }
}

fn set(schema: &mut Schema, pointer: &str, key: &str, value: Value) {
    if pointer.is_empty() {
        schema.insert(key.to_owned(), value);
    } else if let Some(node) = schema.pointer_mut(pointer).and_then(Value::as_object_mut) {
        node.insert(key.to_owned(), value);
    }
}

/// Puts each paragraph of a description on one line: where it breaks is up to who shows it.
pub(crate) fn unwrap_descriptions(schema: &mut JSONSchemaProps) {
    if let Some(description) = &mut schema.description {
        let paragraphs: Vec<String> = description
            .split("\n\n")
            .map(|paragraph| paragraph.split('\n').collect::<Vec<_>>().join(" "))
            .collect();
        *description = paragraphs.join("\n\n");
    }
    schema
        .properties
        .iter_mut()
        .flat_map(BTreeMap::values_mut)
        .for_each(unwrap_descriptions);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        unwrap_descriptions(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        unwrap_descriptions(values);
    }
}

/// The default of switches that are on.
pub(crate) fn on() -> bool {
    true
}
