//! Environment variables of generated containers.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kaos_api::v1alpha1::ContainerOverride;

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

/// The variables of a container: `before`, the user's, then `after`. The user's take the place of generated
/// ones of the same name, so that no name is there twice.
pub(crate) fn merged(
    before: Vec<EnvVar>,
    container: Option<&ContainerOverride>,
    after: Vec<EnvVar>,
) -> Vec<EnvVar> {
    let users: Vec<EnvVar> = container
        .map(|container| container.env.clone())
        .unwrap_or_default()
        .into_iter()
        .map(complete)
        .collect();
    let taken: HashSet<&str> = users.iter().map(|variable| variable.name.as_str()).collect();
    let free = |variable: &EnvVar| !taken.contains(variable.name.as_str());
    let before: Vec<EnvVar> = before.into_iter().filter(free).collect();
    let after: Vec<EnvVar> = after.into_iter().filter(free).collect();
    before.into_iter().chain(users).chain(after).collect()
}

/// With the defaults that the API server would fill in: a source is replaced as a whole, and is told from
/// the live one only if it is as complete.
fn complete(mut variable: EnvVar) -> EnvVar {
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

    #[test]
    fn the_users_value_wins_in_its_place_and_no_name_is_twice() {
        let container = ContainerOverride {
            env: vec![literal("B", "user"), literal("C", "user")],
        };
        let merged = merged(
            vec![literal("A", "ours"), literal("B", "ours")],
            Some(&container),
            vec![literal("C", "ours"), literal("D", "ours")],
        );
        let pairs: Vec<_> = merged
            .iter()
            .map(|v| (v.name.as_str(), v.value.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(
            pairs,
            [("A", "ours"), ("B", "user"), ("C", "user"), ("D", "ours")]
        );
    }
}
