//! Packages of PyPI for tools: installed once for each set of them, into a folder of the cache.
//!
//! The folder is named by what decides its content: the requirements, the interpreter, and whether uv or pip
//! installs. Whoever needs a set that is being installed waits for it; what an interrupted run left behind is
//! never taken for a result. uv installs where it is in `PATH`, else Python's own `venv` and pip; both read their
//! usual environment (`PIP_INDEX_URL`, `UV_INDEX_URL`, proxies, their own caches). Folders may be removed at any
//! time at which no tool runs from them.

pub(crate) mod script;

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::process::Command;

/// The Python interpreter, a path or a name in `PATH`; `python3` where unset.
pub const PYTHON_VARIABLE: &str = "KAOS_PYTHON";
/// The folder of everything that can be made again; `kaos` in `XDG_CACHE_HOME` or `~/.cache` where unset.
pub const CACHE_VARIABLE: &str = "KAOS_CACHE_DIR";

/// How long an installation may take.
const LIMIT: Duration = Duration::from_secs(900);
/// How often somebody else's installation is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// In a folder whose installation has ended well.
const COMPLETE: &str = ".complete";
/// How much of an installer's error is shown, in lines.
const SHOWN: usize = 12;

/// With what packages are installed, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Python interpreter.
    pub python: PathBuf,
    /// The folder of the cache.
    pub cache: PathBuf,
    /// The program `uv`, where there is one.
    pub uv: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_env(&BTreeMap::new())
    }
}

impl Settings {
    /// As the environment says, in which nothing is empty.
    pub(crate) fn from_env(variables: &BTreeMap<String, String>) -> Self {
        let path = |name: &str| variables.get(name).map(|value| PathBuf::from(value.trim()));
        let cache = path(CACHE_VARIABLE)
            .or_else(|| path("XDG_CACHE_HOME").map(|folder| folder.join("kaos")))
            .or_else(|| path("HOME").map(|home| home.join(".cache/kaos")));
        let uv = variables.get("PATH").and_then(|path| {
            let mut programs = std::env::split_paths(path).map(|folder| folder.join("uv"));
            programs.find(|program| program.is_file())
        });
        Self {
            python: path(PYTHON_VARIABLE).unwrap_or_else(|| PathBuf::from("python3")),
            cache: cache.unwrap_or_else(|| std::env::temp_dir().join("kaos-cache")),
            uv,
        }
    }
}

/// Why packages cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The interpreter cannot be run.
    #[error(
        "Python is needed for packages and cannot be started: {python:?}: {source}; install Python 3.9 or newer, or set \
         {PYTHON_VARIABLE} to its path"
    )]
    Python {
        /// The program.
        python: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The cache cannot be written.
    #[error(
        "packages cannot be installed into {folder:?}: {source}; set {CACHE_VARIABLE} to a folder that can be written"
    )]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The installer failed.
    #[error("{installer} cannot install {requirements}: {said}")]
    Install {
        /// `pip` or `uv`.
        installer: &'static str,
        /// What was to be installed.
        requirements: String,
        /// Its own error text.
        said: String,
    },
}

/// A folder with an interpreter and the packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment(PathBuf);

impl Environment {
    pub(crate) fn python(&self) -> PathBuf {
        self.programs().join("python")
    }

    /// The folder of the programs that the packages bring.
    pub(crate) fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    fn is_complete(&self) -> bool {
        // The interpreter is a link to one that may be gone.
        self.0.join(COMPLETE).exists() && self.python().exists()
    }
}

/// The interpreter's version and the file that it is.
pub(crate) async fn interpreter(python: &Path) -> Result<(String, String), PackageError> {
    let failed = |source| PackageError::Python {
        python: python.to_owned(),
        source,
    };
    let code =
        "import sys; print(sys.version.split()[0]); print(getattr(sys, '_base_executable', sys.executable))";
    let output = Command::new(python)
        .args(["-c", code])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().split_once('\n') {
        Some((version, file)) if output.status.success() => Ok((version.to_owned(), file.to_owned())),
        _ => Err(failed(io::Error::other(format!(
            "it ended with {}",
            output.status
        )))),
    }
}

