//! From what an API server says of an object to findings with a line, a field and, where it can be guessed, what
//! was meant.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kaos_api::GROUP;
use kube::core::GroupVersionKind;

use crate::{convert, finding::Finding, manifest::Manifest, positions::above};

/// What the server has against an object.
pub(crate) fn findings(manifest: &Manifest, error: &kube::Error) -> Vec<Finding> {
    let kube::Error::Api(status) = error else {
        return vec![manifest.finding(None, error.to_string())];
    };
    let mut findings: Vec<Finding> = unknown_fields(&status.message)
        .into_iter()
        .map(|(field, problem)| {
            let hint = meant(&manifest.gvk(), &field);
            manifest.finding(Some(&field), format!("{problem} {field}{hint}"))
        })
        .collect();
    if findings.is_empty() {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        findings = causes
            .filter(|cause| !cause.field.is_empty())
            .map(|cause| match cause.field.as_str() {
                // All of what was sent stands in front of what is wrong with it.
                "patch" => manifest.finding(None, cause.message.rsplit("\": ").next().unwrap_or_default()),
                field => manifest.finding(Some(field), format!("{field}: {}", cause.message)),
            })
            .collect();
    }
    if findings.is_empty() {
        findings.push(match wrong_type(&status.message) {
            Some((field, problem)) => manifest.finding(Some(field), format!("{field}: {problem}")),
            None => manifest.finding(None, status.message.clone()),
        });
    }
    // What another spelling solves is not found in any description of today's fields.
    for finding in &mut findings {
        let field = finding.field.as_deref().unwrap_or_default();
        if let Some(today) = convert::today(manifest, field) {
            finding.message +=
                &format!("; it is an older spelling of {today}, which `kaos convert` rewrites");
        }
    }
    findings
}

/// The fields that a strict decoder does not take, as it writes them, with what it says of each.
fn unknown_fields(message: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for (mark, problem) in [
        ("unknown field \"", "unknown field"),
        ("duplicate field \"", "duplicate field"),
    ] {
        let quoted = message
            .split(mark)
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        found.extend(quoted.map(|field| (field.to_owned(), problem)));
    }
    if found.is_empty()
        && let Some((before, _)) = message.split_once(": field not declared in schema")
        && let Some(field) = before.rsplit(char::is_whitespace).next()
    {
        found.push((field.trim_start_matches('.').to_owned(), "unknown field"));
    }
    found
}

/// The field that is of another type than its kind has it, and of which, without the value: it may be a key.
fn wrong_type(message: &str) -> Option<(&str, &str)> {
    let (_, problem) = message.split_once("failed to create typed patch object")?;
    let (_, problem) = problem.split_once("): .")?;
    let (field, problem) = problem.split_once(": ")?;
    Some((field, problem.split(", got ").next().unwrap_or(problem)))
}

/// What was meant by an unknown field of a kind of ours, in words that continue a sentence.
fn meant(kind: &GroupVersionKind, field: &str) -> String {
    let parent = above(field).unwrap_or_default();
    let name = field[parent.len()..].trim_start_matches('.');
    let known = fields(kind, parent);
    match closest(name, known.iter().map(String::as_str)) {
        Some(closest) => format!("; did you mean {closest}?"),
        None if known.is_empty() => String::new(),
        None => format!(
            "; {} has {}",
            if parent.is_empty() { "it" } else { parent },
            known.join(", ")
        ),
    }
}

