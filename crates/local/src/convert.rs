//! Older spellings of our kinds, rewritten as today's.
//!
//! Every one that the API takes means the same before and after. Beside those there are spellings of the first
//! weeks that the API does not take any more (`resources` of a spec, a `configYaml` that is text).
//!
//! What has no other spelling stays: packages as tool servers, tools in a Secret, and the switches of an agent.

use std::{fs, path::Path};

use kaos_api::GROUP;
use serde_json::{Map, Value, json};

use crate::{
    finding::{Finding, Findings, Severity},
    manifest::{self, Manifest},
    positions::Positions,
};

/// A file with today's spellings.
#[derive(Clone, Debug)]
pub struct Converted {
    /// Its text. Documents that needed no change are as they were; of those that did, comments within are lost.
    pub text: String,
    /// What was changed, as `file:line: kind/name: ...`.
    pub changes: Vec<Finding>,
    /// How many comments are not in the text any more.
    pub lost_comments: usize,
}

/// Rewrites a file.
///
/// # Errors
/// When it cannot be read, or is no YAML.
pub fn convert_file(file: &Path) -> Result<Converted, Findings> {
    let text = fs::read_to_string(file)
        .map_err(|error| Findings(vec![Finding::of_file(file, None, error.to_string())]))?;
    convert_text(file, &text)
}

fn convert_text(file: &Path, text: &str) -> Result<Converted, Findings> {
    let mut converted = Converted {
        text: String::new(),
        changes: Vec::new(),
        lost_comments: 0,
    };
    let mut findings = Vec::new();
    for Chunk { line, before, body } in chunks(text) {
        converted.text.push_str(&before);
        match manifest::value(&body) {
            Ok(mut value) => {
                let changes = convert(&mut value);
                if changes.is_empty() {
                    converted.text.push_str(&body);
                    continue;
                }
                let positions = Positions::of(&body, line);
                let name = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let object = format!("{}/{}", name("/kind").to_lowercase(), name("/metadata/name"));
                converted
                    .changes
                    .extend(changes.into_iter().map(|change| Finding {
                        severity: Severity::Warning,
                        file: file.to_owned(),
                        line: Some(positions.line(&change.from).unwrap_or(line)),
                        object: Some(object.clone()),
                        message: format!("{} is {} today", change.from, change.to),
                        field: Some(change.from),
                    }));
                converted.lost_comments += comments(&body);
                match serde_saphyr::to_string(&value) {
                    Ok(text) => {
                        converted.text.push_str(text.trim_end());
                        converted.text.push('\n');
                    }
                    Err(error) => findings.push(Finding::of_file(file, Some(line), error.to_string())),
                }
            }
            Err((within, message)) => {
                findings.push(Finding::of_file(file, Some(line + within), message));
            }
        }
    }
    if findings.is_empty() {
        Ok(converted)
    } else {
        Err(Findings(findings))
    }
}

/// A document, and what stands in front of it: separators, comments and empty lines.
struct Chunk {
    /// The line of the body's first line, from 1.
    line: usize,
    before: String,
    body: String,
}

/// The whole of a file in chunks; together they are the file.
fn chunks(text: &str) -> Vec<Chunk> {
    let mut chunks = vec![Chunk {
        line: 1,
        before: String::new(),
        body: String::new(),
    }];
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.trim_end_matches(['\n', '\r']);
        let separates = bare == "---" || bare.starts_with("--- ") || bare == "...";
        if separates {
            chunks.push(Chunk {
                line: at + 2,
                before: line.to_owned(),
                body: String::new(),
            });
            continue;
        }
        let Some(chunk) = chunks.last_mut() else { continue };
        let is_space = bare.trim().is_empty() || bare.trim_start().starts_with('#');
        if chunk.body.is_empty() && is_space {
            chunk.before.push_str(line);
            chunk.line = at + 2;
        } else {
            chunk.body.push_str(line);
        }
    }
    chunks
}

/// Comments on lines of their own; those behind a value cannot be told from text by their looks.
fn comments(body: &str) -> usize {
    body.lines()
        .filter(|line| line.trim_start().starts_with('#'))
        .count()
}

/// A spelling that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    from: String,
    to: String,
}

/// How `field` of the manifest is spelled today, where it is an older spelling or within one.
pub(crate) fn today(manifest: &Manifest, field: &str) -> Option<String> {
    let mut value = serde_json::to_value(&manifest.object).ok()?;
    let is_it = |change: &Change| field == change.from || field.starts_with(&format!("{}.", change.from));
    convert(&mut value)
        .into_iter()
        .find(is_it)
        .map(|change| change.to)
}

