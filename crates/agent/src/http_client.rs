//! What the clients of models and of other agents have in common.

use std::{error::Error as _, time::Duration};

use kaos_mcp::client::is_near;
use reqwest::Client;
use url::Url;

/// How long a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client for the server at `located`, its address.
pub(crate) fn for_server(located: &Url) -> Result<Client, reqwest::Error> {
    let http = Client::builder().connect_timeout(CONNECT_TIMEOUT);
    let http = match (is_near(located), located.scheme()) {
        // Without the certificates of the system: reading them takes time at the start, and memory for good.
        (true, "http") => http.no_proxy().tls_certs_only([]),
        (true, _) => http.no_proxy(),
        (false, _) => http,
    };
    http.build()
}

/// `path` below the `/v1` of `base`, whether or not `base` ends with it.
pub(crate) fn endpoint(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let prefix = base.path().trim_end_matches('/');
    let version = if prefix.ends_with("/v1") { "" } else { "/v1" };
    url.set_path(&format!("{prefix}{version}/{path}"));
    url
}

/// What errors name a server by.
pub(crate) fn without_password(url: &Url) -> String {
    let mut url = url.clone();
    // Both only fail for URLs that have no host, which cannot have a password either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// What reqwest's errors hide behind "error sending request".
pub(crate) fn innermost(error: &reqwest::Error) -> String {
    if error.is_connect() && error.is_timeout() {
        return format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
    }
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_path_once() {
        let endpoint = |base: &str| endpoint(&Url::parse(base).unwrap(), "models").to_string();
        assert_eq!(endpoint("http://m:8000"), "http://m:8000/v1/models");
        assert_eq!(endpoint("http://m:8000/"), "http://m:8000/v1/models");
        assert_eq!(endpoint("http://m:8000/v1"), "http://m:8000/v1/models");
        assert_eq!(
            endpoint("http://m:8000/openai/v1/"),
            "http://m:8000/openai/v1/models"
        );
        assert_eq!(endpoint("http://m:8000/api"), "http://m:8000/api/v1/models");
    }

    #[test]
    fn errors_name_the_server_without_its_password() {
        let url = Url::parse("https://me:secret@models.example.com/v1").unwrap();
        assert_eq!(without_password(&url), "https://models.example.com/v1");
    }
}
