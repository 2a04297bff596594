//! Which files a volume holds.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::{
    ByteString,
    api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection},
};

use super::{FileContent, inside};
use crate::kubelet::{env::field_value, resources, sources::Sources};

/// The mode of files whose volume names none.
const DEFAULT_MODE: i32 = 0o644;

type Files = BTreeMap<PathBuf, FileContent>;

/// The files of a volume by their path in it; `None` for one whose content is the containers' own.
pub(super) fn of(volume: &Volume, pod: &Pod, sources: &Sources) -> Result<Option<Files>, String> {
    let reader = |mode: Option<i32>| Reader {
        pod,
        sources,
        mode: mode.unwrap_or(DEFAULT_MODE),
    };
    if let Some(source) = &volume.config_map {
        let (items, optional) = (source.items.as_deref(), source.optional == Some(true));
        return reader(source.default_mode)
            .config_map(&source.name, items, optional)
            .map(Some);
    }
    if let Some(source) = &volume.secret {
        let (items, optional) = (source.items.as_deref(), source.optional == Some(true));
        let name = source.secret_name.as_deref().unwrap_or_default();
        return reader(source.default_mode)
            .secret(name, items, optional)
            .map(Some);
    }
    if let Some(source) = &volume.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return reader(source.default_mode).downward(items).map(Some);
    }
    if let Some(source) = &volume.projected {
        let reader = reader(source.default_mode);
        let mut files = Files::new();
        for projection in source.sources.iter().flatten() {
            files.extend(reader.projection(projection)?);
        }
        return Ok(Some(files));
    }
    Ok(None)
}

/// What the files of one volume are made of.
struct Reader<'a> {
    pod: &'a Pod,
    sources: &'a Sources,
    /// The mode of files that name none.
    mode: i32,
}

impl Reader<'_> {
    fn projection(&self, projection: &VolumeProjection) -> Result<Files, String> {
        if let Some(source) = &projection.config_map {
            return self.config_map(
                &source.name,
                source.items.as_deref(),
                source.optional == Some(true),
            );
        }
        if let Some(source) = &projection.secret {
            return self.secret(
                &source.name,
                source.items.as_deref(),
                source.optional == Some(true),
            );
        }
        if let Some(source) = &projection.downward_api {
            return self.downward(source.items.as_deref().unwrap_or_default());
        }
        // What else there is was refused before.
        Ok(Files::new())
    }

    fn config_map(&self, name: &str, items: Option<&[KeyToPath]>, optional: bool) -> Result<Files, String> {
        let object = match self.sources.config_maps.get(name) {
            None if optional => return Ok(Files::new()),
            None => return Err(format!("configmap {name:?} not found")),
            Some(object) => object,
        };
        let mut data: BTreeMap<&str, &[u8]> = BTreeMap::new();
        let texts = object.data.iter().flatten();
        data.extend(texts.map(|(key, text)| (key.as_str(), text.as_bytes())));
        data.extend(object.binary_data.iter().flatten().map(bytes));
        files(&data, items, self.mode, optional)
    }

    fn secret(&self, name: &str, items: Option<&[KeyToPath]>, optional: bool) -> Result<Files, String> {
        let object = match self.sources.secrets.get(name) {
            None if optional => return Ok(Files::new()),
            None => return Err(format!("secret {name:?} not found")),
            Some(object) => object,
        };
        let data = object.data.iter().flatten().map(bytes).collect();
        files(&data, items, self.mode, optional)
    }

    fn downward(&self, items: &[DownwardAPIVolumeFile]) -> Result<Files, String> {
        let mut files = Files::new();
        for item in items {
            let path = inside(&item.path).ok_or_else(|| leads_out(&item.path))?;
            let value = if let Some(field) = &item.field_ref {
                field_value(self.pod, &field.field_path)
                    .ok_or_else(|| format!("unsupported fieldPath: {}", field.field_path))?
            } else if let Some(selector) = &item.resource_field_ref {
                resources::value(self.pod, None, selector)?
            } else {
                return Err(format!(
                    "item {:?} has no source; give it fieldRef or resourceFieldRef",
                    item.path
                ));
            };
            files.insert(path, file(value.as_bytes(), item.mode.unwrap_or(self.mode)));
        }
        Ok(files)
    }
}

fn bytes<'a>((key, bytes): (&'a String, &'a ByteString)) -> (&'a str, &'a [u8]) {
    (key.as_str(), &bytes.0[..])
}

fn leads_out(path: &str) -> String {
    format!("path {path:?} leads out of it")
}

fn file(bytes: &[u8], mode: i32) -> FileContent {
    FileContent {
        bytes: bytes.to_vec(),
        mode: u32::try_from(mode).unwrap_or(0) & 0o777,
    }
}

fn files(
    data: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    default_mode: i32,
    optional: bool,
) -> Result<Files, String> {
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
                let path = inside(&item.path).ok_or_else(|| leads_out(&item.path))?;
                files.insert(path, file(bytes, item.mode.unwrap_or(default_mode)));
            }
            None if optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(files)
}
