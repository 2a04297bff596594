//! Prints `src/definitions.json` as the types have it, for `cargo xtask generate`: a definition a line.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let lines: Vec<String> = kaos_api::derived_crds()
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<_, _>>()?;
    writeln!(io::stdout(), "[\n{}\n]", lines.join(",\n"))
}
