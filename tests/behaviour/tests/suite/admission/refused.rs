//! The cases of `cases/*.yaml`, and that they hold every rule of the kinds.

use std::fmt::Write;

use kaos_testkit::{TestApi, install_crds};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{collection, create, rules};

/// One manifest, and what becomes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What it shows.
    case: String,
    /// A kind, or `every` one.
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

/// The kinds, and the least that a spec of each has to say.
fn least() -> [(&'static str, Value); 3] {
    [
        ("Agent", json!({"modelAPI": "models"})),
        (
            "ModelAPI",
            json!({"mode": "Hosted", "hostedConfig": {"model": "m"}}),
        ),
        ("MCPServer", json!({"runtime": "r"})),
    ]
}

impl Case {
    /// The kinds and specs that it is about.
    fn subjects(&self) -> Vec<(&str, Value)> {
        let own = written_out(&self.spec);
        if self.kind != "every" {
            return vec![(&self.kind, own)];
        }
        let with_least = |(kind, mut spec): (&'static str, Value)| {
            let (all, own) = (spec.as_object_mut().unwrap(), own.as_object().unwrap());
            all.extend(own.clone());
            (kind, spec)
        };
        least().into_iter().map(with_least).collect()
    }
}

/// With what is too long to be read: `<N x>`, `<N items>` and `<N amounts>`.
fn written_out(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), written_out(value)))
            .collect(),
        Value::Array(items) => items.iter().map(written_out).collect(),
        Value::String(text) => {
            let brief = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
            let counted = brief.and_then(|brief| {
                let (count, what) = brief.split_once(' ')?;
                Some((count.parse::<usize>().ok()?, what))
            });
            match counted {
                Some((count, "items")) => (0..count).map(|at| json!(format!("item-{at}"))).collect(),
                Some((count, "amounts")) => (0..count)
                    .map(|at| (format!("example.com/{at}"), json!("1")))
                    .collect(),
                Some((count, text)) => json!(text.repeat(count)),
                None => value.clone(),
            }
        }
        other => other.clone(),
    }
}

/// What a server adds once an object is wrong in itself: it has not looked at the rules.
const UNCHECKED: &str = "some validation rules were not checked";
/// kube-apiserver looks at what the scale subresource reads once more.
const SCALE: &str = ".spec.replicas";

async fn run(cases: &str) {
    let api = TestApi::start().await;
    install_crds(&api).await;
    let cases = read(cases);
    let mut failures = String::new();
    for (case, (kind, spec)) in cases
        .iter()
        .flat_map(|case| case.subjects().into_iter().map(move |subject| (case, subject)))
    {
        let (code, answer) = create(&api, kind, &case.name, &spec).await;
        if let Err(problem) = judge(case, code, &answer) {
            writeln!(failures, "{} ({kind}): {problem}", case.case).unwrap();
        }
        if code == 201 {
            let path = format!("{}/{}", collection(&api, kind), case.name);
            let (code, _) = api.raw("DELETE", &path, &[], ()).await;
            assert_eq!(code, 200);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn read(cases: &str) -> Vec<Case> {
    let cases: Vec<Case> = serde_saphyr::from_str(cases).unwrap();
    assert!(!cases.is_empty());
    cases
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

const REFUSED: [&str; 5] = [
    include_str!("cases/agent.yaml"),
    include_str!("cases/model_api.yaml"),
    include_str!("cases/mcp_server.yaml"),
    include_str!("cases/shared.yaml"),
    include_str!("cases/bounds.yaml"),
];

#[test]
fn every_rule_of_the_kinds_has_a_case_with_its_whole_text() {
    let cases: Vec<Case> = REFUSED.into_iter().flat_map(read).collect();
    let says = |kind: &str, rule: &rules::Rule| {
        cases
            .iter()
            .filter(|case| case.kind == kind || case.kind == "every")
            .flat_map(|case| &case.refused)
            .filter_map(|refusal| Some((comparable(&refusal.field), refusal.says.as_deref()?)))
            .any(|(field, text)| rule.is_at(&field) && rule.says(text))
    };
    let mut missing = String::new();
    let mut count = 0;
    for definition in kaos_api::crds() {
        let kind = &definition.spec.names.kind;
        for rule in rules::of(&definition) {
            count += 1;
            if !says(kind, &rule) {
                writeln!(missing, "{kind}: {rule}").unwrap();
            }
        }
    }
    assert!(count > 40, "only {count} rules were found");
    assert!(missing.is_empty(), "rules without a case:\n{missing}");
}

#[test]
fn every_bound_of_the_kinds_has_a_case() {
    let cases: Vec<Case> = REFUSED.into_iter().flat_map(read).collect();
    let named = |kind: &str, bound: &rules::Bound| {
        cases
            .iter()
            .filter(|case| case.kind == kind || case.kind == "every")
            .flat_map(|case| &case.refused)
            .filter(|refusal| bound.is_at(&comparable(&refusal.field)))
            .any(|refusal| {
                let says = refusal.says.as_slice();
                bound.is_named(&[says, &refusal.names].concat().join(" "))
            })
    };
    let mut missing = String::new();
    let mut count = 0;
    for definition in kaos_api::crds() {
        let kind = &definition.spec.names.kind;
        for bound in rules::bounds(&definition) {
            count += 1;
            if !named(kind, &bound) {
                writeln!(missing, "{kind}: {bound}").unwrap();
            }
        }
    }
    assert!(count > 100, "only {count} bounds were found");
    assert!(missing.is_empty(), "bounds without a case:\n{missing}");
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
async fn what_the_schemas_bound_is_refused() {
    run(include_str!("cases/bounds.yaml")).await;
}

#[tokio::test]
async fn manifests_of_every_era_are_accepted() {
    run(include_str!("cases/accepted.yaml")).await;
}
