//! An env file as a Secret, so that keys of providers are in no manifest.
//!
//! The reader is our own, because it is small and because a mistake must be told without the line that it is in:
//! that line is a key. Nothing is substituted: a `$` in a key is a `$`.

use std::{fs, path::Path};

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{Container, Secret},
    },
};
use kube::{Api, Client, ResourceExt, api::ListParams, core::DynamicObject};

use crate::{
    finding::{Finding, Findings},
    manifest::Manifest,
    positions::Positions,
};

/// The Secret that an env file becomes. Its keys are the names of the variables.
pub const ENV_SECRET: &str = "kaos-env";

/// Reads an env file and makes of it the Secret [`ENV_SECRET`] of each of `namespaces`.
///
/// # Errors
/// When the file cannot be read, or a line of it is no variable. No error holds a value.
pub fn env_secrets<'a>(
    file: &Path,
    namespaces: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Manifest>, Findings> {
    let text = fs::read_to_string(file)
        .map_err(|error| Findings(vec![Finding::of_file(file, None, error.to_string())]))?;
    let variables = parse(&text)
        .map_err(|(line, message)| Findings(vec![Finding::of_file(file, Some(line), message)]))?;
    let mut positions = Positions::default();
    let mut data = std::collections::BTreeMap::new();
    for Variable { line, name, value } in variables {
        positions.insert(format!("data.{name}"), line);
        positions.insert(format!("data[{name}]"), line);
        data.insert(name, ByteString(value.into_bytes()));
    }
    let secrets = namespaces.into_iter().map(|namespace| {
        let mut secret = Secret {
            data: Some(data.clone()),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        secret.metadata.name = Some(ENV_SECRET.to_owned());
        secret.metadata.namespace = Some(namespace.to_owned());
        let labels = secret.labels_mut();
        labels.insert("app.kubernetes.io/managed-by".to_owned(), "kaos-up".to_owned());
        let object = serde_json::to_value(&secret).and_then(serde_json::from_value::<DynamicObject>);
        object
            .map(|object| Manifest {
                file: file.to_owned(),
                line: 1,
                object,
                positions: positions.clone(),
            })
            .map_err(|error| Findings(vec![Finding::of_file(file, None, error.to_string())]))
    });
    secrets.collect()
}

/// Restarts the pods of a namespace that have values of [`ENV_SECRET`] in their environment, which they read once,
/// as `kubectl rollout restart` does. Those that mount it see the new values by themselves.
///
/// # Errors
/// When the API does not answer.
pub async fn restart_readers(client: &Client, namespace: &str) -> Result<Vec<String>, kube::Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let mut restarted = Vec::new();
    for deployment in deployments.list(&ListParams::default()).await? {
        let pod = deployment.spec.template.spec.as_ref();
        let reads = pod.is_some_and(|pod| {
            let init = pod.init_containers.iter().flatten();
            pod.containers.iter().chain(init).any(has_values)
        });
        if reads {
            let name = deployment.name_any();
            deployments.restart(&name).await?;
            restarted.push(name);
        }
    }
    Ok(restarted)
}

fn has_values(container: &Container) -> bool {
    let of_one = container.env.iter().flatten().any(|one| {
        let source = one
            .value_from
            .as_ref()
            .and_then(|from| from.secret_key_ref.as_ref());
        source.is_some_and(|source| source.name == ENV_SECRET)
    });
    let of_all = container.env_from.iter().flatten().any(|one| {
        one.secret_ref
            .as_ref()
            .is_some_and(|source| source.name == ENV_SECRET)
    });
    of_one || of_all
}

#[derive(Debug, PartialEq, Eq)]
struct Variable {
    line: usize,
    name: String,
    value: String,
}

