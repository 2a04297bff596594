//! Volumes as folders of the pod.
//!
//! Owns what is in them: files from ConfigMaps, Secrets and the pod's own fields, which follow changes, empty
//! folders, and links to the folders of claims. Mount paths are text: see [`Mounts`].

mod content;
mod mounts;
mod write;

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Pod, Volume};

pub(crate) use self::mounts::Mounts;
use super::{env::ConfigError, sources::Sources};
use crate::files::create_private_dir;

struct FileContent {
    bytes: Vec<u8>,
    mode: u32,
}

/// Whether the node writes what is in the volume.
fn is_projected(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Makes the folder of every volume of the pod hold what it should now. `rewrite` changes the text of files.
pub(crate) fn materialise(
    pod: &Pod,
    sources: &Sources,
    dir: &Path,
    rewrite: impl Fn(&str) -> String,
) -> Result<(), ConfigError> {
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let failed = |reason: String| {
            ConfigError(format!(
                "MountVolume.SetUp failed for volume {:?} : {reason}",
                volume.name
            ))
        };
        let folder = dir.join(&volume.name);
        if let Some(claim) = &volume.persistent_volume_claim {
            let target = sources
                .claims
                .get(&claim.claim_name)
                .ok_or_else(|| failed(format!("persistentvolumeclaim {:?} not found", claim.claim_name)))?;
            link(target, &folder).map_err(|error| failed(error.to_string()))?;
            continue;
        }
        create_private_dir(&folder).map_err(|error| failed(error.to_string()))?;
        let Some(mut files) = content::of(volume, pod, sources).map_err(failed)? else {
            continue;
        };
        for file in files.values_mut() {
            if let Ok(text) = std::str::from_utf8(&file.bytes) {
                file.bytes = rewrite(text).into_bytes();
            }
        }
        write::write(&folder, &files).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

/// Makes `link` lead to the folder `target`, which is made where it is not there.
fn link(target: &Path, link: &Path) -> io::Result<()> {
    create_private_dir(target)?;
    if fs::read_link(link).ok().as_deref() == Some(target) {
        return Ok(());
    }
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(target, link),
    }
}

/// `path` if it stays inside the folder it is joined to.
fn inside(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (plain && path.file_name().is_some()).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn sources(data: serde_json::Value) -> Sources {
        let object = serde_json::from_value(json!({ "data": data })).unwrap();
        Sources {
            config_maps: [("cm".into(), object)].into(),
            ..Default::default()
        }
    }

    fn pod(volume: serde_json::Value) -> Pod {
        serde_json::from_value(json!({ "spec": { "containers": [], "volumes": [volume] } })).unwrap()
    }

    #[test]
    fn files_follow_the_config_map() {
        let dir = tempfile::tempdir().unwrap();
        let pod = pod(json!({ "name": "v", "configMap": { "name": "cm", "defaultMode": 0o600 } }));
        let write = |data| {
            materialise(&pod, &sources(data), dir.path(), |text| {
                text.replace("old", "new")
            })
        };
        write(json!({ "a": "is old", "b": "2" })).unwrap();
        let file = |name: &str| dir.path().join("v").join(name);
        assert_eq!(fs::read_to_string(file("a")).unwrap(), "is new");
        assert_eq!(
            fs::metadata(file("a")).unwrap().permissions().mode() & 0o777,
            0o600
        );
        write(json!({ "a": "changed" })).unwrap();
        assert_eq!(fs::read_to_string(file("a")).unwrap(), "changed");
        assert!(!file("b").exists());
    }

    #[test]
    fn items_choose_paths_and_modes_and_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let write = |items| {
            let pod = pod(json!({ "name": "v", "configMap": { "name": "cm", "items": items } }));
            materialise(&pod, &sources(json!({ "a": "1" })), dir.path(), str::to_owned)
                .map_err(|error| error.to_string())
        };
        write(json!([{ "key": "a", "path": "x/y", "mode": 0o400 }])).unwrap();
        let file = dir.path().join("v/x/y");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o400);
        write(json!([{ "key": "a", "path": "z" }])).unwrap();
        assert!(!file.exists() && !file.parent().unwrap().exists());
        for (items, message) in [
            (json!([{ "key": "a", "path": "../z" }]), "leads out"),
            (json!([{ "key": "a", "path": "/z" }]), "leads out"),
            (
                json!([{ "key": "no", "path": "z" }]),
                "non-existent config key: no",
            ),
        ] {
            let found = write(items).unwrap_err();
            assert!(
                found.contains(message) && found.contains("volume \"v\""),
                "{found}"
            );
        }
    }

    #[test]
    fn a_projected_volume_has_the_files_of_all_its_sources() {
        let dir = tempfile::tempdir().unwrap();
        let mut sources = sources(json!({ "a": "from the map" }));
        let secret = serde_json::from_value(json!({ "data": { "s": "aGlkZGVu" } })).unwrap();
        sources.secrets.insert("sec".into(), secret);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "labels": { "app": "x", "b": "\"q\"" } },
            "spec": { "containers": [{ "name": "c", "resources": { "limits": { "cpu": "2" } } }], "volumes": [
                { "name": "v", "projected": { "defaultMode": 0o640, "sources": [
                    { "configMap": { "name": "cm" } },
                    { "secret": { "name": "sec", "items": [{ "key": "s", "path": "deep/s", "mode": 0o400 }] } },
                    { "secret": { "name": "no", "optional": true } },
                    { "downwardAPI": { "items": [
                        { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
                        { "path": "cpu", "resourceFieldRef": { "containerName": "c", "resource": "limits.cpu" } },
                    ] } },
                ] } },
                { "name": "d", "downwardAPI": { "items": [
                    { "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
            ] } }))
        .unwrap();
        materialise(&pod, &sources, dir.path(), str::to_owned).unwrap();
        for (file, text, mode) in [
            ("v/a", "from the map", 0o640),
            ("v/deep/s", "hidden", 0o400),
            ("v/labels", "app=\"x\"\nb=\"\\\"q\\\"\"", 0o640),
            ("v/cpu", "2", 0o640),
            ("d/name", "p", 0o644),
        ] {
            let path = dir.path().join(file);
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "{file}");
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                mode,
                "{file}"
            );
        }
    }

    #[test]
    fn all_files_of_a_volume_change_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pod = pod(json!({ "name": "v", "configMap": { "name": "cm" } }));
        let write = |data| materialise(&pod, &sources(data), dir.path(), str::to_owned).unwrap();
        write(json!({ "a": "1", "b": "1" }));
        let folder = dir.path().join("v");
        let before = fs::canonicalize(folder.join("..data")).unwrap();
        write(json!({ "a": "1", "b": "1" }));
        assert_eq!(
            fs::canonicalize(folder.join("..data")).unwrap(),
            before,
            "nothing changed"
        );
        assert_eq!(fs::canonicalize(folder.join("a")).unwrap(), before.join("a"));
        write(json!({ "a": "2", "b": "2" }));
        let after = fs::canonicalize(folder.join("..data")).unwrap();
        assert_ne!(after, before);
        assert!(!before.exists(), "the files of before are gone");
        assert_eq!(fs::read_to_string(folder.join("b")).unwrap(), "2");
    }

    #[test]
    fn a_claim_is_a_folder_that_outlives_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let pod = pod(json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }));
        let (volumes, claim) = (dir.path().join("volumes"), dir.path().join("claims/data"));
        create_private_dir(&volumes).unwrap();
        let missing = materialise(&pod, &Sources::default(), &volumes, str::to_owned).unwrap_err();
        assert!(
            missing.0.contains("persistentvolumeclaim \"data\" not found"),
            "{missing}"
        );
        let sources = Sources {
            claims: [("data".to_owned(), claim.clone())].into(),
            ..Sources::default()
        };
        for _ in 0..2 {
            materialise(&pod, &sources, &volumes, str::to_owned).unwrap();
        }
        fs::write(volumes.join("v/kept"), "here").unwrap();
        fs::remove_dir_all(&volumes).unwrap();
        assert_eq!(fs::read_to_string(claim.join("kept")).unwrap(), "here");
    }
}
