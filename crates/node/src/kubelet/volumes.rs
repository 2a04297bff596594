//! Volumes as folders, and mount paths as text: without a mount namespace, a container reaches its files
//! under the folder that stands for the mount path, and that folder replaces the path wherever it is
//! written in the container's command, args and env.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Component, Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, KeyToPath, Pod, Volume};

use super::{env::ConfigError, sources::Sources};
use crate::files::{create_private_dir, replace};

/// The mode of files whose volume names none.
const DEFAULT_MODE: i32 = 0o644;

struct FileContent {
    bytes: Vec<u8>,
    mode: u32,
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
        create_private_dir(&folder).map_err(|error| failed(error.to_string()))?;
        let Some(mut files) = content(volume, sources).map_err(failed)? else {
            continue;
        };
        for file in files.values_mut() {
            if let Ok(text) = std::str::from_utf8(&file.bytes) {
                file.bytes = rewrite(text).into_bytes();
            }
        }
        write_all(&folder, &files).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

/// The files of a volume by their path in it; `None` for one whose content is the containers' own.
fn content(volume: &Volume, sources: &Sources) -> Result<Option<BTreeMap<PathBuf, FileContent>>, String> {
    if let Some(source) = &volume.config_map {
        let optional = source.optional == Some(true);
        let object = match sources.config_maps.get(&source.name) {
            None if optional => return Ok(Some(BTreeMap::new())),
            None => return Err(format!("configmap {:?} not found", source.name)),
            Some(object) => object,
        };
        let mut data: BTreeMap<&str, &[u8]> = BTreeMap::new();
        data.extend(
            object
                .data
                .iter()
                .flatten()
                .map(|(key, text)| (key.as_str(), text.as_bytes())),
        );
        data.extend(
            object
                .binary_data
                .iter()
                .flatten()
                .map(|(key, bytes)| (key.as_str(), &bytes.0[..])),
        );
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        return files(&data, source.items.as_deref(), mode, optional).map(Some);
    }
    if let Some(source) = &volume.secret {
        let optional = source.optional == Some(true);
        let name = source.secret_name.as_deref().unwrap_or_default();
        let object = match sources.secrets.get(name) {
            None if optional => return Ok(Some(BTreeMap::new())),
            None => return Err(format!("secret {name:?} not found")),
            Some(object) => object,
        };
        let data = object
            .data
            .iter()
            .flatten()
            .map(|(key, bytes)| (key.as_str(), &bytes.0[..]))
            .collect();
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        return files(&data, source.items.as_deref(), mode, optional).map(Some);
    }
    Ok(None)
}

fn files(
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    default_mode: i32,
    optional: bool,
) -> Result<BTreeMap<PathBuf, FileContent>, String> {
    let file = |bytes: &[u8], mode: i32| FileContent {
        bytes: bytes.to_vec(),
        mode: u32::try_from(mode).unwrap_or(0) & 0o777,
    };
    let Some(items) = items else {
        return Ok(data
            .iter()
            .map(|(key, bytes)| (PathBuf::from(key), file(bytes, default_mode)))
            .collect());
    };
    let mut files = BTreeMap::new();
    for item in items {
        match data.get(item.key.as_str()) {
            Some(bytes) => {
                let path =
                    inside(&item.path).ok_or_else(|| format!("path {:?} leads out of it", item.path))?;
                files.insert(path, file(bytes, item.mode.unwrap_or(default_mode)));
            }
            None if optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(files)
}

/// `path` if it stays inside the folder it is joined to.
fn inside(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (plain && path.file_name().is_some()).then_some(path)
}

/// Writes what differs, each file at once, and removes what should not be there.
fn write_all(folder: &Path, files: &BTreeMap<PathBuf, FileContent>) -> io::Result<()> {
    let mut kept = BTreeSet::new();
    for (path, file) in files {
        let full = folder.join(path);
        if let Some(parent) = full.parent() {
            create_private_dir(parent)?;
        }
        if fs::read(&full).ok().as_deref() != Some(&file.bytes) {
            replace(&full, &file.bytes, file.mode)?;
        }
        kept.extend(
            full.ancestors()
                .take_while(|above| *above != folder)
                .map(Path::to_owned),
        );
    }
    remove_others(folder, &kept)
}

fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, is_dir) = (entry.path(), entry.file_type()?.is_dir());
        match (kept.contains(&path), is_dir) {
            (true, true) => remove_others(&path, kept)?,
            (true, false) => {}
            (false, true) => fs::remove_dir_all(&path)?,
            (false, false) => fs::remove_file(&path)?,
        }
    }
    Ok(())
}

/// The mount paths of a container and the folders or files that stand for them, longest path first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<(String, String)>);

