//! Text as the mock reads it: words, numbers and quoted strings, in their order.

/// One piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// A run of letters and digits that is no number, as written.
    Word(String),
    /// A number, as JSON writes it.
    Number(String),
    /// What stood between quotation marks.
    Quoted(String),
}

/// Words that say nothing about which tool is meant.
const COMMON: [&str; 48] = [
    "about", "all", "also", "an", "and", "any", "are", "as", "at", "be", "by", "can", "could", "do", "does",
    "for", "from", "give", "have", "how", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on",
    "or", "please", "tell", "that", "the", "then", "this", "to", "use", "was", "what", "when", "which",
    "who", "with", "would", "you", "your",
];

/// Whether `word` is too common to mean a tool; single letters are.
pub(super) fn is_common(word: &str) -> bool {
    word.chars().count() < 2 || COMMON.contains(&word.to_lowercase().as_str())
}

/// Whether two words mean the same, endings aside: `multiply` and `multiplied`, `file` and `files`.
pub(super) fn alike(a: &str, b: &str) -> bool {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let shared = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    a == b || a.trim_end_matches('s') == b.trim_end_matches('s') || shared >= 6
}

/// The words of a name or a description: `getWeather` and `get_weather` are two words each.
pub(super) fn split_name(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower_before = false;
    for character in text.chars() {
        if !character.is_alphanumeric() {
            words.push(String::new());
        } else {
            if character.is_uppercase() && lower_before {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(character.to_lowercase());
            }
        }
        lower_before = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The pieces of a message.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let characters: Vec<char> = text.chars().collect();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        if let Some((piece, end)) = quoted(&characters, at).or_else(|| number(&characters, at)) {
            pieces.push(piece);
            at = end;
        } else if characters[at].is_alphanumeric() {
            let end = run(&characters, at, |c| {
                c.is_alphanumeric() || matches!(c, '\'' | '’' | '-' | '_')
            });
            let word: String = characters[at..end].iter().collect();
            pieces.push(Piece::Word(
                word.trim_end_matches(['\'', '’', '-', '_']).to_owned(),
            ));
            at = end;
        } else {
            at += 1;
        }
    }
    pieces
}

fn run(characters: &[char], start: usize, belongs: impl Fn(char) -> bool) -> usize {
    characters[start..]
        .iter()
        .position(|c| !belongs(*c))
        .map_or(characters.len(), |length| start + length)
}

/// A quotation that starts at `at`. A mark within a word is an apostrophe.
fn quoted(characters: &[char], at: usize) -> Option<(Piece, usize)> {
    let close = match characters[at] {
        '"' => '"',
        '“' => '”',
        '„' => '“',
        '«' => '»',
        '`' => '`',
        '\'' => '\'',
        _ => return None,
    };
    let inside_word = |at: usize| at > 0 && characters[at - 1].is_alphanumeric();
    if close == '\'' && inside_word(at) {
        return None;
    }
    let length = characters[at + 1..].iter().position(|c| *c == close)?;
    let end = at + 1 + length;
    Some((Piece::Quoted(characters[at + 1..end].iter().collect()), end + 1))
}

/// A number that starts at `at`, with its sign, decimals and thousands: `-3`, `2.5`, `1,234`. Digits within a
/// word, as in `B2B`, are none.
fn number(characters: &[char], at: usize) -> Option<(Piece, usize)> {
    let digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    let letter = |at: usize| characters.get(at).is_some_and(|c| c.is_alphabetic() || *c == '_');
    let after_text = at > 0 && (characters[at - 1].is_alphanumeric() || characters[at - 1] == '_');
    let sign = matches!(characters[at], '-' | '−') && digit(at + 1);
    if after_text || !(sign || digit(at)) {
        return None;
    }
    let mut written = String::from(if sign { "-" } else { "" });
    let mut end = at + usize::from(sign);
    while digit(end) {
        written.push(characters[end]);
        end += 1;
    }
    // A comma with exactly three digits after it parts thousands.
    while characters.get(end) == Some(&',') && (1..4).all(|i| digit(end + i)) && !digit(end + 4) {
        written.extend(&characters[end + 1..end + 4]);
        end += 4;
    }
    if characters.get(end) == Some(&'.') && digit(end + 1) {
        written.push('.');
        end += 1;
        while digit(end) {
            written.push(characters[end]);
            end += 1;
        }
    }
    (!letter(end)).then_some((Piece::Number(written), end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Vec<String> {
        pieces(text)
            .into_iter()
            .map(|piece| match piece {
                Piece::Word(word) => word,
                Piece::Number(number) => format!("#{number}"),
                Piece::Quoted(text) => format!("<{text}>"),
            })
            .collect()
    }

    #[test]
    fn numbers_words_and_quotations_are_told_apart() {
        for (text, expected) in [
            (
                "What is 1234 times 5678?",
                &["What", "is", "#1234", "times", "#5678"][..],
            ),
            ("-3 and −4, 10-5", &["#-3", "and", "#-4", "#10", "#5"]),
            (
                "2.5, 1,234,567.25 or 1,2",
                &["#2.5", "#1234567.25", "or", "#1", "#2"],
            ),
            ("B2B costs 3x 007.", &["B2B", "costs", "3x", "#007"]),
            (
                "don't say \"a b\" or 'c' or “d”",
                &["don't", "say", "<a b>", "or", "<c>", "or", "<d>"],
            ),
            ("an open \" mark", &["an", "open", "mark"]),
            ("Zürich-West, ok", &["Zürich-West", "ok"]),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(
            split_name("getWeather_forCity v2"),
            ["get", "weather", "for", "city", "v2"]
        );
        assert!(alike("multiply", "multiplying") && alike("Files", "file") && !alike("time", "tide"));
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in r#"([-−0-9.,'"“”a-zé _]|\PC){0,40}"#) {
            for piece in pieces(&text) {
                match piece {
                    Piece::Number(number) => prop_assert!(number.parse::<f64>().is_ok(), "{number}"),
                    Piece::Word(word) => prop_assert!(!word.is_empty()),
                    Piece::Quoted(_) => {}
                }
            }
        }
    }
}
