//! What a pod may ask for that this node cannot give: refused with the field, what was found and the fix,
//! never ignored.

//!
//! Every field of the two structs is named here, so that one that Kubernetes adds does not compile until it
//! is decided upon.

use k8s_openapi::api::core::v1::{Affinity, Container, Lifecycle, Pod, PodSpec, Volume, VolumeProjection};

use super::role::Role;
use crate::scheduler::node_labels;

/// Why the pod cannot run here; `None` when it can.
pub(crate) fn refusal(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(reason) = spec_refusal(spec) {
        return Some(format!("spec.{reason}"));
    }
    let volumes = spec.volumes.iter().flatten();
    let containers = spec.containers.iter().map(|container| (Role::Main, container));
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| (Role::of_init(container), container));
    let mut reasons = volumes
        .filter_map(volume)
        .chain(containers.chain(init).filter_map(|(role, container)| {
            let reason = container_refusal(container, role)?;
            Some(format!("spec.{}[{}].{reason}", role.list(), container.name))
        }));
    reasons.next()
}

fn spec_refusal(spec: &PodSpec) -> Option<String> {
    let PodSpec {
        // Refused below.
        active_deadline_seconds,
        affinity,
        dns_config,
        ephemeral_containers,
        host_aliases,
        hostname,
        hostname_override,
        node_selector,
        os,
        readiness_gates,
        resource_claims,
        runtime_class_name,
        scheduling_group,
        set_hostname_as_fqdn,
        subdomain,
        // Checked one by one by the caller.
        containers: _,
        init_containers: _,
        volumes: _,
        // Honoured.
        node_name,
        restart_policy: _,
        scheduler_name: _,
        scheduling_gates: _,
        termination_grace_period_seconds: _,
        // Without effect here; the crate's docs say why.
        automount_service_account_token: _,
        dns_policy: _,
        enable_service_links: _,
        eviction_responders: _,
        host_ipc: _,
        host_network: _,
        host_pid: _,
        host_users: _,
        image_pull_secrets: _,
        overhead: _,
        preemption_policy: _,
        priority: _,
        priority_class_name: _,
        resources: _,
        security_context: _,
        service_account: _,
        service_account_name: _,
        share_process_namespace: _,
        tolerations: _,
        topology_spread_constraints: _,
    } = spec;
    let labels = node_labels(node_name.as_deref().unwrap_or_default());
    let unmatched = |(key, value): &(&String, &String)| labels.get(*key) != Some(*value);
    if let Some((key, value)) = node_selector.iter().flatten().find(unmatched) {
        let found = labels.get(key).map_or("no such label", String::as_str);
        return Some(format!(
            "nodeSelector[{key}] is {value:?}, and the local node, the only one, has {found:?}; leave it out"
        ));
    }
    if let Some(os) = os.as_ref().filter(|os| os.name != "linux") {
        return Some(format!(
            "os.name {:?} is not supported by the local node; use linux",
            os.name
        ));
    }
    if let Some(field) = affinity.as_ref().and_then(required_affinity) {
        return Some(format!(
            "affinity.{field} is not supported by the local node; use \
             preferredDuringSchedulingIgnoredDuringExecution"
        ));
    }
    let named = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
    let refused = [
        ("activeDeadlineSeconds", active_deadline_seconds.is_some()),
        ("dnsConfig", dns_config.is_some()),
        ("ephemeralContainers", is_filled(ephemeral_containers)),
        ("hostAliases", is_filled(host_aliases)),
        ("hostname", named(hostname)),
        ("hostnameOverride", named(hostname_override)),
        ("readinessGates", is_filled(readiness_gates)),
        ("resourceClaims", is_filled(resource_claims)),
        ("runtimeClassName", named(runtime_class_name)),
        ("schedulingGroup", scheduling_group.is_some()),
        ("setHostnameAsFQDN", *set_hostname_as_fqdn == Some(true)),
        ("subdomain", named(subdomain)),
    ];
    let (field, _) = refused.into_iter().find(|(_, is_asked)| *is_asked)?;
    Some(format!(
        "{field} is not supported by the local node; leave it out"
    ))
}

fn is_filled<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(|list| !list.is_empty())
}

