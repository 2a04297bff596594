//! What the environment says of traces, metrics and logs, in the variables of OpenTelemetry:
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.
//!
//! Read here is what decides whether anything is sent, and where. The fine tuning (headers, timeouts,
//! sampling, batches, intervals) is read by OpenTelemetry itself, from the environment of the process.

use std::{collections::BTreeMap, path::PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

const DISABLED: &str = "OTEL_SDK_DISABLED";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const INSECURE: &str = "OTEL_EXPORTER_OTLP_INSECURE";

/// Where traces, metrics and logs are sent by OTLP over gRPC, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name of the service that sends.
    pub service: String,
    /// What else is said of it.
    pub attributes: Vec<(String, String)>,
    /// Where traces are sent; `None`: nowhere.
    pub traces: Option<Url>,
    /// Where metrics are sent; `None`: nowhere.
    pub metrics: Option<Url>,
    /// Where log lines are sent, beside standard error; `None`: nowhere.
    pub logs: Option<Url>,
    /// A PEM file with the authorities that vouch for the collector, beside those of the system.
    pub certificate: Option<PathBuf>,
}

/// A variable with a value that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {variable} is {value:?}; set it to {wanted}")]
pub struct InvalidExport {
    variable: String,
    value: String,
    wanted: &'static str,
}

/// One of the things that are sent.
struct Signal {
    exporter: &'static str,
    endpoint: &'static str,
    protocol: &'static str,
    insecure: &'static str,
}

const TRACES: Signal = Signal {
    exporter: "OTEL_TRACES_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    protocol: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    insecure: "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
};
const METRICS: Signal = Signal {
    exporter: "OTEL_METRICS_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    protocol: "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
    insecure: "OTEL_EXPORTER_OTLP_METRICS_INSECURE",
};
const LOGS: Signal = Signal {
    exporter: "OTEL_LOGS_EXPORTER",
    endpoint: "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    protocol: "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
    insecure: "OTEL_EXPORTER_OTLP_LOGS_INSECURE",
};

impl Export {
    /// What the variables of an environment say; `None`: nothing is sent. Something is sent only where
    /// `OTEL_SERVICE_NAME` and `OTEL_EXPORTER_OTLP_ENDPOINT` are set and `OTEL_SDK_DISABLED` is not `true`. A
    /// variable that is empty counts as not set.
    ///
    /// # Errors
    /// Names the first variable that cannot be followed. Where nothing is sent, no other variable matters.
    pub fn from_env(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Option<Self>, InvalidExport> {
        let env = Env(variables
            .into_iter()
            .map(|(name, value)| (name, value.trim().to_owned()))
            .filter(|(_, value)| !value.is_empty())
            .collect());
        // Any other value leaves it on, as the specification says.
        let disabled = env
            .get(DISABLED)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let (Some(service), Some(_), false) = (env.get(SERVICE_NAME), env.get(ENDPOINT), disabled) else {
            return Ok(None);
        };
        Ok(Some(Self {
            service: service.to_owned(),
            attributes: env.attributes()?,
            traces: env.target(&TRACES)?,
            metrics: env.target(&METRICS)?,
            logs: env.target(&LOGS)?,
            certificate: env.get(CERTIFICATE).map(PathBuf::from),
        }))
    }
}

struct Env(BTreeMap<String, String>);

impl Env {
    fn get(&self, variable: &str) -> Option<&str> {
        self.0.get(variable).map(String::as_str)
    }

    /// The first of `variables` that is set, with its value.
    fn first<'a>(&'a self, variables: [&'static str; 2]) -> Option<(&'static str, &'a str)> {
        variables
            .into_iter()
            .find_map(|variable| Some((variable, self.get(variable)?)))
    }

    fn target(&self, signal: &Signal) -> Result<Option<Url>, InvalidExport> {
        match self.get(signal.exporter) {
            None => {}
            Some("none") => return Ok(None),
            Some("otlp") => {}
            Some(other) => return Err(invalid(signal.exporter, other, "otlp or none")),
        }
        if let Some((variable, protocol)) = self.first([signal.protocol, "OTEL_EXPORTER_OTLP_PROTOCOL"])
            && protocol != "grpc"
        {
            let wanted = "grpc, and the endpoint to the collector's port for gRPC, such as 4317";
            return Err(invalid(variable, protocol, wanted));
        }
        let Some((variable, value)) = self.first([signal.endpoint, ENDPOINT]) else {
            return Ok(None);
        };
        // Without a scheme, it is the other variable that says whether the connection is encrypted.
        let insecure = self
            .first([signal.insecure, INSECURE])
            .is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        let with_scheme = match (value.contains("://"), insecure) {
            (true, _) => value.to_owned(),
            (false, true) => format!("http://{value}"),
            (false, false) => format!("https://{value}"),
        };
        let url = Url::parse(&with_scheme)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let wanted = "the address of an OTLP collector, such as http://collector:4317";
        url.map(Some).ok_or_else(|| invalid(variable, value, wanted))
    }

