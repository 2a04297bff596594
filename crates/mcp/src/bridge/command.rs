//! What the bridge runs: the command line of a stdio server.
//!
//! `uvx` is how the documentation of most servers from PyPI says to start them. Its plain form
//! (`uvx [--from PACKAGE] [--with PACKAGE] NAME[@VERSION] ARGUMENTS…`) is done here, with uv or with pip, so that
//! uv need not be installed and every session starts without a look at the index.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use super::config::COMMAND_VARIABLE;
use crate::packages::{self, PackageError};

const UVX: &str = "uvx";

/// A command, ready to be started any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    words: Vec<String>,
    /// Programs that are looked for here first.
    programs: Option<PathBuf>,
}

/// What is to be run, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// These words.
    Words(Vec<String>),
    /// A program of packages of PyPI.
    Python {
        requirements: Vec<String>,
        program: String,
        arguments: Vec<String>,
    },
}

/// A command line that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is none.
    #[error(
        "there is no command; write it behind two dashes (kaos serve bridge -- npx -y my-server), or in {COMMAND_VARIABLE}"
    )]
    Missing,
    /// There are two.
    #[error(
        "there are two commands, one on the command line and one in {COMMAND_VARIABLE}; remove one of them"
    )]
    Two,
    /// Quotes without an end.
    #[error("{COMMAND_VARIABLE}: {0:?} has a quote without an end; close it, or put a backslash before it")]
    Quote(String),
    /// `uvx` is asked for what only `uvx` can do.
    #[error(
        "uvx is not installed, and {option:?} cannot be done without it; install uv, or write \
         uvx [--from PACKAGE] [--with PACKAGE] NAME[@VERSION] ARGUMENTS…"
    )]
    NeedsUv {
        /// The option, or what is missing.
        option: String,
    },
}

impl Wanted {
    /// Reads a command line; `has_uv` says whether `uvx` is a program here.
    ///
    /// # Errors
    /// When it is empty, or asks `uvx` for what is not known here.
    pub(super) fn read(words: Vec<String>, has_uv: bool) -> Result<Self, CommandError> {
        match words.split_first() {
            None => Err(CommandError::Missing),
            Some((program, rest)) if program == UVX => match Self::uvx(rest) {
                // Its other options are its own.
                Err(CommandError::NeedsUv { .. }) if has_uv => Ok(Self::Words(words)),
                packages => packages,
            },
            Some(_) => Ok(Self::Words(words)),
        }
    }

    fn uvx(words: &[String]) -> Result<Self, CommandError> {
        let needs_uv = |option: &str| CommandError::NeedsUv {
            option: option.to_owned(),
        };
        let (mut from, mut with) = (None, Vec::new());
        let mut words = words.iter();
        let name = loop {
            let word = words.next().ok_or_else(|| needs_uv("no package"))?;
            let (option, inline) = match word.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            if !option.starts_with('-') {
                break word;
            }
            if !matches!(option, "--from" | "--with") {
                return Err(needs_uv(word));
            }
            let value = inline
                .or_else(|| words.next().cloned())
                .ok_or_else(|| needs_uv(word))?;
            if option == "--from" {
                from = Some(value);
            } else {
                with.push(value);
            }
        };
        let (program, requirement) = match (from, name.split_once('@')) {
            (Some(from), _) => (name.clone(), from),
            (None, None) => (name.clone(), name.clone()),
            (None, Some((name, "latest"))) => (name.to_owned(), name.to_owned()),
            (None, Some((name, version))) => (name.to_owned(), format!("{name}=={version}")),
        };
        // Extras belong to the package and not to its program.
        let program = program.split('[').next().unwrap_or_default().to_owned();
        let mut requirements = vec![requirement];
        requirements.extend(with);
        Ok(Self::Python {
            requirements,
            program,
            arguments: words.cloned().collect(),
        })
    }

    /// The command, its packages installed.
    ///
    /// # Errors
    /// When packages cannot be installed.
    pub(super) async fn prepare(self, settings: &packages::Settings) -> Result<Command, PackageError> {
        match self {
            Self::Words(words) => Ok(Command {
                words,
                programs: None,
            }),
            Self::Python {
                requirements,
                program,
                arguments,
            } => {
                let environment = packages::install(settings, &requirements).await?;
                let installed = environment.programs().join(&program);
                let path = |path: &Path| path.display().to_string();
                let module = program.replace('-', "_");
                // A package without a program may be one that `python -m` runs.
                let has_none = programs_in(&environment.programs()).is_empty();
                let mut words = if has_none && !installed.exists() {
                    vec![path(&environment.python()), "-m".to_owned(), module]
                } else {
                    vec![path(&installed)]
                };
                words.extend(arguments);
                Ok(Command {
                    words,
                    programs: Some(environment.programs()),
                })
            }
        }
    }
}