/// The rule that must hold, of those that there are. Preferences choose among nodes, and there is one.
fn required_affinity(affinity: &Affinity) -> Option<&'static str> {
    let Affinity {
        node_affinity,
        pod_affinity,
        pod_anti_affinity,
    } = affinity;
    let node = node_affinity.as_ref().is_some_and(|rules| {
        rules
            .required_during_scheduling_ignored_during_execution
            .is_some()
    });
    let pod = pod_affinity
        .as_ref()
        .is_some_and(|rules| is_filled(&rules.required_during_scheduling_ignored_during_execution));
    let anti = pod_anti_affinity
        .as_ref()
        .is_some_and(|rules| is_filled(&rules.required_during_scheduling_ignored_during_execution));
    [
        (
            "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            node,
        ),
        ("podAffinity.requiredDuringSchedulingIgnoredDuringExecution", pod),
        (
            "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            anti,
        ),
    ]
    .into_iter()
    .find_map(|(field, is_asked)| is_asked.then_some(field))
}

fn volume(volume: &Volume) -> Option<String> {
    let plain = volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.empty_dir.is_some()
        || volume.downward_api.is_some()
        || volume.persistent_volume_claim.is_some();
    if plain {
        return None;
    }
    if let Some(projected) = &volume.projected {
        let field = projected.sources.iter().flatten().find_map(projection)?;
        return Some(format!(
            "spec.volumes[{}].projected.{field} is not supported by the local node; use configMap, secret or \
             downwardAPI",
            volume.name
        ));
    }
    // The kind of a volume is its only other field.
    let value = serde_json::to_value(volume).ok()?;
    let kind = value.as_object()?.keys().find(|key| *key != "name")?.clone();
    Some(format!(
        "spec.volumes[{}].{kind} is not supported by the local node; use configMap, secret, downwardAPI, \
         projected, persistentVolumeClaim or emptyDir",
        volume.name
    ))
}

/// The source of a projected volume that cannot be given: there is nobody to issue tokens or certificates.
fn projection(source: &VolumeProjection) -> Option<&'static str> {
    let VolumeProjection {
        cluster_trust_bundle,
        config_map: _,
        downward_api: _,
        pod_certificate,
        secret: _,
        service_account_token,
    } = source;
    [
        ("serviceAccountToken", service_account_token.is_some()),
        ("clusterTrustBundle", cluster_trust_bundle.is_some()),
        ("podCertificate", pod_certificate.is_some()),
    ]
    .into_iter()
    .find_map(|(field, is_asked)| is_asked.then_some(field))
}

/// Hooks that Kubernetes keeps in its schema but does not run, or that need a container runtime.
fn lifecycle_refusal(lifecycle: &Lifecycle) -> Option<String> {
    let Lifecycle {
        post_start,
        pre_stop,
        stop_signal,
    } = lifecycle;
    if stop_signal.is_some() {
        return Some("stopSignal is not supported by the local node; handle SIGTERM".to_owned());
    }
    let hooks = [("postStart", post_start), ("preStop", pre_stop)];
    let (field, _) = hooks
        .into_iter()
        .find(|(_, hook)| hook.as_ref().is_some_and(|hook| hook.tcp_socket.is_some()))?;
    Some(format!(
        "{field}.tcpSocket is not supported by the local node; use exec, httpGet or sleep"
    ))
}

