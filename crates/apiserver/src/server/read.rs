//! Get and list.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    context::{Abort, Answer, Context},
    query::{ListOptions, VersionMatch},
    respond::{self, Shape},
    selectors::{FieldSelector, LabelSelector},
    versions::in_version,
};
use crate::{
    error::{ApiError, Cause, Details},
    fault::Fault,
    store::{Compacted, Key, Snapshot, Stored},
};

/// Which objects of a resource a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    /// The selectors of the query, and the name of the path where there is one.
    pub(crate) fn of(ctx: &Context) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(ctx.query.get("labelSelector").unwrap_or_default())?;
        let mut fields =
            FieldSelector::parse(ctx.query.get("fieldSelector").unwrap_or_default(), &ctx.resource)?;
        if let Some(name) = &ctx.target.name {
            fields = fields.and(FieldSelector::of_name(name));
        }
        Ok(Self {
            namespace: ctx.target.namespace.clone(),
            labels,
            fields,
        })
    }

    pub(crate) fn matches(&self, key: &Key, object: &Value) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == key.namespace)
            && self.labels.matches(object)
            && self.fields.matches(object)
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// `GET` of one object.
pub(crate) fn get(ctx: &Context) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let version = ctx
        .query
        .list_options(false)?
        .resource_version
        .unwrap_or_default();
    check_not_ahead(ctx, version)?;
    let stored = match ctx.fault {
        Fault::StaleRead { versions_back } => stale_object(ctx, versions_back)?,
        _ => ctx.current()?,
    };
    Ok(respond::json(
        StatusCode::OK,
        &shape.object(&ctx.resource, &stored.object, ctx.server.now()),
    ))
}

/// The object as it was some versions ago, as far as history reaches.
fn stale_object(ctx: &Context, versions_back: u64) -> Result<Stored, ApiError> {
    let snapshot = stale_snapshot(ctx, versions_back);
    let key = ctx.key();
    let found = snapshot.objects.into_iter().find(|(each, _)| *each == key);
    found
        .map(|(_, stored)| stored)
        .ok_or_else(|| ApiError::not_found(&ctx.resource, ctx.name()))
}

fn stale_snapshot(ctx: &Context, versions_back: u64) -> Snapshot {
    let store = &ctx.server.store;
    let (resource, namespace) = (ctx.resource.storage_name(), ctx.target.namespace.as_deref());
    let revision = store
        .revision()
        .saturating_sub(versions_back)
        .max(store.compacted());
    // History may be forgotten between the two calls; then the present is the oldest there is.
    store
        .list_at(&resource, namespace, revision)
        .unwrap_or_else(|_| store.list(&resource, namespace))
}

/// `GET` of a collection.
pub(crate) fn list(ctx: &Context) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let options = ctx.query.list_options(false)?;
    let selection = Selection::of(ctx)?;
    let (snapshot, after) = snapshot(ctx, &options)?;
    let revision = snapshot.revision;
    let mut matching = snapshot
        .objects
        .into_iter()
        .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after))
        .filter(|(key, stored)| selection.matches(key, &stored.object));
    let limit = options.limit.unwrap_or(usize::MAX);
    let page: Vec<(Key, Stored)> = matching.by_ref().take(limit).collect();
    let remaining = matching.count();

    let mut metadata = Map::new();
    if let Some((last, _)) = page.last().filter(|_| remaining > 0) {
        let token = Continue {
            rv: Some(revision),
            namespace: last.namespace.clone(),
            name: last.name.clone(),
        };
        metadata.insert("continue".to_owned(), token.encode().into());
        // The count is only given where it is exact for the whole list.
        if selection.is_everything() {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
    }
    metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    let items = page
        .iter()
        .map(|(_, stored)| in_version(&ctx.resource, &stored.object).into_owned())
        .collect();
    let list = shape.list(&ctx.resource, items, Value::Object(metadata), ctx.server.now());
    Ok(respond::json(StatusCode::OK, &list))
}

/// The objects to list from, and the key after which a continued list goes on.
fn snapshot(ctx: &Context, options: &ListOptions) -> Result<(Snapshot, Option<Key>), Abort> {
    let (resource, namespace) = (ctx.resource.storage_name(), ctx.target.namespace.as_deref());
    let store = &ctx.server.store;
    if let Some(text) = &options.continue_token {
        let token = Continue::decode(text)?;
        let after = Key {
            namespace: token.namespace,
            name: token.name,
        };
        return match token.rv {
            Some(revision) => match store.list_at(&resource, namespace, revision) {
                Ok(snapshot) => Ok((snapshot, Some(after))),
                Err(Compacted { .. }) => Err(continue_expired().into()),
            },
            // A token that gave up consistency goes on with what is there now.
            None => Ok((store.list(&resource, namespace), Some(after))),
        };
    }
    if let Fault::StaleRead { versions_back } = ctx.fault {
        return Ok((stale_snapshot(ctx, versions_back), None));
    }
    let version = options.resource_version.unwrap_or_default();
    check_not_ahead(ctx, version)?;
    if options.version_match == VersionMatch::Exact {
        return match store.list_at(&resource, namespace, version) {
            Ok(snapshot) => Ok((snapshot, None)),
            Err(Compacted { oldest }) => {
                Err(ApiError::expired(format!("too old resource version: {version} ({oldest})")).into())
            }
        };
    }
    Ok((store.list(&resource, namespace), None))
}

/// Versions from the future are refused as by a server whose cache did not catch up in time.
fn check_not_ahead(ctx: &Context, version: u64) -> Result<(), ApiError> {
    let current = ctx.server.store.revision();
    if version <= current {
        return Ok(());
    }
    let mut error = ApiError::new(
        StatusCode::GATEWAY_TIMEOUT,
        "Timeout",
        format!("Timeout: Too large resource version: {version}, current: {current}"),
    );
    error.details = Some(Box::new(Details {
        causes: vec![Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        retry_after_seconds: Some(1),
        ..Details::default()
    }));
    Err(error)
}

fn continue_expired() -> ApiError {
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You must start a new \
         list without the continue parameter.",
    )
}

/// Where a list goes on; opaque to callers.
#[derive(Debug, Deserialize)]
struct Continue {
    /// The version of the whole list; absent where consistency was given up.
    rv: Option<u64>,
    namespace: String,
    name: String,
}

impl Continue {
    fn encode(&self) -> String {
        let json = serde_json::json!({ "rv": self.rv, "namespace": self.namespace, "name": self.name });
        BASE64_URL_SAFE_NO_PAD.encode(json.to_string())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let invalid = |why: String| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let json = BASE64_URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| invalid(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))
    }
}

/// The objects of a resource that a selection takes, as they are now.
pub(crate) fn select(ctx: &Context, selection: &Selection) -> Vec<(Key, Arc<Value>)> {
    let snapshot = ctx
        .server
        .store
        .list(&ctx.resource.storage_name(), selection.namespace.as_deref());
    snapshot
        .objects
        .into_iter()
        .filter(|(key, stored)| selection.matches(key, &stored.object))
        .map(|(key, stored)| (key, stored.object))
        .collect()
}
