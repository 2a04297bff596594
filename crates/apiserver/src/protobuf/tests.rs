use std::{collections::BTreeMap, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::{collection, prelude::*, sample};
use serde_json::{Value, json};

use super::*;
use crate::{builtin, server::Wanted};

/// An object in both forms, written by Kubernetes: `k8s.io/api/testdata`.
struct Case {
    definition: String,
    json: Value,
    protobuf: Vec<u8>,
}

/// By the kind, such as `apps/v1/Deployment`. Every field of each object has a value.
static CASES: LazyLock<BTreeMap<String, Case>> = LazyLock::new(|| {
    let definitions: BTreeMap<String, String> = definitions().into_iter().collect();
    let cases: BTreeMap<String, Value> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let case = |(kind, mut case): (String, Value)| {
        let case = Case {
            definition: definitions.get(&kind)?.clone(),
            protobuf: STANDARD.decode(case["protobuf"].as_str().unwrap()).unwrap(),
            json: case["json"].take(),
        };
        Some((kind, case))
    };
    cases.into_iter().filter_map(case).collect()
});

/// Everything that bodies can be, with the name of its definition.
fn definitions() -> Vec<(String, String)> {
    let kinds = builtin::resource_types().into_iter().map(|resource| {
        let name = format!("{}/{}", resource.api_version(), resource.kind);
        (name, resource.schema.definition().unwrap().to_owned())
    });
    let others = [
        ("v1/Binding", Wanted::BINDING),
        ("v1/DeleteOptions", Wanted::DELETE_OPTIONS),
        ("autoscaling/v1/Scale", Wanted::SCALE),
    ];
    let others = others
        .into_iter()
        .map(|(name, wanted)| (name.to_owned(), wanted.definition.unwrap().to_owned()));
    kinds.chain(others).collect()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of bytes.
fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | 2), &varint(bytes.len()), bytes].concat()
}

fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, object)].concat()
}

const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
/// The number of `not` in a schema.
const NOT: usize = 28;

const DEFINITION: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

#[test]
fn every_kind_is_read_as_kubernetes_writes_it() {
    let named: Vec<String> = definitions().into_iter().map(|(name, _)| name).collect();
    for kind in &named {
        assert!(CASES.contains_key(kind), "{kind}: run `cargo xtask generate`");
    }
    for (kind, case) in &*CASES {
        let found = decode(&case.definition, &case.protobuf).unwrap();
        assert_eq!(found, case.json, "{kind}");
    }
}

#[test]
fn what_is_empty_is_written_as_go_writes_it() {
    let read = |definition: &str, object: &[u8]| decode(definition, &envelope("v1", "", object)).unwrap();
    assert_eq!(
        read("io.k8s.api.core.v1.Service", &field(2, &field(1, b""))),
        json!({
            "apiVersion": "v1", "metadata": {}, "status": {"loadBalancer": {}},
            "spec": {"ports": [{"port": 0, "targetPort": 0}]},
        })
    );
    // A pointer to a zero is a zero: `replicas` is 0, and `paused` is not set.
    let spec = [0x08, 0x00, 0x38, 0x00];
    let deployment = read("io.k8s.api.apps.v1.Deployment", &field(2, &spec));
    assert_eq!(deployment["spec"]["replicas"], 0);
    assert_eq!(deployment["spec"].get("paused"), None);
    // The creation time of a new object is an empty message.
    assert_eq!(
        read(CONFIG_MAP, &field(1, &field(8, b""))),
        json!({"apiVersion": "v1", "metadata": {}})
    );
    // Bytes without a value, fields of a newer version, and a message in two parts.
    assert_eq!(
        read(
            "io.k8s.api.core.v1.Secret",
            &[field(2, &field(1, b"k")), field(15, b"x")].concat()
        ),
        json!({"apiVersion": "v1", "metadata": {}, "data": {"k": null}})
    );
    assert_eq!(
        read(
            CONFIG_MAP,
            &[field(1, &field(1, b"n")), field(1, &field(3, b"s"))].concat()
        )["metadata"],
        json!({"name": "n", "namespace": "s"})
    );
}

