//! What is changed about generated schemas, and the defaults that they name.

use schemars::Schema;
use serde_json::Value;

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

/// The default of switches that are on.
pub(crate) fn on() -> bool {
    true
}
