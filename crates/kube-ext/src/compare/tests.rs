use serde_json::json;

use super::*;

const US: &str = "us";

/// A Service-like object as a server returns it: with fields of its own and those of others.
fn live() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "1", "resourceVersion": "7",
            "labels": {"app": "a", "theirs": "x"},
            "managedFields": [
                {"manager": "them", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}},
                {"manager": US, "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {
                        "f:selector": {},
                        "f:ports": {
                            "k:{\"port\":8000,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}},
                            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}}
                        }
                    }
                }},
                {"manager": US, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {"f:phase": {}}}}
            ]
        },
        "spec": {
            "clusterIP": "10.0.0.1",
            "selector": {"app": "a"},
            "ports": [
                {"port": 8000, "protocol": "TCP", "name": "http", "targetPort": 8000},
                {"port": 80, "protocol": "TCP", "name": "short", "targetPort": 80}
            ]
        },
        "status": {"phase": "Ready", "theirs": 1}
    })
}

fn intent() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}},
        "spec": {
            "selector": {"app": "a"},
            "ports": [
                {"port": 8000, "protocol": "TCP", "name": "http"},
                {"port": 80, "protocol": "TCP", "name": "short"}
            ]
        }
    })
}

#[test]
fn what_was_applied_holds_whatever_others_added() {
    assert!(holds(&intent(), &live(), US, None));
    let status = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "status": {"phase": "Ready"}});
    assert!(holds(&status, &live(), US, Some("status")));
}

/// Whether `intent` holds in what a server keeps of it, where these fields are ours.
fn is_kept(api_version: &str, fields: &Value, mut intent: Value, mut live: Value) -> bool {
    intent["apiVersion"] = api_version.into();
    live["metadata"]["managedFields"] = json!([{"manager": US, "operation": "Apply", "fieldsV1": fields}]);
    holds(&intent, &live, US, None)
}

/// Fields, intent and live object, as a real server answers to such an apply of a Deployment.
fn kept_otherwise() -> Vec<(Value, Value, Value)> {
    let port = json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}});
    let variable = json!({"f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}});
    let amount = |kind: &str| json!({"f:resources": {format!("f:{kind}"): {"f:cpu": {}, "f:memory": {}}}});
    vec![
        (
            port,
            json!({"ports": [{"containerPort": 80}]}),
            json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]}),
        ),
        (
            variable,
            json!({"env": [{"name": "A", "value": ""}]}),
            json!({"env": [{"name": "A"}]}),
        ),
        (
            amount("requests"),
            json!({"resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}}}),
            json!({"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}),
        ),
        (
            amount("limits"),
            json!({"resources": {"limits": {"cpu": "1000m", "memory": "1.5Gi"}}}),
            json!({"resources": {"limits": {"cpu": "1", "memory": "1536Mi"}}}),
        ),
        (
            json!({"f:overhead": {"f:cpu": {}}}),
            json!({"overhead": {"cpu": "0.25"}}),
            json!({"overhead": {"cpu": "250m"}}),
        ),
        (
            json!({"f:emptyDir": {"f:sizeLimit": {}}}),
            json!({"emptyDir": {"sizeLimit": "0.5Gi"}}),
            json!({"emptyDir": {"sizeLimit": "512Mi"}}),
        ),
        (
            json!({"f:valueFrom": {"f:resourceFieldRef": {}}}),
            json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}),
            json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}}),
        ),
        (
            json!({"f:valueFrom": {"f:resourceFieldRef": {}}}),
            json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}),
            json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}),
        ),
        (
            json!({"f:projected": {"f:sources": {}}}),
            json!({"projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"configMap": {"name": "c", "items": []}},
            ]}}),
            json!({"projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [
                    {"path": "n", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                ]}},
                {"configMap": {"name": "c"}},
            ]}}),
        ),
        (
            json!({"f:tolerations": {}}),
            json!({"tolerations": [{"operator": "Exists", "key": ""}]}),
            json!({"tolerations": [{"operator": "Exists"}]}),
        ),
        (json!({}), json!({"initContainers": []}), json!({})),
    ]
}

#[test]
fn what_a_server_keeps_in_a_form_of_its_own_holds() {
    for (fields, intent, live) in kept_otherwise() {
        assert!(
            is_kept("apps/v1", &fields, intent.clone(), live.clone()),
            "{intent}"
        );
        assert!(is_kept("v1", &fields, intent.clone(), live), "{intent}");
    }
}

/// Nothing of it is known of types that are not Kubernetes' own, but what the fields themselves tell.
#[test]
fn a_custom_resource_is_kept_as_it_was_sent() {
    for (fields, intent, live) in kept_otherwise() {
        let held = is_kept("example.com/v1", &fields, intent.clone(), live);
        assert_eq!(held, intent.get("env").is_some(), "{intent}");
    }
}

