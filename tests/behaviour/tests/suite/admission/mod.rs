//! What is refused when it is written, with the words a user reads, and what is accepted.
//!
//! The cases are files, so that the texts can be read in one place. Every case runs on both servers: a text that
//! is ours is compared word for word, one that is the server's own by its field and by what it has to name.

mod refused;
mod rules;
mod served;
mod specs;
mod unbreakable;

use kaos_testkit::TestApi;
use serde_json::{Value, json};

/// The path of a kind's objects in the test's namespace.
fn collection(api: &TestApi, kind: &str) -> String {
    let plural = match kind {
        "Agent" => "agents",
        "ModelAPI" => "modelapis",
        "MCPServer" => "mcpservers",
        other => panic!("{other} is no kind of ours"),
    };
    format!("/apis/kaos.tools/v1alpha1/namespaces/{}/{plural}", api.namespace)
}

/// Sends a new object as kubectl does, which has unknown fields refused. The code and the answer.
async fn create(api: &TestApi, kind: &str, name: &str, spec: &Value) -> (u16, Value) {
    let path = format!("{}?fieldValidation=Strict", collection(api, kind));
    let object = json!({
        "apiVersion": "kaos.tools/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    api.raw("POST", &path, &[], object).await
}
