//! Tables of whole objects.

use std::sync::Arc;

use super::*;
use crate::schema::Schema;

fn resource(group: &str, kind: &str, plural: &str, columns: Vec<Column>) -> ResourceType {
    ResourceType {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        status: true,
        scale: None,
        schema: Arc::new(Schema::from_crd(&json!({ "type": "object" })).unwrap()),
        builtin: columns.is_empty(),
        columns,
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// The cells of one object of a built-in kind, wide ones included.
fn cells(group: &str, plural: &str, object: Value) -> Value {
    let table = render(
        &resource(group, "Kind", plural, Vec::new()),
        &object,
        IncludeObject::None,
        now(),
    );
    table["rows"][0]["cells"].clone()
}

fn pod(spec: Value, status: Value) -> Value {
    let metadata = json!({ "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z" });
    json!({ "metadata": metadata, "spec": spec, "status": status })
}

#[test]
fn a_running_pod() {
    let pod = pod(
        json!({ "containers": [{ "name": "a" }], "nodeName": "local", "readinessGates": [{ "conditionType": "x" }] }),
        json!({
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{ "type": "x", "status": "True" }],
            "containerStatuses": [{
                "name": "a", "ready": true, "restartCount": 2, "state": { "running": {} },
                "lastState": { "terminated": { "finishedAt": "2026-01-01T00:09:30Z" } },
            }],
        }),
    );
    assert_eq!(
        cells("", "pods", pod),
        json!([
            "p",
            "1/1",
            "Running",
            "2 (30s ago)",
            "10m",
            "127.0.0.1",
            "local",
            "<none>",
            "1/1"
        ])
    );
}

#[test]
fn pods_say_in_a_word_what_keeps_them() {
    let status = |status: Value| {
        let spec =
            json!({ "containers": [{ "name": "a" }, { "name": "b" }], "initContainers": [{ "name": "i" }] });
        cells("", "pods", pod(spec, status))[2].clone()
    };
    assert_eq!(status(json!({ "phase": "Pending" })), "Pending");
    assert_eq!(
        status(json!({ "phase": "Failed", "reason": "Evicted" })),
        "Evicted"
    );
    let waiting = json!([{ "name": "a", "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
    assert_eq!(
        status(json!({ "phase": "Running", "containerStatuses": waiting })),
        "CrashLoopBackOff"
    );
    let ended = |terminated: Value| json!([{ "name": "a", "state": { "terminated": terminated } }]);
    assert_eq!(
        status(json!({ "containerStatuses": ended(json!({ "exitCode": 3 })) })),
        "ExitCode:3"
    );
    assert_eq!(
        status(json!({ "containerStatuses": ended(json!({ "exitCode": 1, "signal": 9 })) })),
        "Signal:9"
    );
    assert_eq!(
        status(json!({ "initContainerStatuses": ended(json!({ "exitCode": 1, "reason": "Error" })) })),
        "Init:Error"
    );
    let starting = json!([{ "name": "i", "state": { "waiting": { "reason": "PodInitializing" } } }]);
    assert_eq!(
        status(json!({ "phase": "Pending", "initContainerStatuses": starting })),
        "Init:0/1"
    );
    let half = json!([
        { "name": "a", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } },
        { "name": "b", "ready": true, "state": { "running": {} } },
    ]);
    assert_eq!(
        status(json!({ "phase": "Running", "containerStatuses": half })),
        "NotReady"
    );
}

#[test]
fn a_pod_that_is_deleted_terminates() {
    let mut pod = pod(json!({ "containers": [{}] }), json!({ "phase": "Running" }));
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:09:00Z".into();
    assert_eq!(cells("", "pods", pod)[2], "Terminating");
}

#[test]
fn deployments_and_replica_sets() {
    let metadata = json!({ "name": "d", "creationTimestamp": "2026-01-01T00:08:00Z" });
    let spec = json!({
        "replicas": 2,
        "selector": { "matchLabels": { "b": "2", "a": "1" }, "matchExpressions": [{ "key": "c", "operator": "Exists" }] },
        "template": { "spec": { "containers": [{ "name": "x", "image": "i" }, { "name": "y", "image": "j" }] } },
    });
    let status = json!({ "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2 });
    let object = json!({ "metadata": metadata, "spec": spec, "status": status });
    assert_eq!(
        cells("apps", "deployments", object.clone()),
        json!(["d", "1/2", 2, 0, "2m", "x,y", "i,j", "a=1,b=2,c"])
    );
    assert_eq!(
        cells("apps", "replicasets", object),
        json!(["d", 2, 2, 1, "2m", "x,y", "i,j", "a=1,b=2,c"])
    );
}

#[test]
fn jobs() {
    let template = json!({ "spec": { "containers": [{ "name": "x", "image": "i" }] } });
    let row = |spec: Value, status: Value| {
        let mut spec = spec;
        spec["template"] = template.clone();
        spec["selector"] = json!({ "matchLabels": { "a": "1" } });
        let metadata = json!({ "name": "j", "creationTimestamp": "2026-01-01T00:08:00Z" });
        cells(
            "batch",
            "jobs",
            json!({ "metadata": metadata, "spec": spec, "status": status }),
        )
    };
    let complete = json!({
        "startTime": "2026-01-01T00:08:00Z", "completionTime": "2026-01-01T00:08:07Z", "succeeded": 2,
        "conditions": [{ "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" }],
    });
    assert_eq!(
        row(json!({ "completions": 2, "parallelism": 1 }), complete),
        json!(["j", "Complete", "2/2", "7s", "2m", "x", "i", "a=1"])
    );
    let state = |status: Value| row(json!({ "parallelism": 3 }), status);
    let running = state(json!({ "startTime": "2026-01-01T00:09:00Z" }));
    assert_eq!(
        running,
        json!(["j", "Running", "0/1 of 3", "60s", "2m", "x", "i", "a=1"])
    );
    let with = |kind: &str| state(json!({ "conditions": [{ "type": kind, "status": "True" }] }))[1].clone();
    for kind in ["Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"] {
        assert_eq!(with(kind), kind);
    }
    let resumed = state(json!({ "conditions": [{ "type": "Suspended", "status": "False" }] }));
    assert_eq!((&resumed[1], &resumed[3]), (&json!("Running"), &json!("")));
}

#[test]
fn services_and_endpoints() {
    let service = json!({
        "metadata": { "name": "s" },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.7", "selector": { "app": "x" },
            "ports": [{ "port": 80, "protocol": "TCP" }, { "port": 53, "nodePort": 30053, "protocol": "UDP" }],
        },
    });
    assert_eq!(
        cells("", "services", service),
        json!([
            "s",
            "ClusterIP",
            "10.96.0.7",
            "<none>",
            "80/TCP,53:30053/UDP",
            "<unknown>",
            "app=x"
        ])
    );
    let addresses = |n: usize| {
        (0..n)
            .map(|i| json!({ "ip": format!("10.0.0.{i}") }))
            .collect::<Vec<_>>()
    };
    let endpoints =
        |n| json!({ "metadata": {}, "subsets": [{ "addresses": addresses(n), "ports": [{ "port": 8 }] }] });
    assert_eq!(cells("", "endpoints", endpoints(0))[1], "<none>");
    assert_eq!(
        cells("", "endpoints", endpoints(5))[1],
        "10.0.0.0:8,10.0.0.1:8,10.0.0.2:8 + 2 more..."
    );
    let slice = json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }], "ports": [{ "port": 8 }] });
    assert_eq!(
        cells("discovery.k8s.io", "endpointslices", slice),
        json!([null, "IPv4", "8", "10.0.0.1", "<unknown>"])
    );
}

