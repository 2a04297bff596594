//! Rewrites names of Services in text: `name.namespace.svc[.cluster.local][:port]` becomes the loopback
//! address of that Service and port, wherever it stands — alone, in a URL, in JSON or YAML.
//!
//! Only names with the label `svc` are touched, so that no other host is ever changed. Without a port the
//! scheme's default counts: 80, as with a bare name, or 443 after `https://` or `wss://`.

use std::net::SocketAddr;

/// A name found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceName<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The Service.
    pub service: &'a str,
}

/// Reads `name.namespace.svc` or `name.namespace.svc.cluster.local`, with or without the final dot.
pub fn parse_host(host: &str) -> Option<ServiceName<'_>> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let host = host.strip_suffix(".cluster.local").unwrap_or(host);
    let (service, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
    (is_label(service) && is_label(namespace)).then_some(ServiceName { namespace, service })
}

/// A DNS label as Kubernetes allows it in names (RFC 1123), in lower case.
pub(crate) fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=63).contains(&bytes.len())
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
}

/// `text` with each name replaced by what `address` gives for its Service and port; names for which it
/// gives `None` stay.
pub fn rewrite(text: &str, mut address: impl FnMut(ServiceName<'_>, u16) -> Option<SocketAddr>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    let mut from = 0;
    while let Some(found) = text[from..].find(".svc") {
        let marker = from + found;
        from = marker + ".svc".len();
        let Some(authority) = authority_around(text, marker) else {
            continue;
        };
        if authority.start < done {
            continue;
        }
        let Some(target) = address(authority.name, authority.port) else {
            continue;
        };
        out.push_str(&text[done..authority.start]);
        out.push_str(&target.to_string());
        (done, from) = (authority.end, authority.end);
    }
    out.push_str(&text[done..]);
    out
}

struct Authority<'a> {
    name: ServiceName<'a>,
    port: u16,
    start: usize,
    end: usize,
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// The authority whose `.svc` stands at `marker`, or `None` where the text around it is no host name.
fn authority_around(text: &str, marker: usize) -> Option<Authority<'_>> {
    let bytes = text.as_bytes();
    let start = bytes[..marker]
        .iter()
        .rposition(|b| !is_host_byte(*b))
        .map_or(0, |at| at + 1);
    let length = bytes[marker..]
        .iter()
        .position(|b| !is_host_byte(*b))
        .unwrap_or(bytes.len() - marker);
    let mut host_end = marker + length;
    // A letter of another alphabet next to it makes it a word of its own, not a name of ours.
    if text[..start]
        .chars()
        .next_back()
        .is_some_and(char::is_alphanumeric)
        || text[host_end..].chars().next().is_some_and(char::is_alphanumeric)
    {
        return None;
    }
    // A port after the name, as opposed to a colon of the text around it ("host.ns.svc: up").
    let mut port = None;
    let mut end = host_end;
    if bytes.get(host_end) == Some(&b':') {
        let digits = bytes[host_end + 1..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        if digits > 0 {
            let after = host_end + 1 + digits;
            let ends_sentence =
                bytes.get(after) == Some(&b'.') && !bytes.get(after + 1).copied().is_some_and(is_host_byte);
            if bytes.get(after).copied().is_some_and(is_host_byte) && !ends_sentence {
                return None;
            }
            port = Some(text[host_end + 1..after].parse().ok().filter(|port| *port != 0)?);
            end = after;
        }
    }
    // Without a port, the last dot ends a sentence rather than a fully qualified name, unless a path follows.
    if port.is_none() && bytes[host_end - 1] == b'.' && bytes.get(host_end) != Some(&b'/') {
        host_end -= 1;
        end = host_end;
    }
    let name = parse_host(&text[start..host_end])?;
    Some(Authority {
        name,
        port: port.unwrap_or_else(|| default_port(&text[..start])),
        start,
        end,
    })
}

/// The port that the scheme before an authority stands for. Userinfo may stand between the two.
fn default_port(before: &str) -> u16 {
    let Some(scheme_end) = before.rfind("://") else {
        return 80;
    };
    let between = &before[scheme_end + 3..];
    let reaches = between.is_empty() || (between.ends_with('@') && !between.contains(['/', ' ', '"', '\'']));
    let scheme = &before[..scheme_end];
    if reaches && ["https", "wss"].iter().any(|secure| scheme.ends_with(secure)) {
        443
    } else {
        80
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every name stands at a port that shows what was asked for.
    fn fixed(text: &str) -> String {
        rewrite(text, |name, port| {
            (name.service != "unknown").then(|| {
                let base = if name.namespace == "default" {
                    10_000
                } else {
                    20_000
                };
                SocketAddr::from(([127, 0, 0, 1], base + port))
            })
        })
    }

    #[test]
    fn names_are_replaced_where_they_stand() {
        for (text, expected) in [
            ("tools.default.svc:8000", "127.0.0.1:18000"),
            ("tools.default.svc", "127.0.0.1:10080"),
            ("http://tools.default.svc/mcp", "http://127.0.0.1:10080/mcp"),
            ("https://tools.default.svc/mcp", "https://127.0.0.1:10443/mcp"),
            (
                "http://tools.default.svc.cluster.local:8000/mcp?x=1",
                "http://127.0.0.1:18000/mcp?x=1",
            ),
            (
                "http://tools.default.svc.cluster.local.:8000/",
                "http://127.0.0.1:18000/",
            ),
            (
                "http://user:pw@tools.default.svc:1/",
                "http://user:pw@127.0.0.1:10001/",
            ),
            (
                "https://user:pw@tools.default.svc/",
                "https://user:pw@127.0.0.1:10443/",
            ),
            ("a.default.svc:1,b.other.svc:2", "127.0.0.1:10001,127.0.0.1:20002"),
            (
                r#"{"url":"http://a.default.svc:1","n":2}"#,
                r#"{"url":"http://127.0.0.1:10001","n":2}"#,
            ),
            (
                "api_base: http://a.default.svc:1\n",
                "api_base: http://127.0.0.1:10001\n",
            ),
            ("--url=http://a.default.svc:1", "--url=http://127.0.0.1:10001"),
            ("a.default.svc: up", "127.0.0.1:10080: up"),
            ("see a.default.svc.", "see 127.0.0.1:10080."),
            ("http://a.default.svc./x", "http://127.0.0.1:10080/x"),
            ("listens at a.default.svc:8000.", "listens at 127.0.0.1:18000."),
            ("see a.default.svc. Then", "see 127.0.0.1:10080. Then"),
            (
                "http://[::1]:80,a.default.svc:1",
                "http://[::1]:80,127.0.0.1:10001",
            ),
            (
                "MY=https://x.example/ a.default.svc",
                "MY=https://x.example/ 127.0.0.1:10080",
            ),
        ] {
            assert_eq!(fixed(text), expected, "{text}");
        }
    }

    #[test]
    fn everything_else_is_left_alone() {
        for text in [
            "",
            "tools.default",
            "tools.default.svcs:8000",
            "tools.default.svc.example.com",
            "tools.default.svc2",
            "tools.default.svc_x",
            "a.b.c.svc",
            "default.svc",
            ".svc",
            "-a.default.svc",
            "Tools.default.svc",
            "tools.default.svc:0",
            "tools.default.svc:65536",
            "tools.default.svc:80x",
            "tools.default.svc:80.example",
            "étools.default.svc",
            "http://unknown.default.svc:80",
            "http://[fd00::1]:8000/.svc",
            "example.com:443",
        ] {
            assert_eq!(fixed(text), text);
        }
    }

    proptest! {
        #[test]
        fn text_without_the_label_is_never_changed(text in "[ -~é\n]{0,60}") {
            prop_assume!(!text.contains(".svc"));
            prop_assert_eq!(fixed(&text), text);
        }

        #[test]
        fn any_text_is_survived_and_rewriting_twice_changes_nothing(text in "([a-z.:/@\\[\\]é0-9-]|\\.svc){0,40}") {
            let once = fixed(&text);
            prop_assert_eq!(fixed(&once), once.clone());
        }

        #[test]
        fn a_url_keeps_all_but_its_authority(name in "[a-z][a-z0-9]{0,8}", port in 1u16..9999, path in "[a-z0-9/?=&]{0,12}") {
            let url = format!("http://{name}.default.svc:{port}/{path}");
            let expected = format!("http://127.0.0.1:{}/{path}", 10_000 + port);
            prop_assert_eq!(fixed(&url), if name == "unknown" { url } else { expected });
        }
    }
}
