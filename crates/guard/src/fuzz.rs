//! Names that a stranger may own, nearly those of this machine.

use axum::http::{HeaderMap, HeaderValue, Uri, header};
use kaos_fuzz::Corpus;

use super::HostPolicy;

#[test]
fn no_stranger_is_let_in() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/heads"));
    let words = [
        "localhost",
        ".localhost",
        ".svc",
        "127.0.0.1",
        "[::1]",
        "0x7f.1",
        "@",
        "http://",
        ".",
        ":80",
        "%2e",
        "é",
    ];
    let guard = HostPolicy::listed("a.example").on(([127, 0, 0, 1], 1).into());
    let ours = |name: &str| {
        let name = name.trim_end_matches('.');
        name == "localhost" || name.ends_with(".localhost") || name == "a.example"
    };
    corpus.with_words(&words).fuzz(|bytes| {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let mut headers = HeaderMap::new();
        for name in [header::HOST, header::ORIGIN] {
            if let Ok(value) = HeaderValue::from_bytes(lines.next().unwrap_or_default()) {
                headers.insert(name, value);
            }
        }
        if guard.check(&Uri::from_static("/mcp"), &headers).is_err() {
            return;
        }
        let host = headers[header::HOST].to_str().unwrap().to_ascii_lowercase();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => &host,
        };
        let numeric = name.ends_with(']')
            || name
                .trim_end_matches('.')
                .split('.')
                .all(|part| part.parse::<u8>().is_ok());
        let service = [".svc", ".svc.cluster.local"]
            .iter()
            .any(|end| name.trim_end_matches('.').ends_with(end));
        assert!(numeric || service || ours(name), "{host:?}");
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().unwrap().to_ascii_lowercase();
            let known = ["localhost", "127.", "[::1]", "a.example", "::ffff:127."];
            assert!(known.iter().any(|known| origin.contains(known)), "{origin:?}");
        }
    });
}
