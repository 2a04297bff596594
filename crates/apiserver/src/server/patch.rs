//! `PATCH`: which kind of patch it is, and what happens around it.

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::{
    admit::{self, Source},
    context::{Abort, Answer, Context, Failed},
    create::{self, New},
    decode, meta,
    query::{FieldValidation, invalid_options},
    respond::{self, Shape},
    update::{self, CONFLICT_RETRIES, abort_of, sent_version},
    versions::in_version,
};
use crate::{
    error::ApiError,
    patch::{self, Manager},
    store::Stored,
};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// The media type of server-side apply.
pub(super) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A patch, decoded.
enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

/// The options of a patch.
struct Options {
    validation: FieldValidation,
    dry_run: bool,
    force: bool,
}

/// `PATCH` of an object or of its status.
pub(super) async fn patch(ctx: &Context, media_type: &str, body: Bytes) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let patch = Patch::decode(ctx, media_type, &body)?;
    let options = options(ctx, &patch)?;
    let (status, object, warnings) = run(ctx, &patch, &options).await?;
    let mut response = respond::json(status, &shape.object(&ctx.resource, &object, ctx.server.now()));
    respond::warn(&mut response, &warnings);
    Ok(response)
}

async fn run(
    ctx: &Context,
    patch: &Patch,
    options: &Options,
) -> Result<(StatusCode, Value, Vec<String>), Abort> {
    let resource = &*ctx.resource;
    let gate = ctx.gate(options.dry_run);
    for _ in 0..CONFLICT_RETRIES {
        let current = ctx.server.store.get(&resource.storage_name(), &ctx.key());
        let Some(current) = current else {
            match apply_new(ctx, patch, options).await {
                // Somebody else created it meanwhile: apply to what they made.
                Err(Abort::Refused(error)) if error.reason == "AlreadyExists" => continue,
                result => return result,
            }
        };
        let (patched, conditional) = patched(ctx, patch, options, &current)?;
        let before = in_version(resource, &current.object);
        let manager = (!patch.is_apply()).then(|| ctx.manager());
        let admission = ctx.admission(ctx.subresource(), options.validation, manager);
        let admitted = admission.update(&before, patched, &[], Source::Patch)?;
        match update::finish(ctx, &gate, &current, admitted).await {
            Ok((object, warnings)) => return Ok((StatusCode::OK, object, warnings)),
            Err(Failed::Conflict) if !conditional => {}
            Err(failed) => return Err(abort_of(ctx, failed)),
        }
    }
    Err(ApiError::stale(resource, ctx.name()).into())
}

/// The object after the patch, and whether the patch named the version it is for.
fn patched(
    ctx: &Context,
    patch: &Patch,
    options: &Options,
    current: &Stored,
) -> Result<(Value, bool), ApiError> {
    let resource = &*ctx.resource;
    let live = in_version(resource, &current.object);
    let mut object = match patch {
        Patch::Json(operations) => patch::json_patch(&live, operations)?,
        Patch::Merge(changes) => patch::merge_patch(&live, changes)?,
        Patch::Strategic(changes) => patch::strategic_patch(resource, &live, changes)?,
        Patch::Apply(intent) => {
            return apply(ctx, intent, options, Some(current)).map(|object| (object, false));
        }
    };
    admit::check_name(ctx.name(), &object)?;
    admit::check_namespace(ctx.namespace(), &mut object)?;
    admit::check_type(resource, &mut object)?;
    // A patch only names a version if it changes or tests it: unpatched, it is the live one.
    let named = match patch {
        Patch::Merge(changes) | Patch::Strategic(changes) => sent_version(changes)?,
        Patch::Json(_) | Patch::Apply(_) => None,
    };
    match sent_version(&object)? {
        Some(version) if version != current.revision => Err(ApiError::stale(resource, ctx.name())),
        _ => Ok((object, named.is_some())),
    }
}

/// Server-side apply onto the stored object, or onto nothing.
fn apply(
    ctx: &Context,
    intent: &Value,
    options: &Options,
    current: Option<&Stored>,
) -> Result<Value, ApiError> {
    let resource = &*ctx.resource;
    let mut intent = intent.clone();
    check_intent(ctx, &mut intent)?;
    if let (Some(version), Some(current)) = (sent_version(&intent)?, current)
        && version != current.revision
    {
        return Err(ApiError::stale(resource, ctx.name()));
    }
    meta::remove(&mut intent, "resourceVersion");
    let live = current.map(|current| in_version(resource, &current.object));
    let name = ctx.manager();
    let manager = Manager {
        name: &name,
        subresource: ctx.subresource().unwrap_or_default(),
        now: ctx.server.now(),
    };
    patch::apply(resource, live.as_deref(), &intent, manager, options.force)
}

