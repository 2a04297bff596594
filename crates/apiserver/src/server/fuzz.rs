//! Requests of Kubernetes' clients, nearly right.

use http::HeaderMap;
use kaos_fuzz::Corpus;
use serde_json::{Value, json};

use super::{
    decode, names,
    query::Query,
    selectors::{FieldSelector, LabelSelector},
    target::Target,
};
use crate::{
    builtin,
    patch::{Manager, apply, json_patch, merge_patch, strategic_patch, track_update},
    protobuf::PROTOBUF,
    resource::ResourceType,
};

fn pods() -> ResourceType {
    let mut kinds = builtin::resource_types().into_iter();
    kinds
        .find(|kind| kind.plural == "pods" && kind.group.is_empty())
        .unwrap()
}

/// Without numbers that are not whole: of those with more than 15 digits the last is not exact.
fn whole_numbers(mut value: Value) -> Value {
    match &mut value {
        Value::Number(number) if number.is_f64() => return Value::Null,
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| *item = whole_numbers(item.take())),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| *field = whole_numbers(field.take())),
        _ => {}
    }
    value
}

#[test]
fn a_query_and_a_path_are_read_or_refused() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/queries"));
    let words = [
        "labelSelector=",
        "fieldSelector=",
        " in ",
        " notin ",
        "(",
        ")",
        "%2c",
        "!=",
        "==",
        "\\,",
        "/namespaces/",
        "%2f",
    ];
    let pods = pods();
    let object =
        json!({"metadata": {"name": "x", "labels": {"app": "x", "n": "7"}}, "status": {"phase": "Running"}});
    corpus.with_words(&words).fuzz_text(|text| {
        let (query, path) = text.split_once('\n').unwrap_or((text, "/"));
        if let Some(target) = Target::parse(path) {
            let problems = names::subdomain(target.name.as_deref().unwrap_or_default());
            assert!(problems.iter().all(|problem| !problem.is_empty()));
        }
        let parsed = Query::parse(Some(query));
        let _ = (parsed.list_options(false), parsed.list_options(true));
        let _ = (
            parsed.dry_run("PatchOptions"),
            parsed.field_validation("PatchOptions"),
        );
        for selector in [parsed.get("labelSelector"), Some(query)].into_iter().flatten() {
            if let Ok(selector) = LabelSelector::parse(selector) {
                assert!(!selector.is_empty() || selector.matches(&object));
                selector.matches(&Value::Null);
            }
        }
        for selector in [parsed.get("fieldSelector"), Some(query)].into_iter().flatten() {
            if let Ok(selector) = FieldSelector::parse(selector, &pods) {
                assert!(!selector.is_empty() || selector.matches(&object));
                selector.matches(&Value::Null);
            }
        }
    });
}

#[test]
fn a_body_is_an_object_or_refused() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/bodies"));
    let words = [
        "k8s\0",
        "kind: ",
        "- ",
        "&a ",
        "*a",
        "<<: ",
        "|",
        ">-",
        "!!",
        "? ",
        "\"a\":",
        "\x0a\x04\x0a\x02v1",
    ];
    let pods = pods();
    corpus.with_words(&words).fuzz(|bytes| {
        for media_type in [decode::JSON, "application/yaml", PROTOBUF, "text/plain"] {
            if let Ok(decoded) = decode::object(media_type, bytes, decode::Wanted::of(&pods)) {
                assert!(decoded.value.is_object());
                // What was taken is written as JSON and taken again.
                let written = decoded.value.to_string();
                let again = decode::json(written.as_bytes()).unwrap().value;
                assert_eq!(whole_numbers(again), whole_numbers(decoded.value));
            }
        }
        let mut headers = HeaderMap::new();
        if let Ok(value) = http::HeaderValue::from_bytes(bytes) {
            headers.insert(http::header::CONTENT_TYPE, value.clone());
            headers.insert(http::header::ACCEPT, value);
        }
        let _ = decode::media_type(&headers);
        for range in crate::accept::ranges(&headers) {
            let _ = crate::accept::Form::of(range);
        }
    });
}

#[test]
fn a_patch_makes_an_object_or_is_refused() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/patches"));
    let words = [
        "\"$patch\":",
        "\"delete\"",
        "\"replace\"",
        "\"$setElementOrder/",
        "\"$retainKeys\":",
        "\"$deleteFromPrimitiveList/",
        "\"containers\":",
        "\"name\":",
        "\"op\":",
        "\"path\":",
        "\"/spec/containers/0\"",
        "/-",
        "~0",
        "~1",
        "\"managedFields\":",
    ];
    let pods = pods();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "labels": {"app": "x"}, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}, {"name": "B"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}]}]},
    });
    let manager = |name| Manager {
        name,
        subresource: "",
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    let stored = apply(&pods, None, &object, manager("first"), false).unwrap();
    corpus.with_words(&words).fuzz(|bytes| {
        let Ok(patch) = decode::json(bytes) else {
            return;
        };
        let patch = patch.value;
        if let Ok(merged) = merge_patch(&object, &patch) {
            assert!(merged.is_object());
        }
        if let Ok(merged) = strategic_patch(&pods, &object, &patch) {
            assert!(merged.is_object());
        }
        if let Ok(mut patched) = json_patch(&object, &patch)
            && patched.is_object()
        {
            track_update(&pods, Some(&stored), &mut patched, manager("second"));
        }
        for force in [false, true] {
            if let Ok(applied) = apply(&pods, Some(&stored), &patch, manager("second"), force) {
                // The same once more changes nothing.
                let again = apply(&pods, Some(&applied), &patch, manager("second"), force).unwrap();
                assert_eq!(again, applied);
            }
        }
    });
}
