//! The definitions as they are installed.

use kaos_api::crds;

#[test]
fn definitions_are_as_reviewed() {
    for definition in crds() {
        let name = definition.metadata.name.clone().unwrap();
        insta::assert_snapshot!(name, serde_saphyr::to_string(&definition).unwrap());
    }
}

/// `kubectl apply` keeps a copy in an annotation, and annotations hold 262144 bytes.
#[test]
fn definitions_are_small_enough_for_kubectl_apply() {
    for definition in crds() {
        let size = serde_json::to_string(&definition).unwrap().len();
        assert!(size < 200_000, "{:?} has {size} bytes", definition.metadata.name);
    }
}
