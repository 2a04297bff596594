//! Formats of strings that kube-apiserver checks (`k8s.io/kube-openapi/pkg/validation/strfmt`).
//!
//! Formats that are not listed say nothing about the value, there and here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the text has the format.
pub(super) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uri" => text.starts_with('/') || url::Url::parse(text).is_ok(),
        "uuid" => is_uuid(text),
        "hostname" => is_hostname(text),
        "duration" => is_duration(text),
        "byte" => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(|byte| *byte != b'-').count();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    digits == 32
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
        && matches!(groups.as_slice(), [32] | [8, 4, 4, 4, 12])
}

fn is_hostname(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

/// A duration as Go prints it, such as `1h30m` or `-1.5s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        if rest[..number].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[number..];
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        match units.iter().find_map(|unit| rest.strip_prefix(unit)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn formats_are_told_apart() {
        for (format, good, bad) in [
            ("date-time", "2026-11-21T12:00:00Z", "yesterday"),
            ("date", "2026-11-21", "2026-11-31"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uri", "http://example.com/x", "not a uri"),
            ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810"),
            ("hostname", "a.example", "-a"),
            ("duration", "1h30m0.5s", "5"),
            ("byte", "aGk=", "a"),
        ] {
            assert!(matches(format, good), "{format} {good}");
            assert!(!matches(format, bad), "{format} {bad}");
        }
        assert!(matches("anything-else", "x"));
    }
}
