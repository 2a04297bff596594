//! Requests and routes, nearly right.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use kaos_external::gateway_api::HttpRouteSpec;
use kaos_fuzz::Corpus;

use crate::{
    guard::Access,
    routes::{
        matches::{Asked, HostMatch},
        rule::{self, Target},
        table::{Route, Table},
    },
};

/// The head of a request: its method, its target and its headers.
fn head(text: &str) -> Option<(Method, Uri, HeaderMap)> {
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ');
    let (method, uri) = (first.next()?.parse().ok()?, first.next()?.parse().ok()?);
    let headers = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let name: HeaderName = name.trim().parse().ok()?;
        Some((name, HeaderValue::from_str(value.trim()).ok()?))
    });
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name, value);
    }
    Some((method, uri, map))
}

#[test]
fn a_request_finds_a_rule_or_none() {
    let corpus = Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/requests"));
    let words = [
        "host: ",
        "origin: ",
        "localhost",
        "%2e",
        "//",
        "?",
        "\"path\":",
        "\"type\":",
        "\"value\":",
        "PathPrefix",
    ];
    corpus.with_words(&words).fuzz_text(|text| {
        let (request, spec) = text.split_once("\n\n").unwrap_or((text, "{}"));
        let spec: HttpRouteSpec = serde_json::from_str(spec).unwrap_or_default();
        let rules = rule::parse(&spec, &mut |reference, _| {
            Ok(Target {
                host: reference.name.clone(),
                port: 80,
            })
        });
        let rules = rules.unwrap_or_else(|refused| {
            assert!(
                !refused.is_empty() && refused.iter().all(|one| one.starts_with("spec.")),
                "{refused:?}"
            );
            Vec::new()
        });
        let table = Table::new(vec![Route {
            created: None,
            name: "n/r".to_owned(),
            hosts: vec![HostMatch::parse("*.example.com"), HostMatch::Any],
            rules,
        }]);
        let Some((method, uri, headers)) = head(request) else {
            return;
        };
        let Ok(admitted) = Access::default().check(&uri, &headers, |host| table.names_host(host)) else {
            return;
        };
        assert!(admitted.cross_origin.is_none(), "nobody else's page is let in");
        let asked = Asked {
            host: &admitted.host,
            method: &method,
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
            headers: &headers,
        };
        if let Some(entry) = table.find(&asked) {
            assert!(entry.matched.path.fits(uri.path()));
            if let Some(target) = entry
                .rule
                .path
                .apply(&entry.matched.path, uri.path(), uri.query())
            {
                assert!(target.path().starts_with('/'), "{target}");
                assert_eq!(target.query(), uri.query());
            }
            let mut sent = headers.clone();
            entry.rule.headers.apply(&mut sent);
        }
    });
}
