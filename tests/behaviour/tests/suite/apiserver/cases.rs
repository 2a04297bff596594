//! Cases: requests to one object, one after the other, and what kube-apiserver 1.36 answers to each.
//!
//! The answers in `cases/*.json` were recorded from the real server. They are checked against the embedded one, and
//! against the real one wherever the suite runs on it, so that a recorded answer cannot grow old unseen.
//!
//! In the files, `GROUP` stands for the group of the kind Probe (`cases/probe.json`), `NAMESPACE` for the namespace.
//! `UID` stands for the uid of a Job. Left out are times, versions, other uids, messages that quote whole objects, and
//! what the controllers of a real cluster add to Deployments while a case runs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kaos_testkit::{SharedKind, TestApi};
use serde_json::{Map, Value, json};

/// The object of every case.
const NAME: &str = "subject";
const PROBE: &str = include_str!("cases/probe.json");

/// Runs the cases of one file.
pub(super) async fn run(cases: &str) {
    let api = TestApi::start().await;
    let mut cases = cases.replace("NAMESPACE", &api.namespace);
    if cases.contains("\"Probe\"") {
        static PROBES: SharedKind = SharedKind::new();
        let group = PROBES.install(&api, definition).await;
        cases = cases.replace("GROUP", &group);
    }
    let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
    assert!(!cases.is_empty());
    let mut failures = Vec::new();
    for case in &cases {
        let path = collection(&api, &case["resource"]);
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let (code, answer) = send(&api, &path, &case["resource"], step).await;
            let found = outcome(code, &answer, step);
            let expected = expected(step);
            if found != expected {
                let differences = differences("", &expected, &found).join("\n    ");
                failures.push(format!(
                    "{} / step {index} ({}):\n    {differences}",
                    case["name"], step["verb"]
                ));
                // What follows works on an object that is not the expected one.
                break;
            }
        }
        // At once: without a policy, a Job would wait for the garbage collector.
        let at_once = "gracePeriodSeconds=0&propagationPolicy=Background";
        api.raw("DELETE", &format!("{path}/{NAME}?{at_once}"), &[], ())
            .await;
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases differ:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

fn definition(group: &str) -> CustomResourceDefinition {
    serde_json::from_str(&PROBE.replace("GROUP", group)).unwrap()
}

fn collection(api: &TestApi, resource: &Value) -> String {
    let text = |field: &str| resource[field].as_str().unwrap().to_owned();
    let root = match text("group").as_str() {
        "" => format!("/api/{}", text("version")),
        group => format!("/apis/{group}/{}", text("version")),
    };
    format!("{root}/namespaces/{}/{}", api.namespace, text("plural"))
}

async fn send(api: &TestApi, path: &str, resource: &Value, step: &Value) -> (u16, Value) {
    let verb = step["verb"].as_str().unwrap();
    let mut query: Vec<String> = Vec::new();
    query.extend(
        step["manager"]
            .as_str()
            .map(|manager| format!("fieldManager={manager}")),
    );
    query.extend(step["query"].as_str().map(str::to_owned));
    if verb == "apply" {
        query.push(format!("force={}", step["force"] == true));
    }
    let subresource = step["subresource"]
        .as_str()
        .map(|name| format!("/{name}"))
        .unwrap_or_default();
    let object = format!("{path}/{NAME}{subresource}?{}", query.join("&"));
    let whole = || whole(api, resource, &step["body"]);
    let (method, path, media_type, body) = match verb {
        "create" => (
            "POST",
            format!("{path}?{}", query.join("&")),
            "application/json",
            whole(),
        ),
        "update" => ("PUT", object, "application/json", whole()),
        "apply" => ("PATCH", object, "application/apply-patch+yaml", whole()),
        "merge" => (
            "PATCH",
            object,
            "application/merge-patch+json",
            step["body"].clone(),
        ),
        "json" => (
            "PATCH",
            object,
            "application/json-patch+json",
            step["body"].clone(),
        ),
        "strategic" => (
            "PATCH",
            object,
            "application/strategic-merge-patch+json",
            step["body"].clone(),
        ),
        verb => panic!("unknown verb {verb}"),
    };
    api.raw(method, &path, &[("content-type", media_type)], body)
        .await
}

/// The body with the type, the name and the namespace that every object has.
fn whole(api: &TestApi, resource: &Value, body: &Value) -> Value {
    let api_version = match (
        resource["group"].as_str().unwrap(),
        resource["version"].as_str().unwrap(),
    ) {
        ("", version) => version.to_owned(),
        (group, version) => format!("{group}/{version}"),
    };
    let mut whole = json!({ "apiVersion": api_version, "kind": resource["kind"] });
    for (field, value) in body.as_object().unwrap() {
        whole[field] = value.clone();
    }
    let metadata = &mut whole["metadata"];
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata["name"] = NAME.into();
    metadata["namespace"] = api.namespace.as_str().into();
    whole
}

/// What the step says must be answered.
fn expected(step: &Value) -> Value {
    let keys = ["code", "reason", "message", "causes", "object"];
    let fields = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), step.get(*key)?.clone())));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// The answer in the form of the files, as far as the step says something about it.
