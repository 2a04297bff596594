//! Manifests as people keep them: YAML files with one or more documents, and folders of such files.
//!
//! Everything is read and checked before anything is applied, so that a broken file changes nothing.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kube::core::{DynamicObject, GroupVersionKind, TypeMeta};
use serde_json::Value;

use crate::{
    finding::{Finding, Findings, Severity},
    positions::Positions,
};

/// One object of a manifest file and where it stands.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file.
    pub file: PathBuf,
    /// The line of the file at which its document starts, from 1.
    pub line: usize,
    /// The object, with `apiVersion`, `kind` and `metadata.name`.
    pub object: DynamicObject,
    pub(crate) positions: Positions,
}

impl Manifest {
    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        let types = self.object.types.clone().unwrap_or_default();
        GroupVersionKind::try_from(types).unwrap_or_else(|_| GroupVersionKind::gvk("", "", ""))
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The namespace that the object goes to, where its kind has any.
    pub fn namespace_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.object.metadata.namespace.as_deref().unwrap_or(default)
    }

    /// `kind/name`, as kubectl prints it.
    pub fn label(&self) -> String {
        format!("{}/{}", self.gvk().kind.to_lowercase(), self.name())
    }

    /// An error about the object, or about a field of it.
    pub(crate) fn finding(&self, field: Option<&str>, message: impl Into<String>) -> Finding {
        let line = field.and_then(|field| self.positions.line(field));
        Finding {
            severity: Severity::Error,
            file: self.file.clone(),
            line: Some(line.unwrap_or(self.line)),
            object: Some(self.label()),
            field: field.map(ToOwned::to_owned),
            message: message.into(),
        }
    }
}

/// Reads every manifest of the paths, in order; of a folder, the `.yaml`, `.yml` and `.json` files directly
/// in it by name.
///
/// # Errors
/// Everything in them that is no manifest.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Manifest>, Findings> {
    let (manifests, findings) = read(paths);
    if findings.is_empty() {
        Ok(manifests)
    } else {
        Err(Findings(findings))
    }
}

/// As [`load`], with what can be read though other things cannot.
pub(crate) fn read(paths: &[PathBuf]) -> (Vec<Manifest>, Vec<Finding>) {
    let (mut manifests, mut findings) = (Vec::new(), Vec::new());
    for path in paths {
        let files = match manifest_files(std::slice::from_ref(path)) {
            Ok(files) => files,
            Err(Findings(found)) => {
                findings.extend(found);
                continue;
            }
        };
        for file in files {
            match fs::read_to_string(&file) {
                Ok(text) => parse(&file, &text, &mut manifests, &mut findings),
                Err(error) => findings.push(Finding::of_file(&file, None, error.to_string())),
            }
        }
    }
    twice(&manifests, &mut findings);
    (manifests, findings)
}

/// The files that [`load`] reads.
///
/// # Errors
/// Everything that is no file and no folder with manifests.
pub fn manifest_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Findings> {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    for path in paths {
        match files(path) {
            Ok(files) if files.is_empty() => {
                let message = "the folder has no .yaml, .yml or .json file";
                findings.push(Finding::of_file(path, None, message));
            }
            Ok(files) => found.extend(files),
            Err(error) => findings.push(Finding::of_file(path, None, error.to_string())),
        }
    }
    if findings.is_empty() {
        Ok(found)
    } else {
        Err(Findings(findings))
    }
}

/// The files of a path: itself, or those of a folder.
pub(crate) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let manifest = file
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if manifest && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Finds objects that are given twice: the later one would win without a word.
fn twice(manifests: &[Manifest], findings: &mut Vec<Finding>) {
    let same = |a: &Manifest, b: &Manifest| {
        let (x, y) = (a.gvk(), b.gvk());
        (&x.group, &x.kind, a.name()) == (&y.group, &y.kind, b.name())
            && a.object.metadata.namespace == b.object.metadata.namespace
    };
    for (at, manifest) in manifests.iter().enumerate() {
        if let Some(first) = manifests[..at].iter().find(|first| same(first, manifest)) {
            let place = format!("{}:{}", first.file.display(), first.line);
            let message = format!("it is given in {place} too; remove one of the two, or rename it");
            findings.push(manifest.finding(None, message));
        }
    }
}

/// The objects of one file.
fn parse(file: &Path, text: &str, manifests: &mut Vec<Manifest>, findings: &mut Vec<Finding>) {
    for (line, document) in documents(text) {
        match value(&document) {
            Ok(Value::Null) => {}
            Ok(value) => match object(value) {
                Ok(object) => manifests.push(Manifest {
                    file: file.to_owned(),
                    line,
                    object,
                    positions: Positions::of(&document, line),
                }),
                Err(message) => findings.push(Finding::of_file(file, Some(line), message)),
            },
            Err((within, message)) => {
                findings.push(Finding::of_file(file, Some(line + within), message));
            }
        }
    }
}

