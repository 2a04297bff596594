//! Applies of what a server keeps in a form of its own: they end.

use k8s_openapi::api::apps::v1::Deployment;
use kaos_kube_ext::Applier;
use kaos_testkit::{PATIENCE, TestApi, eventually};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{US, apply, owner};

/// A pod in whose spec much can be said in more than one way.
const POD: &str = r#"
securityContext: {}
affinity: {}
nodeSelector: {}
hostAliases: []
imagePullSecrets: []
initContainers: []
tolerations:
- {operator: Exists, key: "", effect: ""}
topologySpreadConstraints:
- {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}
containers:
- name: c
  image: example.com/c:1
  command: []
  args: []
  envFrom: []
  volumeMounts: []
  lifecycle: {}
  env:
  - {name: EMPTY, value: ""}
  - {name: NAMED, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: CPUS, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
  - {name: CORES, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1000m}}}
  resources:
    requests: {cpu: "0.5", memory: 1024Mi}
    limits: {cpu: 1000m, memory: 1.5Gi, example.com/device: "1e3"}
    claims: []
  ports:
  - {containerPort: 80}
  - {containerPort: 81, name: other}
  - {containerPort: 81, protocol: UDP}
  securityContext:
    privileged: false
    capabilities: {add: [], drop: [ALL]}
  livenessProbe:
    initialDelaySeconds: 0
    httpGet: {port: 80, httpHeaders: []}
volumes:
- {name: empty, emptyDir: {}}
- {name: limited, emptyDir: {sizeLimit: 1024Mi}}
- {name: configured, configMap: {name: x, items: []}}
- name: downward
  downwardAPI:
    items:
    - {path: memory, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1024Ki}}
- name: projected
  projected:
    sources:
    - serviceAccountToken: {path: token}
    - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
- name: claimed
  ephemeral:
    volumeClaimTemplate:
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 1024Mi}}
"#;

/// What only an answer can tell: values that stand for a default of the server's.
const LEARNED: &str = r#"
schedulerName: ""
containers:
- name: c
  image: example.com/c:1
  terminationMessagePath: ""
  livenessProbe:
    periodSeconds: 0
    tcpSocket: {port: 80}
"#;

async fn deployment(api: &TestApi, pod: &str) -> Deployment {
    let pod: Value = serde_saphyr::from_str(pod).unwrap();
    let deployment = json!({
        "metadata": {
            "name": "child",
            "namespace": api.namespace,
            "ownerReferences": [owner(api).await],
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "child"}},
            "template": {"metadata": {"labels": {"app": "child"}}, "spec": pod},
        },
    });
    serde_json::from_value(deployment).unwrap()
}

#[tokio::test]
async fn what_is_applied_in_another_form_is_applied_once() {
    let api = TestApi::start_with_workloads().await;
    let wanted = deployment(&api, POD).await;
    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client.clone(), US);
    apply(&applier, &wanted).await.unwrap();
    for pass in 2..5 {
        calls.clear();
        apply(&applier, &wanted).await.unwrap();
        assert_eq!(calls.writes(), [], "pass {pass}");
    }
    // A restart: nothing is remembered.
    calls.clear();
    apply(&Applier::new(client, US), &wanted).await.unwrap();
    assert_eq!(calls.writes(), []);
}

#[tokio::test]
async fn a_real_change_is_applied_after_any_number_of_quiet_passes() {
    let api = TestApi::start_with_workloads().await;
    let mut wanted = deployment(&api, POD).await;
    let applier = Applier::new(api.client.clone(), US);
    for _ in 0..3 {
        apply(&applier, &wanted).await.unwrap();
    }
    let pod = wanted.spec.template.spec.as_mut().unwrap();
    let requests = pod.containers[0].resources.as_mut().unwrap().requests.as_mut();
    requests.unwrap().get_mut("cpu").unwrap().0 = "0.75".to_owned();
    pod.containers[0].ports.as_mut().unwrap().remove(0);
    let live = apply(&applier, &wanted).await.unwrap();
    let live = json!(live)["spec"]["template"]["spec"]["containers"][0].clone();
    let kept = live["resources"]["requests"]["cpu"].as_str().unwrap();
    assert!(matches!(kept, "750m" | "0.75"), "{live}");
    assert_eq!(live["ports"].as_array().unwrap().len(), 2, "{live}");
}

#[tokio::test]
async fn an_apply_that_changed_nothing_is_not_sent_again() {
    let api = TestApi::start_with_workloads().await;
    let wanted = deployment(&api, LEARNED).await;
    let (client, calls) = api.client_of_namespace().await;
    let applier = Applier::new(client, US);
    apply(&applier, &wanted).await.unwrap();
    // The Deployment controller notes its revision on it, which would be a change between two applies.
    eventually("the Deployment has been seen", PATIENCE, async || {
        let live = api.api::<Deployment>().get("child").await.unwrap();
        live.status.and_then(|status| status.observed_generation) == live.metadata.generation
    })
    .await;
    // The second shows that it changes nothing.
    apply(&applier, &wanted).await.unwrap();
    for pass in 3..6 {
        calls.clear();
        apply(&applier, &wanted).await.unwrap();
        assert_eq!(calls.writes(), [], "pass {pass}");
    }

    // By hand, what the server had filled in.
    let change = json!({"spec": {"template": {"spec": {"schedulerName": "theirs"}}}});
    let deployments = api.api::<Deployment>();
    let merge = Patch::Merge(&change);
    deployments
        .patch("child", &PatchParams::default(), &merge)
        .await
        .unwrap();
    calls.clear();
    let live = apply(&applier, &wanted).await.unwrap();
    assert_eq!(calls.writes().len(), 1);
    let scheduler = live.spec.template.spec.unwrap().scheduler_name;
    assert_ne!(scheduler.as_deref(), Some("theirs"));
}