#[test]
fn what_is_no_object_of_the_kind_is_refused_and_says_where() {
    let metadata = |object: &[u8]| envelope("v1", "ConfigMap", &field(1, object));
    for (body, expected) in [
        (b"{}".to_vec(), "does not appear to be a protobuf message"),
        (
            b"k8s\0\x0a\x05v1".to_vec(),
            "the bytes end in the middle of a value",
        ),
        (envelope("v1", "Secret", &[]), "the body is a Secret"),
        (
            [envelope("v1", "ConfigMap", &[]), field(3, b"gzip")].concat(),
            "content encoding \"gzip\"",
        ),
        (
            metadata(&field(1, b"\xff")),
            "metadata.name: the text is not UTF-8",
        ),
        (
            metadata(&[0x08, 0x01]),
            "metadata.name: a number where a text is expected",
        ),
        (
            metadata(&field(7, b"one")),
            "metadata.generation: bytes where an integer is expected",
        ),
        (
            metadata(&field(8, &[[0x08].as_slice(), &[0xff; 8], &[0x7f]].concat())),
            "metadata.creationTimestamp: 9223372036854775807 seconds",
        ),
        (
            metadata(&field(17, &field(7, &field(1, b"{")))),
            "metadata.managedFields.fieldsV1: the JSON in it cannot be read",
        ),
    ] {
        let error = decode(CONFIG_MAP, &body).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let error = decode("io.example.Widget", &envelope("v1", "Widget", &[])).unwrap_err();
    assert!(
        error.contains("io.example.Widget has no form in protobuf"),
        "{error}"
    );
}

#[test]
fn what_nests_too_deep_is_refused() {
    // `not` of `not` of ...
    let schema = |depth: usize| {
        let schema = (0..depth).fold(Vec::new(), |inner, _| field(NOT, &inner));
        let version = field(4, &field(1, &schema));
        let object = field(2, &field(7, &version));
        envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &object)
    };
    let read = decode(DEFINITION, &schema(40)).unwrap();
    let innermost = format!("/spec/versions/0/schema/openAPIV3Schema{}", "/not".repeat(40));
    assert_eq!(read.pointer(&innermost), Some(&json!({})));
    let error = decode(DEFINITION, &schema(2000)).unwrap_err();
    assert!(error.contains("nested deeper than"), "{error}");
}

fn any_kind() -> impl Strategy<Value = &'static String> {
    sample::select(CASES.keys().collect::<Vec<_>>())
}

/// What the envelope ends with: the encoding and the type of its content, which say nothing.
const EMPTY_FIELDS: [u8; 4] = [0x1a, 0, 0x22, 0];

#[test]
fn cases_end_with_fields_that_say_nothing() {
    assert!(CASES.values().all(|case| case.protobuf.ends_with(&EMPTY_FIELDS)));
}

proptest! {
    /// Whatever comes is read or refused.
    #[test]
    fn no_bytes_make_it_panic(kind in any_kind(), bytes in collection::vec(any::<u8>(), 0..200)) {
        let case = &CASES[kind];
        let _ = decode(&case.definition, &bytes);
        let _ = decode(&case.definition, &[b"k8s\0", &*bytes].concat());
        let _ = decode(&case.definition, &envelope("", "", &bytes));
    }

    #[test]
    fn a_case_that_is_cut_or_changed_is_read_or_refused(
        kind in any_kind(),
        cut in any::<sample::Index>(),
        changes in collection::vec((any::<sample::Index>(), any::<u8>()), 0..8),
    ) {
        let case = &CASES[kind];
        let length = case.protobuf.len();
        let cut = cut.index(length);
        let left = decode(&case.definition, &case.protobuf[..cut]);
        prop_assert!(cut >= length - EMPTY_FIELDS.len() || left.as_ref() != Ok(&case.json));
        let mut changed = case.protobuf.clone();
        for (at, byte) in changes {
            changed[at.index(length)] = byte;
        }
        if let Ok(object) = decode(&case.definition, &changed) {
            prop_assert!(object.is_object());
        }
    }
}