/// Rewrites an object of ours. Where both spellings are given, the newer one has always won, and stays.
pub(crate) fn convert(object: &mut Value) -> Vec<Change> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if !api_version.starts_with(&format!("{GROUP}/")) {
        return Vec::new();
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let mut spec = Spec {
        spec,
        changes: Vec::new(),
    };
    match kind.as_str() {
        "Agent" => agent(&mut spec),
        "ModelAPI" => model_api(&mut spec),
        "MCPServer" => mcp_server(&mut spec),
        _ => {}
    }
    spec.changes
}

fn agent(spec: &mut Spec<'_>) {
    spec.rename("config.agenticLoop.maxSteps", "config.reasoningLoopMaxSteps");
    spec.move_env("config.env");
    spec.rename("resources", "container.resources");
}

fn model_api(spec: &mut Spec<'_>) {
    if let Some(model) = spec.take("proxyConfig.model") {
        spec.put("proxyConfig.model", "proxyConfig.models", json!([model]));
    }
    if spec.get("proxyConfig.configYaml").is_some_and(Value::is_string)
        && let Some(text) = spec.take("proxyConfig.configYaml")
    {
        spec.put(
            "proxyConfig.configYaml",
            "proxyConfig.configYaml.fromString",
            text,
        );
    }
    spec.rename("serverConfig.resources", "container.resources");
    spec.move_env("proxyConfig.env");
    // Those of the newer block win over those of the older one.
    spec.move_env("hostedConfig.env");
    let both = spec.get("hostedConfig").is_some();
    if both {
        spec.drop("serverConfig", "hostedConfig");
    } else {
        spec.move_env("serverConfig.env");
        spec.rename("serverConfig", "hostedConfig");
    }
}

fn mcp_server(spec: &mut Spec<'_>) {
    spec.rename("resources", "container.resources");
    if spec.get("runtime").is_some_and(|runtime| runtime == "rawpython") {
        spec.take("runtime");
        spec.put("runtime: rawpython", "runtime: python-string", Value::Null);
        spec.spec.insert("runtime".to_owned(), json!("python-string"));
    }
    if spec.get("config.tools").is_some() {
        spec.drop("config.mcp", "config.tools");
        spec.drop("config.toolsString", "config.tools");
    }
    spec.rename("config.mcp", "config.tools.fromPackage");
    spec.move_env("config.env");
    let source = ["config.toolsString", "config.tools.fromString"]
        .into_iter()
        .find(|path| spec.get(path).is_some());
    let is_python = spec.get("type").is_some_and(|type_| type_ == "python-runtime");
    let has_runtime = spec.get("runtime").is_some();
    if let Some(source) = source
        && (is_python || has_runtime)
    {
        spec.rename(source, "params");
        if !has_runtime {
            spec.take("type");
            spec.put("type", "runtime", json!("python-string"));
        }
    }
    if has_runtime {
        spec.drop("type", "runtime");
    }
}

/// The spec of an object, with paths that begin within it.
struct Spec<'a> {
    spec: &'a mut Map<String, Value>,
    changes: Vec<Change>,
}

