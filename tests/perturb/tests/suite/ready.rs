//! When an Agent, ModelAPI or MCPServer may say that it is ready.

use kaos_api::names::Kind;
use kaos_perturb::{Key, World, surroundings};
use serde_json::Value;

/// Its Deployment runs the present template, and what it refers to is ready. Where it says that the Gateway has taken
/// its route, that is so. A status of an older generation says so itself, and promises nothing.
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
    route(object, &key, world)
}

/// Its route is there, and the Gateway has taken it as it is, where the object says so.
fn route(object: &Value, key: &Key, world: &World) -> Result<(), String> {
    let is_true = |conditions: &Value, type_: &str, generation: &Value| {
        let mut conditions = conditions.as_array().into_iter().flatten();
        conditions.any(|condition| {
            condition["type"] == type_
                && condition["status"] == "True"
                && condition["observedGeneration"] == *generation
        })
    };
    let generation = &object["metadata"]["generation"];
    if !is_true(&object["status"]["conditions"], "RouteAccepted", generation) {
        return Ok(());
    }
    let kind = match key.kind.as_str() {
        "Agent" => Kind::Agent,
        "ModelAPI" => Kind::ModelApi,
        _ => Kind::McpServer,
    };
    let key = Key::new("HTTPRoute", &key.namespace, &kind.route(&key.name));
    let Some(route) = world.get(&key) else {
        return Err(format!("{key} is not there, which it says is accepted"));
    };
    let (said, generation) = (&route["status"]["parents"][0], &route["metadata"]["generation"]);
    let mut needed = ["Accepted", "ResolvedRefs"].into_iter();
    match needed.find(|type_| !is_true(&said["conditions"], type_, generation)) {
        Some(type_) => Err(format!("{type_} of {key} is not True: {said}")),
        None => Ok(()),
    }
}

/// Whether it says that its present generation is ready.
fn claims(object: &Value) -> bool {
    let status = &object["status"];
    status["ready"] == true && status["observedGeneration"] == object["metadata"]["generation"]
}