    fn attributes(&self) -> Result<Vec<(String, String)>, InvalidExport> {
        let Some(list) = self.get(ATTRIBUTES) else {
            return Ok(Vec::new());
        };
        let pairs = list.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            let decoded = |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
            Some((decoded(key)?, decoded(value)?)).filter(|(key, _)| !key.is_empty())
        };
        let wanted = "pairs such as team=search,region=eu, with other characters percent-encoded";
        pairs
            .map(read)
            .collect::<Option<_>>()
            .ok_or_else(|| invalid(ATTRIBUTES, list, wanted))
    }
}

fn invalid(variable: &str, value: &str, wanted: &'static str) -> InvalidExport {
    InvalidExport {
        variable: variable.to_owned(),
        value: value.to_owned(),
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: [(&str, &str); 2] = [(SERVICE_NAME, "ada"), (ENDPOINT, "http://otel.obs.svc:4317")];

    fn read(more: &[(&str, &str)]) -> Result<Option<Export>, InvalidExport> {
        let variables: BTreeMap<&str, &str> = ON.iter().chain(more).copied().collect();
        Export::from_env(
            variables
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        )
    }

    #[test]
    fn nothing_is_sent_unless_a_service_and_a_collector_are_named_and_it_is_not_disabled() {
        assert_eq!(Export::from_env([]).unwrap(), None);
        for off in [
            [(SERVICE_NAME, "")],
            [(ENDPOINT, "  ")],
            [(DISABLED, "true")],
            [(DISABLED, "True")],
        ] {
            assert_eq!(read(&off).unwrap(), None, "{off:?}");
        }
        // What would be wrong does not matter there.
        assert_eq!(read(&[(DISABLED, "true"), (ENDPOINT, "no url")]).unwrap(), None);
        for on in [[(DISABLED, "false")], [(DISABLED, "1")], [(DISABLED, "")]] {
            assert!(read(&on).unwrap().is_some(), "{on:?}");
        }
    }

    #[test]
    fn the_variables_of_the_controllers_are_understood() {
        let attributes = "service.namespace=default,kaos.resource.name=ada, note=a%2Cb";
        let export = read(&[(ATTRIBUTES, attributes)]).unwrap().unwrap();
        let url: Url = "http://otel.obs.svc:4317".parse().unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let expected = Export {
            service: "ada".to_owned(),
            attributes: vec![
                pair("service.namespace", "default"),
                pair("kaos.resource.name", "ada"),
                pair("note", "a,b"),
            ],
            traces: Some(url.clone()),
            metrics: Some(url.clone()),
            logs: Some(url),
            certificate: None,
        };
        assert_eq!(export, expected);
    }

    #[test]
    fn each_signal_can_go_elsewhere_or_nowhere() {
        let export = read(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces:4317"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "logs:4317"),
            ("OTEL_EXPORTER_OTLP_LOGS_INSECURE", "true"),
        ]);
        let export = export.unwrap().unwrap();
        assert_eq!(export.traces.unwrap().as_str(), "https://traces:4317/");
        assert_eq!(export.metrics, None);
        assert_eq!(export.logs.unwrap().as_str(), "http://logs:4317/");
    }

    #[test]
    fn an_address_without_a_scheme_is_encrypted_unless_said_otherwise() {
        let traces = |more: &[(&str, &str)]| read(more).unwrap().unwrap().traces.unwrap().to_string();
        assert_eq!(traces(&[(ENDPOINT, "otel:4317")]), "https://otel:4317/");
        assert_eq!(
            traces(&[(ENDPOINT, "otel:4317"), (INSECURE, "true")]),
            "http://otel:4317/"
        );
        assert_eq!(traces(&[(INSECURE, "false")]), "http://otel.obs.svc:4317/");
    }

    #[test]
    fn what_cannot_be_followed_is_named_with_the_fix() {
        for (variable, value, fix) in [
            (ENDPOINT, "grpc://otel:4317", "such as http://collector:4317"),
            (ENDPOINT, "http://", "such as http://collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "set it to grpc"),
            ("OTEL_TRACES_EXPORTER", "zipkin", "set it to otlp or none"),
            ("OTEL_LOGS_EXPORTER", "console", "set it to otlp or none"),
            (ATTRIBUTES, "team", "pairs such as team=search"),
            (ATTRIBUTES, "=x", "pairs such as team=search"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("environment variable {variable} is {value:?};")),
                "{error}"
            );
            assert!(error.contains(fix), "{error}");
        }
    }
}
