//! `kaos up` as people use it every day: several files, an env file, files that change, the background.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use kaos_product::Folder;

const VALUE: &str = "sk-value-that-nobody-may-see";

/// Waits until `holds`.
fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !holds()? {
        ensure!(
            begun.elapsed() < Duration::from_secs(90),
            "not after 90 s: {what}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The sample in three files of a folder, of which one is of a namespace that is not there yet.
fn project(folder: &Folder) -> Result<()> {
    let quickstart = fs::read_to_string(folder.path().join("samples/quickstart.yaml"))?;
    fs::create_dir(folder.path().join("agents"))?;
    let documents: Vec<&str> = quickstart.split("\n---\n").collect();
    for (name, document) in ["models", "tools", "assistant"].into_iter().zip(documents) {
        folder.write(&format!("agents/{name}.yaml"), document)?;
    }
    folder.write(
        "agents/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: elsewhere}\ndata: {a: b}\n",
    )?;
    Ok(())
}

fn chat(folder: &Folder, question: &str, part: &str) -> Result<()> {
    let said = folder.run("kaos", &["chat", "assistant", question])?.ok()?.stdout;
    ensure!(said.contains(part), "{said}");
    Ok(())
}

fn exists(folder: &Folder, arguments: &[&str]) -> Result<bool> {
    Ok(folder
        .kubectl(&[&["get", "-o", "name"], arguments].concat())?
        .status
        .success())
}

#[test]
fn what_is_in_no_file_any_more_is_listed_and_pruned_on_demand() -> Result<()> {
    let folder = Folder::new()?;
    project(&folder)?;
    let mut up = folder.up(&["agents", "samples/ollama.yaml"])?;
    let text = up.prints("agent/helper")?;
    ensure!(text.contains("namespace/elsewhere created"), "{text}");
    ensure!(exists(&folder, &["configmap", "settings", "-n", "elsewhere"])?);
    drop(up);

    fs::remove_file(folder.path().join("agents/settings.yaml"))?;
    let mut up = folder.up(&["agents"])?;
    // The agent of the file that is not given now waits for an Ollama that is not there: not all is ready.
    let text = up.prints("agent/helper is in none of these files")?;
    for gone in [
        "configmap/settings in elsewhere",
        "agent/helper",
        "modelapi/ollama",
    ] {
        let line = format!("{gone} is in none of these files");
        ensure!(text.contains(&line), "no {line:?} in:\n{text}");
    }
    ensure!(exists(&folder, &["agent", "helper"])?, "listed only");
    drop(up);

    let mut up = folder.up(&["--prune", "agents"])?;
    let text = up.ready()?;
    ensure!(text.contains("agent/helper pruned"), "{text}");
    for (kind, name, namespace) in [
        ("agent", "helper", "default"),
        ("configmap", "settings", "elsewhere"),
    ] {
        eventually("it is gone", || {
            Ok(!exists(&folder, &[kind, name, "-n", namespace])?)
        })?;
    }
    ensure!(
        exists(&folder, &["namespace", "elsewhere"])?,
        "what others live in stays"
    );
    chat(&folder, "What is 2 times 3?", "6")?;
    drop(up);

    let mut up = folder.up(&["agents"])?;
    let text = up.ready()?;
    ensure!(!text.contains("none of these files"), "{text}");
    Ok(())
}

#[test]
fn nothing_is_applied_where_one_file_is_refused_not_even_a_namespace() -> Result<()> {
    let folder = Folder::new()?;
    project(&folder)?;
    folder.write(
        "agents/zzz.yaml",
        "apiVersion: kaos.tools/v1alpha1\nkind: Agent\nmetadata: {name: z, namespace: elsewhere}\nspec: {model: x}\n",
    )?;
    let ended = folder.up(&["agents"])?.ended()?;
    ensure!(ended.status.code() == Some(3), "{ended:?}");
    ensure!(
        ended.stderr.contains("nothing was applied") && ended.stderr.contains("agents/zzz.yaml:4: agent/z: "),
        "{ended:?}"
    );
    let mut up = folder.up(&[])?;
    up.prints("API:")?;
    eventually("the namespace is gone again", || {
        Ok(!exists(&folder, &["namespace", "elsewhere"])?)
    })?;
    ensure!(!exists(&folder, &["agent", "assistant"])?);
    Ok(())
}

#[test]
fn an_env_file_is_a_secret_and_nothing_else() -> Result<()> {
    let folder = Folder::new()?;
    folder.write(".env", &format!("# keys\nMODEL_KEY='{VALUE}'\n"))?;
    let tools = "apiVersion: kaos.tools/v1alpha1\nkind: MCPServer\nmetadata: {name: keys}\nspec:\n  runtime: \
                 python-string\n  params: |\n    import os\n    def length() -> int:\n        \"\"\"The length of the \
                 key.\"\"\"\n        return len(os.environ['MODEL_KEY'])\n  container:\n    env:\n    - name: \
                 MODEL_KEY\n      valueFrom:\n        secretKeyRef: {name: kaos-env, key: MODEL_KEY}\n";
    folder.write("tools.yaml", tools)?;
    let mut up = folder.start(&[
        "--log",
        "debug",
        "up",
        "--watch",
        "--env-file",
        ".env",
        "tools.yaml",
    ])?;
    let text = up.ready()?;
    ensure!(text.contains("secret/kaos-env created"), "{text}");
    let key = ["get", "secret", "kaos-env", "-o", "jsonpath={.data.MODEL_KEY}"];
    ensure!(!folder.kubectl(&key)?.ok()?.stdout.is_empty());
    for process in up.processes() {
        ensure!(!process.command.contains(VALUE), "{process:?}");
    }
    let found = folder.shell(&format!(
        "grep -rl {VALUE} .kaos --include='*.log' --include='*.json'"
    ))?;
    ensure!(found.stdout.is_empty(), "{found:?}");

    // Who has a value as a variable gets the new one.
    folder.write(".env", "MODEL_KEY=another\n")?;
    let text = up.prints("deployment/mcpserver-keys restarted")?;
    ensure!(
        text.contains("secret/kaos-env configured") && !text.contains(VALUE),
        "{text}"
    );
    Ok(())
}

#[test]
fn files_are_followed_and_a_mistake_stops_nothing() -> Result<()> {
    let folder = Folder::new()?;
    project(&folder)?;
    let mut up = folder.up(&["--watch", "agents"])?;
    up.ready()?;
    let tools = fs::read_to_string(folder.path().join("agents/tools.yaml"))?;

    folder.write("agents/tools.yaml", &tools.replace("params:", "parms:"))?;
    let text = up.prints("what ran before the change goes on")?;
    ensure!(
        text.contains("agents/tools.yaml:") && text.contains("did you mean params?"),
        "{text}"
    );
    chat(&folder, "What is 2 times 3?", "6")?;

    let changed = tools
        .replace("return a * b", "return f\"{a * b} exactly\"")
        .replace("-> int:", "-> str:");
    folder.write("agents/tools.yaml", &changed)?;
    up.prints("mcpserver/calculator configured")?;
    eventually("the new tool answers", || {
        let said = folder.run("kaos", &["chat", "assistant", "What is 2 times 3?"])?;
        Ok(said.stdout.contains("6 exactly"))
    })?;

    fs::remove_file(folder.path().join("agents/settings.yaml"))?;
    up.prints("configmap/settings in elsewhere is in none of these files")?;
    Ok(())
}

/// Ends what runs in the background of a folder, also where the test fails.
struct Ended<'a>(&'a Folder);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let _ = self.0.run("kaos", &["down"]);
    }
}

