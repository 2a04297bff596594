//! What converged is left in peace.

use kaos_testkit::Sent;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::world::{World, condition, mock};

const RESOURCES: [(&str, &str); 3] = [
    ("modelapis", "models"),
    ("mcpservers", "tools"),
    ("agents", "sam"),
];

/// One resource of each kind, with much in forms that a server keeps differently from what it was sent.
async fn converged() -> World {
    let world = World::start().await;
    let resources = json!({
        "requests": {"cpu": "0.5", "memory": "1024Mi"},
        "limits": {"cpu": "1000m", "memory": "1.5Gi"},
    });
    let variables = json!([
        {"name": "EMPTY", "value": ""},
        {"name": "NAMED", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k", "optional": true}}},
    ]);
    let container = json!({"env": variables, "resources": resources});
    let mut models = mock(&["m"]);
    models["container"] = container.clone();
    models["podSpec"] = pod_spec("model-api");
    world.spec("modelapis", "models", models).await;
    let tools =
        json!({"runtime": "plain", "container": container.clone(), "podSpec": pod_spec("mcp-server")});
    world.spec("mcpservers", "tools", tools).await;
    let sam = json!({
        "modelAPI": "models", "model": "m", "mcpServers": ["tools"], "container": container,
        "podSpec": pod_spec("agent"),
    });
    world.spec("agents", "sam", sam).await;
    for (plural, name) in RESOURCES {
        world.ready(plural, name).await;
        // A Deployment says so a moment after its pods are available, and the status repeats it.
        world
            .until(
                "its Deployment says that the rollout is complete",
                plural,
                name,
                |object| {
                    let conditions = object["status"]["deployment"]["conditions"].as_array();
                    conditions
                        .into_iter()
                        .flatten()
                        .any(|condition| condition["reason"] == "NewReplicaSetAvailable")
                },
            )
            .await;
    }
    // The last thing that is said of a resource.
    world
        .until("nobody answers for the tools", "mcpservers", "tools", |object| {
            condition(object, "ToolsListed")["status"] == "False"
        })
        .await;
    world
}

/// What a user adds to the pods whose container has this name.
fn pod_spec(container: &str) -> Value {
    json!({
        "nodeSelector": {},
        "hostAliases": [],
        "imagePullSecrets": [],
        "securityContext": {},
        "affinity": {},
        "tolerations": [{"operator": "Exists", "key": ""}],
        "containers": [
            {
                "name": container,
                "ports": [{"containerPort": 9090}],
                "envFrom": [],
                "lifecycle": {},
                "securityContext": {"privileged": false, "capabilities": {"add": [], "drop": ["ALL"]}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            },
            {
                "name": "sidecar",
                "image": "example.com/sidecar:1",
                "args": [],
                "ports": [{"containerPort": 9091, "name": "metrics"}],
                "resources": {"limits": {"memory": "0.5Gi"}, "requests": {"memory": "512Ki"}},
            },
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "1024Mi"}},
            {"name": "about", "downwardAPI": {"items": [
                {"path": "cpu", "resourceFieldRef": {
                    "containerName": "sidecar", "resource": "limits.cpu", "divisor": "1000m",
                }},
            ]}},
            {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
        ],
    })
}

/// Makes newcomers of each kind and waits until they are ready: by then, what the controllers had to do
/// before that is done. Returns what they wrote to others.
async fn needless_writes(world: &World) -> Vec<Sent> {
    world.spec("modelapis", "barrier", mock(&["m"])).await;
    world
        .spec("mcpservers", "barrier", json!({"runtime": "plain"}))
        .await;
    let agent = json!({"modelAPI": "barrier", "model": "m", "mcpServers": ["barrier"]});
    world.spec("agents", "barrier", agent).await;
    world.ready("agents", "barrier").await;
    let mut writes = world.calls().writes();
    writes.retain(|call| !call.path.contains("barrier"));
    writes
}

#[tokio::test]
async fn after_convergence_nothing_is_written() {
    let world = converged().await;
    world.calls().clear();
    // Every resource is looked at again for reasons that change nothing. (A label: the annotations of a
    // Deployment count as its specification and would start a rollout.)
    let touch = json!({"metadata": {"labels": {"example.com/touched": "yes"}}});
    for (plural, name) in RESOURCES {
        world.merge(plural, name, touch.clone()).await;
    }
    for child in ["modelapi-models", "mcpserver-tools", "agent-sam"] {
        world.merge("deployments", child, touch.clone()).await;
        world.merge("services", child, touch.clone()).await;
    }
    assert_eq!(needless_writes(&world).await, []);
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let mut world = converged().await;
    world.restart_controllers().await;
    assert_eq!(needless_writes(&world).await, []);
}

#[tokio::test]
async fn an_annotation_on_what_agents_use_has_no_agent_looked_at() {
    let world = converged().await;
    world.calls().clear();
    let touch = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
    for (plural, name) in [("modelapis", "models"), ("mcpservers", "tools")] {
        world.merge(plural, name, touch.clone()).await;
    }
    assert_eq!(needless_writes(&world).await, []);
    let calls = world.calls().all();
    let about: Vec<_> = calls.iter().filter(|call| call.path.contains("sam")).collect();
    assert!(about.is_empty(), "{about:#?}");
}

#[tokio::test]
async fn an_agent_costs_at_most_three_writes_beyond_its_objects() {
    let world = World::start().await;
    world.spec("modelapis", "models", mock(&["m"])).await;
    world.ready("modelapis", "models").await;
    world.calls().clear();
    let sam = json!({"modelAPI": "models", "model": "m"});
    let started = Instant::now();
    world.spec("agents", "sam", sam).await;
    world
        .until(
            "its Deployment says that the rollout is complete",
            "agents",
            "sam",
            |object| {
                object["status"]["deployment"]["conditions"]
                    .to_string()
                    .contains("NewReplicaSetAvailable")
            },
        )
        .await;
    world.ready("agents", "sam").await;
    let writes = world.calls().writes();
    let about: Vec<_> = writes.iter().filter(|call| call.path.contains("sam")).collect();
    let (own, objects): (Vec<&Sent>, Vec<&Sent>) =
        about.into_iter().partition(|call| call.path.contains("/agents/"));
    assert_eq!(objects.len(), 2, "a Service and a Deployment: {objects:#?}");
    // That it rolls out, that it is ready, and the Deployment's last word. A rollout that takes long (on a machine
    // with too much to do, say) has its figures told besides, once in ten seconds.
    let most = 3 + started.elapsed().as_secs() / 10;
    assert!(own.len() as u64 <= most, "{own:#?}");
}

#[tokio::test]
async fn an_error_of_the_user_waits_for_the_user() {
    let world = World::start().await;
    world
        .spec("mcpservers", "bad", json!({"runtime": "no-such"}))
        .await;
    world.phase("mcpservers", "bad", "Failed").await;
    world.calls().clear();
    world
        .spec("mcpservers", "barrier", json!({"runtime": "plain"}))
        .await;
    world.ready("mcpservers", "barrier").await;
    let calls = world.calls().all();
    let about: Vec<_> = calls.iter().filter(|call| call.path.contains("bad")).collect();
    assert!(about.is_empty(), "{about:#?}");
}
