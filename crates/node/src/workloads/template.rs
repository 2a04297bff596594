//! Pod templates: what tells two apart, and the hash that names a ReplicaSet after one.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use sha2::{Digest as _, Sha256};

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
/// No vowels, nothing that reads as a digit of another: the alphabet of Kubernetes' generated names.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const HASH_LENGTH: usize = 10;

/// Whether two templates describe the same pods, whatever their hash label.
pub(super) fn same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    bare(a) == bare(b)
}

fn bare(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let meta = template.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().remove(HASH_LABEL);
    meta.annotations.get_or_insert_default();
    meta.creation_timestamp = None;
    template
}

/// The hash of a template; `collisions` gives another one for the same template.
pub(super) fn hash(template: &PodTemplateSpec, collisions: i32) -> String {
    // A typed template always serializes; its maps are ordered.
    let text = serde_json::to_vec(&bare(template)).unwrap_or_default();
    let digest = Sha256::new()
        .chain_update(text)
        .chain_update(collisions.to_le_bytes())
        .finalize();
    digest
        .iter()
        .take(HASH_LENGTH)
        .map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_follows_the_template_but_not_its_own_label() {
        let template = |labels: serde_json::Value, image: &str| -> PodTemplateSpec {
            serde_json::from_value(json!({ "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": image }] } }))
            .unwrap()
        };
        let plain = template(json!({ "a": "b" }), "x");
        let labelled = template(json!({ "a": "b", HASH_LABEL: "z" }), "x");
        assert!(same(&plain, &labelled));
        assert_eq!(hash(&plain, 0), hash(&labelled, 0));
        assert_eq!(hash(&plain, 0).len(), HASH_LENGTH);
        assert_ne!(hash(&plain, 0), hash(&plain, 1));
        assert!(!same(&plain, &template(json!({ "a": "b" }), "y")));
        assert_ne!(hash(&plain, 0), hash(&template(json!({ "a": "b" }), "y"), 0));
        assert!(same(
            &template(json!(null), "x"),
            &template(json!({ HASH_LABEL: "z" }), "x")
        ));
    }
}
