//! Manifests as people keep them: YAML files with one or more documents, and folders of such files.
//!
//! Everything is read and checked before anything is applied, so that a broken file changes nothing.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kube::core::{DynamicObject, GroupVersionKind, TypeMeta};
use serde_json::Value;

/// One object of a manifest file and where it stands.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file.
    pub file: PathBuf,
    /// The line of the file at which its document starts, from 1.
    pub line: usize,
    /// The object, with `apiVersion`, `kind` and `metadata.name`.
    pub object: DynamicObject,
}

impl Manifest {
    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        let types = self.object.types.clone().unwrap_or_default();
        GroupVersionKind::try_from(types).unwrap_or_else(|_| GroupVersionKind::gvk("", "", ""))
    }

    /// `file:line`, as compilers name places.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file or folder cannot be read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder without manifests.
    #[error("{}: the folder has no .yaml, .yml or .json file", .0.display())]
    Empty(PathBuf),
    /// A file that is no YAML, or a document that is no Kubernetes object.
    #[error("{}:{line}: {message}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What was found and what to write instead.
        message: String,
    },
}

/// Reads every manifest of the paths, in order; of a folder, the `.yaml`, `.yml` and `.json` files directly
/// in it by name.
///
/// # Errors
/// At the first path, file or document that cannot be read.
pub fn load(paths: &[PathBuf]) -> Result<Vec<Manifest>, ManifestError> {
    let mut manifests = Vec::new();
    for path in paths {
        for file in files(path)? {
            let text = fs::read_to_string(&file).map_err(|source| ManifestError::Io {
                path: file.clone(),
                source,
            })?;
            manifests.extend(parse(&file, &text)?);
        }
    }
    Ok(manifests)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let io = |source| ManifestError::Io {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(io)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        let manifest = file
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if manifest && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        Err(ManifestError::Empty(path.to_owned()))
    } else {
        Ok(files)
    }
}

/// The objects of one file.
fn parse(file: &Path, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let mut manifests = Vec::new();
    for (line, document) in documents(text) {
        let value: Value = serde_saphyr::from_str(&document).map_err(|error| {
            let within = error
                .location()
                .map_or(0, |location| location.line().saturating_sub(1));
            ManifestError::Invalid {
                file: file.to_owned(),
                line: line + usize::try_from(within).unwrap_or(0),
                message: format!(
                    "not valid YAML: {}",
                    first_line(&error.without_snippet().to_string())
                ),
            }
        })?;
        if value.is_null() {
            continue;
        }
        let invalid = |message: String| ManifestError::Invalid {
            file: file.to_owned(),
            line,
            message,
        };
        let object = object(value).map_err(invalid)?;
        manifests.push(Manifest {
            file: file.to_owned(),
            line,
            object,
        });
    }
    Ok(manifests)
}

/// The documents of a YAML stream with the line at which each starts. A line of `---` separates documents
/// wherever it stands at the start of a line, inside block scalars too (YAML 1.2.2, 9.1.2).
fn documents(text: &str) -> Vec<(usize, String)> {
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

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
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
        parse(Path::new("m.yaml"), text).map_err(|error| error.to_string())
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
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
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