impl Command {
    /// The process, not started yet.
    pub(super) fn process(&self) -> tokio::process::Command {
        let (program, arguments) = self
            .words
            .split_first()
            .map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
        let mut process = tokio::process::Command::new(program);
        process.args(arguments);
        // It is not the server's, which would take our port.
        process.env_remove("KAOS_LISTEN");
        if let Some(programs) = &self.programs {
            process.env("PATH", in_front(programs));
        }
        process
    }

    /// Why it could not be started, with what to do.
    pub(super) fn not_started(&self, error: &io::Error) -> String {
        let program = self.words.first().map(String::as_str).unwrap_or_default();
        match (error.kind(), &self.programs) {
            (io::ErrorKind::NotFound, Some(programs)) => format!(
                "the package has no program {:?}; it has: {}; name one of them behind uvx --from PACKAGE",
                Path::new(program)
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy(),
                programs_in(programs).join(", ")
            ),
            (io::ErrorKind::NotFound, None) => format!(
                "{program:?} was not found: it is not in PATH or does not exist; install it, or write the path of the \
                 program"
            ),
            _ => format!("{program:?} cannot be started: {error}"),
        }
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

fn in_front(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    // A folder with a colon in its name is in no PATH.
    std::env::join_paths(folders).unwrap_or(path)
}

/// The programs that packages bring, without those of the environment itself.
fn programs_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = ["python", "pip", "activate", "Activate", "deactivate", "pydoc"];
    let mut names: Vec<String> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !own.iter().any(|own| name.starts_with(own)))
        .collect();
    names.sort_unstable();
    names
}

/// Words as a shell divides them, by spaces, quotes and backslashes, and nothing else of a shell.
///
/// # Errors
/// When a quote does not end.
pub(super) fn split(text: &str) -> Result<Vec<String>, CommandError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = characters
                    .next()
                    .ok_or_else(|| CommandError::Quote(text.to_owned()))?;
                let word = word.get_or_insert_default();
                // Within quotes a backslash is itself, but before what it can protect.
                if quote.is_some() && !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(CommandError::Quote(text.to_owned()));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &str) -> Vec<String> {
        words.split_whitespace().map(ToOwned::to_owned).collect()
    }

    fn python(requirements: &[&str], program: &str, arguments: &str) -> Wanted {
        Wanted::Python {
            requirements: requirements.iter().map(|&text| text.to_owned()).collect(),
            program: program.to_owned(),
            arguments: words(arguments),
        }
    }

    #[test]
    fn a_command_line_is_divided_as_a_shell_does() {
        for (text, expected) in [
            ("npx -y server", vec!["npx", "-y", "server"]),
            ("  a\n\tb  ", vec!["a", "b"]),
            (r#"a 'b c' "d e"f '' "#, vec!["a", "b c", "d ef", ""]),
            (r#"a\ b "c\"d\n" '\'"#, vec!["a b", "c\"d\\n", "\\"]),
            ("a $HOME | b; c", vec!["a", "$HOME", "|", "b;", "c"]),
        ] {
            assert_eq!(split(text).unwrap(), expected, "{text}");
        }
        for text in ["a 'b", "a \"b", "a\\"] {
            assert_eq!(split(text), Err(CommandError::Quote(text.to_owned())));
        }
    }

    #[test]
    fn the_plain_form_of_uvx_becomes_packages() {
        for (line, expected) in [
            (
                "uvx mcp-server-time",
                python(&["mcp-server-time"], "mcp-server-time", ""),
            ),
            (
                "uvx server@1.2 --port 3 --from x",
                python(&["server==1.2"], "server", "--port 3 --from x"),
            ),
            ("uvx server[cli]@latest", python(&["server[cli]"], "server", "")),
            (
                "uvx --from=package>=1 --with other program a",
                python(&["package>=1", "other"], "program", "a"),
            ),
        ] {
            assert_eq!(Wanted::read(words(line), false).unwrap(), expected, "{line}");
        }
        let of_its_own = words("uvx --offline a");
        assert_eq!(
            Wanted::read(of_its_own.clone(), true).unwrap(),
            Wanted::Words(of_its_own)
        );
        for line in ["uvx", "uvx --python 3.12 a", "uvx --from"] {
            let said = Wanted::read(words(line), false).unwrap_err().to_string();
            assert!(said.contains("install uv"), "{line}: {said}");
        }
        assert_eq!(Wanted::read(Vec::new(), false), Err(CommandError::Missing));
    }
}
