//! The operator's environment: the variables that KAOS's chart sets, as the configuration of the controllers.

use std::{collections::BTreeMap, fmt};

use kaos_api::names;
use kaos_controllers::{Config, ConfigMapRef, Gateway, RouteTimeouts, TelemetryDefaults};

use crate::duration::{FORM, is_duration};

const AGENT_IMAGE: &str = "DEFAULT_AGENT_IMAGE";
const TOOLS_IMAGE: &str = "DEFAULT_MCP_SERVER_IMAGE";
const LITELLM_IMAGE: &str = "DEFAULT_LITELLM_IMAGE";
const OLLAMA_IMAGE: &str = "DEFAULT_OLLAMA_IMAGE";
const TELEMETRY_ENABLED: &str = "DEFAULT_TELEMETRY_ENABLED";
const TELEMETRY_ENDPOINT: &str = "DEFAULT_TELEMETRY_ENDPOINT";
const LOG_LEVEL: &str = "DEFAULT_LOG_LEVEL";
const GATEWAY_ENABLED: &str = "GATEWAY_API_ENABLED";
const GATEWAY_NAME: &str = "GATEWAY_NAME";
const GATEWAY_NAMESPACE: &str = "GATEWAY_NAMESPACE";
const AGENT_TIMEOUT: &str = "GATEWAY_DEFAULT_AGENT_TIMEOUT";
const MODEL_API_TIMEOUT: &str = "GATEWAY_DEFAULT_MODELAPI_TIMEOUT";
const MCP_TIMEOUT: &str = "GATEWAY_DEFAULT_MCP_TIMEOUT";
const SYSTEM_NAMESPACE: &str = "SYSTEM_NAMESPACE";
const CLUSTER_DOMAIN: &str = "KUBERNETES_CLUSTER_DOMAIN";

/// The images of this version's own roles.
const OWN_IMAGE: &str = concat!("kaos:", env!("CARGO_PKG_VERSION"));
const OWN_TOOLS_IMAGE: &str = concat!("kaos-tools:", env!("CARGO_PKG_VERSION"));

/// The levels that every image of the pods knows.
const LEVELS: [&str; 5] = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR"];

/// All that is wrong with the environment: for each variable its value and what to write instead.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct EnvironmentError(Vec<String>);

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n       "))
    }
}

/// What the environment settles.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the controllers are given.
    pub controllers: Config,
    /// The operator's own namespace.
    pub system_namespace: String,
}

/// The settings that `variables` describe. An empty variable counts as absent, as in the chart.
///
/// # Errors
/// Names every variable that is wrong, with its value and the fix.
pub fn settings(variables: impl IntoIterator<Item = (String, String)>) -> Result<Settings, EnvironmentError> {
    let mut environment = Environment {
        variables: variables
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect(),
        problems: Vec::new(),
    };
    let system_namespace = environment
        .name(SYSTEM_NAMESPACE)
        .unwrap_or_else(|| "kaos-system".to_owned());
    let controllers = environment.config(&system_namespace);
    if environment.problems.is_empty() {
        Ok(Settings {
            controllers,
            system_namespace,
        })
    } else {
        Err(EnvironmentError(environment.problems))
    }
}

