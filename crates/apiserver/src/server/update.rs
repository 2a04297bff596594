//! Replacing objects, and the last steps that every change of a stored object shares.

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::{
    admit::{self, Admitted, Source},
    context::{Abort, Answer, Context, Failed, Gate},
    decode::{self, Wanted},
    meta,
    respond::{self, Shape},
    rules,
    versions::{in_version, to_stored},
};
use crate::{
    crd,
    error::{ApiError, Cause, Details},
    store::{Change, Expected, Stored, Write},
};

/// How often a change without a resource version is tried again when others change the same object.
pub(super) const CONFLICT_RETRIES: usize = 32;

/// `PUT` of an object or of its status.
pub(super) async fn update(ctx: &Context, media_type: &str, body: Bytes) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let validation = ctx.query.field_validation("UpdateOptions")?;
    let gate = ctx.gate(ctx.query.dry_run("UpdateOptions")?);
    let resource = &*ctx.resource;
    let decoded = decode::object(media_type, &body, Wanted::of(resource))?;
    let mut sent = decoded.value;
    admit::check_type(resource, &mut sent)?;
    admit::check_namespace(ctx.namespace(), &mut sent)?;
    admit::check_name(ctx.name(), &sent)?;
    let version = sent_version(&sent)?;

    for _ in 0..CONFLICT_RETRIES {
        let current = ctx.current()?;
        check_uid(ctx, &sent, &current.object)?;
        match version {
            Some(version) if version != current.revision => {
                return Err(ApiError::stale(resource, ctx.name()).into());
            }
            None if !rules::allows_unconditional_update(resource) => return Err(version_required(ctx).into()),
            _ => {}
        }
        let admission = ctx.admission(ctx.subresource(), validation, Some(ctx.manager()));
        let before = in_version(resource, &current.object);
        let admitted = admission.update(&before, sent.clone(), &decoded.duplicates, Source::Object)?;
        match finish(ctx, &gate, &current, admitted).await {
            Ok((object, warnings)) => {
                let mut response =
                    respond::json(StatusCode::OK, &shape.object(resource, &object, ctx.server.now()));
                respond::warn(&mut response, &warnings);
                return Ok(response);
            }
            Err(Failed::Conflict) if version.is_none() => {}
            Err(failed) => return Err(abort_of(ctx, failed)),
        }
    }
    Err(ApiError::stale(resource, ctx.name()).into())
}

/// Why a change failed for good.
pub(super) fn abort_of(ctx: &Context, failed: Failed) -> Abort {
    match failed {
        Failed::Conflict => ApiError::stale(&ctx.resource, ctx.name()).into(),
        Failed::Missing => ApiError::not_found(&ctx.resource, ctx.name()).into(),
        Failed::Abort(abort) => abort,
    }
}

/// Stores an admitted change, unless it changes nothing. The removal of the last finalizer of an object that
/// waits for it deletes the object.
pub(super) async fn finish(
    ctx: &Context,
    gate: &Gate,
    current: &Stored,
    admitted: Admitted,
) -> Result<(Value, Vec<String>), Failed> {
    let resource = &*ctx.resource;
    let Admitted { mut object, warnings } = admitted;
    if rules::is_definition(resource) {
        crd::prepare(
            &mut object,
            Some(&current.object),
            &ctx.server.registry,
            ctx.server.now(),
        )
        .map_err(|causes| Failed::Abort(ApiError::invalid(resource, ctx.name(), causes).into()))?;
    }
    if rules::is_namespace(resource) {
        super::create::label_namespace(&mut object);
    }
    if admit::is_same(&in_version(resource, &current.object), &object) {
        // The version of the path is shown; what is stored stays as it is.
        return Ok((Value::clone(&current.object), warnings));
    }
    let object = to_stored(resource, object);
    let removed = is_released(resource, &object);
    let write = Write {
        resource: resource.storage_name().into(),
        key: ctx.key(),
        expected: Expected::Version(current.revision),
        change: if removed {
            Change::Delete(object.clone())
        } else {
            Change::Put(object.clone())
        },
        needs: None,
    };
    let stored = ctx.server.commit(gate, write).await?;
    if removed {
        // The caller sees its own change, not the version of the deletion.
        return Ok((object, warnings));
    }
    Ok((Value::clone(&stored.object), warnings))
}

/// Whether nothing holds an object any more whose deletion was asked for.
pub(crate) fn is_released(resource: &crate::resource::ResourceType, object: &Value) -> bool {
    if !meta::is_deleting(object) || !meta::finalizers(object).is_empty() {
        return false;
    }
    if rules::is_namespace(resource) {
        return meta::strings(object.pointer("/spec/finalizers")).is_empty();
    }
    // A pod also waits for its node, which deletes it once more without grace.
    meta::get(object, "deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or_default()
        == 0
}

/// The resource version that the caller read, where it says so.
pub(super) fn sent_version(object: &Value) -> Result<Option<u64>, ApiError> {
    match meta::text(object, "resourceVersion") {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let message = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
        }),
    }
}

/// An object with another uid is another object, for all that it has the same name.
fn check_uid(ctx: &Context, sent: &Value, current: &Value) -> Result<(), ApiError> {
    let (sent, current) = (meta::uid(sent), meta::uid(current));
    if sent.is_empty() || sent == current {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {current}");
    Err(ApiError::conflict(&ctx.resource, ctx.name(), &why))
}

/// The plural stands where a kind is expected, as in kube-apiserver.
fn version_required(ctx: &Context) -> ApiError {
    let resource = &ctx.resource;
    let cause = Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: "Invalid value: 0: must be specified for an update".to_owned(),
        field: "metadata.resourceVersion".to_owned(),
    };
    let message = format!(
        "{} \"{}\" is invalid: {}: {}",
        resource.qualified_name(),
        ctx.name(),
        cause.field,
        cause.message
    );
    let mut error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    error.details = Some(Box::new(Details {
        group: resource.group.clone(),
        kind: resource.plural.clone(),
        name: ctx.name().to_owned(),
        causes: vec![cause],
        retry_after_seconds: None,
    }));
    error
}
