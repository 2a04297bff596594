//! When an Agent, ModelAPI or MCPServer may say that it is ready.

use kaos_perturb::{Key, World, surroundings};
use serde_json::Value;

/// Its Deployment runs the present template, and what it refers to is ready. A status of an older generation
/// says so itself, and promises nothing.
pub(crate) fn rule(object: &Value, world: &World) -> Result<(), String> {
    if !claims(object) {
        return Ok(());
    }
    let (status, spec, key) = (&object["status"], &object["spec"], Key::of(object));
    if status["phase"] != "Ready" {
        return Err(format!("its phase is {}", status["phase"]));
    }
    let conditions = status["conditions"].as_array();
    let said = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if !said {
        return Err("its condition Ready says otherwise".to_owned());
    }
    let name = format!("{}-{}", key.kind.to_lowercase(), key.name);
    let deployment = Key::new("Deployment", &key.namespace, &name);
    match world.get(&deployment) {
        None => return Err(format!("{deployment} is not there")),
        Some(deployment) if !surroundings::is_rolled_out(deployment) => {
            return Err(format!("{name} is not rolled out: {}", deployment["status"]));
        }
        Some(_) => {}
    }
    let names = |kind: &'static str, list: &Value| -> Vec<Key> {
        let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| Key::new(kind, &key.namespace, name)).collect()
    };
    let mut needs = names("MCPServer", &spec["mcpServers"]);
    needs.extend(names("Agent", &spec["agentNetwork"]["access"]));
    needs.extend(
        spec["modelAPI"]
            .as_str()
            .map(|name| Key::new("ModelAPI", &key.namespace, name)),
    );
    // One that does not wait is ready with its pods; only what it is told to use has to exist.
    let waits = spec["waitForDependencies"] != false;
    for need in needs {
        match world.get(&need) {
            None if waits || need.kind != "Agent" => return Err(format!("{need} is not there")),
            Some(found) if waits && !claims(found) => {
                return Err(format!("{need} is not ready: {}", found["status"]));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether it says that its present generation is ready.
fn claims(object: &Value) -> bool {
    let status = &object["status"];
    status["ready"] == true && status["observedGeneration"] == object["metadata"]["generation"]
}
