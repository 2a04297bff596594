//! Durations of the Gateway API: `1h30m`, `10s`, `500ms`.

use std::time::Duration;

/// Reads a duration; `None` where the text is none. At most four parts of at most five digits, as the API's
/// schema says.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    for part in 0.. {
        if rest.is_empty() {
            return (part > 0).then_some(total);
        }
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if part == 4 || !(1..=5).contains(&digits) {
            return None;
        }
        let (number, after) = rest.split_at_checked(digits)?;
        let unit = after.len() - after.trim_start_matches(|c: char| c.is_ascii_lowercase()).len();
        let (unit, after) = after.split_at_checked(unit)?;
        let number: u64 = number.parse().ok()?;
        total += match unit {
            "h" => Duration::from_secs(number * 3600),
            "m" => Duration::from_secs(number * 60),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        };
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_the_schema_writes_them() {
        for (text, millis) in [
            ("10s", 10_000),
            ("0s", 0),
            ("1h30m", 5_400_000),
            ("1m2s3ms", 62_003),
            ("99999ms", 99_999),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "s",
            "10",
            "-1s",
            "1.5s",
            "100000s",
            "1d",
            "1s1s1s1s1s",
            "1 s",
            "10é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
