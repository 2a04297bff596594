//! What a data file holds, read without changing it: all of it, or as much as a damaged one still has.

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use redb::{StorageBackend, backends::InMemoryBackend};
use serde_json::Value;

use super::log::{load, revision_of, with_backend};
use crate::{BoxError, server::OpenError};

/// The objects of a data file.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// As they are stored, in their storage versions.
    pub objects: Vec<Value>,
    /// What is wrong with the file. Where anything is, some objects may be missing, and some may be there that were
    /// deleted.
    pub damage: Option<String>,
}

/// Reads a data file, in use or not. Nothing is written.
///
/// A file that is damaged is searched for the texts of objects: they lie in it as they are.
///
/// # Errors
/// Where the file cannot be read as a file.
pub fn salvage(path: &Path) -> Result<Salvaged, OpenError> {
    let bytes = std::fs::read(path).map_err(|error| OpenError::Storage {
        path: path.to_owned(),
        source: error.into(),
    })?;
    // The storage engine trusts its own checks of a page's checksum; what else it finds wrong may be a panic.
    let whole = panic::catch_unwind(AssertUnwindSafe(|| read(&bytes)));
    let damage = match whole {
        Ok(Ok(objects)) => {
            return Ok(Salvaged {
                objects,
                damage: None,
            });
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its pages contradict each other".to_owned(),
    };
    Ok(Salvaged {
        objects: search(&bytes),
        damage: Some(damage),
    })
}

/// Reads the objects of a copy in memory: opening repairs what a power cut left.
fn read(bytes: &[u8]) -> Result<Vec<Value>, BoxError> {
    if bytes.is_empty() {
        return Err("it is empty".into());
    }
    let copy = InMemoryBackend::new();
    copy.set_len(u64::try_from(bytes.len())?)?;
    copy.write(0, bytes)?;
    let objects = load(&with_backend(copy)?)?.objects.into_iter();
    Ok(objects
        .map(|(_, _, stored)| Value::clone(&stored.object))
        .collect())
}

/// The latest state of every object whose text is somewhere in the bytes.
fn search(bytes: &[u8]) -> Vec<Value> {
    let mut latest: BTreeMap<[String; 4], (u64, Value)> = BTreeMap::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"{\"") {
        rest = &rest[at..];
        let mut texts = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
        let found = texts.next().and_then(Result::ok);
        match found.and_then(|object| Some((identity(&object)?, revision_of(&object)?, object))) {
            Some((identity, revision, object)) => {
                rest = &rest[texts.byte_offset()..];
                if latest.get(&identity).is_none_or(|(known, _)| *known < revision) {
                    latest.insert(identity, (revision, object));
                }
            }
            None => rest = &rest[1..],
        }
    }
    latest.into_values().map(|(_, object)| object).collect()
}

/// Kind, namespace and name; `None` where a value is no object of an API.
fn identity(object: &Value) -> Option<[String; 4]> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let metadata = &object["metadata"];
    Some([
        text(&object["apiVersion"])?,
        text(&object["kind"])?,
        text(&metadata["namespace"]).unwrap_or_default(),
        text(&metadata["name"])?,
    ])
}
