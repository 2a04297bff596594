//! Creating objects, by POST or by applying to a name that does not exist yet.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    admit::{self, Admitted},
    context::{Abort, Answer, Context, Failed},
    decode::{self, Wanted},
    meta,
    query::FieldValidation,
    respond::{self, Shape},
    rules,
    versions::to_stored,
};
use crate::{
    crd,
    error::{ApiError, Cause},
    store::{Change, Expected, Key, Write},
};

/// How often a generated name is drawn before giving up; as kube-apiserver.
const NAME_ATTEMPTS: usize = 8;

/// The length of a generated name before its suffix.
const MAX_GENERATED_PREFIX: usize = 58;

/// How a new object came about.
pub(super) struct New<'a> {
    pub(super) object: Value,
    pub(super) duplicates: &'a [String],
    pub(super) validation: FieldValidation,
    pub(super) dry_run: bool,
    /// `None` where managed fields are already noted.
    pub(super) manager: Option<String>,
}

/// `POST` to a collection.
pub(super) async fn create(ctx: &Context, media_type: &str, body: Bytes) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let validation = ctx.query.field_validation("CreateOptions")?;
    let dry_run = ctx.query.dry_run("CreateOptions")?;
    let decoded = decode::object(media_type, &body, Wanted::of(&ctx.resource))?;
    let new = New {
        object: decoded.value,
        duplicates: &decoded.duplicates,
        validation,
        dry_run,
        manager: Some(ctx.manager()),
    };
    let (object, warnings) = store_new(ctx, new).await?;
    let mut response = respond::json(
        StatusCode::CREATED,
        &shape.object(&ctx.resource, &object, ctx.server.now()),
    );
    respond::warn(&mut response, &warnings);
    Ok(response)
}

/// Checks a new object and stores it.
pub(super) async fn store_new(ctx: &Context, new: New<'_>) -> Result<(Value, Vec<String>), Abort> {
    let New {
        mut object,
        duplicates,
        validation,
        dry_run,
        manager,
    } = new;
    let resource = &*ctx.resource;
    admit::check_type(resource, &mut object)?;
    admit::check_namespace(ctx.namespace(), &mut object)?;
    // A PATCH that creates has its name in the path.
    if manager.is_some() && !meta::text(&object, "resourceVersion").is_empty() {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message).into());
    }
    check_namespace_open(ctx, meta::name(&object))?;
    check_definition_open(ctx)?;
    let now = ctx.server.now();
    if manager.is_some() {
        meta::remove(&mut object, "managedFields");
    }
    for field in [
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
    ] {
        meta::remove(&mut object, field);
    }
    meta::set(&mut object, "uid", ctx.server.seams.random.uuid());
    meta::set(&mut object, "creationTimestamp", super::time_text(now));
    if rules::is_namespace(resource) {
        label_namespace(&mut object);
    }
    let generated = meta::name(&object).is_empty() && !meta::text(&object, "generateName").is_empty();
    let address_taken = |address: &str| has_cluster_ip(ctx, address);
    let admission = ctx.admission(None, validation, manager);
    let gate = ctx.gate(dry_run);
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut candidate = object.clone();
        if generated {
            let name = generated_name(ctx, meta::text(&object, "generateName"));
            meta::set(&mut candidate, "name", name);
        }
        let Admitted {
            object: mut candidate,
            warnings,
        } = admission.create(candidate, duplicates, &address_taken)?;
        if rules::is_definition(resource) {
            crd::prepare(&mut candidate, None, &ctx.server.registry, now)
                .map_err(|causes| ApiError::invalid(resource, meta::name(&candidate), causes))?;
        }
        let name = meta::name(&candidate).to_owned();
        let key = Key::new(ctx.namespace(), &name);
        if dry_run && ctx.server.store.get(&resource.storage_name(), &key).is_some() {
            return Err(ApiError::already_exists(resource, &name).into());
        }
        let write = Write {
            resource: resource.storage_name().into(),
            key,
            expected: Expected::Absent,
            change: Change::Put(to_stored(resource, candidate)),
            needs: ctx
                .target
                .namespace
                .as_deref()
                .map(|name| ("namespaces".into(), Key::new("", name))),
        };
        match ctx.server.commit(&gate, write).await {
            Ok(stored) => return Ok((Value::clone(&stored.object), warnings)),
            Err(Failed::Conflict) if generated && attempt < NAME_ATTEMPTS => {}
            Err(Failed::Conflict) => return Err(ApiError::already_exists(resource, &name).into()),
            Err(Failed::Missing) => return Err(namespace_not_found(ctx).into()),
            Err(Failed::Abort(abort)) => return Err(abort),
        }
    }
}

fn generated_name(ctx: &Context, prefix: &str) -> String {
    let mut end = prefix.len().min(MAX_GENERATED_PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &prefix[..end], ctx.server.seams.random.suffix(5))
}

/// New content needs a namespace that is there and stays.
fn check_namespace_open(ctx: &Context, name: &str) -> Result<(), ApiError> {
    let Some(namespace) = &ctx.target.namespace else {
        return Ok(());
    };
    let Some(stored) = ctx.server.store.get("namespaces", &Key::new("", namespace)) else {
        return Err(namespace_not_found(ctx));
    };
    if !meta::is_deleting(&stored.object) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = ApiError::forbidden(&ctx.resource, name, &why);
    if let Some(details) = &mut error.details {
        details.causes = vec![Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }];
    }
    Err(error)
}

/// A definition that is being deleted takes no new objects: its emptying would never end.
fn check_definition_open(ctx: &Context) -> Result<(), ApiError> {
    let key = Key::new("", &ctx.resource.qualified_name());
    let definition = ctx
        .server
        .store
        .get(crd::DEFINITIONS, &key)
        .filter(|_| !ctx.resource.builtin);
    if definition.is_some_and(|stored| meta::is_deleting(&stored.object)) {
        let message = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            message,
        ));
    }
    Ok(())
}

fn namespace_not_found(ctx: &Context) -> ApiError {
    match ctx.server.registry.lookup("", "v1", "namespaces") {
        Some(namespaces) => ApiError::not_found(&namespaces, ctx.namespace()),
        None => ApiError::no_such_resource(),
    }
}

/// A namespace carries its name as a label.
pub(super) fn label_namespace(object: &mut Value) {
    let name = meta::name(object).to_owned();
    if name.is_empty() {
        return;
    }
    let labels = meta::of_mut(object).entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

fn has_cluster_ip(ctx: &Context, address: &str) -> bool {
    let services = ctx.server.store.list("services", None).objects;
    services
        .iter()
        .any(|(_, stored)| stored.object.pointer("/spec/clusterIP").and_then(Value::as_str) == Some(address))
}