#[test]
fn what_is_ours_and_left_out_was_empty_and_still_is() {
    let fields = json!({"f:field": {}});
    for empty in [json!(""), json!([]), json!({}), json!(0), json!(false)] {
        for version in ["v1", "example.com/v1"] {
            assert!(
                is_kept(version, &fields, json!({"field": empty}), json!({})),
                "{empty}"
            );
        }
        assert!(!is_kept(
            "v1",
            &fields,
            json!({"field": empty}),
            json!({"field": "x"})
        ));
    }
    for wanted in [json!("x"), json!(["x"]), json!({"x": 1}), json!(1), json!(true)] {
        assert!(
            !is_kept("v1", &fields, json!({"field": wanted}), json!({})),
            "{wanted}"
        );
    }
}

/// What looks like a form that a server changes, and is not, or not certainly.
#[test]
fn what_may_mean_something_else_does_not_hold() {
    let leaf = |path: &[&str]| {
        path.iter()
            .rev()
            .fold(json!({}), |inner, field| json!({format!("f:{field}"): inner}))
    };
    let cases = [
        // A text, though it is called like an amount.
        (
            leaf(&["data", "divisor"]),
            json!({"data": {"divisor": "1000m"}}),
            json!({"data": {"divisor": "1"}}),
        ),
        (
            leaf(&["labels", "sizeLimit"]),
            json!({"labels": {"sizeLimit": "1024Mi"}}),
            json!({"labels": {"sizeLimit": "1Gi"}}),
        ),
        // Another amount.
        (
            leaf(&["limits", "cpu"]),
            json!({"limits": {"cpu": "1"}}),
            json!({"limits": {"cpu": "1m"}}),
        ),
        // What was wanted before, not the server's default.
        (
            leaf(&["sources"]),
            json!({"sources": [{"serviceAccountToken": {"path": "t"}}]}),
            json!({"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}]}),
        ),
        (
            leaf(&["tolerations"]),
            json!({"tolerations": [{"operator": "Exists", "tolerationSeconds": 0}]}),
            json!({"tolerations": [{"operator": "Exists"}]}),
        ),
        (
            leaf(&["terms"]),
            json!({"terms": [{"labelSelector": {}}]}),
            json!({"terms": [{}]}),
        ),
        (
            leaf(&["nodeSelector"]),
            json!({"nodeSelector": {}}),
            json!({"nodeSelector": {"a": "b"}}),
        ),
        (
            leaf(&["list"]),
            json!({"list": ["a"]}),
            json!({"list": ["a", "b"]}),
        ),
        // An object that is there without fields is not nothing.
        (json!({}), json!({"emptyDir": {}}), json!({})),
        (json!({}), json!({"list": []}), json!({"list": ["theirs"]})),
        // Another port.
        (
            json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}}}}),
            json!({"ports": [{"containerPort": 80}]}),
            json!({"ports": [{"containerPort": 80, "protocol": "UDP"}]}),
        ),
    ];
    for (fields, intent, live) in cases {
        assert!(!is_kept("v1", &fields, intent.clone(), live), "{intent}");
    }
}

#[test]
fn it_does_not_hold_for_another_manager() {
    assert!(!holds(&intent(), &live(), "somebody", None));
}

/// Each case changes the intent or the live object at a JSON pointer; `null` removes.
#[test]
fn every_difference_is_seen() {
    let cases = [
        ("a changed value", "intent", "/spec/ports/1/name", json!("other")),
        (
            "a value changed by hand",
            "live",
            "/spec/ports/1/name",
            json!("other"),
        ),
        (
            "a field removed by hand",
            "live",
            "/metadata/labels/app",
            Value::Null,
        ),
        (
            "a field no longer wanted",
            "intent",
            "/spec/ports/0/name",
            Value::Null,
        ),
        (
            "a whole block no longer wanted",
            "intent",
            "/metadata/labels",
            Value::Null,
        ),
        ("an item no longer wanted", "intent", "/spec/ports/1", Value::Null),
        (
            "a field not yet ours",
            "intent",
            "/spec/clusterIP",
            json!("10.0.0.1"),
        ),
        (
            "an atomic object with more in it",
            "live",
            "/spec/selector/more",
            json!("x"),
        ),
        (
            "an atomic object with less",
            "intent",
            "/spec/selector",
            json!({}),
        ),
        ("a field that is gone", "live", "/spec/selector", Value::Null),
    ];
    for (what, side, pointer, value) in cases {
        let (mut intent, mut live) = (intent(), live());
        let target = if side == "intent" { &mut intent } else { &mut live };
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match (target.pointer_mut(parent).unwrap(), value) {
            (Value::Object(object), Value::Null) => drop(object.remove(key)),
            (Value::Array(items), Value::Null) => drop(items.remove(key.parse().unwrap())),
            (parent, value) => parent[key] = value,
        }
        assert!(!holds(&intent, &live, US, None), "{what}");
    }
}

#[test]
fn order_counts_for_our_items_only() {
    let mut reordered = intent();
    reordered["spec"]["ports"].as_array_mut().unwrap().reverse();
    assert!(!holds(&reordered, &live(), US, None));
    let mut injected = live();
    injected["spec"]["ports"]
        .as_array_mut()
        .unwrap()
        .insert(1, json!({"port": 9, "protocol": "TCP"}));
    assert!(holds(&intent(), &injected, US, None));
}