/// The variables of a file; or the line, from 1, that is none, and why.
fn parse(text: &str) -> Result<Vec<Variable>, (usize, String)> {
    let mut variables: Vec<Variable> = Vec::new();
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    while let Some((at, text)) = lines.next() {
        let line = at + 1;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let text = text.strip_prefix("export ").unwrap_or(text).trim_start();
        let Some((name, rest)) = text.split_once('=') else {
            return Err((line, "no variable: write NAME=VALUE".to_owned()));
        };
        let name = name.trim_end();
        if !is_name(name) {
            let message = "the name of a variable has letters, digits and underscores only and begins with no digit; \
                           write NAME=VALUE";
            return Err((line, message.to_owned()));
        }
        let rest = rest.trim_start();
        let value = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let mut inner = rest[1..].to_owned();
                // A quoted value may go on: private keys do.
                while end_of_quoted(&inner, quote).is_none() {
                    let Some((_, next)) = lines.next() else {
                        return Err((
                            line,
                            format!("the value of {name} begins with a {quote} and has no end"),
                        ));
                    };
                    inner.push('\n');
                    inner.push_str(next);
                }
                let end = end_of_quoted(&inner, quote).unwrap_or(inner.len());
                let after = inner[end..].get(1..).unwrap_or_default().trim();
                if !after.is_empty() && !after.starts_with('#') {
                    return Err((
                        line,
                        format!(
                            "the value of {name} goes on after its closing {quote}; put all of it in quotes"
                        ),
                    ));
                }
                unescaped(&inner[..end], quote)
            }
            _ => {
                let end = rest.find(" #").or_else(|| rest.find("\t#")).unwrap_or(rest.len());
                rest[..end].trim_end().to_owned()
            }
        };
        if variables.iter().any(|one| one.name == name) {
            return Err((line, format!("{name} is given twice; remove one of the two")));
        }
        variables.push(Variable {
            line,
            name: name.to_owned(),
            value,
        });
    }
    Ok(variables)
}

fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Where the closing quote is.
fn end_of_quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            c if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

/// In double quotes `\n`, `\t`, `\"` and `\\` mean what they mean everywhere; single quotes take all as it is.
fn unescaped(text: &str, quote: char) -> String {
    if quote == '\'' {
        return text.to_owned();
    }
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => value.push('\n'),
            Some('r') => value.push('\r'),
            Some('t') => value.push('\t'),
            Some(c @ ('"' | '\\' | '$')) => value.push(c),
            Some(other) => value.extend(['\\', other]),
            None => value.push('\\'),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_every_tool_reads_them() {
        let text = "\u{feff}# keys\nA=1\nexport B = two words  # why\nC=\"a \\\"b\\\"\\n$x #1\" # c\nD='a\\n$y'\nE=\n\
                    F=\"-----BEGIN\nKEY-----\"\nG=a#b\n";
        let found = parse(text).unwrap();
        let pairs: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("A", "1"),
                ("B", "two words"),
                ("C", "a \"b\"\n$x #1"),
                ("D", "a\\n$y"),
                ("E", ""),
                ("F", "-----BEGIN\nKEY-----"),
                ("G", "a#b"),
            ]
        );
        assert_eq!(found[6].line, 9);
    }

    #[test]
    fn a_mistake_is_told_without_the_value() {
        for (text, line, part) in [
            ("A=1\nsk-secret\n", 2, "NAME=VALUE"),
            ("sk-secret=1\n", 1, "letters, digits and underscores"),
            ("1A=sk-secret\n", 1, "no digit"),
            ("A=\"sk-secret\n", 1, "no end"),
            ("A=\"sk\" secret\n", 1, "goes on after"),
            ("A=sk-secret\nA=other\n", 2, "given twice"),
        ] {
            let (found, message) = parse(text).unwrap_err();
            assert_eq!(found, line, "{text:?}");
            assert!(message.contains(part) && !message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn each_namespace_gets_the_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".env");
        fs::write(&file, "KEY=sk-secret\n").unwrap();
        let secrets = env_secrets(&file, ["default", "team"]).unwrap();
        let places: Vec<_> = secrets
            .iter()
            .map(|one| (one.namespace_or(""), one.name()))
            .collect();
        assert_eq!(places, [("default", ENV_SECRET), ("team", ENV_SECRET)]);
        assert_eq!(secrets[0].object.data["data"]["KEY"], "c2stc2VjcmV0");
    }
}
