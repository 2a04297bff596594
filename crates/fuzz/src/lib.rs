//! Fuzzing that ordinary tests do: every parser that meets the network has a test beside it that feeds it inputs
//! which are nearly right.
//!
//! A corpus is a folder of files, one input each, such as a person or a server would send. Further inputs are made of
//! them: pieces are cut out, doubled, moved from one to another, nested and replaced, and words that mean something
//! to the parser are put in. A test makes the same few hundred inputs each time. To search for longer, and for other
//! ones each time, say for how many seconds:
//!
//! ```text
//! KAOS_FUZZ_SECONDS=120 cargo test -p kaos-openai fuzz
//! ```
//!
//! What it finds it prints as a Rust byte string, made as small as it can; add it to the corpus. An input that ends
//! the whole process, as a stack that overflows does, is left in the folder for temporary files, in `kaos-fuzz-PID`.
//!
//! It holds no test of a parser, and nothing in it is used outside tests.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "only tests use this crate, and what goes wrong in it fails the test with a message"
)]

mod input;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};

use input::Input;

/// For how many seconds each test searches.
const SECONDS: &str = "KAOS_FUZZ_SECONDS";
/// How many inputs a test makes where that is not said.
const FEW: u32 = 400;
/// How many are made between two looks at the clock.
const ROUND: u32 = 500;
/// What takes longer than this for an input of some kilobytes takes for ever for one of megabytes. Looked at only
/// where a search is asked for: a test must not depend on the machine's load.
const TOO_LONG: Duration = Duration::from_secs(5);

/// Inputs for one parser.
#[derive(Clone, Debug)]
pub struct Corpus {
    folder: PathBuf,
    inputs: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Corpus {
    /// The files of a folder; `concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/NAME")` is where they belong.
    ///
    /// # Panics
    /// If it cannot be read or has no file.
    pub fn of(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref().to_owned();
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // So that a run is like the one before.
        files.sort();
        let inputs: Vec<Vec<u8>> = files.iter().flat_map(fs::read).collect();
        assert!(!inputs.is_empty(), "{} has no file", folder.display());
        Self {
            folder,
            inputs,
            words: Vec::new(),
        }
    }

    /// These mean something to the parser, too.
    #[must_use]
    pub fn with_words(mut self, words: &[&str]) -> Self {
        self.words
            .extend(words.iter().map(|word| word.as_bytes().to_vec()));
        self
    }

    /// Feeds `target` the files as they are and then what is made of them. It panics where something is wrong.
    ///
    /// # Panics
    /// If `target` does, with the smallest input that was found for it.
    pub fn fuzz(&self, target: impl Fn(&[u8])) {
        for input in &self.inputs {
            target(input);
        }
        let seconds = env::var(SECONDS).ok().map(|seconds| {
            let seconds = seconds.parse();
            Duration::from_secs(seconds.unwrap_or_else(|_| panic!("{SECONDS} is no whole number")))
        });
        let Some(search) = seconds else {
            let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            return self.round(&mut TestRunner::new_with_rng(config(FEW), rng), &target);
        };
        let (began, mut tried) = (Instant::now(), 0_u64);
        let last = env::temp_dir().join(format!("kaos-fuzz-{}", process::id()));
        while began.elapsed() < search {
            self.round(&mut TestRunner::new(config(ROUND)), &|input| {
                fs::write(&last, input).expect("the folder for temporary files can be written");
                let began = Instant::now();
                target(input);
                assert!(began.elapsed() < TOO_LONG, "it took {:?}", began.elapsed());
            });
            tried += u64::from(ROUND);
        }
        let _ = fs::remove_file(last);
        eprintln!("{}: {tried} inputs", self.folder.display());
    }

    /// As [`fuzz`](Self::fuzz), for a parser of texts.
    ///
    /// # Panics
    /// If `target` does.
    pub fn fuzz_text(&self, target: impl Fn(&str)) {
        self.fuzz(|input| target(&String::from_utf8_lossy(input)));
    }

    fn round(&self, runner: &mut TestRunner, target: &impl Fn(&[u8])) {
        let inputs = input::made_of(self.inputs.clone(), self.words.clone()).prop_map(Input);
        let outcome = runner.run(&inputs, |Input(input)| {
            target(&input);
            Ok(())
        });
        match outcome {
            Ok(()) => {}
            Err(TestError::Fail(reason, Input(input))) => panic!(
                "{}: {reason}, for the input b\"{}\"",
                self.folder.display(),
                input.escape_ascii()
            ),
            Err(TestError::Abort(reason)) => panic!("{}: {reason}", self.folder.display()),
        }
    }
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        // What is found belongs in the corpus.
        failure_persistence: None,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, panic, sync::Mutex};

    use super::*;

    fn corpus() -> Corpus {
        Corpus::of(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/example")).with_words(&["]"])
    }

    #[test]
    fn the_files_come_first_and_then_what_is_made_of_them() {
        let seen = Mutex::new(Vec::new());
        corpus().fuzz(|input| seen.lock().unwrap().push(input.to_vec()));
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen[0], b"[1, 2]\n");
        assert_eq!(seen.len(), 1 + FEW as usize);
        let mut different = seen.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > seen.len() / 2, "{}", different.len());
    }

    #[test]
    fn what_is_found_is_small_and_found_again() {
        let find = || {
            let found = panic::catch_unwind(|| {
                corpus().fuzz(|input| assert!(!input.windows(2).any(|two| two == b"]]"), "two of them"));
            });
            *found.unwrap_err().downcast::<String>().unwrap()
        };
        let found = find();
        assert!(found.contains("two of them") && found.contains("]]"), "{found}");
        assert!(found.len() < 250, "{found}");
        assert_eq!(found, find());
    }

    #[test]
    fn texts_are_made_of_all_bytes() {
        let odd = Cell::new(false);
        corpus().fuzz_text(|text| odd.set(odd.get() || text.contains('\u{fffd}')));
        assert!(odd.get());
    }
}
