//! How upstreams are connected to: which certificates are trusted, and by which proxy servers they are reached.

use std::{fmt, fs, time::Duration};

use reqwest::{Certificate, ClientBuilder, NoProxy, Proxy};
use url::Url;

use crate::config::ConfigError;

/// How long the TCP and TLS handshakes may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The files of trusted certificates that are looked for in the environment: OpenSSL's variable, LiteLLM's, and
/// that of Python's HTTP clients.
const CA_VARIABLES: [&str; 3] = ["SSL_CERT_FILE", "SSL_VERIFY", "REQUESTS_CA_BUNDLE"];

/// The certificates and proxy servers of the environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Transport {
    /// Certificates in PEM, trusted in place of the system's.
    authorities: Option<Authorities>,
    for_http: Option<String>,
    for_https: Option<String>,
    /// What is connected to directly.
    direct: Option<String>,
}

/// A file of certificates as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Authorities {
    path: String,
    /// What is in it; `None` where it cannot be read any more.
    pem: Option<Vec<u8>>,
}

impl Authorities {
    /// Reads the file again.
    pub(crate) fn read_again(&self) -> Self {
        Self {
            path: self.path.clone(),
            pem: fs::read(&self.path).ok(),
        }
    }
}

impl fmt::Debug for Transport {
    /// Without the addresses of proxy servers, which may carry passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

type Environment = std::collections::BTreeMap<String, String>;

impl Transport {
    /// Reads them. `ca_file` is the one that the configuration names, with which the environment's is not
    /// looked for.
    pub(crate) fn read(ca_file: Option<&str>, environment: &Environment) -> Result<Self, ConfigError> {
        let named = |variable: &str| {
            let value = environment.get(variable)?.trim();
            (!value.is_empty()).then(|| (variable.to_owned(), value.to_owned()))
        };
        let file = match ca_file {
            Some(file) => Some(("litellm_settings.ssl_verify".to_owned(), file.to_owned())),
            None => CA_VARIABLES.into_iter().find_map(named),
        };
        let authorities = file
            // SSL_VERIFY is a switch, too.
            .filter(|(_, value)| !value.eq_ignore_ascii_case("true"))
            .map(|(variable, path)| authorities(variable, &path))
            .transpose()?;
        let proxy = |variables: [&str; 4]| {
            variables
                .into_iter()
                .find_map(named)
                .map(|(variable, address)| server(variable, &address))
                .transpose()
        };
        Ok(Self {
            authorities,
            for_http: proxy(["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])?,
            for_https: proxy(["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])?,
            direct: ["NO_PROXY", "no_proxy"]
                .into_iter()
                .find_map(named)
                .map(|(_, list)| list),
        })
    }

    /// The file of the certificates, where one is named.
    pub(crate) fn authorities(&self) -> Option<&Authorities> {
        self.authorities.as_ref()
    }

    /// The client for upstreams anywhere.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub(crate) fn far(&self) -> Result<reqwest::Client, String> {
        let mut builder = builder();
        let http = self.for_http.as_deref().map(Proxy::http);
        let https = self.for_https.as_deref().map(Proxy::https);
        for proxy in [http, https].into_iter().flatten() {
            let direct = self.direct.as_deref().and_then(NoProxy::from_string);
            builder = builder.proxy(proxy.map_err(|error| error.to_string())?.no_proxy(direct));
        }
        if let Some(authorities) = self.authorities.as_ref().and_then(|read| read.pem.as_deref()) {
            let trusted = Certificate::from_pem_bundle(authorities).map_err(|error| error.to_string())?;
            return builder
                .tls_certs_only(trusted)
                .build()
                .map_err(|error| error.to_string());
        }
        builder.build().map_err(|error| error.to_string())
    }

    /// The client for names of the local node, which no proxy server knows and which have no certificates.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub(crate) fn near() -> Result<reqwest::Client, String> {
        builder()
            .tls_certs_only([])
            .build()
            .map_err(|error| error.to_string())
    }
}

fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .pool_idle_timeout(Duration::from_secs(60))
        // Small pieces of an answer are sent as they come.
        .tcp_nodelay(true)
        // A redirect could carry the key elsewhere.
        .redirect(reqwest::redirect::Policy::none())
}

fn authorities(variable: String, path: &str) -> Result<Authorities, ConfigError> {
    let wrong = |problem: String| ConfigError::Environment {
        variable: variable.clone(),
        problem: format!("{problem}; name a file of certificates in PEM"),
    };
    if path.eq_ignore_ascii_case("false") {
        return Err(wrong("certificates are always checked here".to_owned()));
    }
    let pem = fs::read(path).map_err(|error| wrong(format!("{path:?} cannot be read: {error}")))?;
    let found = Certificate::from_pem_bundle(&pem)
        .map_err(|error| wrong(format!("{path:?} is no file of certificates: {error}")))?;
    if found.is_empty() {
        return Err(wrong(format!("{path:?} has no certificate")));
    }
    Ok(Authorities {
        path: path.to_owned(),
        pem: Some(pem),
    })
}

fn server(variable: String, address: &str) -> Result<String, ConfigError> {
    // Often written without the scheme.
    let full = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    match Url::parse(&full) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(full),
        // The address itself may carry a password.
        _ => Err(ConfigError::Environment {
            variable,
            problem: "is no address of an HTTP proxy; write http://HOST:PORT".to_owned(),
        }),
    }
}
