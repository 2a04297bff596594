//! The texts in a Rust source: just enough of the language to tell them from comments and code.

/// The string literals, as the program has them.
pub(super) fn texts(source: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        let (before, found) = rest.split_at(at);
        let in_word = before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        rest = if found.starts_with("//") {
            after(found, "\n")
        } else if found.starts_with('"') {
            let (text, after) = literal(found.strip_prefix('"').unwrap_or_default());
            texts.push(text);
            after
        } else if let (Some((open, raw)), false) = (found.split_once('"'), in_word)
            && let Some(hashes) = open.strip_prefix('r')
            && hashes.chars().all(|hash| hash == '#')
        {
            let end = format!("\"{hashes}");
            texts.push(raw.split(&end).next().unwrap_or_default().to_owned());
            after(raw, &end)
        } else if let Some(quoted) = ["'\"'", "'\\''", "'\\\\'", "'\\\"'"]
            .iter()
            .find_map(|quoted| found.strip_prefix(quoted))
        {
            quoted
        } else {
            let mut characters = found.chars();
            characters.next();
            characters.as_str()
        };
    }
    texts
}

fn after<'a>(text: &'a str, end: &str) -> &'a str {
    text.split_once(end).map_or("", |(_, after)| after)
}

/// The literal that begins here, and what follows its end.
fn literal(source: &str) -> (String, &str) {
    let mut text = String::new();
    let mut rest = source.chars();
    while let Some(character) = rest.next() {
        match character {
            '"' => break,
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                // The text goes on after the indent of the next line.
                Some('\n') => rest = rest.as_str().trim_start().chars(),
                other => text.extend(other),
            },
            other => text.push(other),
        }
    }
    (text, rest.as_str())
}

/// What of a text for `format!` stands as it is.
pub(super) fn fixed_parts(text: &str) -> Vec<String> {
    const OPEN: &str = "\u{1}";
    let unescaped = text.replace("{{", OPEN);
    let parts = unescaped.split('{').enumerate().map(|(at, part)| {
        let part = match at {
            0 => part,
            _ => part.split_once('}').map_or(part, |(_, fixed)| fixed),
        };
        part.replace("}}", "}").replace(OPEN, "{")
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

#[test]
fn literals_are_told_from_comments_and_characters() {
    let source = r##"
        // "no"
        let quote = '"'; let other = '\''; let 'a: loop {}
        say("one \"quoted\" \
             text", r#"a "raw" one"#, r"x", or"y");
    "##;
    assert_eq!(texts(source), ["one \"quoted\" text", "a \"raw\" one", "x", "y"]);
    assert_eq!(fixed_parts("a {b:?} c {{d}} {}{e} f"), ["a ", " c {d} ", " f"]);
}
