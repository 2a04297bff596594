//! Deletion: finalizers, grace, dependents, namespaces.

use kaos_testkit::{PATIENCE, TestApi, eventually};
use serde_json::{Value, json};

use super::fixtures::{MERGE, Widgets, names, refusal, version};

/// ConfigMaps of the test's namespace: the simplest objects that can own each other.
struct Maps {
    api: TestApi,
    path: String,
}

impl Maps {
    async fn start() -> Self {
        let api = TestApi::start().await;
        let path = format!("/api/v1/namespaces/{}/configmaps", api.namespace);
        Self { api, path }
    }

    async fn create(&self, name: &str, metadata: Value) -> Value {
        let mut map = json!({"metadata": metadata});
        map["metadata"]["name"] = json!(name);
        let (code, map) = self.api.raw("POST", &self.path, &[], map).await;
        assert_eq!(code, 201, "{map}");
        map
    }

    async fn owned(&self, name: &str, owners: &[&Value]) -> Value {
        let owners: Vec<Value> = owners.iter().map(|owner| reference(owner)).collect();
        self.create(name, json!({"ownerReferences": owners})).await
    }

    async fn get(&self, name: &str) -> (u16, Value) {
        self.api
            .raw("GET", &format!("{}/{name}", self.path), &[], ())
            .await
    }

    async fn patch(&self, name: &str, patch: Value) -> (u16, Value) {
        let headers = [("content-type", MERGE)];
        self.api
            .raw("PATCH", &format!("{}/{name}", self.path), &headers, patch)
            .await
    }

    async fn delete(&self, name: &str, options: Value) -> (u16, Value) {
        self.api
            .raw("DELETE", &format!("{}/{name}", self.path), &[], options)
            .await
    }

    async fn gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), PATIENCE, async || {
            self.get(name).await.0 == 404
        })
        .await;
    }
}

fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    })
}

#[tokio::test]
async fn an_object_without_finalizers_goes_at_once() {
    let widgets = Widgets::start().await;
    let stored = widgets.create("a", 1).await;
    let (code, status) = widgets.delete("a").await;
    assert_eq!(code, 200);
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"]["uid"], stored["metadata"]["uid"]);
    assert_eq!(widgets.get("a").await.0, 404);
    let again = widgets.create("a", 1).await;
    assert_ne!(again["metadata"]["uid"], stored["metadata"]["uid"]);
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_removed() {
    let widgets = Widgets::start().await;
    let held = widgets.widget(
        "a",
        json!({"metadata": {"finalizers": ["example.com/f"]}, "spec": {"size": 1}}),
    );
    assert_eq!(widgets.post(&held).await.0, 201);
    let (code, marked) = widgets.delete("a").await;
    assert_eq!(code, 200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        marked["metadata"]["generation"], 2,
        "a deletion is a change of what is wanted"
    );
    assert_eq!(
        widgets.delete("a").await,
        (200, marked.clone()),
        "asking twice changes nothing"
    );

    let more = widgets
        .patch(
            "a",
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}),
        )
        .await;
    let expected = format!(
        "{} \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being \
         deleted, found new finalizers []string{{\"example.com/g\"}}",
        widgets.kind
    );
    assert_eq!(refusal(&more), (422, "Invalid", expected.as_str()));
    let (code, status) = widgets
        .patch("a/status", MERGE, json!({"status": {"phase": "Leaving"}}))
        .await;
    assert_eq!((code, &status["status"]["phase"]), (200, &json!("Leaving")));

    let mut watch = widgets
        .api
        .watch(&format!("{}?resourceVersion={}", widgets.path, version(&status)))
        .await;
    let (code, _) = widgets
        .patch("a", MERGE, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(code, 200);
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
    assert_eq!(widgets.get("a").await.0, 404);
}

#[tokio::test]
async fn preconditions_protect_what_was_not_meant() {
    let maps = Maps::start().await;
    let stored = maps.create("a", json!({})).await;
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    let wrong = maps.delete("a", json!({"preconditions": {"uid": "other"}})).await;
    let expected = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(refusal(&wrong), (409, "Conflict", expected.as_str()));
    let stale = maps
        .delete("a", json!({"preconditions": {"resourceVersion": "1"}}))
        .await;
    let expected = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not match \
         the ResourceVersion in record ({}). The object might have been modified",
        version(&stored)
    );
    assert_eq!(refusal(&stale), (409, "Conflict", expected.as_str()));
    let policy = maps.delete("a", json!({"propagationPolicy": "Sideways"})).await;
    assert_eq!(refusal(&policy).0, 422);
    assert_eq!(
        maps.delete("a", json!({"preconditions": {"uid": uid}})).await.0,
        200
    );
}