fn container_refusal(container: &Container, role: Role) -> Option<String> {
    let Container {
        // Refused below.
        lifecycle,
        restart_policy,
        restart_policy_rules,
        stdin,
        tty,
        volume_devices,
        // Honoured.
        args: _,
        command: _,
        env: _,
        env_from: _,
        image: _,
        liveness_probe: _,
        name: _,
        ports: _,
        readiness_probe: _,
        startup_probe: _,
        termination_message_policy: _,
        volume_mounts: _,
        working_dir: _,
        // Without effect here; the crate's docs say why.
        image_pull_policy: _,
        resize_policy: _,
        resources: _,
        security_context: _,
        stdin_once: _,
        termination_message_path: _,
    } = container;
    if let Some(reason) = lifecycle.as_ref().and_then(lifecycle_refusal) {
        return Some(format!("lifecycle.{reason}"));
    }
    if is_filled(volume_devices) {
        return Some("volumeDevices is not supported by the local node; use volumeMounts".into());
    }
    if let Some(policy) = restart_policy
        .as_ref()
        .filter(|policy| role != Role::Sidecar || *policy != "Always")
    {
        return Some(format!(
            "restartPolicy {policy:?} of a container is not supported by the local node; leave it out, or use \
             Always for an init container that goes on beside the others"
        ));
    }
    if is_filled(restart_policy_rules) {
        return Some("restartPolicyRules is not supported by the local node; leave it out".into());
    }
    if *tty == Some(true) || *stdin == Some(true) {
        return Some("stdin and tty are not supported by the local node; leave them out".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_given_is_refused_by_its_field() {
        let refused = |spec| refusal(&serde_json::from_value(json!({ "spec": spec })).unwrap());
        let with = |container| json!({ "containers": [container] });
        assert_eq!(
            refused(
                json!({ "containers": [{ "name": "c", "readinessProbe": { "grpc": { "port": 1 } },
                    "lifecycle": { "preStop": { "exec": { "command": ["x"] } } } }],
                "initContainers": [{ "name": "i", "restartPolicy": "Always" }],
                "volumes": [{ "name": "v", "emptyDir": {} }] })
            ),
            None
        );
        for (spec, start) in [
            (
                json!({ "containers": [], "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] }),
                "spec.volumes[v].hostPath ",
            ),
            (
                json!({ "containers": [], "volumes": [{ "name": "v", "projected": { "sources": [
                    { "configMap": { "name": "m" } }, { "serviceAccountToken": { "path": "t" } }] } }] }),
                "spec.volumes[v].projected.serviceAccountToken ",
            ),
            (
                with(json!({ "name": "c", "lifecycle": { "preStop": { "tcpSocket": { "port": 1 } } } })),
                "spec.containers[c].lifecycle.preStop.tcpSocket ",
            ),
            (
                with(json!({ "name": "c", "lifecycle": { "stopSignal": "SIGUSR1" } })),
                "spec.containers[c].lifecycle.stopSignal ",
            ),
            (
                with(json!({ "name": "c", "restartPolicy": "Never" })),
                "spec.containers[c].restartPolicy \"Never\" ",
            ),
            (
                json!({ "containers": [], "initContainers": [{ "name": "i", "restartPolicy": "OnFailure" }] }),
                "spec.initContainers[i].restartPolicy \"OnFailure\" ",
            ),
        ] {
            let reason = refused(spec).unwrap();
            assert!(reason.starts_with(start), "{reason}");
        }
    }

    #[test]
    fn fields_of_the_pod_are_refused_or_without_effect() {
        let refused = |field: &str, value| {
            let mut spec = json!({ "containers": [{ "name": "c" }], "nodeName": "laptop" });
            spec[field] = value;
            refusal(&serde_json::from_value(json!({ "spec": spec })).unwrap())
        };
        let rule = json!([{ "topologyKey": "kubernetes.io/hostname" }]);
        for (field, value, start) in [
            ("activeDeadlineSeconds", json!(5), "spec.activeDeadlineSeconds "),
            ("dnsConfig", json!({}), "spec.dnsConfig "),
            ("hostAliases", json!([{ "ip": "10.0.0.1" }]), "spec.hostAliases "),
            ("hostname", json!("a"), "spec.hostname "),
            ("subdomain", json!("a"), "spec.subdomain "),
            ("setHostnameAsFQDN", json!(true), "spec.setHostnameAsFQDN "),
            ("runtimeClassName", json!("gvisor"), "spec.runtimeClassName "),
            (
                "readinessGates",
                json!([{ "conditionType": "a" }]),
                "spec.readinessGates ",
            ),
            ("resourceClaims", json!([{ "name": "a" }]), "spec.resourceClaims "),
            ("os", json!({ "name": "windows" }), "spec.os.name "),
            ("nodeSelector", json!({ "gpu": "yes" }), "spec.nodeSelector[gpu] "),
            (
                "affinity",
                json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": rule } }),
                "spec.affinity.podAntiAffinity.required",
            ),
        ] {
            let reason = refused(field, value).unwrap();
            assert!(reason.starts_with(start), "{reason}");
        }
        for (field, value) in [
            ("nodeSelector", json!({ "kubernetes.io/hostname": "laptop" })),
            ("tolerations", json!([{ "operator": "Exists" }])),
            ("priorityClassName", json!("high")),
            ("hostNetwork", json!(true)),
            ("imagePullSecrets", json!([{ "name": "a" }])),
            ("setHostnameAsFQDN", json!(false)),
            (
                "affinity",
                json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } }),
            ),
        ] {
            assert_eq!(refused(field, value), None, "{field}");
        }
    }
}
