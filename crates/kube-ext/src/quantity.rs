//! Amounts of resources as Kubernetes writes them: `500m`, `1.5Gi`, `1e3`.

/// Whether two texts are the same amount. An API server keeps an amount in a form of its own: `0.5` becomes `500m`.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one == other || nanos(one).is_some_and(|amount| nanos(other) == Some(amount))
}

/// Kubernetes counts in billionths, and rounds up to them.
const NANO: i32 = -9;

/// How many billionths the text is. Nothing where it is no quantity, or is more than can be counted here.
fn nanos(text: &str) -> Option<i128> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (tens, twos) = scale(suffix)?;
    let scaled = digits.checked_mul(1_i128.checked_shl(twos)?)?;
    let shift = tens
        .checked_sub(NANO)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    let amount = if shift >= 0 {
        scaled.checked_mul(power?)?
    } else {
        match power {
            Some(power) if scaled % power == 0 => scaled / power,
            // What is less than a billionth of something that may be negative is not worth telling apart.
            _ if is_negative => return None,
            Some(power) => scaled / power + 1,
            None => i128::from(scaled != 0),
        }
    };
    Some(if is_negative { -amount } else { amount })
}

/// The powers of ten and of two that a suffix stands for.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        exponent => (exponent.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_by_value() {
        for (one, other) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            (".5", "0.5"),
            ("1.", "1"),
            ("+1", "1"),
            ("-0.5", "-500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("1E", "1e18"),
            ("12e-1", "1.2"),
            ("0", "0m"),
            ("0.0000000001", "1n"),
            ("1e-400", "1n"),
            ("0e-400", "0"),
            ("8Ei", "9223372036854775808"),
            ("not a quantity", "not a quantity"),
        ] {
            assert!(is_same(one, other) && is_same(other, one), "{one} and {other}");
        }
    }

    #[test]
    fn other_amounts_and_other_texts_differ() {
        for (one, other) in [
            ("1", "1m"),
            ("1M", "1Mi"),
            ("1", "-1"),
            ("1e400", "2e400"),
            ("1e99999999999", "1e99999999998"),
            ("", "0"),
            (".", "0"),
            ("1.2.3", "1.23"),
            ("1mm", "1m"),
            ("1 Gi", "1Gi"),
            ("99999999999999999999999999999999999999999", "1"),
        ] {
            assert!(!is_same(one, other) && !is_same(other, one), "{one} and {other}");
        }
    }
}