#[tokio::test]
async fn dependents_go_with_the_last_of_their_owners() {
    let maps = Maps::start().await;
    let one = maps.create("one", json!({})).await;
    let two = maps.create("two", json!({})).await;
    maps.owned("child", &[&one]).await;
    maps.owned("shared", &[&one, &two]).await;
    assert_eq!(maps.delete("one", json!({})).await.0, 200);
    maps.gone("child").await;
    eventually("the shared one lets go of the first", PATIENCE, async || {
        let (_, shared) = maps.get("shared").await;
        shared["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|owners| owners.len() == 1)
    })
    .await;
    assert_eq!(maps.delete("two", json!({})).await.0, 200);
    maps.gone("shared").await;
}

#[tokio::test]
async fn a_dependent_of_nobody_is_collected() {
    let maps = Maps::start().await;
    let ghost = json!({"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}});
    maps.owned("child", &[&ghost]).await;
    maps.gone("child").await;
}

#[tokio::test]
async fn chains_of_owners_unwind() {
    let maps = Maps::start().await;
    let top = maps.create("top", json!({})).await;
    let middle = maps.owned("middle", &[&top]).await;
    maps.owned("bottom", &[&middle]).await;
    maps.delete("top", json!({"propagationPolicy": "Background"}))
        .await;
    maps.gone("middle").await;
    maps.gone("bottom").await;
}

#[tokio::test]
async fn in_the_foreground_an_owner_goes_last() {
    let maps = Maps::start().await;
    let owner = maps.create("owner", json!({})).await;
    let owners = [reference(&owner)];
    maps.create(
        "child",
        json!({"ownerReferences": owners, "finalizers": ["example.com/f"]}),
    )
    .await;
    // The collector of a cluster may not have seen the child yet; the owner would then not wait for it.
    tokio::time::sleep(std::time::Duration::from_secs(u64::from(!maps.api.is_embedded()))).await;
    let (code, marked) = maps
        .delete("owner", json!({"propagationPolicy": "Foreground"}))
        .await;
    assert_eq!(
        (code, &marked["metadata"]["finalizers"]),
        (200, &json!(["foregroundDeletion"]))
    );
    eventually("the child is asked to go", PATIENCE, async || {
        maps.get("child").await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert_eq!(maps.get("owner").await.0, 200, "the child is still there");
    assert_eq!(
        maps.patch("child", json!({"metadata": {"finalizers": null}}))
            .await
            .0,
        200
    );
    maps.gone("child").await;
    maps.gone("owner").await;
}

#[tokio::test]
async fn orphans_stay() {
    let maps = Maps::start().await;
    let owner = maps.create("owner", json!({})).await;
    maps.owned("child", &[&owner]).await;
    tokio::time::sleep(std::time::Duration::from_secs(u64::from(!maps.api.is_embedded()))).await;
    assert_eq!(
        maps.delete("owner", json!({"propagationPolicy": "Orphan"}))
            .await
            .0,
        200
    );
    maps.gone("owner").await;
    let (code, child) = maps.get("child").await;
    assert_eq!(
        (code, child["metadata"].get("ownerReferences")),
        (200, None),
        "{child}"
    );
}

#[tokio::test]
async fn a_collection_is_deleted_as_selected() {
    let widgets = Widgets::start().await;
    for (name, keep) in [("a", "yes"), ("b", "no"), ("c", "no")] {
        let widget = widgets.widget(
            name,
            json!({"metadata": {"labels": {"keep": keep}}, "spec": {"size": 1}}),
        );
        assert_eq!(widgets.post(&widget).await.0, 201);
    }
    let path = format!("{}?labelSelector=keep%3Dno", widgets.path);
    let (code, deleted) = widgets.api.raw("DELETE", &path, &[], ()).await;
    assert_eq!(
        (code, names(&deleted)),
        (200, vec!["b".to_owned(), "c".to_owned()])
    );
    assert_eq!(widgets.names("").await, ["a"]);
}

#[tokio::test]
async fn a_namespace_goes_with_its_content() {
    let widgets = Widgets::start().await;
    let held = widgets.widget(
        "a",
        json!({"metadata": {"finalizers": ["example.com/f"]}, "spec": {"size": 1}}),
    );
    assert_eq!(widgets.post(&held).await.0, 201);
    let namespace = format!("/api/v1/namespaces/{}", widgets.api.namespace);
    let (code, marked) = widgets.api.raw("DELETE", &namespace, &[], ()).await;
    assert_eq!(
        (code, &marked["status"]["phase"]),
        (200, &json!("Terminating")),
        "{marked}"
    );
    let late = widgets
        .post(&widgets.widget("b", json!({"spec": {"size": 1}})))
        .await;
    let expected = format!(
        "{} \"b\" is forbidden: unable to create new content in namespace {} because it is being terminated",
        widgets.resource, widgets.api.namespace
    );
    assert_eq!(refusal(&late), (403, "Forbidden", expected.as_str()));
    assert_eq!(late.1["details"]["causes"][0]["reason"], "NamespaceTerminating");
    eventually("the widget is asked to go", PATIENCE, async || {
        widgets.get("a").await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert_eq!(
        widgets.api.raw("GET", &namespace, &[], ()).await.0,
        200,
        "it is not empty yet"
    );
    assert_eq!(
        widgets
            .patch("a", MERGE, json!({"metadata": {"finalizers": null}}))
            .await
            .0,
        200
    );
    eventually("the namespace is gone", PATIENCE, async || {
        widgets.api.raw("GET", &namespace, &[], ()).await.0 == 404
    })
    .await;
}

#[tokio::test]
async fn a_running_pod_gets_time_to_stop() {
    let api = TestApi::start().await;
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let pod = |name: &str, node: Value| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 20,
                "containers": [{"name": "c", "image": "example.com/c:1"}],
            },
        })
    };
    for (name, node) in [("waiting", json!(null)), ("running", json!("a-node"))] {
        let (code, created) = api.raw("POST", &path, &[], pod(name, node)).await;
        assert_eq!(code, 201, "{created}");
    }
    let one = |name: &str| format!("{path}/{name}");
    assert_eq!(api.raw("DELETE", &one("waiting"), &[], ()).await.0, 200);
    assert_eq!(
        api.raw("GET", &one("waiting"), &[], ()).await.0,
        404,
        "no node has to stop it"
    );

    let (_, marked) = api.raw("DELETE", &one("running"), &[], ()).await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 20, "{marked}");
    let (_, sooner) = api
        .raw("DELETE", &one("running"), &[], json!({"gracePeriodSeconds": 5}))
        .await;
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let (_, later) = api
        .raw("DELETE", &one("running"), &[], json!({"gracePeriodSeconds": 50}))
        .await;
    assert_eq!(
        later["metadata"]["deletionGracePeriodSeconds"], 5,
        "grace only gets shorter"
    );
    assert_eq!(
        api.raw("DELETE", &one("running"), &[], json!({"gracePeriodSeconds": 0}))
            .await
            .0,
        200
    );
    assert_eq!(api.raw("GET", &one("running"), &[], ()).await.0, 404);
}

/// Jobs are older than the garbage collector: a deletion of one that does not say what becomes of its dependents lets
/// them go. kubectl always says it.
#[tokio::test]
async fn dependents_of_a_job_stay_unless_the_deletion_takes_them() {
    let maps = Maps::start().await;
    let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", maps.api.namespace);
    for (options, taken) in [
        (json!({}), false),
        (json!({"propagationPolicy": "Background"}), true),
    ] {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "owner"},
            "spec": {"suspend": true, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        });
        let (code, job) = maps.api.raw("POST", &jobs, &[], job).await;
        assert_eq!(code, 201, "{job}");
        let owner = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": job["metadata"]["uid"],
        });
        let child = json!({"ownerReferences": [owner]});
        maps.create("child", child).await;
        tokio::time::sleep(std::time::Duration::from_secs(u64::from(!maps.api.is_embedded()))).await;
        let (code, deleted) = maps
            .api
            .raw("DELETE", &format!("{jobs}/owner"), &[], options)
            .await;
        assert_eq!(code, 200, "{deleted}");
        if taken {
            maps.gone("child").await;
            continue;
        }
        let released = async || {
            maps.get("child").await.1["metadata"]
                .get("ownerReferences")
                .is_none()
        };
        eventually("a dependent of nobody", PATIENCE, released).await;
        assert_eq!(maps.delete("child", json!({})).await.0, 200);
        maps.gone("child").await;
        let job = format!("{jobs}/owner");
        let gone = async || maps.api.raw("GET", &job, &[], ()).await.0 == 404;
        eventually("the Job is gone", PATIENCE, gone).await;
    }
}
