//! The definitions as they are installed.

use kaos_api::{crds, derived_crds};

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

#[test]
fn definitions_are_those_of_the_types() {
    let written = crds();
    assert_eq!(written.len(), 3, "every kind has its definition");
    for (written, derived) in written.iter().zip(derived_crds()) {
        let name = derived.metadata.name.as_ref();
        assert!(
            *written == derived,
            "{name:?} is not as its type has it: run `cargo xtask generate`"
        );
    }
}