/// The document as JSON; else the line of it, from 0, that is no YAML, and what was found.
pub(crate) fn value(document: &str) -> Result<Value, (usize, String)> {
    serde_saphyr::from_str(document).map_err(|error| {
        let line = error
            .location()
            .map_or(0, |location| location.line().saturating_sub(1));
        let text = error.without_snippet().to_string();
        (
            usize::try_from(line).unwrap_or(0),
            format!("not valid YAML: {}", text.lines().next().unwrap_or_default()),
        )
    })
}

/// The documents of a YAML stream with the line at which each starts. A line of `---` separates documents
/// wherever it stands at the start of a line, inside block scalars too (YAML 1.2.2, 9.1.2).
pub(crate) fn documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = Vec::new();
    let mut start = 1;
    let mut current = String::new();
    for (index, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") || line == "..." {
            documents.push((start, std::mem::take(&mut current)));
            start = index + 2;
        } else {
            current.push_str(line);
            current.push('\n');
        }
    }
    documents.push((start, current));
    documents.retain(|(_, document)| !document.trim().is_empty());
    // Comments in front of an object are not where it starts.
    for (start, document) in &mut documents {
        let skipped = document
            .lines()
            .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
            .count();
        if skipped < document.lines().count() {
            *start += skipped;
            *document = document
                .lines()
                .skip(skipped)
                .fold(String::new(), |text, line| text + line + "\n");
        }
    }
    documents
}

fn object(value: Value) -> Result<DynamicObject, String> {
    let Value::Object(map) = &value else {
        return Err(format!(
            "a manifest is a mapping with apiVersion, kind and metadata, found {}",
            shape(&value)
        ));
    };
    let text = |key: &str| match map.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(other) => Err(format!(
            "{key} must be a non-empty string, found {}",
            shape(other)
        )),
        None => Err(format!(
            "{key} is missing; every manifest names its apiVersion and kind"
        )),
    };
    let types = TypeMeta {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
    };
    if types.kind == "List" {
        return Err("kind List is not read; write its items as documents separated by ---".to_owned());
    }
    let name = map.get("metadata").and_then(|metadata| metadata.get("name"));
    if name.and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(format!("{} has no metadata.name", types.kind));
    }
    serde_json::from_value(value).map_err(|error| format!("{}: {error}", types.kind))
}

fn shape(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        other => format!("{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Manifest>, String> {
        let (mut manifests, mut findings) = (Vec::new(), Vec::new());
        parse(Path::new("m.yaml"), text, &mut manifests, &mut findings);
        twice(&manifests, &mut findings);
        if findings.is_empty() {
            Ok(manifests)
        } else {
            Err(Findings(findings).to_string())
        }
    }

    #[test]
    fn documents_are_found_with_their_lines() {
        let text = "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\n---\n\
                    apiVersion: v1\nkind: Secret\nmetadata: {name: b}\n";
        let found: Vec<_> = parsed(text)
            .unwrap()
            .into_iter()
            .map(|m| (m.line, m.gvk().kind, m.object.metadata.name.unwrap()))
            .collect();
        let expected = vec![
            (2, "ConfigMap".to_owned(), "a".to_owned()),
            (8, "Secret".to_owned(), "b".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn each_mistake_is_told_with_its_line() {
        for (text, expected) in [
            ("a: 1\n---\nb: [1\n", "m.yaml:1: apiVersion is missing"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\nkey: [1\nother: 2\n",
                "not valid YAML",
            ),
            ("- 1\n", "m.yaml:1: a manifest is a mapping"),
            (
                "apiVersion: v1\nkind: Pod\n",
                "m.yaml:1: Pod has no metadata.name",
            ),
            (
                "apiVersion: 1\nkind: Pod\n",
                "apiVersion must be a non-empty string, found 1",
            ),
            ("apiVersion: v1\nkind: List\nitems: []\n", "kind List is not read"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
                "m.yaml:5: pod/p: it is given in m.yaml:1 too",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let all = parsed("- 1\n---\na: 1\n---\nb: [\n").unwrap_err();
        assert_eq!(all.lines().count(), 3, "each mistake is told: {all}");
        let error = parsed("# c\n\n---\nx: 1\ny: 'open\n").unwrap_err();
        assert!(
            error.starts_with("m.yaml:5:") || error.starts_with("m.yaml:6:"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_without_manifests_is_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let error = load(&[folder.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no .yaml"), "{error}");
        assert!(load(&[folder.path().join("absent.yaml")]).is_err());
    }
}
