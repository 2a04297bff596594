//! What an object must be before it is stored: the fields that only the server sets, pruning, defaults,
//! validation, generation and field ownership.
//!
//! Everything here is a function of the object sent, the object stored and the resource; nothing is written.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use super::{meta, query::FieldValidation, rules};
use crate::{
    builtin,
    error::{ApiError, Cause},
    patch::{self, Manager},
    resource::ResourceType,
};

/// How deep an object may nest, its managed fields included. The store reads back what is up to 127 levels deep.
const MAX_DEPTH: usize = 120;

/// How a change came about.
#[derive(Clone, Debug)]
pub(crate) struct Admission<'a> {
    pub(crate) resource: &'a ResourceType,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) validation: FieldValidation,
    /// Who changes fields; `None` where the patch already noted it.
    pub(crate) manager: Option<String>,
    pub(crate) now: Timestamp,
}

/// An object ready to be stored, and what to warn the caller of.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// How unknown fields are reported: kube-apiserver has a sentence for whole objects and another for patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Object,
    Patch,
}

/// A kind and version written into the object must be those of the path. Built-in kinds may leave them out.
pub(crate) fn check_type(resource: &ResourceType, object: &mut Value) -> Result<(), ApiError> {
    let text = |object: &Value, field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (kind, api_version) = (text(object, "kind"), text(object, "apiVersion"));
    let expected = resource.api_version();
    if kind.is_empty() || api_version.is_empty() {
        let field = if kind.is_empty() { "Kind" } else { "apiVersion" };
        if !resource.builtin {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{field}' is missing in '{object}'",
                resource.kind
            )));
        }
    }
    if !api_version.is_empty() && api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        if resource.builtin {
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: the kind in the data does not match the path",
                resource.version, resource.kind
            )));
        }
        let cause = Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: format!("Invalid value: \"{kind}\": must be {}", resource.kind),
            field: "kind".to_owned(),
        };
        return Err(ApiError::invalid(resource, meta::name(object), vec![cause]));
    }
    object["apiVersion"] = expected.into();
    object["kind"] = resource.kind.as_str().into();
    Ok(())
}

/// The namespace written into the object must be that of the path.
pub(crate) fn check_namespace(namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let given = meta::namespace(object);
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if namespace.is_empty() {
        meta::remove(object, "namespace");
    } else {
        meta::set(object, "namespace", namespace);
    }
    Ok(())
}

