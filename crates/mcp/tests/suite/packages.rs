//! Packages that the source names, installed by the machine's own Python from a wheel that is made here.

use std::{path::Path, process::Command};

use kaos_mcp::server::{ToolServer, ToolServerConfig};
use kaos_seams::Seams;
use serde_json::json;

use crate::common::Served;

/// A wheel is an archive of modules and three files that describe it.
const MAKE_WHEEL: &str = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/kaos_example-1.0-py3-none-any.whl", "w") as wheel:
    info = "kaos_example-1.0.dist-info/"
    wheel.writestr("kaos_example.py", "def shout(text): return text.upper() + '!'\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: kaos-example\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "".join(f"{name},,\n" for name in wheel.namelist()))
"#;

/// The requirement of the wheel in `folder`.
fn wheel(folder: &Path) -> String {
    let made = Command::new("python3")
        .args(["-c", MAKE_WHEEL])
        .arg(folder)
        .status()
        .unwrap();
    assert!(made.success());
    format!(
        "kaos-example @ file://{}/kaos_example-1.0-py3-none-any.whl",
        folder.display()
    )
}

fn source(metadata: &str) -> String {
    format!(
        "# /// script\n{metadata}\n# ///\nimport kaos_example\n\ndef shout(text: str) -> str:\n    return kaos_example.shout(text)\n"
    )
}

fn config(source: &str, folder: &Path) -> ToolServerConfig {
    let mut config = ToolServerConfig::new(source);
    config.workers = 1;
    config.packages.cache = folder.join("cache");
    config.packages.uv = None;
    config
}

async fn refused(config: ToolServerConfig) -> String {
    match ToolServer::load(config, Seams::system()).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it is served"),
    }
}

#[tokio::test]
async fn what_the_source_names_is_installed_once_and_imported() {
    let folder = tempfile::tempdir().unwrap();
    let requirement = wheel(folder.path());
    let of_script = source(&format!("# dependencies = [\"{requirement}\"]"));
    let served = Served::with(config(&of_script, folder.path()), "127.0.0.1:0").await;
    assert_eq!(served.text("shout", json!({"text": "a"})).await, "A!");
    served.end().await;

    // The wheel is gone; what is installed is not. The other way to name it is the same set.
    std::fs::remove_file(folder.path().join("kaos_example-1.0-py3-none-any.whl")).unwrap();
    let mut config = config(&source("# dependencies = []"), folder.path());
    config.requirements = vec![requirement];
    let served = Served::with(config, "127.0.0.1:0").await;
    assert_eq!(served.text("shout", json!({"text": "b"})).await, "B!");
    served.end().await;
}

#[tokio::test]
async fn what_cannot_be_installed_is_told_in_the_installers_words() {
    let folder = tempfile::tempdir().unwrap();
    let absent = format!(
        "kaos-example @ file://{}/absent-1.0-py3-none-any.whl",
        folder.path().display()
    );
    let of_script = source(&format!("# dependencies = [\"{absent}\"]"));
    let said = refused(config(&of_script, folder.path())).await;
    assert!(
        said.starts_with(&format!(
            "the tools cannot be loaded: MCP_TOOLS_STRING: pip cannot install {absent}: ERROR: "
        )) && said.contains("No such file or directory"),
        "{said}"
    );
    let rest: Vec<_> = std::fs::read_dir(folder.path().join("cache/packages"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_cache_that_cannot_be_written_and_a_python_that_does_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut config = config(&source("# dependencies = [\"a\"]"), folder.path());
    config.packages.cache = file.clone();
    let said = refused(config.clone()).await;
    assert!(
        said.contains("set KAOS_CACHE_DIR to a folder that can be written"),
        "{said}"
    );

    config.source = kaos_mcp::server::Source::Text(source("# requires-python = \">=4\""));
    let said = refused(config.clone()).await;
    assert!(
        said.starts_with(
            "the tools cannot be loaded: MCP_TOOLS_STRING requires Python >=4, and \"python3\" is Python 3."
        ),
        "{said}"
    );

    config.source = kaos_mcp::server::Source::Text(source("# dependencies = [a]"));
    let said = refused(config).await;
    assert!(
        said.starts_with(
            "the tools cannot be loaded: MCP_TOOLS_STRING, line 2: the script metadata cannot be read"
        ),
        "{said}"
    );
}