impl Mounts {
    /// Those of `container`, whose volumes are in `dir`. `variables` are for `subPathExpr`.
    pub(crate) fn of(
        container: &Container,
        dir: &Path,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let expanded = mount
                .sub_path_expr
                .as_ref()
                .map(|expression| super::env::expand(expression, variables));
            let sub_path = expanded
                .or_else(|| mount.sub_path.clone())
                .filter(|path| !path.is_empty());
            let mut folder = dir.join(&mount.name);
            if let Some(sub_path) = sub_path {
                let path = inside(&sub_path).ok_or_else(|| {
                    ConfigError(format!(
                        "volumeMounts subPath {sub_path:?} leads out of volume {:?}",
                        mount.name
                    ))
                })?;
                folder.push(path);
            }
            let path = mount.mount_path.trim_end_matches('/');
            if !path.is_empty() {
                mounts.push((path.to_owned(), folder.display().to_string()));
            }
        }
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Ok(Self(mounts))
    }

    /// Makes the folders of `subPath`s of the pod's emptyDir volumes in `dir`, where nothing is there yet.
    pub(crate) fn create_missing(&self, pod: &Pod, dir: &Path) -> Result<(), ConfigError> {
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let root = dir.join(&volume.name);
            let folders = self.0.iter().map(|(_, folder)| Path::new(folder));
            for folder in folders.filter(|folder| volume.empty_dir.is_some() && folder.starts_with(&root)) {
                if !folder.exists() {
                    create_private_dir(folder).map_err(|error| {
                        ConfigError(format!(
                            "cannot create subPath {} of volume {:?}: {error}",
                            folder.display(),
                            volume.name
                        ))
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The folder that stands for `path`, or `path` itself.
    pub(crate) fn rewrite(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        while let Some((at, path, folder)) = self.first_in(text, done) {
            out.push_str(&text[done..at]);
            out.push_str(folder);
            done = at + path.len();
        }
        out.push_str(&text[done..]);
        out
    }

    /// The first mount path in `text` from `from`, as a whole path or the start of one.
    fn first_in(&self, text: &str, from: usize) -> Option<(usize, &str, &str)> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
        let found = |path: &str| {
            text[from..]
                .match_indices(path)
                .map(|(at, _)| from + at)
                .find(|at| {
                    let before = &text[..*at];
                    let starts = before.ends_with("://")
                        || before.chars().next_back().is_none_or(|c| !is_name(c) && c != '/');
                    let after = text[at + path.len()..].chars().next();
                    starts && after.is_none_or(|c| !is_name(c))
                })
        };
        self.0
            .iter()
            .filter_map(|(path, folder)| Some((found(path)?, path.as_str(), folder.as_str())))
            // The longest one where two start at the same place: the list is in that order.
            .min_by_key(|(at, ..)| *at)
    }
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
    fn mount_paths_are_replaced_as_whole_paths() {
        let container: Container = serde_json::from_value(json!({ "name": "c", "volumeMounts": [
            { "name": "a", "mountPath": "/etc/app" },
            { "name": "b", "mountPath": "/etc/app/sub/" },
            { "name": "c", "mountPath": "/one.yaml", "subPath": "one.yaml" },
        ] }))
        .unwrap();
        let mounts = Mounts::of(&container, Path::new("/v"), &BTreeMap::new()).unwrap();
        for (text, expected) in [
            ("/etc/app", "/v/a"),
            ("--config=/etc/app/config.yaml", "--config=/v/a/config.yaml"),
            ("/etc/app/sub/x:/etc/app/y", "/v/b/x:/v/a/y"),
            ("file:///etc/app/x", "file:///v/a/x"),
            ("cat '/one.yaml'", "cat '/v/c/one.yaml'"),
            (
                "/etc/apple /usr/etc/app x/etc/app /etc/app2 /etc/app.d",
                "/etc/apple /usr/etc/app x/etc/app /etc/app2 /etc/app.d",
            ),
        ] {
            assert_eq!(mounts.rewrite(text), expected, "{text}");
        }
    }

    #[test]
    fn sub_paths_of_an_empty_dir_are_made_and_of_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(serde_json::json!({ "spec": {
            "containers": [{ "name": "c", "volumeMounts": [
                { "name": "scratch", "mountPath": "/a", "subPath": "x/y" },
                { "name": "config", "mountPath": "/b", "subPath": "key" },
            ] }],
            "volumes": [{ "name": "scratch", "emptyDir": {} }, { "name": "config", "configMap": { "name": "m" } }],
        } }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let mounts = Mounts::of(container, dir.path(), &BTreeMap::new()).unwrap();
        mounts.create_missing(&pod, dir.path()).unwrap();
        mounts.create_missing(&pod, dir.path()).unwrap();
        assert!(dir.path().join("scratch/x/y").is_dir());
        assert!(!dir.path().join("config").exists());
    }
}