#[test]
fn events_show_their_name_last() {
    let event = json!({
        "metadata": { "name": "p.1" }, "type": "Normal", "reason": "Started", "message": " Started it\n", "count": 3,
        "involvedObject": { "kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}" },
        "source": { "component": "kubelet", "host": "local" },
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:09:00Z",
    });
    assert_eq!(
        cells("", "events", event),
        json!([
            "60s",
            "Normal",
            "Started",
            "pod/p",
            "spec.containers{a}",
            "kubelet, local",
            "Started it",
            "10m",
            3,
            "p.1"
        ])
    );
}

#[test]
fn nodes_say_whether_they_are_ready() {
    let node = json!({
        "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/worker": "" } },
        "spec": { "unschedulable": true },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "nodeInfo": { "kubeletVersion": "v1" },
        },
    });
    assert_eq!(
        cells("", "nodes", node),
        json!([
            "n",
            "Ready,SchedulingDisabled",
            "worker",
            "<unknown>",
            "v1",
            "127.0.0.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ])
    );
}

#[test]
fn columns_of_custom_resources_are_typed() {
    let column = |name: &str, kind: &str, path: &str| Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        priority: 0,
        source: ColumnSource::JsonPath(path.to_owned()),
    };
    let columns = vec![
        column("Text", "string", ".spec.text"),
        column("Map", "string", ".spec.map"),
        column("Count", "integer", ".spec.count"),
        column("Wrong", "integer", ".spec.text"),
        column("Missing", "string", ".spec.missing"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let resource = resource("example.com", "Widget", "widgets", columns);
    let object = json!({
        "metadata": { "name": "w", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "text": "t", "map": { "a": [1] }, "count": 2.9 },
    });
    let list = json!({ "metadata": { "resourceVersion": "7", "continue": "c" }, "items": [object] });
    let table = render(&resource, &list, IncludeObject::Object, now());
    assert_eq!(table["metadata"], list["metadata"]);
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["w", "t", r#"{"a":[1]}"#, 2, null, null, "10m"])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "Widget");
    assert_eq!(table["rows"][0]["object"]["spec"], object["spec"]);
    let table = render(&resource, &object, IncludeObject::Metadata, now());
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"].get("spec"), None);
}
