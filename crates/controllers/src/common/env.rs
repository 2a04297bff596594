//! Environment variables of generated containers.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kaos_api::v1alpha1::ContainerOverride;

use super::plan::Note;

/// A variable with exactly this value.
///
/// Kubernetes replaces `$(NAME)` and `$$` in values. What users write in prompts and programs is to arrive as
/// it was written, so such a `$` is doubled.
pub(crate) fn literal(name: impl Into<String>, value: &str) -> EnvVar {
    let mut escaped = String::with_capacity(value.len());
    let mut rest = value.chars().peekable();
    while let Some(character) = rest.next() {
        escaped.push(character);
        if character == '$' && matches!(rest.peek(), Some('$' | '(')) {
            escaped.push('$');
        }
    }
    EnvVar {
        name: name.into(),
        value: Some(escaped),
        value_from: None,
    }
}

/// The variables that the user gives: those of the older spelling at `path`, then `container.env`, which wins where
/// both name one.
pub(crate) fn users(
    container: Option<&ContainerOverride>,
    path: &str,
    older: &[EnvVar],
    notes: &mut Vec<Note>,
) -> Vec<EnvVar> {
    let newer = container
        .map(|container| container.env.as_slice())
        .unwrap_or_default();
    let names: HashSet<&str> = newer.iter().map(|variable| variable.name.as_str()).collect();
    let (overridden, kept): (Vec<_>, Vec<_>) = older
        .iter()
        .partition(|variable| names.contains(variable.name.as_str()));
    let overridden: BTreeSet<&str> = overridden.iter().map(|variable| variable.name.as_str()).collect();
    for name in overridden {
        notes.push(Note::older(format!(
            "{path} sets {name}, but spec.container.env sets it too and wins; remove it from {path}"
        )));
    }
    kept.into_iter().chain(newer).cloned().map(complete).collect()
}

/// The variables of a container: `before`, the user's, then `after`. The user's take the place of generated
/// ones of the same name, so that no name is there twice. Where the user gives one twice, the later counts.
pub(crate) fn merged(before: Vec<EnvVar>, users: Vec<EnvVar>, after: Vec<EnvVar>) -> Vec<EnvVar> {
    let mut taken = HashSet::new();
    let mut last: Vec<EnvVar> = users
        .into_iter()
        .rev()
        .filter(|variable| taken.insert(variable.name.clone()))
        .collect();
    last.reverse();
    let mut free = |variable: &EnvVar| taken.insert(variable.name.clone());
    let before: Vec<EnvVar> = before.into_iter().filter(&mut free).collect();
    let after: Vec<EnvVar> = after.into_iter().filter(&mut free).collect();
    before.into_iter().chain(last).chain(after).collect()
}

/// With the defaults that the API server would fill in: a source is replaced as a whole, and is told from
/// the live one only if it is as complete.
pub(crate) fn complete(mut variable: EnvVar) -> EnvVar {
    if let Some(EnvVarSource {
        field_ref,
        resource_field_ref,
        ..
    }) = &mut variable.value_from
    {
        if let Some(field) = field_ref {
            field.api_version.get_or_insert_with(|| "v1".to_owned());
        }
        if let Some(resource) = resource_field_ref {
            resource.divisor.get_or_insert_with(|| Quantity("0".to_owned()));
        }
    }
    variable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_as_they_were_written() {
        for (written, sent) in [
            ("costs $5", "costs $5"),
            ("$(HOME)", "$$(HOME)"),
            ("pid $$", "pid $$$"),
            ("$$(X)$", "$$$$(X)$"),
        ] {
            let variable = literal("A", written);
            assert_eq!(variable.value.as_deref(), Some(sent), "{written}");
            assert_eq!(expand(sent), written);
        }
    }

    /// What Kubernetes makes of a value when no variable is defined
    /// (`k8s.io/kubernetes/third_party/forked/golang/expansion`).
    fn expand(value: &str) -> String {
        let mut out = String::new();
        let mut rest = value.chars();
        while let Some(character) = rest.next() {
            out.push(character);
            if character == '$' && rest.as_str().starts_with('$') {
                rest.next();
            }
        }
        out
    }

    fn pairs(env: &[EnvVar]) -> Vec<(&str, &str)> {
        env.iter()
            .map(|variable| {
                (
                    variable.name.as_str(),
                    variable.value.as_deref().unwrap_or_default(),
                )
            })
            .collect()
    }

    #[test]
    fn the_users_value_wins_in_its_place_and_no_name_is_twice() {
        let merged = merged(
            vec![literal("A", "ours"), literal("B", "ours"), literal("A", "again")],
            vec![literal("C", "first"), literal("B", "user"), literal("C", "user")],
            vec![literal("C", "ours"), literal("D", "ours"), literal("A", "later")],
        );
        assert_eq!(
            pairs(&merged),
            [("A", "ours"), ("B", "user"), ("C", "user"), ("D", "ours")]
        );
    }

    #[test]
    fn the_newer_spelling_wins_by_name_and_says_so() {
        let container = ContainerOverride {
            env: vec![literal("B", "newer"), literal("C", "newer")],
            ..ContainerOverride::default()
        };
        let mut notes = Vec::new();
        let older = [literal("A", "older"), literal("B", "older")];
        let users = users(Some(&container), "spec.config.env", &older, &mut notes);
        assert_eq!(pairs(&users), [("A", "older"), ("B", "newer"), ("C", "newer")]);
        assert_eq!(
            notes,
            [Note::older(
                "spec.config.env sets B, but spec.container.env sets it too and wins; remove it from spec.config.env"
            )]
        );
    }
}
