//! The file that tells kubectl where the server is and how to get in.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

/// The name of the cluster, the user and the context.
const NAME: &str = "kaos";

/// The text of a kubeconfig (YAML) for one server: its URL, the token that callers send, and the certificate
/// that they trust. The text holds the token: keep it private.
pub fn kubeconfig(url: &str, token: &str, ca_pem: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": NAME,
            "cluster": { "server": url, "certificate-authority-data": STANDARD.encode(ca_pem) },
        }],
        "users": [{ "name": NAME, "user": { "token": token } }],
        "contexts": [{
            "name": NAME,
            "context": { "cluster": NAME, "user": NAME, "namespace": "default" },
        }],
        "current-context": NAME,
    });
    // JSON is YAML too, should the nicer form ever fail.
    serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_kubeconfig_reads_back() {
        let text = kubeconfig("https://127.0.0.1:6443", "0123: #\"x", "PEM\n");
        assert!(text.starts_with("apiVersion: v1\nkind: Config\n"), "{text}");
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(
            read["clusters"][0]["cluster"]["certificate-authority-data"],
            "UEVNCg=="
        );
        assert_eq!(read["users"][0]["user"]["token"], "0123: #\"x");
        assert_eq!(read["contexts"][0]["context"]["user"], read["users"][0]["name"]);
    }
}
