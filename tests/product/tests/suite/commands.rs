//! The commands that need no running instance: validate, render, convert, doctor, completions.

use std::fs;

use anyhow::{Context, Result, ensure};
use kaos_product::{Folder, repository};

/// The samples that are there to be run, and those of older forms.
fn samples(folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository().join(folder))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .context("a name")?;
            found.push(format!("{folder}/{name}"));
        }
    }
    found.sort();
    ensure!(!found.is_empty());
    Ok(found)
}

#[test]
fn every_sample_is_valid_and_warns_of_nothing_but_its_key() -> Result<()> {
    let folder = Folder::new()?;
    for sample in samples("samples")? {
        let output = folder.run("kaos", &["validate", &sample])?.ok()?;
        for line in output.stdout.lines() {
            ensure!(
                line.contains("warning: ") && line.contains("kaos-env"),
                "{sample}: {output:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn what_an_older_sample_becomes_is_the_same_after_its_conversion() -> Result<()> {
    let folder = Folder::new()?;
    for sample in samples("samples/older")? {
        let convert = folder.run("kaos", &["convert", &sample])?.ok()?;
        ensure!(
            convert.stderr.contains(" today"),
            "{sample} is not older: {convert:?}"
        );
        folder.write("today.yaml", &convert.stdout)?;
        let again = folder.run("kaos", &["convert", "today.yaml"])?.ok()?;
        ensure!(
            again.stdout == convert.stdout && again.stderr.is_empty(),
            "{again:?}"
        );
        let today = folder
            .run("kaos", &["render", "-o", "json", "today.yaml"])?
            .ok()?
            .stdout;
        if sample.ends_with("config-yaml.yaml") {
            // The one form that the API does not take any more.
            let refused = folder.run("kaos", &["validate", &sample])?;
            let fix =
                "an older spelling of spec.proxyConfig.configYaml.fromString, which `kaos convert` rewrites";
            ensure!(refused.stdout.contains(fix), "{refused:?}");
            continue;
        }
        let before = folder
            .run("kaos", &["render", "-o", "json", &sample])?
            .ok()?
            .stdout;
        ensure!(before == today, "{sample}:\n{before}\n{today}");
    }
    Ok(())
}

#[test]
fn converted_files_are_written_in_place() -> Result<()> {
    let folder = Folder::new()?;
    let file = folder.path().join("samples/older/config-yaml.yaml");
    let before = fs::read_to_string(&file)?;
    folder
        .run("kaos", &["convert", "--write", "samples/older"])?
        .ok()?;
    ensure!(fs::read_to_string(&file)? != before);
    folder
        .run("kaos", &["validate", "samples/older/config-yaml.yaml"])?
        .ok()?;
    let names: Vec<_> = fs::read_dir(folder.path().join("samples/older"))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    ensure!(names.iter().all(|name| name.ends_with(".yaml")), "{names:?}");
    Ok(())
}

const MISTAKES: &str = "\
apiVersion: kaos.tools/v1alpha1
kind: Agent
metadata:
  name: lost
spec:
  modelAPI: absent
  model: m
---
apiVersion: kaos.tools/v1alpha1
kind: ModelAPI
metadata:
  name: models
spec:
  mode: Proxy
  proxyConfig:
    runtime: Native
    provider: openai
    apiBase: https://api.openai.com/v1
    apiKey:
      valueFrom:
        secretKeyRef:
          name: openai
          key: api-key
    models: [gpt-5-mini]
---
apiVersion: kaos.tools/v1alpha1
kind: Agent
metadata:
  name: wrong
spec:
  modelAPI: models
  model: gpt-4
";

#[test]
fn references_are_checked_with_file_line_and_fix() -> Result<()> {
    let folder = Folder::new()?;
    folder.write("mine.yaml", MISTAKES)?;
    let output = folder.run("kaos", &["validate", "mine.yaml"])?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    for part in [
        "mine.yaml:6: agent/lost: ",
        "\"absent\" not found; create it, or change spec.modelAPI",
        "mine.yaml:21: warning: modelapi/models: ",
        "Secret openai is not among these files",
        "mine.yaml:32: agent/wrong: ",
        "gpt-4",
    ] {
        ensure!(output.stdout.contains(part), "no {part:?} in:\n{}", output.stdout);
    }
    ensure!(
        output.stderr.contains("3 objects: 2 errors, 1 warning"),
        "{output:?}"
    );
    let json = folder
        .run("kaos", &["validate", "-o", "json", "mine.yaml"])?
        .stdout;
    for part in [
        "\"severity\": \"error\"",
        "\"line\": 6",
        "\"field\": \"spec.modelAPI\"",
    ] {
        ensure!(json.contains(part), "no {part:?} in:\n{json}");
    }
    Ok(())
}

#[test]
fn every_mistake_of_every_file_is_told_at_once() -> Result<()> {
    let folder = Folder::new()?;
    fs::create_dir(folder.path().join("mine"))?;
    folder.write(
        "mine/a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a\n",
    )?;
    folder.write(
        "mine/b.yaml",
        "apiVersion: kaos.tools/v1alpha1\nkind: Agent\nmetadata:\n  name: b\nspec:\n  modelAPI: m\n  modle: x\n  \
         config:\n    reasoningLoopMaxSteps: 99\n",
    )?;
    folder.write("mine/c.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {}\n")?;
    let output = folder.run("kaos", &["validate", "mine"])?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    for part in [
        "mine/a.yaml:",
        "not valid YAML",
        "mine/b.yaml:7: agent/b: unknown field spec.modle; did you mean model?",
        "mine/c.yaml:1: ConfigMap has no metadata.name",
    ] {
        ensure!(output.stdout.contains(part), "no {part:?} in:\n{}", output.stdout);
    }
    folder.write(
        "mine/b.yaml",
        "apiVersion: kaos.tools/v1alpha1\nkind: Agent\nmetadata:\n  name: b\nspec:\n  modelAPI: m\n  model: x\n  \
         config:\n    reasoningLoopMaxSteps: 99\n",
    )?;
    let output = folder.run("kaos", &["validate", "mine/b.yaml"])?;
    ensure!(
        output
            .stdout
            .contains("mine/b.yaml:9: agent/b: spec.config.reasoningLoopMaxSteps: Invalid value: 99"),
        "{output:?}"
    );
    let absent = folder.run("kaos", &["validate", "absent.yaml"])?;
    ensure!(
        absent.status.code() == Some(3) && absent.stdout.contains("absent.yaml: "),
        "{absent:?}"
    );
    Ok(())
}

#[test]
fn a_manifest_is_rendered_as_what_kubectl_reads() -> Result<()> {
    let folder = Folder::new()?;
    let yaml = folder
        .run("kaos", &["render", "samples/quickstart.yaml"])?
        .ok()?
        .stdout;
    for part in [
        "# agent/assistant of samples/quickstart.yaml:",
        "kind: Deployment",
        "kind: Service",
        "kind: HTTPRoute",
        "name: agent-assistant",
        "name: litellm-config-models",
    ] {
        ensure!(yaml.contains(part), "no {part:?} in:\n{yaml}");
    }
    for absent in [
        "uid:",
        "resourceVersion:",
        "creationTimestamp:",
        "\nstatus:",
        "clusterIP:",
    ] {
        ensure!(!yaml.contains(absent), "{absent:?} in:\n{yaml}");
    }
    let again = folder
        .run("kaos", &["render", "samples/quickstart.yaml"])?
        .ok()?
        .stdout;
    ensure!(again == yaml, "each time the same");
    let refused = folder
        .write("mine.yaml", MISTAKES)
        .and_then(|_| folder.run("kaos", &["render", "mine.yaml"]))?;
    ensure!(
        refused.status.code() == Some(3) && refused.stdout.is_empty(),
        "{refused:?}"
    );
    ensure!(refused.stderr.contains("mine.yaml:6: agent/lost"), "{refused:?}");
    Ok(())
}

#[test]
fn doctor_looks_at_what_local_mode_needs() -> Result<()> {
    let folder = Folder::new()?;
    let healthy = folder.run("kaos", &["doctor"])?.ok()?.stdout;
    for part in ["python", "data folder", "gateway port", "`kaos up` makes it"] {
        ensure!(healthy.contains(part), "no {part:?} in:\n{healthy}");
    }
    ensure!(!folder.path().join(".kaos").exists(), "a look changes nothing");

    let without = folder.shell("KAOS_PYTHON=/absent/python3 kaos doctor")?;
    ensure!(without.status.code() == Some(1), "{without:?}");
    ensure!(
        without.stdout.contains("FAILED") && without.stdout.contains("KAOS_PYTHON"),
        "{without:?}"
    );

    fs::create_dir(folder.path().join(".kaos"))?;
    folder.write(".kaos/store.redb", "this is no store")?;
    let damaged = folder.run("kaos", &["doctor", "-o", "json"])?;
    ensure!(damaged.status.code() == Some(1), "{damaged:?}");
    ensure!(
        damaged.stdout.contains("--fresh") && damaged.stdout.contains("\"failed\""),
        "{damaged:?}"
    );
    ensure!(
        fs::read_to_string(folder.path().join(".kaos/store.redb"))? == "this is no store",
        "a look changes nothing"
    );

    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    drop(listener);
    let openai = fs::read_to_string(folder.path().join("samples/openai.yaml"))?;
    let nobody = openai.replace(
        "https://api.openai.com/v1",
        &format!("http://127.0.0.1:{port}/v1"),
    );
    folder.write("nobody.yaml", &nobody)?;
    let unreachable = folder.run("kaos", &["doctor", "nobody.yaml"])?;
    ensure!(
        unreachable.stdout.contains("provider of modelapi/openai")
            && unreachable.stdout.contains("cannot be reached"),
        "{unreachable:?}"
    );
    Ok(())
}

#[test]
fn shells_take_their_completions() -> Result<()> {
    let folder = Folder::new()?;
    let checked = folder.run(
        "bash",
        &[
            "-c",
            "source <(kaos completions bash) && complete -p kaos && COMP_WORDS=(kaos val) COMP_CWORD=1 && \
                 _kaos kaos val kaos && echo \"${COMPREPLY[@]}\"",
        ],
    )?;
    ensure!(checked.ok()?.stdout.contains("validate"));
    for shell in ["zsh", "fish"] {
        ensure!(
            folder
                .run("kaos", &["completions", shell])?
                .ok()?
                .stdout
                .contains("validate")
        );
    }
    Ok(())
}

#[test]
fn exit_codes_are_those_of_the_reference() -> Result<()> {
    let folder = Folder::new()?;
    folder.write("mine.yaml", MISTAKES)?;
    folder.write("broken.yaml", "a: [\n")?;
    for (arguments, code) in [
        (&["version"][..], 0),
        (&["logs"], 2),
        (&["up", "--prune"], 2),
        (&["up", "broken.yaml"], 3),
        (&["validate", "mine.yaml"], 3),
        (&["status"], 5),
        (&["--data-dir", "absent", "status"], 5),
    ] {
        let output = folder.run("kaos", arguments)?;
        ensure!(output.status.code() == Some(code), "{arguments:?}: {output:?}");
    }
    Ok(())
}
