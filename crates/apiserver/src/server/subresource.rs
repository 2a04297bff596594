//! Subresources that are kinds of their own: `scale`, and `binding` of pods.

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{
    admit::Source,
    context::{Answer, Context, Failed},
    decode::{self, Wanted},
    meta,
    query::FieldValidation,
    respond::{self, Shape},
    update::{self, CONFLICT_RETRIES, abort_of, sent_version},
    versions::in_version,
};
use crate::{
    error::ApiError,
    patch,
    resource::{ResourceType, ScalePaths},
    store::Stored,
};

/// `GET`, `PUT` and `PATCH` of `scale`.
pub(super) async fn scale(ctx: &Context, method: &Method, media_type: &str, body: Bytes) -> Answer {
    let paths = ctx
        .resource
        .scale
        .as_ref()
        .ok_or_else(ApiError::no_such_resource)?;
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    if shape != Shape::Full {
        return Err(ApiError::not_acceptable(&[decode::JSON]).into());
    }
    if *method == Method::GET {
        let current = ctx.current()?;
        return Ok(respond::json(StatusCode::OK, &scale_of(paths, &current.object)));
    }
    let options_kind = if *method == Method::PUT {
        "UpdateOptions"
    } else {
        "PatchOptions"
    };
    let gate = ctx.gate(ctx.query.dry_run(options_kind)?);
    for _ in 0..CONFLICT_RETRIES {
        let current = ctx.current()?;
        let wanted = wanted_scale(method, media_type, &body, &scale_of(paths, &current.object))?;
        let version = sent_version(&wanted)?;
        if version.is_some_and(|version| version != current.revision) {
            return Err(ApiError::stale(&ctx.resource, ctx.name()).into());
        }
        let replicas = check_scale(ctx, &wanted)?;
        let mut object = in_version(&ctx.resource, &current.object).into_owned();
        set_path(&mut object, &paths.spec_replicas, replicas.into());
        let admission = ctx.admission(Some("scale"), FieldValidation::Ignore, Some(ctx.manager()));
        let before = in_version(&ctx.resource, &current.object);
        let admitted = admission.update(&before, object, &[], Source::Object)?;
        match update::finish(ctx, &gate, &current, admitted).await {
            Ok((object, _)) => return Ok(respond::json(StatusCode::OK, &scale_of(paths, &object))),
            Err(Failed::Conflict) if *method == Method::PATCH || version.is_none() => {}
            Err(failed) => return Err(abort_of(ctx, failed)),
        }
    }
    Err(ApiError::stale(&ctx.resource, ctx.name()).into())
}

/// The scale that the caller sent, or that its patch makes of the current one.
fn wanted_scale(method: &Method, media_type: &str, body: &[u8], current: &Value) -> Result<Value, ApiError> {
    if *method == Method::PUT {
        return decode::object(media_type, body, Wanted::SCALE).map(|decoded| decoded.value);
    }
    let changes = decode::json(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?
        .value;
    let mut current = current.clone();
    // A patch is for whatever is stored, unless it says otherwise.
    meta::remove(&mut current, "resourceVersion");
    match media_type {
        "application/json-patch+json" => patch::json_patch(&current, &changes),
        // A scale has no lists, so that a strategic patch means the same.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            patch::merge_patch(&current, &changes)
        }
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ])),
    }
}

fn check_scale(ctx: &Context, scale: &Value) -> Result<i64, ApiError> {
    let name = meta::name(scale);
    if !name.is_empty() && name != ctx.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            ctx.name()
        )));
    }
    let replicas = scale
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    if replicas >= 0 {
        return Ok(replicas);
    }
    let cause = crate::error::Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
        field: "spec.replicas".to_owned(),
    };
    Err(ApiError::invalid(&ctx.resource, ctx.name(), vec![cause]))
}