/// The one of `known` that `word` may be a misspelling of.
pub(crate) fn closest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    known
        .map(|known| (strsim::damerau_levenshtein(&lower, &known.to_lowercase()), known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The names of the fields below `path` of a kind of ours; of others nothing is known here.
fn fields(kind: &GroupVersionKind, path: &str) -> Vec<String> {
    if kind.group != GROUP {
        return Vec::new();
    }
    let definitions = kaos_api::crds();
    let schema = definitions
        .iter()
        .find(|definition| definition.spec.names.kind == kind.kind)
        .and_then(|definition| {
            definition
                .spec
                .versions
                .iter()
                .find(|version| version.name == kind.version)
        })
        .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let mut schema: Option<&JSONSchemaProps> = schema;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        schema = match step.strip_suffix(']') {
            Some(_) => schema.and_then(|schema| match schema.items.as_ref()? {
                JSONSchemaPropsOrArray::Schema(items) => Some(&**items),
                JSONSchemaPropsOrArray::Schemas(_) => None,
            }),
            None => schema.and_then(|schema| schema.properties.as_ref()?.get(step)),
        };
    }
    let properties = schema.and_then(|schema| schema.properties.as_ref());
    properties
        .into_iter()
        .flat_map(|properties| properties.keys().filter(|name| !name.starts_with('$')).cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// What is said of the only object of `text` where the server says `message` of it.
    fn told(text: &str, message: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.yaml");
        std::fs::write(&file, text).unwrap();
        let manifests = crate::manifest::load(std::slice::from_ref(&file)).unwrap();
        let error = kube::Error::Api(Status::failure(message, "").boxed());
        let found = findings(&manifests[0], &error).into_iter();
        found
            .map(|finding| format!("{}: {}", finding.line.unwrap_or_default(), finding.message))
            .collect()
    }

    #[test]
    fn an_older_spelling_that_is_refused_is_told_with_todays() {
        let typed = "failed to create typed patch object (default/m; kaos.tools/v1alpha1, Kind=ModelAPI): \
                     .spec.proxyConfig.configYaml: expected map, got &{model_list: []}";
        let text = "apiVersion: kaos.tools/v1alpha1\nkind: ModelAPI\nmetadata: {name: m}\nspec:\n  mode: Proxy\n  \
                    proxyConfig:\n    models: [a]\n    configYaml: |\n      model_list: []\n";
        assert_eq!(
            told(text, typed),
            [
                "8: spec.proxyConfig.configYaml: expected map; it is an older spelling of \
                 spec.proxyConfig.configYaml.fromString, which `kaos convert` rewrites"
            ]
        );

        let unknown = "failed to create typed patch object (default/a; kaos.tools/v1alpha1, Kind=Agent): \
                       .spec.resources: field not declared in schema";
        let text = "apiVersion: kaos.tools/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec:\n  modelAPI: m\n  \
                    resources: {limits: {cpu: 1}}\n";
        let found = told(text, unknown);
        assert!(
            found.len() == 1
                && found[0].starts_with("6: unknown field spec.resources; ")
                && found[0].ends_with(
                    "; it is an older spelling of spec.container.resources, which `kaos convert` rewrites"
                ),
            "{found:?}"
        );
    }

    #[test]
    fn what_was_meant_is_guessed_or_listed() {
        let agent = GroupVersionKind::gvk(GROUP, "v1alpha1", "Agent");
        assert_eq!(meant(&agent, "spec.modle"), "; did you mean model?");
        assert_eq!(meant(&agent, "spec.mcpservers"), "; did you mean mcpServers?");
        assert_eq!(
            meant(&agent, "spec.agentNetwork.whatever"),
            "; spec.agentNetwork has access, expose"
        );
        assert_eq!(meant(&agent, "spec.config.env[0].valu"), "; did you mean value?");
        assert_eq!(meant(&GroupVersionKind::gvk("", "v1", "Pod"), "spec.x"), "");
    }

    #[test]
    fn the_fields_are_found_in_each_of_the_servers_sentences() {
        let strict = "Agent in version \"v1alpha1\" cannot be handled as a Agent: strict decoding error: unknown field \
                      \"spec.a\", unknown field \"spec.b[0].c\"";
        let fields: Vec<String> = unknown_fields(strict)
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(fields, ["spec.a", "spec.b[0].c"]);
        let typed = "failed to create typed patch object (default/a; kaos.tools/v1alpha1, Kind=Agent): .spec.modle: \
                     field not declared in schema";
        assert_eq!(
            unknown_fields(typed),
            [("spec.modle".to_owned(), "unknown field")]
        );
        assert!(unknown_fields("no").is_empty());
        let wrong = "failed to create typed patch object (default/m; v1, Kind=Secret): .data.key: expected string, got \
                     &{sk-value}";
        assert_eq!(wrong_type(wrong), Some(("data.key", "expected string")));
        assert_eq!(wrong_type("no"), None);
    }
}
