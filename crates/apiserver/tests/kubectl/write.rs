//! Changes: apply of both kinds, patches of every kind, labels, scale, create and delete.

use crate::{fixtures::*, harness::start};

#[tokio::test]
async fn client_side_apply_creates_changes_and_removes() {
    let Some(kubectl) = start().await else { return };
    let apply = ["apply", "-f", "-"];
    let text = kubectl.pipe(&apply, DEFINITION).await;
    assert_eq!(
        text,
        "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created\n"
    );
    for (manifest, name) in [
        (WIDGET, "widget.example.com/one"),
        (CONFIG, "configmap/settings"),
        (DEPLOYMENT, "deployment.apps/web"),
    ] {
        assert_eq!(kubectl.pipe(&apply, manifest).await, format!("{name} created\n"));
        assert_eq!(
            kubectl.pipe(&apply, manifest).await,
            format!("{name} unchanged\n")
        );
    }
    let text = kubectl.pipe(&apply, &CONFIG.replace(", b: \"2\"", "")).await;
    assert_eq!(text, "configmap/settings configured\n");
    assert_eq!(
        kubectl.json(&["get", "cm", "settings"]).await["data"],
        serde_json::json!({ "a": "1" })
    );
    // The container is merged by its name, not replaced.
    let second = DEPLOYMENT.replace(
        "- name: main",
        "- {name: second, image: example.com/b:1}\n      - name: main",
    );
    kubectl.pipe(&apply, &second).await;
    let deployment = kubectl.json(&["get", "deployment", "web"]).await;
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    kubectl.pipe(&apply, DEPLOYMENT).await;
    let deployment = kubectl.json(&["get", "deployment", "web"]).await;
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["name"],
        "main"
    );
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn server_side_apply_owns_fields_and_names_conflicts() {
    let Some(kubectl) = start().await else { return };
    let apply = ["apply", "--server-side", "-f", "-"];
    let text = kubectl.pipe(&apply, DEFINITION).await;
    assert_eq!(
        text,
        "customresourcedefinition.apiextensions.k8s.io/widgets.example.com serverside-applied\n"
    );
    for manifest in [WIDGET, CONFIG, DEPLOYMENT] {
        assert!(
            kubectl
                .pipe(&apply, manifest)
                .await
                .ends_with(" serverside-applied\n")
        );
    }
    let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
    let (_, message) = kubectl
        .fails(&other, Some(&WIDGET.replace("size: 3", "size: 4")))
        .await;
    assert!(
        message.contains("conflict with \"kubectl\"") && message.contains(".spec.size"),
        "{message}"
    );
    kubectl
        .pipe(
            &[&other[..], &["--force-conflicts"]].concat(),
            &WIDGET.replace("size: 3", "size: 4"),
        )
        .await;
    assert_eq!(kubectl.json(&["get", "widget", "one"]).await["spec"]["size"], 4);
    // What is no longer applied goes.
    kubectl.pipe(&apply, &CONFIG.replace(", b: \"2\"", "")).await;
    assert_eq!(
        kubectl.json(&["get", "cm", "settings"]).await["data"],
        serde_json::json!({ "a": "1" })
    );
}

#[tokio::test]
async fn bad_manifests_are_refused_by_field() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], DEFINITION).await;
    for mode in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
        let (_, message) = kubectl
            .fails(mode, Some(&WIDGET.replace("size: 3", "size: 3, colour: red")))
            .await;
        assert!(message.contains("spec.colour"), "{message}");
        let (_, message) = kubectl
            .fails(mode, Some(&WIDGET.replace("size: 3", "size: 0")))
            .await;
        assert!(
            message.contains("spec.size") && message.contains("greater than or equal to 1"),
            "{message}"
        );
        let (_, message) = kubectl
            .fails(mode, Some(&DEPLOYMENT.replace("replicas:", "replica:")))
            .await;
        assert!(message.contains("spec.replica"), "{message}");
    }
}

#[tokio::test]
async fn every_kind_of_patch_changes_an_object() {
    let Some(kubectl) = start().await else { return };
    for manifest in [CONFIG, DEPLOYMENT] {
        kubectl.pipe(&["apply", "-f", "-"], manifest).await;
    }
    let json = r#"[{"op":"replace","path":"/data/a","value":"json"}]"#;
    kubectl
        .run(&["patch", "cm", "settings", "--type", "json", "-p", json])
        .await;
    kubectl
        .run(&[
            "patch",
            "cm",
            "settings",
            "--type",
            "merge",
            "-p",
            r#"{"data":{"b":null,"c":"merge"}}"#,
        ])
        .await;
    let config = kubectl.json(&["get", "cm", "settings"]).await;
    assert_eq!(config["data"], serde_json::json!({ "a": "json", "c": "merge" }));
    let patch =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.com/s:1"}]}}}}"#;
    let text = kubectl
        .run(&["patch", "deployment", "web", "--type", "strategic", "-p", patch])
        .await;
    assert_eq!(text, "deployment.apps/web patched\n");
    let deployment = kubectl.json(&["get", "deployment", "web"]).await;
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    kubectl.run(&["label", "cm", "settings", "tier=one"]).await;
    kubectl
        .run(&["annotate", "cm", "settings", "example.com/note=hello"])
        .await;
    let config = kubectl.json(&["get", "cm", "-l", "tier=one"]).await;
    assert_eq!(
        config["items"][0]["metadata"]["annotations"]["example.com/note"],
        "hello"
    );
    kubectl.run(&["label", "cm", "settings", "tier-"]).await;
    assert_eq!(
        kubectl.json(&["get", "cm", "-l", "tier=one"]).await["items"],
        serde_json::json!([])
    );

    assert_eq!(
        kubectl.run(&["scale", "deployment", "web", "--replicas=5"]).await,
        "deployment.apps/web scaled\n"
    );
    assert_eq!(
        kubectl.json(&["get", "deployment", "web"]).await["spec"]["replicas"],
        5
    );
}

