//! The cases of `cases/*.yaml`.

use std::fmt::Write;

use kaos_testkit::{TestApi, install_crds};
use serde::Deserialize;
use serde_json::Value;

use super::{collection, create};

/// One manifest, and what becomes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What it shows.
    case: String,
    kind: String,
    #[serde(default = "subject")]
    name: String,
    spec: Value,
    /// What is said, in any order and nothing else. Empty where the object is accepted.
    #[serde(default)]
    refused: Vec<Refusal>,
    /// Fields that the schema has not: all that is said then.
    #[serde(default)]
    unknown: Vec<String>,
}

/// One cause of a refusal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    field: String,
    /// The whole text, where it is ours.
    #[serde(default)]
    says: Option<String>,
    /// What the server's own text has to name.
    #[serde(default)]
    names: Vec<String>,
}

fn subject() -> String {
    "subject".to_owned()
}

/// What a server adds once an object is wrong in itself: it has not looked at the rules.
const UNCHECKED: &str = "some validation rules were not checked";
/// kube-apiserver looks at what the scale subresource reads once more.
const SCALE: &str = ".spec.replicas";

async fn run(cases: &str) {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let cases: Vec<Case> = serde_saphyr::from_str(cases).unwrap();
    assert!(!cases.is_empty());
    let mut failures = String::new();
    for case in &cases {
        let (code, answer) = create(&api, &case.kind, &case.name, &case.spec).await;
        if let Err(problem) = judge(case, code, &answer) {
            writeln!(failures, "{}: {problem}", case.case).unwrap();
        }
        if code == 201 {
            let path = format!("{}/{}", collection(&api, &case.kind), case.name);
            let (code, _) = api.raw("DELETE", &path, &[], ()).await;
            assert_eq!(code, 200);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn judge(case: &Case, code: u16, answer: &Value) -> Result<(), String> {
    let message = answer["message"].as_str().unwrap_or_default();
    if !case.unknown.is_empty() {
        let named = |field: &String| message.contains(&format!("unknown field \"{field}\""));
        let told = message.matches("unknown field").count();
        let right = code == 400 && told == case.unknown.len() && case.unknown.iter().all(named);
        return if right {
            Ok(())
        } else {
            Err(format!("{code} {message}"))
        };
    }
    if case.refused.is_empty() {
        return if code == 201 {
            Ok(())
        } else {
            Err(format!("{code} {message}"))
        };
    }
    let causes: Vec<(String, &str)> = answer["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| {
            let text = |key: &str| cause[key].as_str().unwrap_or_default();
            (comparable(text("field")), text("message"))
        })
        .filter(|(field, message)| !message.contains(UNCHECKED) && field != SCALE)
        .collect();
    let fits = |(field, message): &(String, &str), refusal: &Refusal| {
        *field == comparable(&refusal.field)
            && refusal.says.as_ref().is_none_or(|says| message == says)
            && refusal.names.iter().all(|named| message.contains(named))
    };
    let all = code == 422
        && causes.len() == case.refused.len()
        && case
            .refused
            .iter()
            .all(|refusal| causes.iter().any(|cause| fits(cause, refusal)));
    if all {
        Ok(())
    } else {
        Err(format!("{code} {causes:#?}"))
    }
}

/// A field in one spelling: of the object itself, kube-apiserver says "<nil>" and the embedded server nothing, and of
/// an entry of a map `map[key]` and `map.key`.
fn comparable(field: &str) -> String {
    field.replace("<nil>", "").replace('[', ".").replace(']', "")
}

#[tokio::test]
async fn an_agent_that_can_never_work_is_refused_with_the_fix() {
    run(include_str!("cases/agent.yaml")).await;
}

#[tokio::test]
async fn a_model_api_that_can_never_work_is_refused_with_the_fix() {
    run(include_str!("cases/model_api.yaml")).await;
}

#[tokio::test]
async fn an_mcp_server_that_can_never_work_is_refused_with_the_fix() {
    run(include_str!("cases/mcp_server.yaml")).await;
}

#[tokio::test]
async fn what_all_kinds_share_is_refused_with_the_fix() {
    run(include_str!("cases/shared.yaml")).await;
}

#[tokio::test]
async fn manifests_of_every_era_are_accepted() {
    run(include_str!("cases/accepted.yaml")).await;
}
