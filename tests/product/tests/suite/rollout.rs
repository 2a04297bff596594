//! An agent that is rolled over while it is talked to.

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, python};

/// Talks to a server, one chat after the other, until a file is there, or its folder is gone with a test that failed;
/// prints how many chats there were, and how each one went that did not go well. Every chat has a connection of its
/// own, as from a new user.
const TALK: &str = r#"
import http.client, json, os, sys, urllib.parse
url, stop, stream = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], sys.argv[3] == "streamed"
asked = json.dumps({"model": "any", "stream": stream,
                    "messages": [{"role": "user", "content": "What is 1234 times 5678?"}]})
count, failed = 0, []
while os.path.exists("talk.py") and not os.path.exists(stop):
    count += 1
    try:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        connection.request("POST", url.path + "/v1/chat/completions", asked, {"content-type": "application/json"})
        answer = connection.getresponse()
        body = answer.read().decode()
        whole = body.rstrip().endswith("[DONE]") if stream else True
        text = body
        if stream:
            frames = [line[6:] for line in body.splitlines() if line.startswith("data: {")]
            text = "".join(choice["delta"].get("content") or "" for frame in frames
                           for choice in json.loads(frame)["choices"])
        if answer.status != 200 or not whole or "7006652" not in text:
            failed.append(f"{answer.status} {body[-300:]}")
    except Exception as error:
        failed.append(repr(error))
print(json.dumps({"count": count, "failed": failed}))
"#;

#[test]
fn no_chat_fails_while_the_agent_is_rolled_over() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    let printed = up.ready()?;
    folder.write("talk.py", TALK)?;
    // The Service's own address, which `kaos up` prints for SDKs.
    let address = printed
        .split_whitespace()
        .filter_map(|word| word.strip_suffix("/v1"))
        .find(|word| word.starts_with("http://127.0.0.1:"))
        .with_context(|| format!("no address of the agent:\n{printed}"))?;
    let python = python();
    let talk = |kind: &str| {
        let mut command = folder.command(&python);
        command.args(["talk.py", address, "stop", kind]);
        command.stdout(std::process::Stdio::piped()).spawn()
    };
    let talking = [talk("whole")?, talk("streamed")?];
    for second in 1..=3 {
        // As `kubectl rollout restart` does it, which refuses to do it twice within a second.
        let time = format!("2026-01-01T00:00:0{second}Z");
        let patch = r#"{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"TIME"}}}}}"#
            .replace("TIME", &time);
        folder
            .kubectl(&["patch", "deployment/agent-assistant", "--patch", &patch])?
            .ok()?;
        folder
            .kubectl(&["rollout", "status", "deployment/agent-assistant", "--timeout=80s"])?
            .ok()?;
    }
    folder.write("stop", "")?;
    for child in talking {
        let said = String::from_utf8(child.wait_with_output()?.stdout)?;
        ensure!(said.contains("\"failed\": []"), "{said}");
        ensure!(!said.contains("\"count\": 0"), "{said}");
    }
    Ok(())
}