/// The name written into the object must be that of the path.
pub(crate) fn check_name(name: &str, object: &Value) -> Result<(), ApiError> {
    match meta::name(object) {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given != name => Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

impl Admission<'_> {
    /// A new object. Its name, uid and creation time are already set. `taken` tells whether a Service has a cluster
    /// address.
    pub(crate) fn create(
        &self,
        mut object: Value,
        duplicates: &[String],
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<Admitted, ApiError> {
        let resource = self.resource;
        if resource.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.shift_remove("status");
        }
        let warnings = self.decode(&mut object, duplicates, Source::Object)?;
        self.default(&mut object);
        self.track(None, &mut object);
        builtin::prepare_for_create(resource, &mut object);
        if rules::is_service(resource) {
            builtin::assign_cluster_ip(&mut object, taken);
        }
        if rules::has_generation(resource) {
            meta::set(&mut object, "generation", 1);
        } else {
            meta::remove(&mut object, "generation");
        }
        self.validate(&object, None)?;
        Ok(Admitted { object, warnings })
    }

    /// A new state of a stored object. `object` carries what the caller sent or the patch made.
    pub(crate) fn update(
        &self,
        current: &Value,
        mut object: Value,
        duplicates: &[String],
        source: Source,
    ) -> Result<Admitted, ApiError> {
        self.keep(current, &mut object);
        let warnings = self.decode(&mut object, duplicates, source)?;
        self.default(&mut object);
        builtin::prepare_for_update(self.resource, &mut object, current);
        self.track(Some(current), &mut object);
        self.validate(&object, Some(current))?;
        if rules::has_generation(self.resource) {
            let changed = rules::changes_generation(self.resource, current, &object);
            meta::set(
                &mut object,
                "generation",
                meta::generation(current) + i64::from(changed),
            );
        }
        Ok(Admitted { object, warnings })
    }

    /// Takes from the stored object what this call cannot change.
    fn keep(&self, current: &Value, object: &mut Value) {
        if self.subresource == Some("status") {
            // Everything but the status, and the note of who set it, stays.
            let managed = meta::remove(object, "managedFields");
            let status = object
                .as_object_mut()
                .and_then(|fields| fields.shift_remove("status"));
            *object = current.clone();
            if let Some(fields) = object.as_object_mut() {
                match status {
                    Some(status) => fields.insert("status".to_owned(), status),
                    None => fields.shift_remove("status"),
                };
            }
            match managed {
                Some(managed) => meta::set(object, "managedFields", managed),
                None => drop(meta::remove(object, "managedFields")),
            }
            return;
        }
        if self.resource.status
            && let Some(fields) = object.as_object_mut()
        {
            match current.get("status") {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.shift_remove("status"),
            };
        }
        for field in [
            "creationTimestamp",
            "generation",
            "selfLink",
            "deletionGracePeriodSeconds",
            "resourceVersion",
        ] {
            match meta::get(current, field) {
                Some(value) => meta::set(object, field, value.clone()),
                None => drop(meta::remove(object, field)),
            }
        }
        // These may be left out, but not changed.
        for field in ["uid", "deletionTimestamp", "generateName"] {
            let given = meta::get(object, field).is_some_and(|value| !value.is_null() && *value != "");
            if let Some(value) = meta::get(current, field).filter(|_| !given) {
                meta::set(object, field, value.clone());
            }
        }
    }

    /// Takes the object as its schema knows it: a built-in kind is decoded into a Go type on a cluster, so that a
    /// value of the wrong type ends the call here; unknown fields go.
    fn decode(
        &self,
        object: &mut Value,
        duplicates: &[String],
        source: Source,
    ) -> Result<Vec<String>, ApiError> {
        let ResourceType {
            kind,
            builtin,
            schema,
            ..
        } = self.resource;
        if let Err(why) = schema.decode(kind, *builtin, object) {
            return Err(self.undecodable(&why, object, source));
        }
        let unknown = schema.prune(object);
        let problems: Vec<String> = duplicates
            .iter()
            .map(|path| format!("duplicate field \"{path}\""))
            .chain(unknown.iter().map(|path| format!("unknown field \"{path}\"")))
            .collect();
        match self.validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(problems),
            FieldValidation::Strict if problems.is_empty() => Ok(Vec::new()),
            FieldValidation::Strict => {
                let why = format!("strict decoding error: {}", problems.join(", "));
                Err(self.undecodable(&why, object, source))
            }
        }
    }

    fn undecodable(&self, why: &str, object: &Value, source: Source) -> ApiError {
        let ResourceType { kind, version, .. } = self.resource;
        match source {
            Source::Object => ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
            )),
            Source::Patch => {
                let text = Value::String(object.to_string());
                let cause = Cause {
                    reason: "FieldValueInvalid".to_owned(),
                    message: format!("Invalid value: {text}: {why}"),
                    field: "patch".to_owned(),
                };
                let mut error = ApiError::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "Invalid",
                    format!(" \"\" is invalid: patch: {}", cause.message),
                );
                error.details = Some(Box::new(crate::error::Details {
                    causes: vec![cause],
                    ..Default::default()
                }));
                error
            }
        }
    }

    fn default(&self, object: &mut Value) {
        if self.resource.builtin {
            builtin::apply_defaults(self.resource, object);
        } else {
            self.resource.schema.apply_defaults(object);
        }
    }

    fn track(&self, current: Option<&Value>, object: &mut Value) {
        let Some(manager) = &self.manager else { return };
        let manager = Manager {
            name: manager,
            subresource: self.subresource.unwrap_or_default(),
            now: self.now,
        };
        patch::track_update(self.resource, current, object, manager);
    }

    fn validate(&self, object: &Value, current: Option<&Value>) -> Result<(), ApiError> {
        let resource = self.resource;
        if nests_deeper(object, MAX_DEPTH) {
            return Err(ApiError::bad_request(format!(
                "{} \"{}\" with its managed fields nests deeper than {MAX_DEPTH} levels",
                resource.kind,
                meta::name(object)
            )));
        }
        let mut causes = rules::metadata_causes(resource, object);
        if let Some(current) = current {
            causes.extend(rules::immutable_causes(current, object));
        }
        causes.extend(
            resource
                .schema
                .validate(object, current)
                .into_iter()
                .map(Cause::from),
        );
        let subresource = self.subresource.unwrap_or_default();
        causes.extend(
            builtin::validate(resource, object, current, subresource)
                .into_iter()
                .map(Cause::from),
        );
        if causes.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(resource, meta::name(object), causes))
    }
}

/// Whether a value has more than `levels` levels of objects and lists.
fn nests_deeper(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else {
        return value.is_object() || value.is_array();
    };
    match value {
        Value::Object(fields) => fields.values().any(|value| nests_deeper(value, below)),
        Value::Array(items) => items.iter().any(|value| nests_deeper(value, below)),
        _ => false,
    }
}

/// Whether storing `object` over `current` would change nothing. The times of managed fields do not count: they
/// only move together with something else.
pub(crate) fn is_same(current: &Value, object: &Value) -> bool {
    if current == object {
        return true;
    }
    let strip = |object: &Value| {
        let mut object = object.clone();
        if let Some(managed) = object
            .pointer_mut("/metadata/managedFields")
            .and_then(Value::as_array_mut)
        {
            for entry in managed.iter_mut().filter_map(Value::as_object_mut) {
                entry.shift_remove("time");
            }
            if managed.is_empty() {
                meta::remove(&mut object, "managedFields");
            }
        }
        object
    };
    strip(current) == strip(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn levels_are_objects_and_lists() {
        let value = json!({"a": [{"b": 1}], "c": 2});
        assert!(nests_deeper(&value, 2) && !nests_deeper(&value, 3));
        assert!(!nests_deeper(&json!(1), 0));
    }

    #[test]
    fn times_of_managed_fields_are_no_change() {
        let at = |time: &str, size: i64| json!({"metadata": {"managedFields": [{"manager": "m", "time": time}]}, "spec": {"size": size}});
        assert!(is_same(&at("1", 1), &at("2", 1)));
        assert!(!is_same(&at("1", 1), &at("1", 2)));
        // Order of fields is none of JSON's business.
        assert!(is_same(&json!({"a": 1, "b": 2}), &json!({"b": 2, "a": 1})));
    }
}
