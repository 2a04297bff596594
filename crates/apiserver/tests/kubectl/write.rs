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

/// `kubectl create KIND NAME` itself sends protobuf, which is not read here: it is told so. Its manifest works.
#[tokio::test]
async fn create_and_delete() {
    let Some(kubectl) = start().await else { return };
    let (_, message) = kubectl.fails(&["create", "namespace", "team"], None).await;
    assert!(
        message.contains("accepted media types include: application/json"),
        "{message}"
    );
    let manifest = async |args: &[&str]| {
        let args = [args, &["--dry-run=client", "-o", "yaml"]].concat();
        kubectl.run(&args).await
    };
    let create = ["create", "-f", "-"];
    let namespace = manifest(&["create", "namespace", "team"]).await;
    assert_eq!(
        kubectl.pipe(&create, &namespace).await,
        "namespace/team created\n"
    );
    for kind in [&["configmap", "c"][..], &["secret", "generic", "s"]] {
        let args = [&["-n", "team", "create"], kind, &["--from-literal=k=v"]].concat();
        kubectl.pipe(&create, &manifest(&args).await).await;
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
    let (_, message) = kubectl.fails(&create, Some(&namespace)).await;
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
