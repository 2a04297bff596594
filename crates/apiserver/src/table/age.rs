//! How long ago something was, as kubectl shows it (`k8s.io/apimachinery/pkg/util/duration`).

use jiff::Timestamp;
use serde_json::Value;

/// Shown for a time that lies ahead or is no time.
pub(super) const INVALID: &str = "<invalid>";

/// Shown where there is no time.
const UNKNOWN: &str = "<unknown>";

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time from `then` to `now`.
pub(super) fn since(then: Timestamp, now: Timestamp) -> String {
    // Whole seconds towards zero, so that clocks that differ by less than two seconds are no error.
    human(now.duration_since(then).as_secs())
}

/// The age of the time at a JSON pointer of an object.
pub(super) fn at(object: &Value, pointer: &str, now: Timestamp) -> Value {
    match object.pointer(pointer).and_then(Value::as_str) {
        None | Some("") => UNKNOWN.into(),
        Some(text) => text
            .parse()
            .map_or_else(|_| INVALID.into(), |then| since(then, now).into()),
    }
}

/// Seconds in the two largest units that say enough.
fn human(seconds: i64) -> String {
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..-1 => INVALID.to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds / MINUTE, 'm', seconds % MINUTE, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds / HOUR, 'h', seconds % HOUR / MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds / DAY, 'd', seconds % DAY / HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds / YEAR, 'y', seconds % YEAR / DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 59 * MINUTE, "3h59m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (48 * HOUR - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_missing_time_is_unknown() {
        let now = "2026-01-01T00:01:30Z".parse().unwrap();
        let object =
            json!({ "a": "2026-01-01T00:00:00Z", "b": "yesterday", "c": "2026-01-01T00:00:00.500000Z" });
        assert_eq!(at(&object, "/a", now), "90s");
        assert_eq!(at(&object, "/b", now), "<invalid>");
        assert_eq!(at(&object, "/c", now), "89s");
        assert_eq!(at(&object, "/d", now), "<unknown>");
    }
}
