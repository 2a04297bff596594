//! What is printed: tables, objects, descriptions, explanations.

use crate::{
    fixtures::*,
    harness::{start, table},
};

#[tokio::test]
async fn get_prints_tables_and_objects() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], DEFINITION).await;
    for manifest in [WIDGET, CONFIG, DEPLOYMENT, POD, SERVICE] {
        kubectl.pipe(&["apply", "-f", "-"], manifest).await;
    }
    let printed = kubectl.run(&["get", "widgets"]).await;
    let lines = table(&printed);
    assert_eq!(lines[0], ["NAME", "SIZE", "READY"]);
    assert_eq!(lines[1], ["one", "3"]);
    let printed = kubectl.run(&["get", "wd", "-o", "wide"]).await;
    assert_eq!(
        table(&printed),
        [vec!["NAME", "SIZE", "READY", "NOTE"], vec!["one", "3", "none"]]
    );

    let printed = kubectl.run(&["get", "deploy", "web", "-o", "wide"]).await;
    let lines = table(&printed);
    let heads = [
        "NAME",
        "READY",
        "UP-TO-DATE",
        "AVAILABLE",
        "AGE",
        "CONTAINERS",
        "IMAGES",
        "SELECTOR",
    ];
    assert_eq!(lines[0], heads);
    assert_eq!(lines[1][..4], ["web", "0/2", "0", "0"]);
    assert_eq!(lines[1][5..], ["main", "example.com/web:1", "app=web"]);

    let printed = kubectl.run(&["get", "pods", "-o", "wide"]).await;
    let lines = table(&printed);
    assert_eq!(
        lines[0].join(" "),
        "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
    );
    assert_eq!(lines[1][..4], ["worker", "0/1", "Pending", "0"]);
    assert_eq!(lines[1][5..], ["<none>", "<none>", "<none>", "<none>"]);

    let printed = kubectl.run(&["get", "svc", "web"]).await;
    let lines = table(&printed);
    assert_eq!(
        lines[0],
        ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    );
    assert_eq!(
        (lines[1][1], lines[1][3], lines[1][4]),
        ("ClusterIP", "<none>", "80/TCP")
    );

    let printed = kubectl.run(&["get", "cm", "settings"]).await;
    let lines = table(&printed);
    assert_eq!(
        (&lines[0][..], &lines[1][..2]),
        (&["NAME", "DATA", "AGE"][..], &["settings", "2"][..])
    );
    assert_eq!(
        table(&kubectl.run(&["get", "crd"]).await)[0],
        ["NAME", "CREATED", "AT"]
    );
    assert_eq!(
        table(&kubectl.run(&["get", "ns", "default"]).await)[1][..2],
        ["default", "Active"]
    );

    assert_eq!(
        kubectl.run(&["get", "cm", "settings", "-o", "name"]).await,
        "configmap/settings\n"
    );
    assert_eq!(
        kubectl
            .run(&["get", "widget", "one", "-o", "jsonpath={.spec.size}"])
            .await,
        "3"
    );
    assert_eq!(
        kubectl.json(&["get", "widget", "one"]).await["spec"]["note"],
        "none"
    );
    let yaml = kubectl.run(&["get", "widget", "one", "-o", "yaml"]).await;
    assert!(
        yaml.starts_with("apiVersion: example.com/v1\nkind: Widget\n"),
        "{yaml}"
    );
    let all = kubectl.run(&["get", "all"]).await;
    assert!(
        all.contains("deployment.apps/web") && all.contains("widget.example.com/one"),
        "{all}"
    );

    let (_, message) = kubectl.fails(&["get", "widget", "two"], None).await;
    assert_eq!(
        message,
        "Error from server (NotFound): widgets.example.com \"two\" not found\n"
    );
    let (_, message) = kubectl.fails(&["get", "nonsense"], None).await;
    assert!(
        message.contains("the server doesn't have a resource type \"nonsense\""),
        "{message}"
    );
}

#[tokio::test]
async fn describe_tells_about_an_object() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], DEFINITION).await;
    for manifest in [WIDGET, DEPLOYMENT, POD] {
        kubectl.pipe(&["apply", "-f", "-"], manifest).await;
    }
    let text = kubectl.run(&["describe", "widget", "one"]).await;
    assert!(
        text.contains("Kind:         Widget") && text.contains("Size:  3"),
        "{text}"
    );
    let text = kubectl.run(&["describe", "deployment", "web"]).await;
    assert!(
        text.contains("2 desired") && text.contains("Image:      example.com/web:1"),
        "{text}"
    );
    let text = kubectl.run(&["describe", "pod", "worker"]).await;
    assert!(
        table(&text).contains(&vec!["Status:", "Pending"]) && text.contains("Events:"),
        "{text}"
    );
}

#[tokio::test]
async fn explain_and_api_resources_know_custom_and_built_in_kinds() {
    let Some(kubectl) = start().await else { return };
    kubectl.pipe(&["apply", "-f", "-"], DEFINITION).await;
    let text = kubectl.run(&["explain", "widget.spec.size"]).await;
    assert!(
        text.contains("KIND:       Widget") && text.contains("How big it is."),
        "{text}"
    );
    let text = kubectl.run(&["explain", "widget"]).await;
    assert!(text.contains("A widget is a thing to test with."), "{text}");
    let text = kubectl.run(&["explain", "deployment.spec.replicas"]).await;
    assert!(
        text.contains("GROUP:      apps") && text.contains("FIELD: replicas <integer>"),
        "{text}"
    );
    let text = kubectl.run(&["explain", "pod.spec.containers.env"]).await;
    assert!(text.contains("valueFrom"), "{text}");

    let printed = kubectl.run(&["api-resources"]).await;
    let lines = table(&printed);
    assert!(
        lines.contains(&vec!["widgets", "wd", "example.com/v1", "true", "Widget"]),
        "{printed}"
    );
    assert!(
        lines.contains(&vec!["deployments", "deploy", "apps/v1", "true", "Deployment"]),
        "{printed}"
    );
    assert!(kubectl.run(&["api-versions"]).await.contains("example.com/v1"));
    assert!(kubectl.run(&["version"]).await.contains("Server Version: v1.36"));
}