#[test]
fn an_instance_in_the_background_is_ready_when_up_returns() -> Result<()> {
    let folder = Folder::new()?;
    let _ended = Ended(&folder);
    let up = folder
        .run("kaos", &["up", "--detach", "samples/quickstart.yaml"])?
        .ok()?;
    ensure!(
        up.stdout.contains("Ready in") && up.stderr.contains("goes on in the background"),
        "{up:?}"
    );
    chat(&folder, "What is 2 times 3?", "6")?;
    let status = folder.run("kaos", &["status", "-o", "json"])?.ok()?.stdout;
    ensure!(status.matches("\"ready\": true").count() == 3, "{status}");
    let again = folder.run("kaos", &["up", "--detach"])?;
    ensure!(
        again.status.code() == Some(1) && again.stderr.contains("in use by a running kaos"),
        "{again:?}"
    );
    folder.run("kaos", &["down"])?.ok()?;

    let refused = folder.write(
        "mine.yaml",
        "apiVersion: v1\nkind: Nothing\nmetadata: {name: a}\n",
    );
    let refused = refused.and_then(|_| folder.run("kaos", &["up", "--detach", "mine.yaml"]))?;
    ensure!(
        refused.status.code() == Some(3) && refused.stderr.contains("mine.yaml:2"),
        "{refused:?}"
    );
    let waits = folder.run(
        "kaos",
        &[
            "up",
            "--fresh",
            "--detach",
            "--timeout",
            "1",
            "samples/older/agent.yaml",
            "-n",
            "x",
        ],
    )?;
    // A second is not enough, or it is on a fast machine: either way it goes on.
    ensure!(matches!(waits.status.code(), Some(0 | 4)), "{waits:?}");
    folder.run("kaos", &["down"])?.ok()?;
    Ok(())
}

#[test]
fn fresh_begins_without_objects_and_keeps_the_way_in() -> Result<()> {
    let folder = Folder::new()?;
    project(&folder)?;
    folder.up(&["agents"])?.ready()?;
    let kubeconfig = fs::read_to_string(folder.path().join(".kaos/kubeconfig"))?;
    let mut up = folder.up(&["--fresh", "samples/older/tools.yaml"])?;
    let text = up.ready()?;
    ensure!(
        text.contains("mcpserver/calculator created") && !text.contains("none of these files"),
        "{text}"
    );
    ensure!(!exists(&folder, &["agent", "assistant"])?);
    ensure!(fs::read_to_string(folder.path().join(".kaos/kubeconfig"))? == kubeconfig);
    Ok(())
}

