//! Deleting objects: preconditions, finalizers, grace, and what becomes of their dependents.
//!
//! A deletion either removes the object at once or marks it with a deletion time and leaves it to whoever it
//! waits for: the owners of its finalizers, the garbage collector, a pod's node.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::{
    Shared,
    context::{Abort, Answer, Context, Failed, Gate},
    decode::{self, Wanted},
    meta,
    query::{Query, dry_run, invalid_options},
    read::{self, Selection},
    respond::{self, Shape},
    rules,
    update::{CONFLICT_RETRIES, is_released},
    versions::in_version,
};
use crate::{
    crd,
    error::ApiError,
    resource::ResourceType,
    store::{Change, Expected, Key, Stored, Write},
};

/// Finalizers of the garbage collector: wait for the dependents to go, or let go of them.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They go after the object.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// `None` keeps what the object's finalizers already say.
    pub(crate) propagation: Option<Propagation>,
    pub(crate) dry_run: bool,
}

/// What a deletion came to.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// The object is gone. The value is its last state.
    Removed(Value),
    /// The object waits for something.
    Pending(Value),
}

impl DeleteOptions {
    /// From the query, and from the body, which counts where it says something.
    fn parse(query: &Query, media_type: &str, body: &[u8]) -> Result<Self, ApiError> {
        let sent = if body.is_empty() {
            Value::Null
        } else {
            decode::object(media_type, body, Wanted::DELETE_OPTIONS)?.value
        };
        let text = |name: &str| {
            sent.get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .or_else(|| query.get(name).map(str::to_owned))
        };
        let grace_seconds = match (
            sent.get("gracePeriodSeconds").and_then(Value::as_i64),
            query.get("gracePeriodSeconds"),
        ) {
            (Some(seconds), _) => Some(seconds),
            (None, Some(text)) => Some(text.parse().map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
            })?),
            (None, None) => None,
        };
        let orphan = sent
            .get("orphanDependents")
            .and_then(Value::as_bool)
            .or_else(|| query.flag("orphanDependents"));
        let propagation = propagation(text("propagationPolicy").as_deref(), orphan)?;
        let precondition = |name: &str| {
            sent.get("preconditions")
                .and_then(|all| all.get(name))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        Ok(Self {
            grace_seconds,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            propagation,
            dry_run: query.dry_run("DeleteOptions")?
                || dry_run(&meta::strings(sent.get("dryRun")), "DeleteOptions")?,
        })
    }

    fn check(&self, resource: &ResourceType, current: &Stored) -> Result<(), ApiError> {
        let (uid, version) = (
            meta::uid(&current.object),
            meta::text(&current.object, "resourceVersion"),
        );
        let why = match (&self.uid, &self.resource_version) {
            (Some(expected), _) if expected != uid => format!(
                "the UID in the precondition ({expected}) does not match the UID in record ({uid}). The object \
                 might have been deleted and then recreated"
            ),
            (_, Some(expected)) if expected != version => format!(
                "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in \
                 record ({version}). The object might have been modified"
            ),
            _ => return Ok(()),
        };
        Err(ApiError::precondition(
            resource,
            meta::name(&current.object),
            &why,
        ))
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Option<Propagation>, ApiError> {
    let invalid = |reason, message| {
        Err(invalid_options(
            "DeleteOptions",
            "propagationPolicy",
            reason,
            message,
        ))
    };
    let policy = match policy {
        None => None,
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => {
            let supported = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            return invalid(
                "NotSupported",
                format!("Unsupported value: \"{other}\": supported values: {supported}"),
            );
        }
    };
    match (policy, orphan) {
        (Some(given), Some(_)) => {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            invalid("Invalid", format!("Invalid value: \"{given:?}\": {why}"))
        }
        (policy, None) => Ok(policy),
        (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (None, Some(false)) => Ok(Some(Propagation::Background)),
    }
}

/// `DELETE` of one object.
pub(super) async fn delete(ctx: &Context, media_type: &str, body: Bytes) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let options = DeleteOptions::parse(&ctx.query, media_type, &body)?;
    let resource = &*ctx.resource;
    let gate = ctx.gate(options.dry_run);
    match ctx.server.delete(resource, &ctx.key(), &options, &gate).await? {
        Deletion::Removed(object) if !rules::returns_deleted_object(resource) => {
            Ok(respond::json(StatusCode::OK, &success(resource, &object)))
        }
        Deletion::Removed(object) | Deletion::Pending(object) => Ok(respond::json(
            StatusCode::OK,
            &shape.object(resource, &object, ctx.server.now()),
        )),
    }
}

/// `DELETE` of a collection: every object that is selected, one by one.
pub(super) async fn delete_collection(ctx: &Context, media_type: &str, body: Bytes) -> Answer {
    let shape = Shape::negotiate(&ctx.headers, &ctx.query)?;
    let options = DeleteOptions::parse(&ctx.query, media_type, &body)?;
    let resource = &*ctx.resource;
    let gate = ctx.gate(options.dry_run);
    let mut items = Vec::new();
    for (key, object) in read::select(ctx, &Selection::of(ctx)?) {
        match ctx.server.delete(resource, &key, &options, &gate).await {
            Ok(_) => items.push(in_version(resource, &object).into_owned()),
            // Somebody else was faster.
            Err(Abort::Refused(error)) if error.code == StatusCode::NOT_FOUND => {}
            Err(abort) => return Err(abort),
        }
    }
    let metadata = json!({ "resourceVersion": ctx.server.store.revision().to_string() });
    Ok(respond::json(
        StatusCode::OK,
        &shape.list(resource, items, metadata, ctx.server.now()),
    ))
}

/// The `Status` that answers a deletion.
fn success(resource: &ResourceType, object: &Value) -> Value {
    let mut details = Map::new();
    details.insert("name".to_owned(), meta::name(object).into());
    if !resource.group.is_empty() {
        details.insert("group".to_owned(), resource.group.as_str().into());
    }
    details.insert("kind".to_owned(), resource.plural.as_str().into());
    details.insert("uid".to_owned(), meta::uid(object).into());
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

impl Shared {
    /// Asks for the deletion of an object.
    pub(crate) async fn delete(
        &self,
        resource: &ResourceType,
        key: &Key,
        options: &DeleteOptions,
        gate: &Gate,
    ) -> Result<Deletion, Abort> {
        let name: Cow<'_, str> = resource.storage_name().into();
        for _ in 0..CONFLICT_RETRIES {
            let current = self
                .store
                .get(&name, key)
                .ok_or_else(|| ApiError::not_found(resource, &key.name))?;
            options.check(resource, &current)?;
            let Some(marked) = self.mark(resource, &current.object, options)? else {
                return Ok(Deletion::Pending(Value::clone(&current.object)));
            };
            let removed = is_released(resource, &marked);
            let write = Write {
                resource: (&*name).into(),
                key: key.clone(),
                expected: Expected::Version(current.revision),
                change: if removed {
                    Change::Delete(marked)
                } else {
                    Change::Put(marked)
                },
                needs: None,
            };
            match self.commit(gate, write).await {
                Ok(stored) if removed => return Ok(Deletion::Removed(Value::clone(&stored.object))),
                Ok(stored) => return Ok(Deletion::Pending(Value::clone(&stored.object))),
                Err(Failed::Conflict | Failed::Missing) => {}
                Err(Failed::Abort(abort)) => return Err(abort),
            }
        }
        Err(ApiError::stale(resource, &key.name).into())
    }

    /// The object with its deletion asked for; `None` where that changes nothing.
    fn mark(
        &self,
        resource: &ResourceType,
        current: &Value,
        options: &DeleteOptions,
    ) -> Result<Option<Value>, ApiError> {
        let mut object = current.clone();
        if rules::is_namespace(resource) {
            if matches!(meta::name(current), "default" | "kube-system") {
                return Err(ApiError::forbidden(
                    resource,
                    meta::name(current),
                    "this namespace may not be deleted",
                ));
            }
            meta::child_mut(&mut object, "status").insert("phase".to_owned(), "Terminating".into());
        }
        if rules::is_definition(resource) {
            crd::mark_deleted(&mut object, self.now());
        }
        set_propagation(
            &mut object,
            options
                .propagation
                .or_else(|| default_propagation(resource, current)),
        );
        let grace = if rules::is_pod(resource) {
            pod_grace(current, options.grace_seconds)
        } else {
            0
        };
        let first = !meta::is_deleting(current);
        let running = meta::get(current, "deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        if first || grace < running {
            let until = self
                .now()
                .saturating_add(SignedDuration::from_secs(grace))
                .unwrap_or(self.now());
            // A second deletion can only shorten the grace of the first.
            meta::set(&mut object, "deletionTimestamp", super::time_text(until));
            if !rules::is_namespace(resource) {
                meta::set(&mut object, "deletionGracePeriodSeconds", grace);
            }
        }
        if first && meta::generation(current) > 0 {
            meta::set(&mut object, "generation", meta::generation(current) + 1);
        }
        Ok((object != *current || is_released(resource, &object)).then_some(object))
    }
}

/// What becomes of the dependents where neither the caller nor the object says it; `None` is background deletion.
fn default_propagation(resource: &ResourceType, current: &Value) -> Option<Propagation> {
    let said = meta::finalizers(current)
        .iter()
        .any(|name| matches!(*name, FOREGROUND | ORPHAN));
    (rules::orphans_by_default(resource) && !said).then_some(Propagation::Orphan)
}

/// Notes in the finalizers what the garbage collector shall do.
fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let mut finalizers: Vec<Cow<'_, str>> = meta::finalizers(object)
        .into_iter()
        .filter(|name| (*name != FOREGROUND && *name != ORPHAN) || Some(*name) == wanted)
        .map(|name| Cow::Owned(name.to_owned()))
        .collect();
    if let Some(wanted) = wanted.filter(|wanted| !finalizers.iter().any(|name| name == wanted)) {
        finalizers.push(Cow::Borrowed(wanted));
    }
    meta::set_finalizers(object, &finalizers);
}

/// How long a pod may take to stop: a pod that no node runs, or that has ended, takes no time.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let bound = pod
        .pointer("/spec/nodeName")
        .and_then(Value::as_str)
        .is_some_and(|node| !node.is_empty());
    let ended = matches!(
        pod.pointer("/status/phase").and_then(Value::as_str),
        Some("Failed" | "Succeeded")
    );
    if !bound || ended {
        return 0;
    }
    let own = pod
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    match asked.or(own).unwrap_or(30) {
        // A mistake of old clients, read as the shortest grace.
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_pods_get_grace() {
        let pod = |node: &str, phase: &str| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 7}, "status": {"phase": phase}});
        assert_eq!(pod_grace(&pod("", "Pending"), None), 0);
        assert_eq!(pod_grace(&pod("n", "Running"), None), 7);
        assert_eq!(pod_grace(&pod("n", "Running"), Some(2)), 2);
        assert_eq!(pod_grace(&pod("n", "Running"), Some(0)), 0);
        assert_eq!(pod_grace(&pod("n", "Failed"), Some(5)), 0);
    }

    #[test]
    fn propagation_is_kept_in_finalizers() {
        let mut object = json!({"metadata": {"finalizers": ["a.b/c", "orphan"]}});
        set_propagation(&mut object, Some(Propagation::Foreground));
        assert_eq!(meta::finalizers(&object), ["a.b/c", FOREGROUND]);
        set_propagation(&mut object, None);
        assert_eq!(meta::finalizers(&object), ["a.b/c", FOREGROUND]);
        set_propagation(&mut object, Some(Propagation::Background));
        assert_eq!(meta::finalizers(&object), ["a.b/c"]);
    }
}
