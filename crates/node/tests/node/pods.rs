//! From a Deployment to answers over the address of its Service, and back to nothing.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Pod, Service},
};
use kaos_node::LogOptions;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::support::{Fixture, create, get, is_ready, log, script, status, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_becomes_processes_behind_the_address_of_its_service() {
    let fixture = Fixture::start().await;
    let ns = fixture.namespace.clone();
    let deployments: Api<Deployment> = fixture.api();
    let pods: Api<Pod> = fixture.api();
    // The address is known, and told to a pod, before the Service exists.
    let address = fixture.node.services().address(&ns, "web", 80).unwrap();
    create::<ConfigMap>(
        &fixture.api(),
        json!({ "metadata": { "name": "settings" }, "data": { "app.yaml": format!("peer: http://web.{ns}.svc/x\n") } }),
    )
    .await;
    create(
        &deployments,
        json!({ "metadata": { "name": "web" }, "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "web", "image": "example.org/serve:1", "args": ["--config=/etc/web/app.yaml"],
                    "ports": [{ "name": "http", "containerPort": 8000 }],
                    "env": [
                        { "name": "SELF", "value": format!("http://web.{ns}.svc.cluster.local:80") },
                        { "name": "CONFIG", "value": "/etc/web/app.yaml" },
                        { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                    ],
                    "readinessProbe": { "httpGet": { "path": "/health", "port": "http" }, "periodSeconds": 1 },
                    "volumeMounts": [{ "name": "settings", "mountPath": "/etc/web" }],
                }],
                "volumes": [{ "name": "settings", "configMap": { "name": "settings" } }],
            } },
        } }),
    )
    .await;
    create::<Service>(
        &fixture.api(),
        json!({ "metadata": { "name": "web" },
                "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "http" }] } }),
    )
    .await;
    fixture
        .eventually("two available pods", || async {
            let status = deployments.get("web").await.ok()?.status?;
            (status.available_replicas == Some(2)).then_some(())
        })
        .await;
    fixture.eventually("an answer", || get(address, "/health")).await;

    assert_eq!(
        get(address, "/env/SELF").await.unwrap(),
        format!("http://{address}")
    );
    let config = get(address, "/env/CONFIG").await.unwrap();
    let content = get(address, &format!("/file{config}")).await.unwrap();
    assert_eq!(content, format!("peer: http://{address}/x\n"));
    let listed = pods.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<String> = listed.iter().map(|pod| pod.name_any()).collect();
    let asked = get(address, "/env/POD").await.unwrap();
    assert!(names.contains(&asked), "{asked} is none of {names:?}");
    let text = log(
        &fixture,
        &names[0],
        LogOptions {
            tail_lines: Some(1),
            ..LogOptions::default()
        },
    )
    .await;
    assert!(
        text.starts_with("listening on 127.0.0.1:") && text.contains("--config=/"),
        "{text}"
    );
    let direct = fixture
        .node
        .pod_address(&ns, &names[0], Some("http"))
        .await
        .unwrap();
    assert_eq!(get(direct, "/env/POD").await.unwrap(), names[0]);

    // A change of the ConfigMap arrives in the file.
    let change = json!({ "data": { "app.yaml": "changed" } });
    let config_maps: Api<ConfigMap> = fixture.api();
    config_maps
        .patch("settings", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    fixture
        .eventually("the changed file", || async {
            get(address, &format!("/file{config}"))
                .await
                .filter(|text| text == "changed")
        })
        .await;

    let none = json!({ "spec": { "replicas": 0 } });
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(&none))
        .await
        .unwrap();
    fixture.all_gone(&pods).await;
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_fails_is_started_again_with_growing_pauses() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    create(&pods, script("crash", "echo run; exit 3", json!({}))).await;
    let pod = fixture
        .eventually("the back-off", || async {
            let pod = pods.get("crash").await.ok()?;
            (waiting(&pod)?.0 == "CrashLoopBackOff").then_some(pod)
        })
        .await;
    let found = status(&pod).unwrap();
    let last = found.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (last.exit_code, last.reason.as_deref(), found.restart_count),
        (3, Some("Error"), 1)
    );
    assert!(
        waiting(&pod)
            .unwrap()
            .1
            .starts_with("back-off 1s restarting failed container=main"),
        "{pod:?}"
    );
    assert!(!is_ready(&pod));
    let previous = LogOptions {
        previous: true,
        ..LogOptions::default()
    };
    assert_eq!(log(&fixture, "crash", previous.clone()).await, "run\n");

    // A container that ended for good has a log, and no run before it.
    let mut once = script("once", "echo done; exit 4", json!({}));
    once["spec"]["restartPolicy"] = json!("Never");
    create(&pods, once).await;
    fixture
        .eventually("the end", || async {
            let pod = pods.get("once").await.ok()?;
            (pod.status?.phase.as_deref() == Some("Failed")).then_some(())
        })
        .await;
    assert_eq!(log(&fixture, "once", LogOptions::default()).await, "done\n");
    let refused = fixture.node.logs(&fixture.namespace, "once", previous).await;
    let refused = refused.err().unwrap();
    assert_eq!(
        (refused.status(), refused.to_string().as_str()),
        (
            400,
            "previous terminated container \"main\" in pod \"once\" not found"
        )
    );
    let events: Api<Event> = fixture.api();
    fixture
        .eventually("the events of a kubelet", || async {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            let told = |reason: &str| events.iter().any(|event| event.reason.as_deref() == Some(reason));
            ["Scheduled", "Created", "Started", "BackOff"]
                .iter()
                .all(|reason| told(reason))
                .then_some(())
        })
        .await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_or_cannot_be_run_is_said_and_what_comes_later_is_used() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let env = json!({ "env": [{ "name": "X", "valueFrom": { "configMapKeyRef": { "name": "later", "key": "x" } } }] });
    create(&pods, script("waits", "echo $X; sleep 60", env)).await;
    create(
        &pods,
        script("unmapped", "", json!({ "image": "example.org/other:1" })),
    )
    .await;
    create(
        &pods,
        script(
            "hooks",
            "",
            json!({ "lifecycle": { "preStop": { "tcpSocket": { "port": 1 } } } }),
        ),
    )
    .await;
    let why = |name: &'static str| {
        let pods = pods.clone();
        let fixture = &fixture;
        async move {
            let waits = || async {
                let (reason, message) = waiting(&pods.get(name).await.ok()?)?;
                (reason != "ContainerCreating").then_some((reason, message))
            };
            fixture.eventually("a reason to wait", waits).await
        }
    };
    assert_eq!(
        why("waits").await,
        (
            "CreateContainerConfigError".into(),
            "configmap \"later\" not found".into()
        )
    );
    let (reason, message) = why("unmapped").await;
    assert_eq!(reason, "ErrImageNeverPull");
    assert!(
        message.contains("\"example.org/other:1\"") && message.contains("example.org/serve"),
        "{message}"
    );
    let (reason, message) = why("hooks").await;
    assert_eq!(reason, "CreateContainerConfigError");
    assert!(
        message.starts_with("spec.containers[main].lifecycle.preStop.tcpSocket"),
        "{message}"
    );

    create::<ConfigMap>(
        &fixture.api(),
        json!({ "metadata": { "name": "later" }, "data": { "x": "found" } }),
    )
    .await;
    fixture
        .eventually("the waiting pod", || async {
            pods.get("waits").await.ok().filter(is_ready)
        })
        .await;
    let follow = LogOptions {
        limit_bytes: Some(6),
        follow: true,
        ..LogOptions::default()
    };
    assert_eq!(log(&fixture, "waits", follow).await, "found\n");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_end_with_the_node_and_resume_with_the_next_one() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    create(&pods, script("stays", "echo up; exec sleep 300", json!({}))).await;
    let deaf = script(
        "deaf",
        "trap '' TERM; echo up; while true; do sleep 1; done",
        json!({}),
    );
    create(&pods, deaf).await;
    for name in ["stays", "deaf"] {
        fixture
            .eventually("a ready pod", || async {
                pods.get(name).await.ok().filter(is_ready)
            })
            .await;
    }
    let address = fixture
        .node
        .services()
        .address(&fixture.namespace, "any", 1)
        .unwrap();
    assert_eq!(fixture.recorded_processes(), 2);

    let fixture = fixture.restart().await;
    let pods: Api<Pod> = fixture.api();
    let pod = fixture
        .eventually("the pod again", || async {
            pods.get("stays").await.ok().filter(is_ready)
        })
        .await;
    assert_eq!(status(&pod).unwrap().restart_count, 1);
    assert_eq!(
        fixture.node.services().address(&fixture.namespace, "any", 1),
        Some(address)
    );

    pods.delete("deaf", &DeleteParams::default()).await.unwrap();
    pods.delete("stays", &DeleteParams::default()).await.unwrap();
    fixture.all_gone(&pods).await;
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_containers_come_first_and_probes_restart_what_hangs() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    let mut pod = script(
        "ordered",
        "cat /scratch/made && exec sleep 300",
        json!({
        "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }] }),
    );
    pod["spec"]["volumes"] = json!([{ "name": "scratch", "emptyDir": {} }]);
    pod["spec"]["initContainers"] = json!([{ "name": "first", "image": "example.org/shell",
        "args": ["-c", "echo made > /scratch/made"], "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }] }]);
    create(&pods, pod).await;
    // Nothing listens behind this probe, ever.
    let probe = json!({ "ports": [{ "containerPort": 8000 }], "startupProbe": {
        "tcpSocket": { "port": 8000 }, "periodSeconds": 1, "failureThreshold": 1 } });
    create(&pods, script("hangs", "exec sleep 300", probe)).await;
    fixture
        .eventually("the ordered pod", || async {
            pods.get("ordered").await.ok().filter(is_ready)
        })
        .await;
    let main = LogOptions {
        container: Some("main".into()),
        ..LogOptions::default()
    };
    assert_eq!(log(&fixture, "ordered", main).await, "made\n");
    let pod = fixture
        .eventually("a restart by the probe", || async {
            let pod = pods.get("hangs").await.ok()?;
            (status(&pod)?.restart_count > 0).then_some(pod)
        })
        .await;
    assert!(!is_ready(&pod));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_image_restarts_the_container_and_what_is_refused_later_does_not_start() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    // Even where nothing else restarts it.
    let mut pod = script(
        "changes",
        "trap 'exit 0' TERM; echo up; while true; do sleep 0.1; done",
        json!({}),
    );
    pod["spec"]["restartPolicy"] = json!("Never");
    create(&pods, pod).await;
    let ready = |restarts: i32| {
        let pods = pods.clone();
        async move {
            let pod = pods.get("changes").await.ok().filter(is_ready)?;
            (status(&pod)?.restart_count == restarts).then_some(pod)
        }
    };
    fixture.eventually("the first run", || ready(0)).await;
    // The shell is there before its trap is.
    let up = LogOptions {
        limit_bytes: Some(3),
        follow: true,
        ..LogOptions::default()
    };
    assert_eq!(log(&fixture, "changes", up).await, "up\n");
    let set_image = |image: &str| {
        let change = json!({ "spec": { "containers": [{ "name": "main", "image": image }] } });
        let pods = pods.clone();
        async move {
            let params = PatchParams::default();
            pods.patch("changes", &params, &Patch::Strategic(&change))
                .await
                .unwrap();
        }
    };
    set_image("example.org/shell:2").await;
    let pod = fixture.eventually("the second run", || ready(1)).await;
    let found = status(&pod).unwrap();
    assert_eq!(found.image, "example.org/shell:2");
    let last = found.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(last.exit_code, 0, "it was asked to end first");
    assert_eq!(fixture.recorded_processes(), 1);
    let events: Api<Event> = fixture.api();
    fixture
        .eventually("the event of a kubelet", || async {
            let wanted = "Container main definition changed, will be restarted";
            let events = events.list(&ListParams::default()).await.ok()?.items;
            events
                .iter()
                .any(|event| {
                    event.reason.as_deref() == Some("Killing") && event.message.as_deref() == Some(wanted)
                })
                .then_some(())
        })
        .await;

    // One that cannot be run is told, and the next one gets it out of there.
    set_image("example.org/other:1").await;
    fixture
        .eventually("an image that is not there", || async {
            let (reason, _) = waiting(&pods.get("changes").await.ok()?)?;
            (reason == "ErrImageNeverPull").then_some(())
        })
        .await;
    set_image("example.org/shell:3").await;
    fixture.eventually("the third run", || ready(2)).await;

    let deadline = json!({ "spec": { "activeDeadlineSeconds": 3600 } });
    pods.patch("changes", &PatchParams::default(), &Patch::Merge(&deadline))
        .await
        .unwrap();
    set_image("example.org/shell:4").await;
    let message = fixture
        .eventually("the refusal", || async {
            let (reason, message) = waiting(&pods.get("changes").await.ok()?)?;
            (reason == "CreateContainerConfigError").then_some(message)
        })
        .await;
    assert!(message.starts_with("spec.activeDeadlineSeconds "), "{message}");
    assert_eq!(fixture.recorded_processes(), 0);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_cannot_be_used_is_told_and_used_once_it_can() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    // A file in the place of the folder: nobody can write there, whoever they are.
    let logs = fixture.folder().join("logs");
    std::fs::write(&logs, "").unwrap();
    create(&pods, script("mute", "exec sleep 300", json!({}))).await;
    let (reason, message) = fixture
        .eventually("a reason to wait", || async {
            waiting(&pods.get("mute").await.ok()?).filter(|(reason, _)| reason != "ContainerCreating")
        })
        .await;
    assert_eq!(reason, "CreateContainerError");
    assert!(message.starts_with("the log cannot be opened: "), "{message}");
    fixture.told("Failed", "Error: the log cannot be opened").await;
    std::fs::remove_file(&logs).unwrap();
    fixture.ready("mute").await;

    // The same for the folders of pods: what runs goes on.
    let (folders, aside) = (fixture.folder().join("pods"), fixture.folder().join("aside"));
    std::fs::rename(&folders, &aside).unwrap();
    std::fs::write(&folders, "").unwrap();
    create(&pods, script("nowhere", "exec sleep 300", json!({}))).await;
    fixture.told("FailedMount", "cannot create ").await;
    std::fs::remove_file(&folders).unwrap();
    std::fs::rename(&aside, &folders).unwrap();
    fixture.ready("nowhere").await;
    assert_eq!(fixture.recorded_processes(), 2);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_table_of_processes_does_not_keep_the_node_from_starting() {
    let fixture = Fixture::start().await;
    let pods: Api<Pod> = fixture.api();
    create(&pods, script("stays", "exec sleep 300", json!({}))).await;
    fixture.ready("stays").await;
    let fixture = fixture
        .restart_after(|folder| std::fs::write(folder.join("run/1-x.json"), "{\"pid\": 1, ").unwrap())
        .await;
    fixture.ready("stays").await;
    assert!(!fixture.folder().join("run/1-x.json").exists());
    fixture.stop().await;
}