#[test]
fn two_projects_run_side_by_side_and_keep_their_ports() -> Result<()> {
    let (one, two) = (Folder::new()?, Folder::new()?);
    let gateway = |text: &str| {
        text.split("http://127.0.0.1:")
            .nth(1)
            .map(|rest| rest.split('/').next().map(str::to_owned))
    };
    let mut first = one.up(&["samples/quickstart.yaml"])?;
    let mut second = two.up(&["samples/quickstart.yaml"])?;
    let (first_port, second_port) = (gateway(&first.ready()?), gateway(&second.ready()?));
    ensure!(
        first_port.is_some() && first_port != second_port,
        "{first_port:?} {second_port:?}"
    );
    chat(&one, "What is 2 times 3?", "6")?;
    chat(&two, "What is 4 times 5?", "20")?;
    drop(first);
    drop(second);
    let mut second = two.up(&[])?;
    ensure!(gateway(&second.ready()?) == second_port);
    Ok(())
}

#[test]
fn a_folder_without_a_format_is_backed_up_and_a_newer_one_refused() -> Result<()> {
    let folder = Folder::new()?;
    folder.up(&["samples/quickstart.yaml"])?.ready()?;
    // What folders were before they had a number.
    fs::remove_file(folder.path().join(".kaos/format"))?;
    let mut up = folder.up(&[])?;
    let text = up.ready()?;
    ensure!(text.contains("backup-of-format-0"), "{text}");
    ensure!(folder.path().join(".kaos/backup-of-format-0/store.redb").exists());
    chat(&folder, "What is 2 times 3?", "6")?;
    drop(up);

    fs::write(folder.path().join(".kaos/format"), "7\n")?;
    let refused = folder.up(&[])?.ended()?.failed()?;
    ensure!(
        refused.contains("has format 7") && refused.contains("reads up to 1"),
        "{refused}"
    );
    Ok(())
}

#[test]
fn a_damaged_store_is_told_and_what_it_still_has_is_exported() -> Result<()> {
    let folder = Folder::new()?;
    let mut up = folder.up(&["samples/quickstart.yaml"])?;
    up.ready()?;
    for create in [
        &["create", "namespace", "team"][..],
        &[
            "-n",
            "team",
            "create",
            "secret",
            "generic",
            "key",
            "--from-literal=k=v",
        ],
    ] {
        folder.kubectl(create)?.ok()?;
    }
    let running = folder.run("kaos", &["export"])?.ok()?.stdout;
    drop(up);
    let exported = folder.run("kaos", &["export"])?.ok()?.stdout;
    ensure!(running == exported, "{running}\n{exported}");
    let kinds: Vec<&str> = exported
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .collect();
    ensure!(
        kinds
            == [
                "kind: Namespace",
                "kind: Secret",
                "kind: Agent",
                "kind: MCPServer",
                "kind: ModelAPI"
            ],
        "{exported}"
    );
    ensure!(
        !exported.contains("uid:") && !exported.contains("status:"),
        "{exported}"
    );

    let store = folder.path().join(".kaos/store.redb");
    let whole = fs::read(&store)?;
    // In all pages that have it: some are left over from earlier writes, and nobody reads them.
    let every = |text: &str| {
        let windows = whole.windows(text.len()).enumerate();
        let found: Vec<usize> = windows
            .filter(|(_, found)| *found == text.as_bytes())
            .map(|(at, _)| at)
            .collect();
        found
    };
    let mut zeroed = whole.clone();
    for at in every("\"name\":\"calculator\"") {
        let page = at / 4096 * 4096;
        zeroed[page..page + 4096].fill(0);
    }
    let mut flipped = whole.clone();
    for at in every("\"name\":\"team\"") {
        flipped[at + 9] ^= 1;
    }
    for damaged in [
        zeroed,
        whole[..whole.len() / 2].to_vec(),
        b"no store".to_vec(),
        flipped,
    ] {
        fs::write(&store, &damaged)?;
        let refused = folder.up(&[])?.ended()?.failed()?;
        for part in ["store.redb is damaged", "kaos export", "kaos up --fresh"] {
            ensure!(refused.contains(part), "no {part:?} in:\n{refused}");
        }
        fs::write(&store, &damaged)?;
        let output = folder.run("kaos", &["export"])?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(
            output.stderr.contains("is damaged") && output.stderr.contains("could be read"),
            "{output:?}"
        );
    }
    // Of the last one everything but a letter is there.
    let saved = folder.shell("kaos export > saved.yaml")?;
    ensure!(!saved.status.success(), "{saved:?}");
    let mut up = folder.up(&["--fresh", "saved.yaml"])?;
    up.ready()?;
    chat(&folder, "What is 2 times 3?", "6")?;
    Ok(())
}
