//! Mount paths as text: without a mount namespace, a container reaches its files under the folder that stands
//! for the mount path, and that folder replaces the path wherever it is written in the container's command,
//! args and env.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use super::{inside, is_projected};
use crate::{
    files::create_private_dir,
    kubelet::env::{ConfigError, expand},
};

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
                .map(|expression| expand(expression, variables));
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

    /// Makes what `subPath`s stand for, where nothing is there yet: folders in volumes whose content is the
    /// containers' own, and copies of what the others hold now. As on a cluster, a copy does not follow changes.
    pub(crate) fn make_sub_paths(&mut self, pod: &Pod, dir: &Path, copies: &Path) -> Result<(), ConfigError> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes {
            let root = dir.join(&volume.name);
            for (index, (_, folder)) in self.0.iter_mut().enumerate() {
                let path = PathBuf::from(&*folder);
                if path == root || !path.starts_with(&root) {
                    continue;
                }
                let made = match is_projected(volume) {
                    true => copy(&path, &copies.join(index.to_string()), folder),
                    false if path.exists() => Ok(()),
                    false => create_private_dir(&path),
                };
                made.map_err(|error| failed(volume, &path, &error))?;
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

fn failed(volume: &Volume, path: &Path, error: &io::Error) -> ConfigError {
    ConfigError(format!(
        "cannot create subPath {} of volume {:?}: {error}",
        path.display(),
        volume.name
    ))
}

/// Copies a file or a folder anew, and makes `folder` stand for the copy.
fn copy(from: &Path, to: &Path, folder: &mut String) -> io::Result<()> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => create_private_dir(to)?,
    }
    // Its name, too, for programs that look at how a file's name ends.
    let to = to.join(from.file_name().unwrap_or_default());
    copy_all(from, &to)?;
    *folder = to.display().to_string();
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    create_private_dir(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy_all(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn sub_paths_are_made_in_an_empty_dir_and_copied_from_other_volumes() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({ "spec": {
            "containers": [{ "name": "c", "volumeMounts": [
                { "name": "scratch", "mountPath": "/scratch", "subPath": "x/y" },
                { "name": "config", "mountPath": "/b.yaml", "subPath": "key.yaml" },
            ] }],
            "volumes": [{ "name": "scratch", "emptyDir": {} }, { "name": "config", "configMap": { "name": "m" } }],
        } }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let (volumes, copies) = (dir.path().join("volumes"), dir.path().join("copies"));
        let made = || {
            let mut mounts = Mounts::of(container, &volumes, &BTreeMap::new()).unwrap();
            mounts.make_sub_paths(&pod, &volumes, &copies).map(|()| mounts)
        };
        let missing = made().unwrap_err().to_string();
        assert!(
            missing.contains("subPath") && missing.contains("\"config\""),
            "{missing}"
        );
        create_private_dir(&volumes.join("config")).unwrap();
        fs::write(volumes.join("config/key.yaml"), "first").unwrap();
        let mounts = made().unwrap();
        assert!(volumes.join("scratch/x/y").is_dir());
        let file = mounts.rewrite("/b.yaml");
        fs::write(volumes.join("config/key.yaml"), "second").unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "first",
            "it does not follow changes"
        );
        assert!(file.ends_with("/key.yaml"), "{file}");
        let again = made().unwrap().rewrite("/b.yaml");
        assert_eq!(
            fs::read_to_string(again).unwrap(),
            "second",
            "another run of the container has them"
        );
    }
}
