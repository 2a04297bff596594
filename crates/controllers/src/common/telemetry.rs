//! Where traces, metrics and logs are sent, in the variables of OpenTelemetry.

use k8s_openapi::api::core::v1::EnvVar;
use kaos_api::v1alpha1::Telemetry;

use super::{env::literal, objects::Owner, plan::Note};
use crate::config::TelemetryDefaults;

/// Telemetry that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent<'a> {
    /// The address of the collector, where one is known.
    pub(crate) endpoint: Option<&'a str>,
}

/// What a resource says at `path`, over what the installation says: each field for itself. Nothing where telemetry
/// is off.
pub(crate) fn merged<'a>(
    path: &str,
    telemetry: Option<&'a Telemetry>,
    defaults: &'a TelemetryDefaults,
    notes: &mut Vec<Note>,
) -> Option<Sent<'a>> {
    let own = telemetry.and_then(|telemetry| telemetry.endpoint.as_deref());
    let endpoint = own
        .or(defaults.endpoint.as_deref())
        .filter(|endpoint| !endpoint.is_empty());
    if !telemetry
        .and_then(|telemetry| telemetry.enabled)
        .unwrap_or(defaults.enabled)
    {
        if own.is_some() {
            notes.push(Note::without_effect(format!(
                "{path}.endpoint has no effect while telemetry is off; set {path}.enabled: true"
            )));
        }
        return None;
    }
    if endpoint.is_none() {
        notes.push(Note::without_effect(format!(
            "{path} is enabled but names no collector, so nothing is sent; set {path}.endpoint, \
             such as http://collector:4317"
        )));
    }
    Some(Sent { endpoint })
}

/// The variables of agents and tool servers.
pub(crate) fn env(sent: Option<Sent<'_>>, owner: &Owner) -> Vec<EnvVar> {
    let Some(sent) = sent else {
        return Vec::new();
    };
    let mut env = vec![
        literal("OTEL_SDK_DISABLED", "false"),
        literal("OTEL_SERVICE_NAME", &owner.name),
    ];
    env.extend(
        sent.endpoint
            .map(|endpoint| literal("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)),
    );
    let attributes = format!(
        "service.namespace={},kaos.resource.name={}",
        owner.namespace, owner.name
    );
    env.push(literal("OTEL_RESOURCE_ATTRIBUTES", &attributes));
    env.push(literal("OTEL_PYTHON_FASTAPI_EXCLUDED_URLS", "/health,/ready"));
    env
}

/// The variables of LiteLLM.
pub(crate) fn litellm_env(sent: Option<Sent<'_>>, owner: &Owner) -> Vec<EnvVar> {
    let Some(sent) = sent else {
        return Vec::new();
    };
    let mut env = vec![literal("OTEL_EXPORTER", "otlp_grpc")];
    env.extend(
        sent.endpoint
            .map(|endpoint| literal("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)),
    );
    env.push(literal("OTEL_SERVICE_NAME", &owner.name));
    env.push(literal("OTEL_PYTHON_EXCLUDED_URLS", "/health"));
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_inherited_for_itself() {
        let defaults = |enabled, endpoint: Option<&str>| TelemetryDefaults {
            enabled,
            endpoint: endpoint.map(str::to_owned),
        };
        let own = |enabled, endpoint: Option<&str>| {
            Some(Telemetry {
                enabled,
                endpoint: endpoint.map(str::to_owned),
            })
        };
        let on = |endpoint| Some(Sent { endpoint });
        for (telemetry, defaults, expected, noted) in [
            (None, defaults(false, Some("http://d")), None, false),
            (
                None,
                defaults(true, Some("http://d")),
                on(Some("http://d")),
                false,
            ),
            (
                own(None, Some("http://c")),
                defaults(true, Some("http://d")),
                on(Some("http://c")),
                false,
            ),
            (own(None, Some("http://c")), defaults(false, None), None, true),
            (
                own(Some(false), None),
                defaults(true, Some("http://d")),
                None,
                false,
            ),
            (
                own(Some(true), None),
                defaults(false, Some("http://d")),
                on(Some("http://d")),
                false,
            ),
            (own(Some(true), None), defaults(false, None), on(None), true),
        ] {
            let mut notes = Vec::new();
            let merged = merged("spec.telemetry", telemetry.as_ref(), &defaults, &mut notes);
            assert_eq!(merged, expected, "{telemetry:?} {defaults:?}");
            assert_eq!(!notes.is_empty(), noted, "{telemetry:?} {defaults:?}: {notes:?}");
        }
    }
}
