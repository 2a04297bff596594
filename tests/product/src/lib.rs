//! Drives the built `kaos` binary as a user does: a folder, a shell, a second terminal.
//!
//! The binary is `$KAOS_BIN`, or else the one beside the test's own build folder. kubectl is `$KUBECTL` or
//! the one on the path, Python with the client libraries `$KAOS_TEST_PYTHON`, the folder of those of Node.js
//! `$KAOS_TEST_NODE`; `cargo xtask test` sets all of them. Nothing is skipped where one of them is missing: the test fails and says what to set.

mod cluster;
mod instance;
mod processes;
mod role;

pub use cluster::Cluster;
pub use instance::{Folder, Output, Up};
pub use processes::{Process, descendants};
pub use role::Role;

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The binary under test.
///
/// # Panics
/// Where there is none.
pub fn kaos() -> PathBuf {
    let built = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("kaos"));
    let path = std::env::var_os("KAOS_BIN").map(PathBuf::from).or_else(built);
    match path.filter(|path| path.is_file()) {
        Some(path) => path,
        None => missing("the kaos binary", "KAOS_BIN", "cargo build -p kaos"),
    }
}

/// The kubectl to test with.
///
/// # Panics
/// Where there is none.
pub fn kubectl() -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || {
        std::env::split_paths(&paths)
            .map(|folder| folder.join("kubectl"))
            .find(|path| path.is_file())
    };
    match std::env::var_os("KUBECTL").map(PathBuf::from).or_else(on_path) {
        Some(path) => path,
        None => missing("kubectl", "KUBECTL", "cargo xtask test"),
    }
}

/// A Python that has the packages of `tests/product/requirements.txt`.
///
/// # Panics
/// Where there is none.
pub fn python() -> PathBuf {
    match std::env::var_os("KAOS_TEST_PYTHON").map(PathBuf::from) {
        Some(path) => path,
        None => missing(
            "a Python with the client libraries",
            "KAOS_TEST_PYTHON",
            "cargo xtask test",
        ),
    }
}

/// A folder whose `node_modules` has the packages of `tests/product/node`.
///
/// # Panics
/// Where there is none.
pub fn node_packages() -> PathBuf {
    match std::env::var_os("KAOS_TEST_NODE").map(PathBuf::from) {
        Some(path) => path,
        None => missing(
            "a folder with the client libraries of Node.js",
            "KAOS_TEST_NODE",
            "cargo xtask test",
        ),
    }
}

/// Where tool servers may keep what they install, so that it is downloaded once on a machine.
pub fn cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/kaos"));
    let given = std::env::var_os("KAOS_CACHE_DIR").map(PathBuf::from);
    given.or_else(home).unwrap_or_else(std::env::temp_dir)
}

#[allow(clippy::panic, reason = "a test that cannot run must fail, not pass")]
fn missing(what: &str, variable: &str, command: &str) -> ! {
    panic!("{what} is needed: set {variable}, or run this by `{command}`")
}
