//! What is said of live objects: Deployments, routes, pulls, tools, and what an API server refuses.

use kaos_external::gateway_api::HttpRouteStatus;
use kaos_kube_ext::{ApplyError, Observed, Operation, PruneError};
use kube::core::Status;
use serde::Deserialize;
use serde_json::{Value, json};

use super::LIVE;
use crate::{
    common::{failure::Failure, route, status::Standing, testing::gateway},
    mcp_server::{self, tools::Listing},
    model_api::pulls::Told,
};

/// Something that is there, and what is said of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// What it shows.
    case: String,
    of: Live,
    /// `Phase Reason: message` of a Deployment or a refusal, `Status Reason: message` of a condition.
    says: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Live {
    /// A Deployment of two replicas unless it says otherwise, or null.
    Deployment(Option<Value>),
    /// The status of a route, or null.
    Route(Option<HttpRouteStatus>),
    /// There are no routes.
    NoGatewayApi,
    /// The last word of a step that pulls, or null.
    Pull(Option<kaos_ollama::Progress>),
    /// The same, while two replicas roll out.
    RolloutAndPull(kaos_ollama::Progress),
    /// Nobody has asked for tools.
    NotListed,
    /// So many tools, of which so many are named.
    Listed(usize, usize),
    /// What came of asking instead.
    NotListable(String),
    /// What an API server says of a write.
    Refused(Refused),
    /// An object of the name belongs to somebody else, who ends a sentence.
    Foreign(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    #[serde(rename = "do")]
    verb: String,
    kind: String,
    code: u16,
    answer: String,
}

impl Refused {
    fn failure(&self) -> Failure {
        let source = kube::Error::Api(Box::new(
            Status::failure(&self.answer, "Reason").with_code(self.code),
        ));
        let (kind, name) = (self.kind.clone(), "subject".to_owned());
        let operation = match self.verb.as_str() {
            "create" => Operation::Create,
            "update" => Operation::Update,
            "get" => Operation::Get,
            "delete" => return Failure::Delete(PruneError { kind, name, source }),
            "remove finalizers" => return Failure::api("failed to remove finalizers")(source),
            other => panic!("nobody tries to {other}"),
        };
        Failure::Apply(ApplyError::Api {
            kind,
            name,
            operation,
            source,
        })
    }
}

/// As a row has it.
pub(super) fn in_words(observed: &Observed) -> String {
    let status = match observed.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    format!("{status} {}: {}", observed.reason, observed.message)
}

fn standing(standing: &Standing) -> String {
    format!("{:?} {}: {}", standing.phase, standing.reason, standing.message)
}

fn rolls_out(deployment: &Value) -> Standing {
    let mut whole = json!({
        "metadata": {"name": "subject", "generation": 1},
        "spec": {"replicas": 2, "selector": {}, "template": {}},
    });
    merge(&mut whole, deployment);
    Standing::of(&serde_json::from_value(whole).unwrap())
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

impl Live {
    fn said(self) -> String {
        match self {
            Self::Deployment(None) => standing(&Standing::unmade()),
            Self::Deployment(Some(deployment)) => standing(&rolls_out(&deployment)),
            Self::Route(status) => in_words(&route::accepted(&gateway(), Some(1), status.as_ref())),
            Self::NoGatewayApi => in_words(&route::absent()),
            Self::Pull(progress) => {
                let told = progress.map(Told::Progress).unwrap_or_default();
                in_words(&told.observed())
            }
            Self::RolloutAndPull(progress) => {
                standing(&Told::Progress(progress).explains(rolls_out(&json!({}))))
            }
            Self::NotListed => in_words(&mcp_server::not_listed()),
            Self::Listed(count, named) => {
                let names = vec!["tool".to_owned(); named];
                in_words(&Listing::Listed { names, count }.observed())
            }
            Self::NotListable(problem) => in_words(&Listing::Failed(problem).observed()),
            Self::Refused(refused) => standing(&Standing::of_failure(&refused.failure())),
            Self::Foreign(owner) => {
                let (kind, name) = ("Deployment".to_owned(), "subject".to_owned());
                let foreign = ApplyError::Foreign { kind, name, owner };
                standing(&Standing::of_failure(&foreign.into()))
            }
        }
    }
}

fn rows(table: &str) -> Vec<Row> {
    serde_saphyr::from_str(table).unwrap()
}

/// Everything that the rows of `table` say.
pub(super) fn told(table: &str) -> impl Iterator<Item = String> {
    rows(table).into_iter().map(|row| row.says)
}

#[test]
fn what_is_told_of_live_objects() {
    let mut wrong = Vec::new();
    for Row { case, of, says } in rows(LIVE) {
        let said = of.said();
        if said != says {
            wrong.push(format!("{case}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
