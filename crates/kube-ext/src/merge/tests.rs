//! The table of cases, the schema, and what holds for any input.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    merge_pod_spec,
    schema::{Field, Object, OneOf, POD_SPEC},
};

/// A case of `cases.json`: what the Go code answers, and what we answer where it is something else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    base: Value,
    patch: Value,
    /// The result of `strategicpatch.StrategicMergePatch` with `corev1.PodSpec`, written by `cargo xtask generate`.
    go: Option<Value>,
    /// Its refusal.
    go_error: Option<String>,
    /// Whether the order of merged lists is that of the Go code, too.
    #[serde(default)]
    exact: bool,
    /// Our result, where it is deliberately another.
    want: Option<Value>,
    /// Our refusal.
    error: Option<String>,
    /// What is wrong with the answer of the Go code.
    why: Option<String>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("cases.json")).unwrap()
}

#[test]
fn every_case_of_the_table_merges_as_kubernetes_does_or_differs_for_a_reason() {
    for case in cases() {
        let Case {
            name,
            base,
            patch,
            go,
            go_error,
            exact,
            want,
            error,
            why,
        } = case;
        let merged = merge_pod_spec(&base, &patch);
        match (want, error) {
            (Some(want), None) => {
                assert!(why.is_some(), "{name}: it does not say why it differs");
                assert_ne!(go.as_ref(), Some(&want), "{name}: it does not differ");
                assert_eq!(merged.unwrap(), want, "{name}");
            }
            (None, Some(error)) => {
                assert_eq!(go_error.is_none(), why.is_some(), "{name}: why is it refused?");
                assert_eq!(merged.unwrap_err().to_string(), error, "{name}");
            }
            (None, None) => {
                let (merged, go) = (merged.unwrap(), go.expect(&name));
                if exact {
                    assert_eq!(merged, go, "{name}");
                }
                assert_eq!(unordered(&merged), unordered(&go), "{name}");
            }
            (Some(_), Some(_)) => panic!("{name}: it wants both a result and an error"),
        }
    }
}

/// A value with its lists of named items in an order of their own.
fn unordered(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), unordered(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(unordered).collect();
            if items.iter().all(Value::is_object) {
                items.sort_by_key(|item| {
                    item.as_object()
                        .map(|item| item.get("name").map(Value::to_string))
                });
            }
            items.into()
        }
        scalar => scalar.clone(),
    }
}

#[test]
fn nothing_is_left_of_directives_and_nulls() {
    for case in cases() {
        if let Ok(merged) = merge_pod_spec(&case.base, &case.patch) {
            assert!(is_plain(&merged), "{}: {merged}", case.name);
        }
    }
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| !name.starts_with('$') && is_plain(value)),
        Value::Array(items) => items.iter().all(is_plain),
        _ => true,
    }
}

#[test]
fn an_error_names_its_place_in_the_whole_document() {
    let error = merge_pod_spec(&json!({}), &json!({"containers": [{"image": "x"}]})).unwrap_err();
    assert_eq!(
        error.within("spec.podSpec").to_string(),
        "spec.podSpec.containers[0]: has no name, found {\"image\":\"x\"}; give it the name of the item it is about"
    );
    let error = merge_pod_spec(&json!({}), &json!("x")).unwrap_err();
    assert_eq!(error.to_string(), "the patch: found \"x\"; write an object");
    assert_eq!(
        error.within("spec.podSpec").to_string(),
        "spec.podSpec: found \"x\"; write an object"
    );
}

#[test]
fn a_long_value_is_cut_in_a_message() {
    let error = merge_pod_spec(&json!({}), &json!({"volumes": "ü".repeat(1000)})).unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
}

