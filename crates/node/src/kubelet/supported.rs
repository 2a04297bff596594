//! What a pod may ask for that this node cannot give: refused with the field, what was found and the fix,
//! never ignored.

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use super::probe;

/// Why the pod cannot run here; `None` when it can.
pub(crate) fn refusal(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let volumes = spec.volumes.iter().flatten();
    let containers = spec.containers.iter().map(|container| ("containers", container));
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| ("initContainers", container));
    let mut reasons = volumes
        .filter_map(volume)
        .chain(containers.chain(init).filter_map(|(list, container)| {
            let reason = container_refusal(container)?;
            Some(format!("spec.{list}[{}].{reason}", container.name))
        }));
    reasons.next()
}

fn volume(volume: &Volume) -> Option<String> {
    if volume.config_map.is_some() || volume.secret.is_some() || volume.empty_dir.is_some() {
        return None;
    }
    // The kind of a volume is its only other field.
    let value = serde_json::to_value(volume).ok()?;
    let kind = value.as_object()?.keys().find(|key| *key != "name")?.clone();
    Some(format!(
        "spec.volumes[{}].{kind} is not supported by the local node; use configMap, secret or emptyDir",
        volume.name
    ))
}

fn container_refusal(container: &Container) -> Option<String> {
    for (field, probe) in [
        ("startupProbe", &container.startup_probe),
        ("readinessProbe", &container.readiness_probe),
        ("livenessProbe", &container.liveness_probe),
    ] {
        if let Some(reason) = probe.as_ref().and_then(probe::unsupported) {
            return Some(format!("{field}.{reason}"));
        }
    }
    if container.lifecycle.is_some() {
        return Some("lifecycle is not supported by the local node; do it in the container's program".into());
    }
    if container
        .volume_devices
        .as_ref()
        .is_some_and(|devices| !devices.is_empty())
    {
        return Some("volumeDevices is not supported by the local node; use volumeMounts".into());
    }
    if container.restart_policy.is_some() {
        return Some("restartPolicy of a container is not supported by the local node; leave it out".into());
    }
    if container.tty == Some(true) || container.stdin == Some(true) {
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
                json!({ "containers": [{ "name": "c", "readinessProbe": { "tcpSocket": { "port": 1 } } }],
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
                with(json!({ "name": "c", "livenessProbe": { "exec": { "command": ["x"] } } })),
                "spec.containers[c].livenessProbe.exec ",
            ),
            (
                with(json!({ "name": "c", "startupProbe": { "httpGet": { "port": 1, "scheme": "HTTPS" } } })),
                "spec.containers[c].startupProbe.httpGet.scheme ",
            ),
            (
                with(json!({ "name": "c", "lifecycle": {} })),
                "spec.containers[c].lifecycle ",
            ),
            (
                json!({ "containers": [], "initContainers": [{ "name": "i", "restartPolicy": "Always" }] }),
                "spec.initContainers[i].restartPolicy ",
            ),
        ] {
            let reason = refused(spec).unwrap();
            assert!(reason.starts_with(start), "{reason}");
        }
    }
}
