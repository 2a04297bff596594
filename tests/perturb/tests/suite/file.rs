//! Scenarios as they are written in `scenarios/*.yaml`: around one object of a kind.

use kaos_perturb::{Key, Scenario, Step};
use serde::Deserialize;
use serde_json::{Value, json};

const FILES: [(&str, &str); 5] = [
    ("ModelAPI", include_str!("../../scenarios/model-api.yaml")),
    ("MCPServer", include_str!("../../scenarios/mcp-server.yaml")),
    (
        "hosted ModelAPI",
        include_str!("../../scenarios/model-api-hosted.yaml"),
    ),
    (
        "older MCPServer",
        include_str!("../../scenarios/mcp-server-older.yaml"),
    ),
    ("Agent", include_str!("../../scenarios/agent.yaml")),
];

/// What one file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The object that all is about.
    object: Value,
    /// What it refers to.
    #[serde(default)]
    with: Vec<Value>,
    /// Merge patches of its spec; each is made and taken back.
    #[serde(default)]
    fields: Vec<Value>,
    #[serde(default)]
    scenarios: Vec<Written>,
}

/// A scenario in short.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    /// The object is not there before.
    #[serde(default)]
    alone: bool,
    /// Nothing is there before.
    #[serde(default)]
    bare: bool,
    /// Definitions that are not installed at first.
    #[serde(default)]
    absent: Vec<String>,
    /// What is there besides.
    #[serde(default)]
    before: Vec<Value>,
    #[serde(default)]
    foreign: Vec<Value>,
    steps: Vec<WrittenStep>,
    #[serde(default)]
    tamper: bool,
}

/// A step, in which `object` and `with` stand for those of the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum WrittenStep {
    Apply(Vec<Value>),
    Merge { object: Key, patch: Value },
    Delete(Key),
    Install(String),
    Uninstall(String),
    Revert,
}

/// The scenarios of all files.
pub(crate) fn scenarios() -> Vec<Scenario> {
    FILES
        .into_iter()
        .flat_map(|(kind, text)| read(kind, text))
        .collect()
}

fn read(kind: &str, text: &str) -> Vec<Scenario> {
    let file: File =
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("the scenarios of {kind}: {error}"));
    let key = Key::of(&file.object);
    let fields = file.fields.iter().map(|patch| Scenario {
        name: format!("{kind}: {} and back", brief(patch)),
        absent: Vec::new(),
        before: file.all(),
        foreign: Vec::new(),
        steps: vec![
            Step::Merge {
                object: key.clone(),
                patch: json!({"spec": patch}),
            },
            Step::Revert,
        ],
        tamper: false,
    });
    let written = file.scenarios.iter().map(|written| {
        let mut before = match (written.bare, written.alone) {
            (true, _) => Vec::new(),
            (_, true) => file.with.clone(),
            _ => file.all(),
        };
        before.extend(written.before.iter().cloned());
        Scenario {
            name: format!("{kind}: {}", written.name),
            absent: written.absent.clone(),
            before,
            foreign: written.foreign.clone(),
            steps: written.steps.iter().map(|step| file.step(step)).collect(),
            tamper: written.tamper,
        }
    });
    written.chain(fields).collect()
}

impl File {
    fn all(&self) -> Vec<Value> {
        self.with.iter().chain([&self.object]).cloned().collect()
    }

    fn step(&self, step: &WrittenStep) -> Step {
        match step {
            WrittenStep::Apply(objects) => {
                Step::Apply(objects.iter().flat_map(|object| self.meant(object)).collect())
            }
            WrittenStep::Merge { object, patch } => Step::Merge {
                object: object.clone(),
                patch: patch.clone(),
            },
            WrittenStep::Delete(key) => Step::Delete(key.clone()),
            WrittenStep::Install(definition) => Step::Install(definition.clone()),
            WrittenStep::Uninstall(definition) => Step::Uninstall(definition.clone()),
            WrittenStep::Revert => Step::Revert,
        }
    }

    fn meant(&self, object: &Value) -> Vec<Value> {
        match object.as_str() {
            Some("object") => vec![self.object.clone()],
            Some("with") => self.with.clone(),
            _ => vec![object.clone()],
        }
    }
}

/// A patch in few words.
fn brief(patch: &Value) -> String {
    let text = patch.to_string();
    text.trim_matches(['{', '}'])
        .replace(['"'], "")
        .replace(',', ", ")
}