/// In quadratic time this would take half a minute.
#[test]
fn a_list_as_long_as_a_request_may_be_is_merged_at_once() {
    let all = || 0..10_000;
    let variables = |from: u32| -> Value {
        let variables = all().map(|number| json!({"name": format!("N{}", number + from), "value": "x"}));
        variables.collect::<Vec<_>>().into()
    };
    let order: Vec<Value> = all()
        .map(|number| json!({"name": format!("N{}", number + 3_000)}))
        .collect();
    let base = json!({"containers": [{"name": "a", "env": variables(0), "args": vec!["x"; 10_000]}]});
    let patch = json!({"containers": [{
        "name": "a",
        "env": variables(3_000),
        "$setElementOrder/env": order,
        "$deleteFromPrimitiveList/args": all().map(|number| number.to_string()).collect::<Vec<_>>(),
    }]});
    let merged = merge_pod_spec(&base, &patch).unwrap();
    assert_eq!(
        merged["containers"][0]["env"].as_array().map(Vec::len),
        Some(13_000)
    );
}

/// The table of keys against the schemas of the real API server.
#[test]
fn the_keys_are_those_of_the_schemas() {
    const SCHEMAS: &str = include_str!("../../../apiserver/src/builtin/schemas.json");
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap();
    let mut of_schemas = BTreeSet::new();
    schema_lists(
        &schemas,
        &json!({"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}),
        "",
        &mut of_schemas,
    );
    let mut ours = BTreeSet::new();
    our_lists(&POD_SPEC, "", &mut ours);
    assert!(ours.len() > 20, "{ours:?}");
    assert_eq!(ours, of_schemas);
}

/// A list's path, its merge key and the key that tells items of one merge key apart.
type Lists = BTreeSet<(String, String, Option<String>)>;

fn our_lists(object: &Object, path: &str, lists: &mut Lists) {
    for (name, field) in object.fields {
        let path = format!("{path}.{name}");
        match field {
            Field::Object(object) => our_lists(object, &path, lists),
            Field::Set => drop(lists.insert((path, String::new(), None))),
            Field::List(list) => {
                our_lists(list.item, &path, lists);
                let also = list.also.map(|(also, _)| also.to_owned());
                lists.insert((path, list.key.to_owned(), also));
            }
        }
    }
}

fn schema_lists(schemas: &Value, schema: &Value, path: &str, lists: &mut Lists) {
    let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
    let schema = name.map_or(schema, |name| &schemas[name]);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        schema_lists(schemas, part, path, lists);
    }
    let strategy = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    if strategy.split(',').any(|strategy| strategy == "merge") {
        let key = schema["x-kubernetes-patch-merge-key"]
            .as_str()
            .unwrap_or_default();
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        let also = keys.into_iter().flatten().filter_map(Value::as_str);
        let also = also.filter(|other| *other != key).map(str::to_owned).next();
        lists.insert((path.to_owned(), key.to_owned(), also));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        schema_lists(schemas, field, &format!("{path}.{name}"), lists);
    }
    if schema["items"].is_object() {
        schema_lists(schemas, &schema["items"], path, lists);
    }
}

/// Patches and bases of any shape, from words that mean something to merging.
fn any_json(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let word = proptest::sample::select(words);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        proptest::sample::select(&["a", "b", "merge", "replace", "delete", "TCP", ""][..])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word.clone(), inner), 0..5).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect())
            }),
        ]
    })
}

const FIELDS: &[&str] = &[
    "name",
    "containers",
    "env",
    "value",
    "valueFrom",
    "ports",
    "containerPort",
    "protocol",
    "volumes",
    "emptyDir",
    "hostPath",
    "args",
    "livenessProbe",
    "exec",
    "httpGet",
    "nodeSelector",
    "topologySpreadConstraints",
    "topologyKey",
    "whenUnsatisfiable",
    "fieldRef",
];

const WORDS: &[&str] = &[
    "name",
    "containers",
    "env",
    "value",
    "valueFrom",
    "ports",
    "containerPort",
    "protocol",
    "volumes",
    "emptyDir",
    "hostPath",
    "args",
    "livenessProbe",
    "$patch",
    "$patch",
    "$retainKeys",
    "$setElementOrder/env",
    "$setElementOrder/ports",
    "$deleteFromPrimitiveList/args",
    "$deleteFromPrimitiveList/env",
    "$unknown",
];

