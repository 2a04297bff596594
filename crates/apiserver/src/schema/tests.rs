//! Schemas against objects. Messages and their order are checked against the real server in the behaviour suite.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Schema;

fn schema() -> Value {
    json!({
        "type": "object",
        "description": "a widget",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": { "type": "string", "default": "x", "maxLength": 3 },
                    "b": { "type": "object", "default": {}, "properties": { "c": { "type": "integer", "default": 5 } } },
                    "list": { "type": "array", "items": { "type": "object", "properties": { "a": { "type": "integer" } } } },
                    "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    "map": { "type": "object", "additionalProperties": { "type": "string" } },
                    "maybe": { "type": "string", "nullable": true },
                },
            },
        },
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a-c]{0,4}".prop_map(Value::from)
    ];
    let names = [
        "spec", "a", "b", "c", "list", "any", "map", "maybe", "metadata", "labels", "odd",
    ];
    leaf.prop_recursive(5, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(names.to_vec()), inner, 0..5).prop_map(
                |fields| {
                    Value::Object(
                        fields
                            .into_iter()
                            .map(|(name, value)| (name.to_owned(), value))
                            .collect(),
                    )
                }
            ),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_is_as_once(object in any_json()) {
        let schema = Schema::from_crd(&schema()).unwrap();
        let mut once = object;
        schema.prune(&mut once);
        schema.apply_defaults(&mut once);
        let mut twice = once.clone();
        prop_assert!(schema.prune(&mut twice).is_empty());
        schema.apply_defaults(&mut twice);
        prop_assert_eq!(&once, &twice);
        schema.validate(&once, Some(&twice));
    }

    #[test]
    fn nothing_makes_a_schema_panic(schema in any_json(), object in any_json()) {
        if let Ok(schema) = Schema::from_crd(&schema) {
            schema.prune(&mut object.clone());
            schema.validate(&object, None);
        }
        let deployment = Schema::builtin("io.k8s.api.apps.v1.Deployment").unwrap();
        let mut object = object;
        let _ = deployment.decode("Deployment", true, &mut object);
        deployment.prune(&mut object);
        deployment.fill(&mut object);
    }
}

#[test]
fn unknown_fields_are_named_in_order() {
    let schema = Schema::from_crd(&schema()).unwrap();
    let mut object = json!({
        "zzz": 1,
        "metadata": { "name": "x", "odd": 1 },
        "spec": { "b": { "d": 1 }, "list": [{ "a": 1 }, { "z": 2 }], "any": { "deep": { "er": 1 } }, "map": { "k": "v" } },
    });
    assert_eq!(
        schema.prune(&mut object),
        ["metadata.odd", "spec.b.d", "spec.list[1].z", "zzz"]
    );
    assert_eq!(
        object,
        json!({
            "metadata": { "name": "x" },
            "spec": { "b": {}, "list": [{ "a": 1 }, {}], "any": { "deep": { "er": 1 } }, "map": { "k": "v" } },
        })
    );
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let field = |field: Value| json!({ "type": "object", "properties": { "spec": field } });
    for (schema, at, message) in [
        (json!({}), "type", "Required value: must not be empty at the root"),
        (
            json!({ "type": "string" }),
            "type",
            "Invalid value: \"string\": must be object at the root",
        ),
        (
            field(json!({})),
            "properties[spec].type",
            "Required value: must not be empty for specified object fields",
        ),
        (
            field(json!({ "type": "array" })),
            "properties[spec].items",
            "Required value: must be specified",
        ),
        (
            field(
                json!({ "type": "object", "properties": {}, "additionalProperties": { "type": "string" } }),
            ),
            "properties[spec].additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            field(json!({ "type": "string", "allOf": [{ "default": "x" }] })),
            "properties[spec].allOf[0].default",
            "Forbidden: must be empty to be structural",
        ),
        (
            field(json!({ "type": "integer", "default": "x" })),
            "properties[spec].default",
            "Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ),
        (
            field(json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "self." }] })),
            "properties[spec].x-kubernetes-validations[0].rule",
            "Invalid value: \"self.\": compilation failed",
        ),
    ] {
        let errors = Schema::from_crd(&schema).unwrap_err();
        assert_eq!(errors[0].field, at, "{schema}");
        assert!(
            errors[0].message.starts_with(message),
            "{schema}: {}",
            errors[0].message
        );
    }
}

#[test]
fn rules_compare_items_with_the_same_key() {
    let schema = Schema::from_crd(&json!({
        "type": "object",
        "properties": { "spec": { "type": "object", "properties": { "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": { "type": "string" },
                    "port": { "type": "integer", "x-kubernetes-validations": [
                        { "rule": "self >= oldSelf", "message": "may not shrink" },
                    ] },
                },
            },
        } } } },
    }))
    .unwrap();
    let ports = |ports: Value| json!({ "spec": { "ports": ports } });
    let old = ports(json!([{ "name": "a", "port": 1 }, { "name": "b", "port": 5 }]));
    let swapped =
        ports(json!([{ "name": "b", "port": 5 }, { "name": "a", "port": 1 }, { "name": "c", "port": 0 }]));
    assert_eq!(schema.validate(&swapped, Some(&old)), []);
    let smaller = ports(json!([{ "name": "b", "port": 4 }]));
    let errors = schema.validate(&smaller, Some(&old));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].field, "spec.ports[0].port");
    assert_eq!(errors[0].message, "Invalid value: 4: may not shrink");
}

#[test]
fn a_schema_is_shown_as_it_was_written() {
    let written = schema();
    let shown = Schema::from_crd(&written).unwrap().to_openapi();
    assert_eq!(shown["properties"]["spec"], written["properties"]["spec"]);
    assert_eq!(
        shown["properties"]["metadata"]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
}

#[test]
fn built_in_schemas_refer_to_each_other_and_to_themselves() {
    let definition = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";
    let schema = Schema::builtin(definition).unwrap();
    let definitions = schema.definitions();
    let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    assert!(
        definitions[props]["properties"]["not"]["$ref"]
            .as_str()
            .is_some_and(|path| path.ends_with(props))
    );
    assert!(definitions.contains_key(definition));

    let deployment = Schema::builtin("io.k8s.api.apps.v1.Deployment").unwrap();
    assert_eq!(
        deployment.zero()["spec"]["template"]["spec"]["containers"],
        Value::Null
    );
    let spec = &deployment.definitions()["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(
        spec["properties"]["strategy"]["x-kubernetes-patch-strategy"],
        "retainKeys"
    );
}
