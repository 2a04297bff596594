//! Durations as the Gateway API writes them.

/// What they look like, for messages.
pub(crate) const FORM: &str =
    "one to four numbers of at most five digits, each with a unit h, m, s or ms, such as 30s or 1h30m";

/// Whether `text` is one (GEP-2257).
pub(crate) fn is_duration(text: &str) -> bool {
    let (mut rest, mut parts) = (text, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (_, unit) = rest.split_at(digits);
        let after = ["ms", "h", "m", "s"]
            .into_iter()
            .find_map(|name| unit.strip_prefix(name));
        match after {
            Some(after) if (1..=5).contains(&digits) => rest = after,
            _ => return false,
        }
        parts += 1;
    }
    (1..=4).contains(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_gateway_api() {
        for text in ["0s", "30s", "1h30m", "99999ms", "1h2m3s4ms", "1m1ms"] {
            assert!(is_duration(text), "{text}");
        }
        for text in [
            "",
            "30",
            "s",
            "100000s",
            "1d",
            "1.5s",
            "-1s",
            " 1s",
            "1h1m1s1ms1h",
            "1s ",
        ] {
            assert!(!is_duration(text), "{text}");
        }
    }
}
