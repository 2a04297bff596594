//! What clients learn the server from: its version and health, the resources it serves, and their schemas.
//!
//! Everything is worked out of the registry. Nothing here reads an object.

mod accept;
mod groups;
mod openapi;
mod subresources;

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::{
    error::ApiError,
    registry::Registry,
    resource::ResourceType,
    server::{Body, full_body},
};

/// The version of Kubernetes whose API this is.
const MINOR: &str = "36";
const GIT_VERSION: &str = "v1.36.3+kaos";

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers discovery, and keeps what is costly to work out for as long as the served resources stay the same.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    documents: Mutex<Option<(u64, Arc<openapi::Documents>)>>,
}

impl Discovery {
    /// The answer, where the path is one of discovery's.
    pub(crate) fn respond(&self, registry: &Registry, parts: &Parts) -> Option<Response<Body>> {
        let path = parts.uri.path();
        let path = if path == "/" {
            path
        } else {
            path.trim_end_matches('/')
        };
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let answer: Answer = match segments.as_slice() {
            [""] => Answer::json(&roots(&registry.all())),
            ["version"] => Answer::json(&version()),
            [check @ ("healthz" | "livez" | "readyz")] => health(check, parts),
            [check @ ("healthz" | "livez" | "readyz"), "ping"] => health(check, parts),
            ["api"] if accept::aggregated(&parts.headers) => groups::aggregated_core(&registry.all()),
            ["apis"] if accept::aggregated(&parts.headers) => groups::aggregated(&registry.all()),
            ["api"] => Answer::json(&groups::core_versions(host(parts))),
            ["apis"] => Answer::json(&groups::list(&registry.all())),
            ["api", version] => groups::resources(&registry.all(), "", version)?,
            ["apis", group] => groups::one(&registry.all(), group)?,
            ["apis", group, version] => groups::resources(&registry.all(), group, version)?,
            ["openapi", "v3"] => Answer::json(&self.documents(registry).index()),
            ["openapi", "v3", name @ ..] => {
                let asked = hash_of_query(parts.uri.query());
                self.documents(registry)
                    .document(&name.join("/"), asked.as_deref())?
            }
            _ => return None,
        };
        Some(match parts.method {
            Method::GET | Method::HEAD => answer.respond(parts),
            _ => ApiError::method_not_allowed().into_response(),
        })
    }

    fn documents(&self, registry: &Registry) -> Arc<openapi::Documents> {
        // Read before the resources: at worst a newer document is kept under an older number and made again.
        let generation = registry.generation();
        let mut kept = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref() {
            Some((of, documents)) if *of == generation => documents.clone(),
            _ => {
                let documents = Arc::new(openapi::Documents::of(&registry.all()));
                *kept = Some((generation, documents.clone()));
                documents
            }
        }
    }
}

/// A document on its way out.
struct Answer {
    media_type: &'static str,
    body: bytes::Bytes,
    /// Whether clients may ask again with the hash of what they have.
    etag: Option<String>,
    /// Whether the address holds the hash of the document: what is there never changes.
    immutable: bool,
    /// The document is elsewhere now.
    moved_to: Option<String>,
}

impl Answer {
    fn new(media_type: &'static str, body: impl Into<bytes::Bytes>) -> Self {
        Self {
            media_type,
            body: body.into(),
            etag: None,
            immutable: false,
            moved_to: None,
        }
    }

    fn json(value: &Value) -> Self {
        Self::new(JSON, value.to_string())
    }

    fn with_etag(mut self) -> Self {
        self.etag = Some(hash(&self.body));
        self
    }

    fn respond(self, parts: &Parts) -> Response<Body> {
        let etag = self.etag.map(|hash| format!("\"{hash}\""));
        let unchanged = etag.as_deref().is_some_and(|etag| {
            let known = parts
                .headers
                .get(header::IF_NONE_MATCH)
                .and_then(|value| value.to_str().ok());
            known.is_some_and(|known| {
                known
                    .split(',')
                    .any(|one| one.trim().trim_start_matches("W/") == etag)
            })
        });
        let status = match (&self.moved_to, unchanged) {
            (Some(_), _) => StatusCode::MOVED_PERMANENTLY,
            (None, true) => StatusCode::NOT_MODIFIED,
            (None, false) => StatusCode::OK,
        };
        let empty = status != StatusCode::OK || parts.method == Method::HEAD;
        let mut response = Response::new(full_body(if empty { bytes::Bytes::new() } else { self.body }));
        *response.status_mut() = status;
        let cache = match (self.immutable, &etag) {
            (true, _) => "public, max-age=31536000, immutable",
            // Kept, and asked about each time.
            (false, Some(_)) => "public, no-cache",
            (false, None) => "no-cache, private",
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        for (name, value) in [(header::ETAG, etag), (header::LOCATION, self.moved_to)] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// SHA-512 in upper-case hexadecimal, as kube-apiserver names documents.
fn hash(bytes: &[u8]) -> String {
    Sha512::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

fn hash_of_query(query: Option<&str>) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs
        .find(|(key, _)| key == "hash")
        .map(|(_, value)| value.into_owned())
        .filter(|value| !value.is_empty())
}

fn host(parts: &Parts) -> &str {
    parts
        .headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn version() -> Value {
    let platform = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": "1",
        "minor": MINOR,
        "emulationMajor": "1",
        "emulationMinor": MINOR,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": format!("{}/{platform}", std::env::consts::OS),
    })
}

/// The server answers, so it is well: there is nothing behind it that could be down.
fn health(check: &str, parts: &Parts) -> Answer {
    let verbose = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
        .any(|(key, _)| key == "verbose");
    if verbose {
        Answer::new(TEXT, format!("[+]ping ok\n{check} check passed\n"))
    } else {
        Answer::new(TEXT, "ok")
    }
}

/// The paths that can be started from.
fn roots(resources: &[Arc<ResourceType>]) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    for resource in resources {
        if resource.group.is_empty() {
            paths.push(format!("/api/{}", resource.version));
        } else {
            paths.push(format!("/apis/{}", resource.group));
            paths.push(format!("/apis/{}", resource.api_version()));
        }
    }
    paths.sort();
    paths.dedup();
    json!({ "paths": paths })
}

#[cfg(test)]
mod tests;
