//! How inputs are made of others.

use std::{fmt, ops::Range};

use proptest::{
    collection,
    prelude::*,
    sample::{Index, select},
};

/// The largest input that is made, in bytes.
const LARGEST: usize = 64 * 1024;
/// How many changes are made to one at most.
const CHANGES: usize = 6;
/// How often something is repeated at most: more often than a parser that calls itself should follow.
const DEEPEST: usize = 3_000;
/// What means something to many parsers.
const WORDS: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    ";",
    "=",
    "!",
    "&",
    "*",
    "/",
    "..",
    "\n",
    "\r\n",
    "\n\n",
    "\0",
    " ",
    "-",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "18446744073709551616",
    "\u{feff}",
    "é",
    "\u{202e}",
    "\\ud800",
];

/// An input, which is shown as a byte string.
#[derive(Clone)]
pub(crate) struct Input(pub(crate) Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// One change of an input.
#[derive(Clone, Debug)]
enum Change {
    Cut(Index, Index),
    /// A piece is there as often as this.
    Repeat(Index, Index, usize),
    /// A piece of another one is put in.
    Splice(Index, Vec<u8>, Index, Index),
    /// A word is put in as often as this.
    Insert(Index, Vec<u8>, usize),
    /// A piece becomes a word.
    Replace(Index, Index, Vec<u8>),
    Byte(Index, u8),
    Flip(Index, u8),
}

/// Inputs that are made of `seeds`, and of words that mean something.
pub(crate) fn made_of(seeds: Vec<Vec<u8>>, mut words: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    words.extend(WORDS.iter().map(|word| word.as_bytes().to_vec()));
    let (seed, other, word) = (select(seeds.clone()), select(seeds), select(words));
    let at = any::<Index>;
    let change = prop_oneof![
        3 => (at(), at()).prop_map(|(from, to)| Change::Cut(from, to)),
        2 => (at(), at(), 2..9_usize).prop_map(|(from, to, times)| Change::Repeat(from, to, times)),
        3 => (at(), other, at(), at()).prop_map(|(at, other, from, to)| Change::Splice(at, other, from, to)),
        4 => (at(), word.clone()).prop_map(|(at, word)| Change::Insert(at, word, 1)),
        1 => (at(), word.clone(), 2..DEEPEST).prop_map(|(at, word, times)| Change::Insert(at, word, times)),
        3 => (at(), at(), word).prop_map(|(from, to, word)| Change::Replace(from, to, word)),
        2 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        2 => (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
    ];
    (seed, collection::vec(change, 1..=CHANGES)).prop_map(|(mut input, changes)| {
        for change in changes {
            apply(&mut input, change);
            input.truncate(LARGEST);
        }
        input
    })
}

/// A piece of something so long: mostly short ones, as they are what has a meaning.
fn piece(length: usize, from: Index, to: Index) -> Range<usize> {
    let from = from.index(length + 1);
    let longest = (length - from).min(if to.index(4) == 0 { length } else { 24 });
    from..from + to.index(longest + 1)
}

fn apply(input: &mut Vec<u8>, change: Change) {
    let length = input.len();
    match change {
        Change::Cut(from, to) => drop(input.drain(piece(length, from, to))),
        Change::Repeat(from, to, times) => {
            let range = piece(length, from, to);
            let repeated = input[range.clone()].repeat(times);
            input.splice(range, repeated);
        }
        Change::Splice(at, other, from, to) => {
            let at = at.index(length + 1);
            let range = piece(other.len(), from, to);
            input.splice(at..at, other[range].iter().copied());
        }
        Change::Insert(at, word, times) => {
            let at = at.index(length + 1);
            input.splice(at..at, word.repeat(times));
        }
        Change::Replace(from, to, word) => drop(input.splice(piece(length, from, to), word)),
        Change::Byte(at, byte) if length > 0 => input[at.index(length)] = byte,
        Change::Flip(at, bit) if length > 0 => input[at.index(length)] ^= 1 << bit,
        Change::Byte(..) | Change::Flip(..) => {}
    }
}
