//! Models that are programs of this machine: Ollama from the PATH, and LiteLLM's image.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, Up, python};

/// What the model of the tests says.
const WORDS: &str = "Straight from the llama";

/// Speaks as much of Ollama's API as a hosted model needs. It has no model until it is told to pull one.
const OLLAMA: &str = r#"#!PYTHON
import http.server, json, os, sys
if sys.argv[1:] != ["serve"]:
    sys.exit(f"unknown arguments {sys.argv[1:]}")
host, port = os.environ["OLLAMA_HOST"].split(":")
store = os.path.join(os.environ["OLLAMA_MODELS"], "pulled")
os.makedirs(os.path.dirname(store), exist_ok=True)

class Ollama(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, body, kind="application/json"):
        body = body.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/api/tags":
            names = open(store).read().split() if os.path.exists(store) else []
            return self.say(json.dumps({"models": [{"name": name, "model": name} for name in names]}))
        self.say("Ollama is running", "text/plain")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/api/pull":
            with open(store, "a") as models:
                models.write((asked.get("model") or asked["name"]) + "\n")
            return self.say('{"status":"pulling manifest"}\n{"status":"success"}\n', "application/x-ndjson")
        answer = {"role": "assistant", "content": "WORDS"}
        if asked.get("stream"):
            chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": asked["model"]}
            first = {**chunk, "choices": [{"index": 0, "delta": answer, "finish_reason": None}]}
            last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            frames = "".join(f"data: {json.dumps(frame)}\n\n" for frame in (first, last))
            return self.say(frames + "data: [DONE]\n\n", "text/event-stream")
        self.say(json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": asked["model"],
            "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}))

    def log_message(self, *arguments):
        pass

http.server.ThreadingHTTPServer((host, int(port)), Ollama).serve_forever()
"#;

const HOSTED: &str = "
apiVersion: kaos.tools/v1alpha1
kind: ModelAPI
metadata: {name: llama}
spec:
  mode: Hosted
  hostedConfig: {model: 'smollm2:135m'}
---
apiVersion: kaos.tools/v1alpha1
kind: Agent
metadata: {name: herder}
spec: {modelAPI: llama, model: 'smollm2:135m'}
";

/// A proxy as it is written for a cluster, whose image is LiteLLM's.
const PROXY: &str = "
apiVersion: kaos.tools/v1alpha1
kind: ModelAPI
metadata: {name: front}
spec:
  mode: Proxy
  proxyConfig:
    models: ['openai/*']
    apiBase: http://modelapi-llama.default.svc.cluster.local:11434/v1
---
apiVersion: kaos.tools/v1alpha1
kind: Agent
metadata: {name: caller}
spec: {modelAPI: front, model: openai/smollm2}
";

/// Puts the program where the instance of this folder looks for programs.
fn install_ollama(folder: &Folder) -> Result<()> {
    let python = python();
    let python = python.to_str().context("a path that is no text")?;
    let program = folder.write(
        "bin/ollama",
        &OLLAMA.replace("PYTHON", python).replace("WORDS", WORDS),
    )?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// `kaos up` with `bin` of the folder on its path.
fn up(folder: &Folder, arguments: &[&str]) -> Result<Up> {
    let bin = folder.path().join("bin");
    fs::create_dir_all(&bin)?;
    let kaos = kaos_product::kaos();
    let beside = kaos.parent().context("a binary without a folder")?;
    let path = std::env::join_paths([bin.as_path(), beside, "/usr/bin".as_ref(), "/bin".as_ref()])?;
    let path = path.to_str().context("a path that is no text")?.to_owned();
    folder.start_with(&[&["up"], arguments].concat(), &[("PATH", &path)])
}

fn answers(folder: &Folder, agent: &str) -> Result<()> {
    let answer = folder.run("kaos", &["chat", agent, "Hello"])?.ok()?;
    ensure!(answer.stdout.contains(WORDS), "{answer:?}");
    Ok(())
}

#[test]
fn a_hosted_model_waits_for_ollama_and_answers_when_it_is_installed() -> Result<()> {
    let folder = Folder::new()?;
    folder.write("hosted.yaml", HOSTED)?;
    let mut up = up(&folder, &["hosted.yaml"])?;
    up.prints("modelapi/llama created")?;
    folder
        .kubectl(&[
            "wait",
            "--for=create",
            "pod",
            "-l",
            "modelapi=llama",
            "--timeout=60s",
        ])?
        .ok()?;
    let reason = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImageNeverPull";
    folder
        .kubectl(&["wait", reason, "pod", "-l", "modelapi=llama", "--timeout=60s"])?
        .ok()?;
    let message = "jsonpath={.items[0].status.containerStatuses[0].state.waiting.message}";
    let message = folder
        .kubectl(&["get", "pods", "-l", "modelapi=llama", "-o", message])?
        .ok()?
        .stdout;
    ensure!(
        message.contains("install it from https://ollama.com/download"),
        "{message}"
    );

    install_ollama(&folder)?;
    up.ready()?;
    answers(&folder, "herder")
}

#[test]
fn a_proxy_of_litellm_is_served_by_this_program() -> Result<()> {
    let folder = Folder::new()?;
    folder.write("hosted.yaml", HOSTED)?;
    folder.write("proxy.yaml", PROXY)?;
    fs::create_dir_all(folder.path().join("bin"))?;
    install_ollama(&folder)?;
    let mut up = up(&folder, &["hosted.yaml", "proxy.yaml"])?;
    up.ready()?;
    let image = folder
        .kubectl(&["get", "deployment", "modelapi-front", "-o", "jsonpath={..image}"])?
        .ok()?
        .stdout;
    ensure!(image.contains("litellm"), "{image}");
    answers(&folder, "caller")
}