/// The environment with these packages, installed now if it is not there.
///
/// # Errors
/// When there is no Python, no place, or the installer fails.
pub(crate) async fn install(
    settings: &Settings,
    requirements: &[String],
) -> Result<Environment, PackageError> {
    let (version, file) = interpreter(&settings.python).await?;
    let installer = if settings.uv.is_some() { "uv" } else { "pip" };
    let list = requirements.join("\n");
    let parent = settings.cache.join("packages");
    let environment = Environment(parent.join(hash(&[installer, &version, &file, &list])));
    if environment.is_complete() {
        return Ok(environment);
    }
    let failed = |source| PackageError::Cache {
        folder: parent.clone(),
        source,
    };
    tokio::fs::create_dir_all(&parent).await.map_err(failed)?;
    let lock = File::create(environment.0.with_extension("lock")).map_err(failed)?;
    let mut told = false;
    // Not a blocking lock: whoever waits must be able to stop.
    while let Err(error) = lock.try_lock() {
        if let TryLockError::Error(source) = error {
            return Err(failed(source));
        }
        if !std::mem::replace(&mut told, true) {
            tracing::info!(
                packages = requirements.join(", "),
                "another process installs these packages; waiting for it"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    if environment.is_complete() {
        return Ok(environment);
    }
    tracing::info!(packages = requirements.join(", "), folder = ?environment.0, "installing packages with {installer}");
    if environment.0.exists() {
        tokio::fs::remove_dir_all(&environment.0).await.map_err(failed)?;
    }
    let said = match tokio::time::timeout(LIMIT, make(settings, &environment, &list)).await {
        Ok(Ok(None)) => {
            tokio::fs::write(environment.0.join(COMPLETE), &list)
                .await
                .map_err(failed)?;
            tracing::info!("the packages are installed");
            return Ok(environment);
        }
        Ok(Ok(Some(said))) => said,
        Ok(Err(source)) => return Err(failed(source)),
        Err(_) => format!("it took longer than {} s", LIMIT.as_secs()),
    };
    // What is there of it is of no use to anybody.
    let _ = tokio::fs::remove_dir_all(&environment.0).await;
    Err(PackageError::Install {
        installer,
        requirements: requirements.join(", "),
        said,
    })
}

/// Fills the folder; what the installer said where it failed.
async fn make(settings: &Settings, environment: &Environment, list: &str) -> io::Result<Option<String>> {
    let make = match &settings.uv {
        Some(uv) => {
            let mut command = Command::new(uv);
            command
                .args(["venv", "--quiet", "--python"])
                .arg(&settings.python);
            command
        }
        None => {
            let mut command = Command::new(&settings.python);
            command.args(["-m", "venv"]);
            command
        }
    };
    if let Some(said) = run(make, Some(&environment.0)).await? {
        return Ok(Some(said));
    }
    let file = environment.0.join("requirements.txt");
    tokio::fs::write(&file, format!("{list}\n")).await?;
    let fill = match &settings.uv {
        Some(uv) => {
            let mut command = Command::new(uv);
            command
                .args(["pip", "install", "--quiet", "--python"])
                .arg(environment.python());
            command.arg("--requirement");
            command
        }
        None => {
            let mut command = Command::new(environment.python());
            command.args(["-m", "pip", "install", "--quiet", "--no-input"]);
            command.args(["--disable-pip-version-check", "--requirement"]);
            command
        }
    };
    run(fill, Some(&file)).await
}

/// Runs one step; what it said where it failed.
async fn run(mut command: Command, last: Option<&Path>) -> io::Result<Option<String>> {
    command.args(last).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await?;
    Ok((!output.status.success()).then(|| complaint(&output)))
}

/// The installer's own words: its lines that say ERROR, or else the last ones.
fn complaint(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let errors: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.trim_start().to_ascii_lowercase().starts_with("error"))
        .collect();
    let shown = if errors.is_empty() { lines } else { errors };
    let shown = &shown[shown.len().saturating_sub(SHOWN)..];
    if shown.is_empty() {
        output.status.to_string()
    } else {
        shown.join("\n")
    }
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::from_env(&variables.collect())
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        for (variables, cache) in [
            (
                &[("KAOS_CACHE_DIR", "/k"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")][..],
                "/k",
            ),
            (&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/kaos"),
            (&[("HOME", "/h")], "/h/.cache/kaos"),
        ] {
            assert_eq!(settings(variables).cache, Path::new(cache));
        }
    }

    #[test]
    fn a_set_of_packages_is_one_folder() {
        let of = |parts: &[&str]| hash(parts);
        assert_eq!(of(&["pip", "a"]), of(&["pip", "a"]));
        assert_ne!(of(&["pip", "a"]), of(&["pipa", ""]));
        assert_eq!(of(&["pip", "a"]).len(), 16);
    }

    #[test]
    fn the_installers_own_words_are_shown() {
        let output = |text: &str| Output {
            status: std::process::ExitStatus::default(),
            stdout: Vec::new(),
            stderr: text.as_bytes().to_vec(),
        };
        let pip =
            "Looking in links: /opt\nERROR: Could not find a version\nERROR: No matching distribution\n";
        assert_eq!(
            complaint(&output(pip)),
            "ERROR: Could not find a version\nERROR: No matching distribution"
        );
        let uv = "  × No solution found when resolving dependencies:\n  ╰─▶ Because x was not found\n";
        assert_eq!(complaint(&output(uv)), uv.trim_end());
    }

    #[tokio::test]
    async fn two_that_want_the_same_make_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        // A Python whose environments are folders, and whose pip takes its time and notes each run.
        let python = folder.path().join("python3");
        let script = format!(
            "#!/bin/sh\ncase \"$2\" in\nvenv) mkdir -p \"$3/bin\" && cp \"$0\" \"$3/bin/python\";;\n\
             pip) echo run >> {made:?}; sleep 0.5;;\n*) echo 3.12.0; echo /python;;\nesac\n"
        );
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let settings = Settings {
            python,
            cache: folder.path().join("cache"),
            uv: None,
        };
        let list = ["a==1".to_owned()];
        let (one, two) = tokio::join!(install(&settings, &list), install(&settings, &list));
        assert_eq!(one.unwrap(), two.unwrap());
        let third = install(&settings, &list).await.unwrap();
        assert_eq!(std::fs::read_to_string(&made).unwrap(), "run\n");
        // What was not finished is made anew.
        std::fs::remove_file(third.0.join(COMPLETE)).unwrap();
        install(&settings, &list).await.unwrap();
        assert_eq!(std::fs::read_to_string(&made).unwrap(), "run\nrun\n");
    }
}