/// The variables, and what was found wrong with them so far.
struct Environment {
    variables: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Environment {
    fn config(&mut self, system_namespace: &str) -> Config {
        // One program, one image: whoever keeps it elsewhere keeps it there for all of its roles.
        let own = self.image(AGENT_IMAGE).unwrap_or_else(|| OWN_IMAGE.to_owned());
        let tools = self
            .image(TOOLS_IMAGE)
            .unwrap_or_else(|| OWN_TOOLS_IMAGE.to_owned());
        let mut config = Config::new(&own, &tools);
        for (image, variable) in [
            (&mut config.images.litellm.image, LITELLM_IMAGE),
            (&mut config.images.ollama.image, OLLAMA_IMAGE),
        ] {
            if let Some(wanted) = self.image(variable) {
                *image = wanted;
            }
        }
        Config {
            runtimes_from: Some(ConfigMapRef {
                namespace: system_namespace.to_owned(),
                name: names::RUNTIMES_CONFIG_MAP.to_owned(),
            }),
            cluster_domain: self.cluster_domain().unwrap_or(config.cluster_domain),
            log_level: self.log_level().unwrap_or(config.log_level),
            telemetry: TelemetryDefaults {
                enabled: self.switch(TELEMETRY_ENABLED),
                endpoint: self.get(TELEMETRY_ENDPOINT),
            },
            gateway: self.gateway(system_namespace),
            ..config
        }
    }

    fn get(&self, variable: &str) -> Option<String> {
        self.variables.get(variable).cloned()
    }

    fn wrong(&mut self, variable: &str, value: &str, fix: impl fmt::Display) {
        self.problems.push(format!("{variable} is {value:?}: {fix}"));
    }

    fn switch(&mut self, variable: &str) -> bool {
        match self.get(variable).as_deref() {
            Some("true") => true,
            None | Some("false") => false,
            Some(value) => {
                self.wrong(variable, value, "write true or false");
                false
            }
        }
    }

    /// An image, of which the name alone can be checked.
    fn image(&mut self, variable: &str) -> Option<String> {
        let image = self.get(variable)?;
        if image.contains(char::is_whitespace) {
            self.wrong(
                variable,
                &image,
                "write an image without spaces, such as registry.example.com/kaos:1",
            );
        }
        Some(image)
    }

    fn log_level(&mut self) -> Option<String> {
        let value = self.get(LOG_LEVEL)?;
        let level = value.to_ascii_uppercase();
        if !LEVELS.contains(&level.as_str()) {
            self.wrong(
                LOG_LEVEL,
                &value,
                format_args!("write one of {}", LEVELS.join(", ")),
            );
        }
        Some(level)
    }

    /// The name of a namespace or of another object: a DNS label.
    fn name(&mut self, variable: &str) -> Option<String> {
        let name = self.get(variable)?;
        if !is_label(&name) {
            self.wrong(
                variable,
                &name,
                "write a name of small letters, digits and dashes, such as kaos-system",
            );
        }
        Some(name)
    }

    fn cluster_domain(&mut self) -> Option<String> {
        let domain = self.get(CLUSTER_DOMAIN)?;
        if !domain.split('.').all(is_label) {
            self.wrong(
                CLUSTER_DOMAIN,
                &domain,
                "write the cluster's DNS domain, such as cluster.local",
            );
        }
        Some(domain)
    }

    fn gateway(&mut self, system_namespace: &str) -> Option<Gateway> {
        let timeouts = RouteTimeouts {
            agent: self.timeout(AGENT_TIMEOUT, |defaults| defaults.agent),
            model_api: self.timeout(MODEL_API_TIMEOUT, |defaults| defaults.model_api),
            mcp_server: self.timeout(MCP_TIMEOUT, |defaults| defaults.mcp_server),
        };
        let (name, namespace) = (self.name(GATEWAY_NAME), self.name(GATEWAY_NAMESPACE));
        if !self.switch(GATEWAY_ENABLED) {
            return None;
        }
        let Some(name) = name else {
            self.wrong(
                GATEWAY_ENABLED,
                "true",
                format_args!("write the Gateway's name to {GATEWAY_NAME}, or false for no routes"),
            );
            return None;
        };
        Some(Gateway {
            name,
            namespace: namespace.unwrap_or_else(|| system_namespace.to_owned()),
            timeouts,
        })
    }

    fn timeout(&mut self, variable: &str, default: impl Fn(RouteTimeouts) -> String) -> String {
        match self.get(variable) {
            Some(timeout) => {
                if !is_duration(&timeout) {
                    self.wrong(
                        variable,
                        &timeout,
                        format_args!("write {FORM}; 0s is without limit"),
                    );
                }
                timeout
            }
            None => default(RouteTimeouts::default()),
        }
    }
}

/// Whether `text` is a DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, String> {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = settings(owned).map_err(|error| error.to_string())?;
        Ok(settings.controllers)
    }

    #[test]
    fn an_empty_environment_is_this_versions_own_images_and_no_gateway() {
        let config = read(&[(GATEWAY_NAME, ""), (TELEMETRY_ENDPOINT, ""), (AGENT_IMAGE, "")]).unwrap();
        assert_eq!(config.images.agent.image, OWN_IMAGE);
        assert_eq!(config.images.agent.args, ["serve", "agent"]);
        assert_eq!(
            config.images.litellm.image,
            Config::new("", "").images.litellm.image
        );
        assert_eq!(
            config.images.ollama.image,
            Config::new("", "").images.ollama.image
        );
        assert_eq!(config.runtimes["python-string"].image, OWN_TOOLS_IMAGE);
        assert_eq!(config.log_level, "INFO");
        assert_eq!(config.cluster_domain, "cluster.local");
        assert_eq!(config.telemetry, TelemetryDefaults::default());
        assert_eq!(config.gateway, None);
        let runtimes = config.runtimes_from.unwrap();
        assert_eq!(
            (runtimes.namespace.as_str(), runtimes.name.as_str()),
            ("kaos-system", "kaos-mcp-runtimes")
        );
    }

    #[test]
    fn every_variable_takes_effect() {
        let config = read(&[
            (AGENT_IMAGE, "r.example.com/kaos:2"),
            (TOOLS_IMAGE, "r.example.com/tools:2"),
            (LITELLM_IMAGE, "r.example.com/litellm:2"),
            (OLLAMA_IMAGE, "r.example.com/ollama:2"),
            (TELEMETRY_ENABLED, "true"),
            (TELEMETRY_ENDPOINT, "http://collector:4317"),
            (LOG_LEVEL, "debug"),
            (GATEWAY_ENABLED, "true"),
            (GATEWAY_NAME, "gate"),
            (AGENT_TIMEOUT, "1h"),
            (MODEL_API_TIMEOUT, "2m"),
            (MCP_TIMEOUT, "0s"),
            (SYSTEM_NAMESPACE, "system"),
            (CLUSTER_DOMAIN, "k8s.example.com"),
        ])
        .unwrap();
        assert_eq!(config.images.agent.image, "r.example.com/kaos:2");
        assert_eq!(config.images.native_proxy.image, "r.example.com/kaos:2");
        assert_eq!(config.images.native_proxy.args, ["serve", "proxy"]);
        assert_eq!(config.images.model_pull.image, "r.example.com/kaos:2");
        assert_eq!(config.images.litellm.image, "r.example.com/litellm:2");
        assert_eq!(config.images.ollama.image, "r.example.com/ollama:2");
        assert_eq!(config.runtimes["python-string"].image, "r.example.com/tools:2");
        assert_eq!(config.log_level, "DEBUG");
        assert_eq!(config.cluster_domain, "k8s.example.com");
        assert!(config.telemetry.enabled);
        assert_eq!(
            config.telemetry.endpoint.as_deref(),
            Some("http://collector:4317")
        );
        assert_eq!(config.runtimes_from.unwrap().namespace, "system");
        let timeouts = RouteTimeouts {
            agent: "1h".to_owned(),
            model_api: "2m".to_owned(),
            mcp_server: "0s".to_owned(),
        };
        let gateway = Gateway {
            name: "gate".to_owned(),
            namespace: "system".to_owned(),
            timeouts,
        };
        assert_eq!(config.gateway, Some(gateway));
        let elsewhere = read(&[
            (GATEWAY_ENABLED, "true"),
            (GATEWAY_NAME, "g"),
            (GATEWAY_NAMESPACE, "edge"),
        ]);
        assert_eq!(elsewhere.unwrap().gateway.unwrap().namespace, "edge");
    }

    #[test]
    fn what_is_wrong_is_told_with_the_variable_the_value_and_the_fix() {
        for (variables, expected) in [
            (
                vec![(GATEWAY_ENABLED, "true")],
                r#"GATEWAY_API_ENABLED is "true": write the Gateway's name to GATEWAY_NAME, or false for no routes"#,
            ),
            (
                vec![(GATEWAY_ENABLED, "yes")],
                r#"GATEWAY_API_ENABLED is "yes": write true or false"#,
            ),
            (
                vec![(TELEMETRY_ENABLED, "1")],
                r#"DEFAULT_TELEMETRY_ENABLED is "1": write true or false"#,
            ),
            (
                vec![(MCP_TIMEOUT, "100000s")],
                "GATEWAY_DEFAULT_MCP_TIMEOUT is \"100000s\": write one to four numbers of at most five digits, each \
                 with a unit h, m, s or ms, such as 30s or 1h30m; 0s is without limit",
            ),
            (
                vec![(LOG_LEVEL, "loud")],
                r#"DEFAULT_LOG_LEVEL is "loud": write one of TRACE, DEBUG, INFO, WARNING, ERROR"#,
            ),
            (
                vec![(SYSTEM_NAMESPACE, "Kaos_System")],
                "SYSTEM_NAMESPACE is \"Kaos_System\": write a name of small letters, digits and dashes, such as \
                 kaos-system",
            ),
            (
                vec![(CLUSTER_DOMAIN, ".cluster.local")],
                r#"KUBERNETES_CLUSTER_DOMAIN is ".cluster.local": write the cluster's DNS domain, such as cluster.local"#,
            ),
            (
                vec![(AGENT_IMAGE, "kaos latest")],
                "DEFAULT_AGENT_IMAGE is \"kaos latest\": write an image without spaces, such as \
                 registry.example.com/kaos:1",
            ),
        ] {
            assert_eq!(read(&variables).err().as_deref(), Some(expected));
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let text = read(&[
            (LOG_LEVEL, "loud"),
            (GATEWAY_ENABLED, "true"),
            (AGENT_TIMEOUT, "5"),
        ])
        .err()
        .unwrap();
        for variable in [LOG_LEVEL, GATEWAY_ENABLED, AGENT_TIMEOUT] {
            assert!(text.contains(variable), "{text}");
        }
    }
}
