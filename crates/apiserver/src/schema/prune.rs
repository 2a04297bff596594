//! Fields that a schema does not know.

use serde_json::Value;

use super::{
    OBJECT_META, Schema,
    node::{Kind, Node},
};

/// Removes unknown fields below `path` and adds their paths to `unknown`.
pub(super) fn prune(schema: &Schema, node: &Node, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if node.kind == Kind::Any && node.preserve_unknown && node.properties.is_empty() {
                return;
            }
            let mut gone = Vec::new();
            for (name, child) in map.iter_mut() {
                let at = joined(path, name);
                match node.field(name) {
                    Some(field) => prune(schema, schema.resolve(field), child, &at, unknown),
                    None if node.embedded && matches!(name.as_str(), "apiVersion" | "kind") => {}
                    None if node.embedded && name == "metadata" => {
                        let meta = Node::reference(OBJECT_META);
                        prune(schema, schema.resolve(&meta), child, &at, unknown);
                    }
                    None if node.preserve_unknown => {}
                    None => gone.push((name.clone(), at)),
                }
            }
            for (name, at) in gone {
                map.remove(&name);
                unknown.push(at);
            }
        }
        Value::Array(items) => {
            if let Some(item) = &node.items {
                let item = schema.resolve(item);
                for (index, child) in items.iter_mut().enumerate() {
                    prune(schema, item, child, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
