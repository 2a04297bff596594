//! How the binary is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // At a fixed address, as Go's programs are: it needs no relocations. Those are 2 MB that every process reads
        // at its start, and 1 MB of pages that each then has for itself, and there is one process for each pod.
        // Stack, heap and libraries are where they are by chance as before.
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
