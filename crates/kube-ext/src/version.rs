//! Which of two versions of an object is the older.

/// Whether the resource version `one` is older than `other`, of the same object or of two of a kind.
///
/// They are whole numbers that grow: Kubernetes says so since 1.35 (KEP-5504), and every server that stores in etcd
/// has always done so. Nothing is older than a version that is no such number, nor is that older than anything.
pub fn is_older(one: &str, other: &str) -> bool {
    let is_number = |version: &str| {
        let digits = version.bytes().all(|byte| byte.is_ascii_digit());
        digits && !version.is_empty() && !version.starts_with('0')
    };
    // They may be larger than any number here.
    is_number(one) && is_number(other) && (one.len(), one) < (other.len(), other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_of_any_size() {
        for (one, other, expected) in [
            ("9", "10", true),
            ("10", "9", false),
            ("10", "10", false),
            ("99999999999999999999999", "100000000000000000000000", true),
            ("", "10", false),
            ("9", "", false),
            ("09", "10", false),
            ("9", "1a", false),
            ("a", "b", false),
        ] {
            assert_eq!(is_older(one, other), expected, "{one} {other}");
        }
    }
}