fn scale_of(paths: &ScalePaths, object: &Value) -> Value {
    let number = |path: &str| get_path(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::get(object, field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut status = json!({ "replicas": number(&paths.status_replicas) });
    let selector = paths
        .label_selector
        .as_deref()
        .and_then(|path| get_path(object, path))
        .and_then(selector_text);
    if let Some(selector) = selector {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": { "replicas": number(&paths.spec_replicas) },
        "status": status,
    })
}

/// A selector in its string form: custom resources keep that, built-in kinds keep a LabelSelector.
fn selector_text(selector: &Value) -> Option<String> {
    match selector {
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => {
            let labels = selector
                .get("matchLabels")
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            let mut terms: Vec<String> = labels
                .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
                .collect();
            terms.extend(
                selector
                    .get("matchExpressions")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(expression_text),
            );
            terms.sort();
            Some(terms.join(","))
        }
        _ => None,
    }
}

fn expression_text(expression: &Value) -> Option<String> {
    let key = expression.get("key")?.as_str()?;
    let values = meta::strings(expression.get("values")).join(",");
    Some(match expression.get("operator")?.as_str()? {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return None,
    })
}

/// The value at a path such as `.spec.replicas`.
fn get_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .filter(|name| !name.is_empty())
        .try_fold(object, |value, name| value.get(name))
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    let mut names = path.split('.').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            if let Some(fields) = place.as_object_mut() {
                fields.insert(name.to_owned(), value);
            }
            return;
        }
        meta::child_mut(place, name);
        match place.get_mut(name) {
            Some(next) => place = next,
            None => return,
        }
    }
}

/// `POST` to `pods/NAME/binding`: a scheduler gives the pod to a node.
pub(super) async fn bind(ctx: &Context, media_type: &str, body: Bytes) -> Answer {
    let dry_run = ctx.query.dry_run("CreateOptions")?;
    let binding = decode::object(media_type, &body, Wanted::BINDING)?.value;
    if meta::name(&binding) != ctx.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object").into());
    }
    let node = binding
        .pointer("/target/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::bad_request("Binding \"\" is invalid: target.name: Required value").into());
    }
    for _ in 0..CONFLICT_RETRIES {
        let current = ctx.current()?;
        let object = bound(&ctx.resource, ctx, &current, node)?;
        let write = crate::store::Write {
            resource: ctx.resource.storage_name().into(),
            key: ctx.key(),
            expected: crate::store::Expected::Version(current.revision),
            change: crate::store::Change::Put(object),
            needs: None,
        };
        match ctx.server.commit(&ctx.gate(dry_run), write).await {
            Ok(_) => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
                });
                return Ok(respond::json(StatusCode::CREATED, &status));
            }
            Err(Failed::Conflict) => {}
            Err(failed) => return Err(abort_of(ctx, failed)),
        }
    }
    Err(ApiError::stale(&ctx.resource, ctx.name()).into())
}

fn bound(resource: &ResourceType, ctx: &Context, current: &Stored, node: &str) -> Result<Value, ApiError> {
    let refuse = |why: String| Err(ApiError::conflict_on(resource, "pods/binding", ctx.name(), &why));
    if meta::is_deleting(&current.object) {
        return refuse(format!(
            "pod {} is being deleted, cannot be assigned to a host",
            ctx.name()
        ));
    }
    let bound_to = current
        .object
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !bound_to.is_empty() {
        return refuse(format!(
            "pod {} is already assigned to node \"{bound_to}\"",
            ctx.name()
        ));
    }
    let mut object = Value::clone(&current.object);
    meta::child_mut(&mut object, "spec").insert("nodeName".to_owned(), node.into());
    let time = super::time_text(ctx.server.now());
    let status = meta::child_mut(&mut object, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition.get("type") != Some(&json!("PodScheduled")));
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time,
        }));
    }
    if meta::generation(&object) > 0 {
        let generation = meta::generation(&object) + 1;
        meta::set(&mut object, "generation", generation);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_and_made() {
        let mut object = json!({"spec": {"a": 1}});
        set_path(&mut object, ".spec.replicas", 3.into());
        set_path(&mut object, ".status.deep.replicas", 4.into());
        assert_eq!(
            object,
            json!({"spec": {"a": 1, "replicas": 3}, "status": {"deep": {"replicas": 4}}})
        );
        assert_eq!(get_path(&object, ".status.deep.replicas"), Some(&json!(4)));
        assert_eq!(get_path(&object, ".nope.x"), None);
    }

    #[test]
    fn selectors_have_a_string_form() {
        let selector = json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "Exists"}],
        });
        assert_eq!(selector_text(&selector).unwrap(), "a=b,c in (d,e),f");
        assert_eq!(selector_text(&json!("x=y")).unwrap(), "x=y");
    }
}