/// A pod spec that could be one, of few names, so that patches meet it.
fn pod_spec(nulls: bool) -> impl Strategy<Value = Value> {
    let name = || proptest::sample::select(&["a", "b", "c"][..]);
    let value = move || {
        let strings = name().prop_map(Value::from);
        if nulls {
            prop_oneof![4 => strings, 1 => Just(Value::Null)].boxed()
        } else {
            strings.boxed()
        }
    };
    let env = (name(), value(), any::<bool>()).prop_map(|(name, value, source)| {
        if source {
            json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": value}}})
        } else {
            json!({"name": name, "value": value})
        }
    });
    let port = (
        1..3,
        proptest::option::of(proptest::sample::select(&["TCP", "UDP"][..])),
        value(),
    )
        .prop_map(|(number, protocol, name)| {
            let mut port = json!({"containerPort": number, "name": name});
            if let Some(protocol) = protocol {
                port["protocol"] = protocol.into();
            }
            port
        });
    let container = (
        name(),
        proptest::collection::vec(env, 0..4),
        proptest::collection::vec(port, 0..4),
        proptest::collection::vec(name(), 0..3),
    )
        .prop_map(|(name, env, ports, args)| json!({"name": name, "env": once(env), "ports": once(ports), "args": args}));
    let volume = (
        name(),
        value(),
        proptest::sample::select(&["emptyDir", "hostPath", "secret"][..]),
    )
        .prop_map(|(name, value, source)| json!({"name": name, source: {"x": value}}));
    (
        proptest::collection::vec(container, 0..4),
        proptest::collection::vec(volume, 0..3),
        value(),
    )
        .prop_map(|(containers, volumes, selected)| {
            json!({"containers": once(containers), "volumes": once(volumes), "nodeSelector": {"a": selected}})
        })
}

/// The items without those that are named a second time, which no patch may have.
fn once(mut items: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    items.retain(|item| match item.get("containerPort") {
        Some(port) => seen.insert(format!("{port} {}", item["protocol"].as_str().unwrap_or("TCP"))),
        None => seen.insert(item["name"].to_string()),
    });
    items
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_json_makes_merging_panic(base in any_json(WORDS), patch in any_json(WORDS)) {
        let _ = merge_pod_spec(&base, &patch);
    }

    #[test]
    fn what_is_merged_has_no_directives_and_no_nulls(base in pod_spec(false), patch in any_json(WORDS)) {
        if let Ok(merged) = merge_pod_spec(&base, &patch) {
            prop_assert!(is_plain(&merged), "{}", merged);
        }
    }

    #[test]
    fn an_empty_patch_changes_nothing(base in pod_spec(false)) {
        prop_assert_eq!(&merge_pod_spec(&base, &json!({})).unwrap(), &base);
    }

    #[test]
    fn a_patch_merged_twice_is_merged_once(base in pod_spec(false), patch in pod_spec(true)) {
        let once = merge_pod_spec(&base, &patch).unwrap();
        prop_assert_eq!(&merge_pod_spec(&once, &patch).unwrap(), &once);
    }

    #[test]
    fn any_patch_without_directives_merged_twice_is_merged_once(base in pod_spec(false), patch in any_json(FIELDS)) {
        if let Ok(once) = merge_pod_spec(&base, &patch) {
            prop_assert_eq!(merge_pod_spec(&once, &patch), Ok(once));
        }
    }

    #[test]
    fn a_pod_spec_merged_into_nothing_keeps_every_name(patch in pod_spec(false)) {
        let merged = merge_pod_spec(&json!({}), &patch).unwrap();
        let names = |spec: &Value| -> BTreeSet<String> {
            spec["containers"].as_array().into_iter().flatten().map(|item| item["name"].to_string()).collect()
        };
        prop_assert_eq!(names(&merged), names(&patch));
    }
}

#[test]
fn of_a_volume_every_field_but_the_name_is_a_source() {
    const SCHEMAS: &str = include_str!("../../../apiserver/src/builtin/schemas.json");
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap();
    let volume = schemas["io.k8s.api.core.v1.Volume"]["properties"]
        .as_object()
        .unwrap();
    let one_of = OneOf::AllBut("name");
    let others: Vec<_> = volume.keys().filter(|name| !one_of.has(name)).collect();
    assert_eq!(others, ["name"]);
    assert!(volume.len() > 25);
}