fn outcome(code: u16, answer: &Value, step: &Value) -> Value {
    let mut answer = without_uid(answer);
    let mut outcome = json!({ "code": code });
    if code < 400 {
        trim(&mut answer);
        outcome["object"] = answer;
        return outcome;
    }
    outcome["reason"] = answer["reason"].as_str().unwrap_or_default().into();
    if step.get("object").is_some() || step.get("message").is_some() {
        outcome["message"] = answer["message"].clone();
        if let Some(causes) = answer["details"]["causes"].as_array() {
            outcome["causes"] = ordered(causes, ["field", "message"]).into();
        }
    }
    outcome
}

/// The answer with `UID` for the uid of a Job, which its labels have and messages quote.
fn without_uid(answer: &Value) -> Value {
    /// What stands before the uid in a message.
    const QUOTED: &str = r#"controller-uid\":\""#;
    let text = answer.to_string();
    let text = match answer["metadata"]["uid"].as_str() {
        Some(uid) => text.replace(uid, "UID"),
        None => {
            let mut parts = text.split(QUOTED);
            let first = parts.next().unwrap().to_owned();
            parts.fold(first, |text, part| {
                let (_uid, rest) = part.split_once('\\').unwrap();
                format!("{text}{QUOTED}UID\\{rest}")
            })
        }
    };
    serde_json::from_str(&text).unwrap()
}

fn trim(object: &mut Value) {
    if matches!(object["kind"].as_str(), Some("Deployment" | "ReplicaSet" | "Job")) {
        object.as_object_mut().unwrap().shift_remove("status");
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "namespace"] {
        metadata.shift_remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove("deployment.kubernetes.io/revision");
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        }
    }
    let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) else {
        return;
    };
    entries.retain(|entry| entry["manager"] != "kube-controller-manager");
    for entry in entries.iter_mut() {
        entry.as_object_mut().unwrap().shift_remove("time");
    }
    // Two entries of one second have another order than the same two of different seconds.
    *entries = ordered(entries, ["manager", "operation"]);
}

/// A list in the order of two of its texts: the server's own order depends on times and on chance.
fn ordered(list: &[Value], fields: [&str; 2]) -> Vec<Value> {
    let mut list = list.to_vec();
    list.sort_by_key(|entry| fields.map(|field| entry[field].as_str().unwrap_or_default().to_owned()));
    list
}

/// Where two values differ, one line each.
fn differences(path: &str, expected: &Value, found: &Value) -> Vec<String> {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            let below = names.flat_map(|name| {
                let nothing = Value::from("(nothing)");
                let (a, b) = (a.get(name).unwrap_or(&nothing), b.get(name).unwrap_or(&nothing));
                differences(&format!("{path}/{name}"), a, b)
            });
            below.collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs
                .flat_map(|(index, (a, b))| differences(&format!("{path}/{index}"), a, b))
                .collect()
        }
        _ if expected == found => Vec::new(),
        _ => vec![format!("{path}: expected {expected}, found {found}")],
    }
}