impl Spec<'_> {
    fn get(&self, path: &str) -> Option<&Value> {
        let mut steps = path.split('.');
        let first = self.spec.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.get(step))
    }

    /// Takes a value out, and with it the mappings that it leaves empty.
    fn take(&mut self, path: &str) -> Option<Value> {
        fn take(map: &mut Map<String, Value>, path: &str) -> Option<Value> {
            match path.split_once('.') {
                None => map.shift_remove(path),
                Some((step, rest)) => {
                    let inner = map.get_mut(step)?.as_object_mut()?;
                    let taken = take(inner, rest);
                    if inner.is_empty() {
                        map.shift_remove(step);
                    }
                    taken
                }
            }
        }
        take(self.spec, path)
    }

    fn changed(&mut self, from: &str, to: &str) {
        self.changes.push(Change {
            from: format!("spec.{from}"),
            to: format!("spec.{to}"),
        });
    }

    /// Puts a value where today's spelling has it, unless there is one.
    fn put(&mut self, from: &str, to: &str, value: Value) {
        self.changed(from, to);
        if value.is_null() {
            return;
        }
        let mut map = &mut *self.spec;
        let mut steps = to.split('.').peekable();
        while let Some(step) = steps.next() {
            if steps.peek().is_none() {
                map.entry(step).or_insert(value);
                return;
            }
            let Some(inner) = map.entry(step).or_insert_with(|| json!({})).as_object_mut() else {
                return;
            };
            map = inner;
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        if let Some(value) = self.take(from) {
            self.put(from, to, value);
        }
    }

    /// Takes out what has no effect beside `newer`.
    fn drop(&mut self, older: &str, newer: &str) {
        if self.take(older).is_some() {
            self.changed(older, newer);
        }
    }

    /// Moves variables to `container.env`, whose own win where both name one.
    fn move_env(&mut self, from: &str) {
        let Some(Value::Array(older)) = self.take(from) else {
            return;
        };
        self.put(from, "container.env", json!([]));
        let env = self
            .spec
            .get_mut("container")
            .and_then(|container| container.get_mut("env"));
        let Some(env) = env.and_then(Value::as_array_mut) else {
            return;
        };
        let new: Vec<Value> = older
            .into_iter()
            .filter(|one| !env.iter().any(|newer| newer["name"] == one["name"]))
            .collect();
        env.splice(0..0, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(kind: &str, spec: Value) -> (Value, Vec<String>) {
        let mut object = json!({"apiVersion": "kaos.tools/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        let changes = convert(&mut object);
        let again = convert(&mut object);
        assert_eq!(again, [], "what is today's stays");
        let from = changes.into_iter().map(|change| change.from).collect();
        (object["spec"].take(), from)
    }

    #[test]
    fn each_older_spelling_becomes_todays() {
        for (kind, older, today) in [
            (
                "Agent",
                json!({"model": "m", "config": {"agenticLoop": {"maxSteps": 7, "enableTools": false}, "env": [{"name": "A", "value": "1"}]}}),
                json!({"model": "m", "config": {"agenticLoop": {"enableTools": false}, "reasoningLoopMaxSteps": 7},
                    "container": {"env": [{"name": "A", "value": "1"}]}}),
            ),
            (
                "Agent",
                json!({"config": {"agenticLoop": {"maxSteps": 7}, "reasoningLoopMaxSteps": 3, "env": [{"name": "A", "value": "1"}]},
                    "container": {"env": [{"name": "A", "value": "2"}]}, "resources": {"limits": {"cpu": "1"}}}),
                json!({"config": {"reasoningLoopMaxSteps": 3}, "container": {"env": [{"name": "A", "value": "2"}],
                    "resources": {"limits": {"cpu": "1"}}}}),
            ),
            (
                "ModelAPI",
                json!({"mode": "Proxy", "proxyConfig": {"model": "m", "configYaml": "a: 1", "env": [{"name": "A"}]}}),
                json!({"mode": "Proxy", "proxyConfig": {"models": ["m"], "configYaml": {"fromString": "a: 1"}},
                    "container": {"env": [{"name": "A"}]}}),
            ),
            (
                "ModelAPI",
                json!({"mode": "Hosted", "serverConfig": {"model": "m", "env": [{"name": "A"}], "resources": {}}}),
                json!({"mode": "Hosted", "container": {"resources": {}, "env": [{"name": "A"}]}, "hostedConfig": {"model": "m"}}),
            ),
            (
                "MCPServer",
                json!({"type": "python-runtime", "config": {"toolsString": "def f(): ...", "env": [{"name": "A"}]}}),
                json!({"container": {"env": [{"name": "A"}]}, "params": "def f(): ...", "runtime": "python-string"}),
            ),
            (
                "MCPServer",
                json!({"type": "python-runtime", "config": {"mcp": "test-server"}}),
                json!({"type": "python-runtime", "config": {"tools": {"fromPackage": "test-server"}}}),
            ),
            (
                "MCPServer",
                json!({"runtime": "rawpython", "type": "python-runtime", "params": "x"}),
                json!({"params": "x", "runtime": "python-string"}),
            ),
        ] {
            let (found, changes) = converted(kind, older.clone());
            assert_eq!(found, today, "{older}");
            assert!(!changes.is_empty());
        }
    }

    #[test]
    fn what_is_not_ours_or_not_older_is_left_alone() {
        let text = "# first\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a} # why\n---\n# agent\napiVersion: \
                    kaos.tools/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  model: m\n";
        let converted = convert_text(Path::new("m.yaml"), text).unwrap();
        assert_eq!((converted.text.as_str(), converted.lost_comments), (text, 0));
        assert!(converted.changes.is_empty());
    }

    #[test]
    fn a_changed_document_leaves_its_neighbours_as_they_are() {
        let text = "# top\n---\n# the agent\napiVersion: kaos.tools/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  \
                    model: m\n  # steps\n  config:\n    agenticLoop:\n      maxSteps: 2\n---\napiVersion: v1\nkind:   Pod\n\
                    metadata: {name: p}\n";
        let converted = convert_text(Path::new("m.yaml"), text).unwrap();
        assert!(
            converted
                .text
                .starts_with("# top\n---\n# the agent\napiVersion: kaos.tools"),
            "{}",
            converted.text
        );
        assert!(
            converted
                .text
                .contains("reasoningLoopMaxSteps: 2\n---\napiVersion: v1\nkind:   Pod\n"),
            "{}",
            converted.text
        );
        assert_eq!(converted.lost_comments, 1);
        assert_eq!(
            converted.changes[0].to_string(),
            "m.yaml:13: warning: agent/a: spec.config.agenticLoop.maxSteps is spec.config.reasoningLoopMaxSteps today"
        );
    }
}
