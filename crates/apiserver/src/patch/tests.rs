//! Laws of patches that hold for any object. What kube-apiserver answers to single ones is in the behaviour suite.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Manager, apply,
    fieldpath::{FieldSet, Step},
    json_patch, merge_patch, strategic_patch, track_update,
};
use crate::{builtin, resource::ResourceType, schema::Schema};

/// Any JSON, small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field_name(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Names that a schema knows and names that it does not, and the words of the patch languages.
fn field_name() -> impl Strategy<Value = String> {
    let names = [
        "a",
        "b",
        "name",
        "ports",
        "tags",
        "any",
        "spec",
        "metadata",
        "containers",
        "env",
        "$patch",
        "$retainKeys",
        "$setElementOrder/ports",
        "managedFields",
        "op",
        "path",
    ];
    prop::sample::select(names.to_vec()).prop_map(str::to_owned)
}

/// A spec of the kind below.
fn spec() -> impl Strategy<Value = Value> {
    let ports = prop::collection::btree_map("[a-d]", prop::option::of(1_i64..5), 0..4);
    (
        prop::option::of("[a-c]"),
        ports,
        prop::collection::btree_set("[a-d]", 0..4),
        prop::collection::btree_map("[a-c]", 1_i64..4, 0..3),
        prop::option::of(any_json()),
    )
        .prop_map(|(name, ports, tags, limits, any)| {
            let ports: Vec<Value> = ports
                .into_iter()
                .map(|(name, port)| {
                    let mut item = json!({ "name": name });
                    if let Some(port) = port {
                        item["port"] = port.into();
                    }
                    item
                })
                .collect();
            let mut spec = json!({});
            if let Some(name) = name {
                spec["name"] = name.into();
            }
            if !ports.is_empty() {
                spec["ports"] = ports.into();
            }
            if !tags.is_empty() {
                spec["tags"] = tags.into_iter().collect::<Vec<_>>().into();
            }
            if !limits.is_empty() {
                spec["limits"] = json!(limits);
            }
            if let Some(any @ Value::Object(_)) = any {
                spec["any"] = any;
            }
            spec
        })
}

