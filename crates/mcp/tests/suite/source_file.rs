//! Tools from a file, which changes while they are served.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use kaos_mcp::server::ToolServerConfig;
use serde_json::json;

use crate::common::{LONG, Served, object};

/// Changes a file as the kubelet changes a mounted Secret: another folder, and a symbolic link that is turned.
fn write(folder: &Path, revision: u32, source: &str) {
    let of_revision = format!("revision-{revision}");
    fs::create_dir(folder.join(&of_revision)).unwrap();
    fs::write(folder.join(&of_revision).join("tools.py"), source).unwrap();
    symlink(&of_revision, folder.join("new")).unwrap();
    fs::rename(folder.join("new"), folder.join("data")).unwrap();
}

async fn until_listed(served: &Served, tool: &str) {
    let listed = async {
        loop {
            let tools = served.client.list_tools(LONG).await.unwrap();
            if tools.iter().map(|listed| listed.name.as_str()).eq([tool]) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, listed)
        .await
        .expect("the file is read again");
}

async fn until_there(path: &Path) {
    let there = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, there).await.expect("the file appears");
}

#[tokio::test]
async fn a_changed_file_brings_other_tools_and_what_runs_ends_first() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("go on");
    write(
        folder.path(),
        1,
        r#"
import os, time

def wait(mark: str) -> str:
    open(mark + ".begun", "w").close()
    while not os.path.exists(mark):
        time.sleep(0.01)
    return "the first"
"#,
    );
    let config = ToolServerConfig::from_file(folder.path().join("data/tools.py"));
    let served = Served::with(config, "127.0.0.1:0").await;
    until_listed(&served, "wait").await;

    let arguments = object(json!({ "mark": mark }));
    let running = served.client.call_tool("wait", arguments, LONG);
    let change = async {
        until_there(&folder.path().join("go on.begun")).await;
        // Broken, then good: the broken one was tried and has changed nothing.
        let tried = folder.path().join("tried");
        let broken = format!("open({tried:?}, 'w').close()\nraise ValueError('broken')\n");
        write(folder.path(), 2, &broken);
        until_there(&tried).await;
        until_listed(&served, "wait").await;
        write(
            folder.path(),
            3,
            "def second() -> str:\n    return 'the second'\n",
        );
        until_listed(&served, "second").await;
        assert_eq!(served.text("second", json!({})).await, "the second");
        fs::write(&mark, "").unwrap();
    };
    let (answer, ()) = tokio::join!(running, change);
    assert_eq!(answer.unwrap().text, "the first");
    served.end().await;
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named_with_its_variable() {
    let config = ToolServerConfig::from_file("/no/such/tools.py");
    let seams = kaos_seams::Seams::system();
    let Err(error) = kaos_mcp::server::ToolServer::load(config, seams).await else {
        panic!("there is no such file");
    };
    let error = error.to_string();
    for part in ["MCP_TOOLS_FILE", "/no/such/tools.py", "mount a file"] {
        assert!(error.contains(part), "{error}");
    }
}
