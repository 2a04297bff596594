//! One stored object in each of the versions it is served in.
//!
//! There is no general conversion. Versions of a custom resource differ in name only (strategy `None`), and of
//! the built-in kinds only events are served in two groups, whose fields have other names and the same values.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::resource::ResourceType;

/// The fields of events as they are stored, in the core group, and their names in `events.k8s.io`
/// (`pkg/apis/core/v1` and `pkg/apis/events/v1` conversions).
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The stored object in the version of the resource.
pub(crate) fn in_version<'a>(resource: &ResourceType, stored: &'a Value) -> Cow<'a, Value> {
    let api_version = resource.api_version();
    if stored.get("apiVersion").and_then(Value::as_str) == Some(&api_version) {
        return Cow::Borrowed(stored);
    }
    let mut object = stored.clone();
    object["apiVersion"] = api_version.into();
    if is_event_of_two_groups(resource) {
        rename(&mut object, EVENT_FIELDS.iter().copied());
    }
    Cow::Owned(object)
}

/// The object as it is stored.
pub(crate) fn to_stored(resource: &ResourceType, mut object: Value) -> Value {
    if is_event_of_two_groups(resource) {
        object["apiVersion"] = "v1".into();
        rename(
            &mut object,
            EVENT_FIELDS.iter().map(|(core, other)| (*other, *core)),
        );
    }
    object
}

fn is_event_of_two_groups(resource: &ResourceType) -> bool {
    resource.builtin && resource.group == "events.k8s.io" && resource.plural == "events"
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)> + Clone) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    *fields = std::mem::take(fields)
        .into_iter()
        .map(|(field, value)| {
            let renamed = names.clone().find(|(from, _)| *from == field);
            (renamed.map_or(field, |(_, to)| to.to_owned()), value)
        })
        .collect::<Map<String, Value>>();
}