fn widgets() -> ResourceType {
    let schema = json!({
        "type": "object",
        "properties": { "spec": { "type": "object", "properties": {
            "name": { "type": "string" },
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": { "name": { "type": "string" }, "port": { "type": "integer" } },
                },
            },
            "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "limits": { "type": "object", "additionalProperties": { "type": "integer" } },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        } } },
    });
    ResourceType {
        group: "example.test".to_owned(),
        version: "v1".to_owned(),
        kind: "Widget".to_owned(),
        list_kind: "WidgetList".to_owned(),
        plural: "widgets".to_owned(),
        singular: "widget".to_owned(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        status: false,
        scale: None,
        schema: std::sync::Arc::new(Schema::from_crd(&schema).unwrap()),
        columns: Vec::new(),
        builtin: false,
    }
}

fn widget(spec: &Value) -> Value {
    json!({ "apiVersion": "example.test/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": spec })
}

fn manager(name: &str, second: i64) -> Manager<'_> {
    Manager {
        name,
        subresource: "",
        now: Timestamp::from_second(second).unwrap(),
    }
}

fn deployments() -> ResourceType {
    builtin::resource_types()
        .into_iter()
        .find(|kind| kind.kind == "Deployment")
        .unwrap()
}

/// A set of fields from short paths.
fn field_set() -> impl Strategy<Value = FieldSet> {
    let step = prop_oneof![
        "[a-c]".prop_map(Step::Field),
        "[a-b]".prop_map(|name| Step::Key(vec![("name".to_owned(), name.into())])),
        (0_i64..3).prop_map(|value| Step::Value(value.into())),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..4), 0..6).prop_map(|paths| {
        let mut set = FieldSet::default();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn applying_twice_changes_nothing_and_moves_no_time(live in spec(), wanted in spec()) {
        let kind = widgets();
        let mut stored = widget(&live);
        track_update(&kind, None, &mut stored, manager("maker", 1));
        let once = apply(&kind, Some(&stored), &widget(&wanted), manager("applier", 2), true).unwrap();
        let twice = apply(&kind, Some(&once), &widget(&wanted), manager("applier", 3), false).unwrap();
        prop_assert_eq!(&once, &twice);
    }

    #[test]
    fn what_was_only_applied_goes_when_it_is_left_out(live in spec(), wanted in spec()) {
        let kind = widgets();
        let mut stored = widget(&live);
        track_update(&kind, None, &mut stored, manager("maker", 1));
        let applied = apply(&kind, Some(&stored), &widget(&wanted), manager("applier", 2), true).unwrap();
        let empty = json!({ "apiVersion": "example.test/v1", "kind": "Widget", "metadata": { "name": "w" } });
        let left = apply(&kind, Some(&applied), &empty, manager("applier", 3), false).unwrap();
        // Ports that the maker never had are gone.
        let names = |object: &Value| -> Vec<String> {
            let ports = object["spec"]["ports"].as_array().cloned().unwrap_or_default();
            ports.iter().map(|port| port["name"].to_string()).collect()
        };
        let before = names(&stored);
        prop_assert!(names(&left).iter().all(|name| before.contains(name)), "{left}");
        prop_assert!(!left["metadata"]["managedFields"].to_string().contains("applier"), "{left}");
    }

    #[test]
    fn an_update_is_owned_and_a_second_one_like_it_changes_nothing(old in spec(), new in spec()) {
        let kind = widgets();
        let mut stored = widget(&old);
        track_update(&kind, None, &mut stored, manager("maker", 1));
        let mut changed = widget(&new);
        track_update(&kind, Some(&stored), &mut changed, manager("editor", 2));
        let mut again = changed.clone();
        track_update(&kind, Some(&changed), &mut again, manager("other", 3));
        prop_assert_eq!(changed, again);
    }

    #[test]
    fn sets_of_fields_keep_their_laws(a in field_set(), b in field_set()) {
        prop_assert_eq!(&FieldSet::decode(&a.encode()).unwrap(), &a);
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&a).is_empty());
        prop_assert_eq!(a.paths().len(), a.union(&a).paths().len());
    }

    #[test]
    fn merge_patches_keep_their_laws(object in any_json(), patch in any_json()) {
        let Ok(once) = merge_patch(&object, &patch) else {
            prop_assert!(!patch.is_object());
            return Ok(());
        };
        prop_assert_eq!(&merge_patch(&once, &patch).unwrap(), &once);
        for (field, value) in patch.as_object().unwrap() {
            prop_assert_eq!(value.is_null(), once.get(field).is_none());
        }
    }

    #[test]
    fn nothing_makes_a_patch_panic(object in any_json(), patch in any_json()) {
        for kind in [widgets(), deployments()] {
            let _ = json_patch(&object, &patch);
            let _ = strategic_patch(&kind, &object, &patch);
            let _ = apply(&kind, Some(&object), &patch, manager("m", 1), false);
            let mut changed = patch.clone();
            track_update(&kind, Some(&object), &mut changed, manager("m", 1));
        }
    }
}

#[test]
fn old_updates_are_put_together() {
    let kind = widgets();
    let mut stored = widget(&json!({}));
    track_update(&kind, None, &mut stored, manager("maker", 0));
    for number in 1..=12 {
        let mut changed = stored.clone();
        changed["spec"]["limits"][format!("l{number}")] = number.into();
        track_update(
            &kind,
            Some(&stored),
            &mut changed,
            manager(&format!("m{number}"), number),
        );
        stored = changed;
    }
    let entries = stored["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    let text = entries[0]["fieldsV1"].to_string();
    assert!(text.contains("f:l1") && text.contains("f:l3"), "{text}");
}

#[test]
fn a_long_json_patch_is_refused() {
    let operation = json!({ "op": "add", "path": "/a", "value": 1 });
    let error = json_patch(&json!({}), &Value::from(vec![operation; 10_001])).unwrap_err();
    assert_eq!(error.code, 400);
    assert!(error.message.contains("10001"), "{}", error.message);
}