#[tokio::test]
async fn create_and_delete() {
    let Some(kubectl) = start().await else { return };
    let namespace = ["create", "namespace", "team"];
    assert_eq!(kubectl.run(&namespace).await, "namespace/team created\n");
    for kind in [&["configmap", "c"][..], &["secret", "generic", "s"]] {
        let args = [&["-n", "team", "create"], kind, &["--from-literal=k=v"]].concat();
        kubectl.run(&args).await;
    }
    let secret = [
        "-n",
        "team",
        "get",
        "secret",
        "s",
        "-o",
        "jsonpath={.type} {.data.k}",
    ];
    assert_eq!(kubectl.run(&secret).await, "Opaque dg==");
    let (_, message) = kubectl.fails(&namespace, None).await;
    assert!(
        message.contains("(AlreadyExists)") && message.contains("\"team\" already exists"),
        "{message}"
    );
    assert!(
        kubectl
            .run(&["-n", "team", "delete", "cm", "c"])
            .await
            .contains("deleted")
    );
    // Waits for the namespace's objects to go first.
    kubectl.run(&["delete", "namespace", "team", "--wait=true"]).await;
    let (_, message) = kubectl.fails(&["get", "ns", "team"], None).await;
    assert_eq!(
        message,
        "Error from server (NotFound): namespaces \"team\" not found\n"
    );
}

/// `kubectl create KIND NAME` sends protobuf, `kubectl create -f` JSON: the server makes the same of both.
#[tokio::test]
async fn every_form_of_create_makes_what_its_manifest_makes() {
    let Some(kubectl) = start().await else { return };
    for form in [
        &["namespace", "team"][..],
        &["configmap", "c", "--from-literal=k=v", "--from-literal=empty="],
        &["secret", "generic", "s", "--from-literal=k=v"],
        &[
            "secret",
            "docker-registry",
            "r",
            "--docker-server=a",
            "--docker-username=b",
            "--docker-password=c",
        ],
        &["serviceaccount", "robot"],
        &["service", "clusterip", "web", "--tcp=80:8080", "--tcp=9000"],
        &["service", "nodeport", "open", "--tcp=80"],
        &["service", "externalname", "far", "--external-name=example.com"],
        &[
            "deployment",
            "web",
            "--image=example.com/a:1",
            "--replicas=0",
            "--port=80",
        ],
        &[
            "deployment",
            "two",
            "--image=example.com/a:1",
            "--image=example.com/b:1",
        ],
        &["deployment", "args", "--image=example.com/a:1", "--", "run", "it"],
    ] {
        let create = [&["create"], form].concat();
        let at = create.iter().position(|arg| *arg == "--").unwrap_or(create.len());
        let with = |more: &[&'static str]| [&create[..at], more, &create[at..]].concat();
        let stored = |text: String| {
            // Some versions of kubectl print a time that is not there.
            let text = text.replace("\"creationTimestamp\": null,", "");
            let mut object: serde_json::Value = serde_json::from_str(&text).unwrap();
            let metadata = object["metadata"].as_object_mut().unwrap();
            for field in ["uid", "creationTimestamp", "resourceVersion"] {
                assert!(metadata.remove(field).is_some(), "{form:?}: {field}");
            }
            object
        };
        let protobuf = stored(kubectl.run(&with(&["-o", "json"])).await);
        let manifest = kubectl.run(&with(&["--dry-run=client", "-o", "json"])).await;
        let (kind, name) = (&protobuf["kind"], &protobuf["metadata"]["name"]);
        let (kind, name) = (kind.as_str().unwrap(), name.as_str().unwrap());
        kubectl.run(&["delete", kind, name, "--wait=true"]).await;
        let json = stored(
            kubectl
                .pipe(&["create", "-f", "-", "-o", "json"], &manifest)
                .await,
        );
        assert_eq!(protobuf, json, "{form:?}");
    }
    let text = kubectl
        .run(&["run", "pod", "--image=example.com/a:1", "--env=A=b", "--port=80"])
        .await;
    assert_eq!(text, "pod/pod created\n");
    let text = kubectl
        .run(&["expose", "deployment", "web", "--name=again"])
        .await;
    assert_eq!(text, "service/again exposed\n");
    // What an admission rule of a kind refuses is refused with its field.
    let (_, message) = kubectl.fails(&["create", "configmap", "Not_A_Name"], None).await;
    assert!(
        message.contains("metadata.name: Invalid value: \"Not_A_Name\""),
        "{message}"
    );
    let role = ["create", "role", "r", "--verb=get", "--resource=pods"];
    let (_, message) = kubectl.fails(&role, None).await;
    assert!(
        message.contains("could not find the requested resource"),
        "{message}"
    );
}

#[tokio::test]
async fn diff_shows_what_apply_would_change() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], CONFIG).await;
    assert_eq!(kubectl.pipe(&["diff", "-f", "-"], CONFIG).await, "");
    let (code, text) = kubectl
        .fails(&["diff", "-f", "-"], Some(&CONFIG.replace("\"2\"", "\"3\"")))
        .await;
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("-  b: \"2\"") && text.contains("+  b: \"3\""),
        "{text}"
    );
    assert_eq!(kubectl.json(&["get", "cm", "settings"]).await["data"]["b"], "2");
}
