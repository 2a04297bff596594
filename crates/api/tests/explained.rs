//! What `kubectl explain` says of the kinds.

use kaos_api::crds;
use serde_json::{Value, json};

/// `kubectl explain` shows nothing else. Of Kubernetes' own types only that which is about us has a description.
#[test]
fn each_field_of_ours_is_explained_in_sentences() {
    fn walk(path: &str, schema: &Value, wrong: &mut Vec<String>) {
        let text = schema["description"].as_str().unwrap_or_default();
        let lines = text.split("\n\n");
        let is_prose =
            |line: &str| line.starts_with(char::is_uppercase) && line.ends_with('.') && !line.contains('\n');
        if !lines.clone().all(is_prose) {
            wrong.push(format!("{path}: {text:?}"));
        }
        let items = schema["items"]["properties"].as_object();
        let properties = schema["properties"].as_object().or(items);
        for (name, schema) in properties.into_iter().flatten() {
            let path = format!("{path}.{name}");
            if !is_embedded(&path) {
                walk(&path, schema, wrong);
            }
        }
    }
    fn is_embedded(path: &str) -> bool {
        [
            ".podSpec.",
            ".env.valueFrom.",
            ".resources.claims.",
            ".conditions.",
        ]
        .iter()
        .any(|part| path.contains(part))
    }
    let mut wrong = Vec::new();
    for definition in crds() {
        let schema = json!(definition.spec.versions[0].schema);
        for part in ["spec", "status"] {
            let path = format!("{}.{part}", definition.spec.names.kind);
            walk(&path, &schema["openAPIV3Schema"]["properties"][part], &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