fn check_intent(ctx: &Context, intent: &mut Value) -> Result<(), ApiError> {
    let resource = &*ctx.resource;
    for field in ["apiVersion", "kind"] {
        if intent
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
        {
            let message = format!("invalid object type: /, Kind=: {field} must be set in an apply patch");
            return Err(ApiError::bad_request(message));
        }
    }
    admit::check_type(resource, intent)?;
    if meta::get(intent, "managedFields").is_some() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    // The path's name is enough.
    if meta::name(intent).is_empty() {
        meta::set(intent, "name", ctx.name());
    }
    admit::check_name(ctx.name(), intent)?;
    admit::check_namespace(ctx.namespace(), intent)
}

/// Apply creates what does not exist; the other patches need something to patch, and so does a status.
async fn apply_new(
    ctx: &Context,
    patch: &Patch,
    options: &Options,
) -> Result<(StatusCode, Value, Vec<String>), Abort> {
    let Patch::Apply(intent) = patch else {
        return Err(ApiError::not_found(&ctx.resource, ctx.name()).into());
    };
    if ctx.subresource().is_some() {
        return Err(ApiError::not_found(&ctx.resource, ctx.name()).into());
    }
    // Who names a uid means an object that is there.
    let uid = meta::uid(intent);
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(&ctx.resource, ctx.name(), &why).into());
    }
    let object = apply(ctx, intent, options, None)?;
    let new = New {
        object,
        duplicates: &[],
        validation: options.validation,
        dry_run: options.dry_run,
        manager: None,
    };
    let (object, warnings) = create::store_new(ctx, new).await?;
    Ok((StatusCode::CREATED, object, warnings))
}

impl Patch {
    fn is_apply(&self) -> bool {
        matches!(self, Self::Apply(_))
    }

    fn decode(ctx: &Context, media_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        let builtin = ctx.resource.builtin;
        let json = || {
            decode::json(body)
                .map(|decoded| decoded.value)
                .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
        };
        match media_type {
            JSON_PATCH => json().map(Self::Json),
            MERGE_PATCH => json().map(Self::Merge),
            STRATEGIC_PATCH if builtin => json().map(Self::Strategic),
            APPLY_PATCH => {
                let intent = intent(body).map_err(ApiError::bad_request)?;
                if intent.is_object() {
                    Ok(Self::Apply(intent))
                } else {
                    Err(ApiError::bad_request(
                        "error decoding YAML: an apply patch must be an object",
                    ))
                }
            }
            _ if builtin => Err(ApiError::unsupported_media_type(&[
                JSON_PATCH,
                MERGE_PATCH,
                STRATEGIC_PATCH,
                APPLY_PATCH,
            ])),
            _ => Err(ApiError::unsupported_media_type(&[
                JSON_PATCH,
                MERGE_PATCH,
                APPLY_PATCH,
            ])),
        }
    }
}

/// What is to be applied. Most clients send it as JSON, which is YAML, too, but read many times faster as what it is.
fn intent(body: &[u8]) -> Result<Value, String> {
    match decode::json(body) {
        Ok(decoded) if decoded.duplicates.is_empty() => Ok(decoded.value),
        // The reader of YAML says what is wrong with it.
        _ => decode::yaml(body).map(|decoded| decoded.value),
    }
}

fn options(ctx: &Context, patch: &Patch) -> Result<Options, ApiError> {
    let force = ctx.query.flag("force");
    if patch.is_apply() {
        if ctx.call.field_manager.is_none() {
            let why = "Required value: is required for apply patch".to_owned();
            return Err(invalid_options("PatchOptions", "fieldManager", "Required", why));
        }
    } else if force.is_some() {
        let why = "Forbidden: may not be specified for non-apply patch".to_owned();
        return Err(invalid_options("PatchOptions", "force", "Forbidden", why));
    }
    Ok(Options {
        validation: ctx.query.field_validation("PatchOptions")?,
        dry_run: ctx.query.dry_run("PatchOptions")?,
        force: force == Some(true),
    })
}
