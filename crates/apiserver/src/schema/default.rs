//! Defaults of absent fields.

use serde_json::Value;

use super::{
    Schema,
    node::{Kind, Node},
};

/// Fills in defaults, top down, so that a default object gets the defaults of its own fields.
pub(super) fn apply(schema: &Schema, node: &Node, value: &mut Value, custom: bool) {
    match value {
        Value::Object(map) => {
            for (name, field) in &node.properties {
                let resolved = schema.resolve(field);
                if map.get(name).is_some_and(Value::is_null) && !resolved.nullable && resolved.kind != Kind::Any {
                    // A null where null is no value means that the field is absent.
                    map.remove(name);
                }
                let default = field.default.as_ref().or(resolved.default.as_ref());
                if let Some(default) = default.filter(|_| custom)
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
                if let Some(child) = map.get_mut(name) {
                    apply(schema, resolved, child, custom);
                }
            }
            if let Some(additional) = &node.additional {
                let additional = schema.resolve(additional);
                for (name, child) in map.iter_mut() {
                    if !node.properties.contains_key(name) {
                        apply(schema, additional, child, custom);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &node.items {
                let item = schema.resolve(item);
                items.iter_mut().for_each(|child| apply(schema, item, child, custom));
            }
        }
        _ => {}
    }
}
