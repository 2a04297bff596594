//! From a request to the verb that answers it, and the faults on the way.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, StreamBody};

use super::{
    Body, Shared,
    context::{Abort, Answer, Context},
    create, decode, delete, full_body, patch,
    query::Query,
    read, subresource,
    target::Target,
    update, watch,
};
use crate::{
    BoxError,
    error::ApiError,
    fault::{Call, Fault, Outcome},
    proxy,
    resource::ResourceType,
};

/// Answers any request.
pub(super) async fn answer<B>(server: Arc<Shared>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let Some(target) = Target::parse(parts.uri.path()) else {
        return server
            .discovery
            .respond(&server.registry, &parts)
            .unwrap_or_else(not_found_page);
    };
    match call(server, parts, target, body).await {
        Ok(response) => response,
        Err(Abort::Refused(error)) => error.into_response(),
        Err(Abort::Disconnected) => broken_connection(),
    }
}

/// A call on a resource, with its faults.
async fn call<B>(server: Arc<Shared>, parts: Parts, target: Target, body: B) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let resource = match server
        .registry
        .lookup(&target.group, &target.version, &target.resource)
    {
        Some(resource) => resource,
        None if server
            .registry
            .all()
            .iter()
            .any(|r| r.group == target.group && r.version == target.version) =>
        {
            return Err(ApiError::no_such_resource().into());
        }
        // A cluster has nothing that speaks for an unknown group either.
        None => return Ok(not_found_page()),
    };
    let query = Query::parse(parts.uri.query());
    let watching = query.flag("watch") == Some(true) && target.subresource.is_none();
    let verb = target
        .verb(&parts.method, watching)
        .ok_or_else(|| no_verb(&resource, &parts.method))?;
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let media_type = decode::media_type(&parts.headers);
    let call = Call {
        verb: if verb == "patch" && media_type == patch::APPLY_PATCH {
            "apply"
        } else {
            verb
        },
        group: target.group.clone(),
        resource: target.resource.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        subresource: target.subresource.clone(),
        user_agent: header(header::USER_AGENT),
        field_manager: query.get("fieldManager").map(str::to_owned),
    };
    let fault = server
        .faults
        .as_ref()
        .map_or(Fault::None, |faults| faults.decide(&call));
    let faults = server.faults.clone();
    let (observed, observed_fault) = (call.clone(), fault.clone());

    let answer = match &fault {
        Fault::Error(status, message) => Err(injected_error(*status, message).into()),
        Fault::None
        | Fault::Delay(_)
        | Fault::DropWatch { .. }
        | Fault::StaleRead { .. }
        | Fault::CrashBeforeCommit
        | Fault::CrashAfterCommit => {
            if let Fault::Delay(delay) = fault {
                tokio::time::sleep(delay).await;
            }
            let headers = parts.headers.clone();
            let ctx = Context {
                server,
                resource,
                target,
                query,
                headers,
                call,
                fault,
            };
            dispatch(ctx, parts, &media_type, body).await
        }
    };
    if let Some(faults) = faults {
        let outcome = match &answer {
            // A watch reports itself when it ends.
            Ok(_) if observed.verb == "watch" => return answer,
            Ok(response) => Outcome::Answered(response.status()),
            Err(Abort::Refused(error)) => Outcome::Answered(error.code),
            Err(Abort::Disconnected) => Outcome::Disconnected,
        };
        faults.observe(&observed, &observed_fault, &outcome);
    }
    answer
}

async fn dispatch<B>(ctx: Context, parts: Parts, media_type: &str, body: B) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    if let Some(response) = wrong_scope(&ctx) {
        return Ok(response);
    }
    match ctx.subresource() {
        None => {}
        Some("status") if ctx.resource.status => {}
        Some("scale") if ctx.resource.scale.is_some() => {
            let body = decode::read(body).await?;
            return match parts.method {
                Method::GET | Method::PUT | Method::PATCH => {
                    subresource::scale(&ctx, &parts.method, media_type, body).await
                }
                _ => Err(ApiError::method_not_allowed().into()),
            };
        }
        Some("binding") if super::rules::is_pod(&ctx.resource) && parts.method == Method::POST => {
            let body = decode::read(body).await?;
            return subresource::bind(&ctx, media_type, body).await;
        }
        Some("log") if super::rules::is_pod(&ctx.resource) && parts.method == Method::GET => {
            let (backend, now) = (ctx.server.backend(), ctx.server.now());
            let log = proxy::pod_log(backend, ctx.namespace(), ctx.name(), parts.uri.query(), now);
            return Ok(log.await?);
        }
        Some("proxy") if ctx.resource.builtin => {
            let destination = destination(&ctx).ok_or_else(ApiError::no_such_resource)?;
            let (backend, namespace) = (ctx.server.backend(), ctx.namespace());
            return Ok(proxy::forward(backend, destination, namespace, ctx.name(), parts, body).await?);
        }
        Some(_) if ctx.resource.builtin => return Err(ApiError::no_such_resource().into()),
        Some(_) => return Err(ApiError::not_found(&ctx.resource, ctx.name()).into()),
    }
    match ctx.call.verb {
        "get" => read::get(&ctx),
        "list" => read::list(&ctx),
        "watch" => watch::watch(ctx),
        verb => {
            let body = decode::read(body).await?;
            match verb {
                "create" if ctx.subresource().is_none() => create::create(&ctx, media_type, body).await,
                "update" => update::update(&ctx, media_type, body).await,
                "patch" | "apply" => patch::patch(&ctx, media_type, body).await,
                "delete" if ctx.subresource().is_none() => delete::delete(&ctx, media_type, body).await,
                "deletecollection" => delete::delete_collection(&ctx, media_type, body).await,
                _ => Err(ApiError::method_not_allowed().into()),
            }
        }
    }
}

/// What the proxy subresource of this resource leads to.
fn destination(ctx: &Context) -> Option<proxy::Destination> {
    match &*ctx.resource {
        resource if super::rules::is_pod(resource) => Some(proxy::Destination::Pod),
        resource if super::rules::is_service(resource) => Some(proxy::Destination::Service),
        _ => None,
    }
}

/// The method means nothing on the path. Custom resources have one handler for all paths, which misses the name.
fn no_verb(resource: &ResourceType, method: &Method) -> ApiError {
    if !resource.builtin && matches!(*method, Method::PUT | Method::PATCH) {
        return ApiError::bad_request("name must be provided");
    }
    ApiError::method_not_allowed()
}

/// A path with a namespace is for namespaced objects; without one only their lists can be read.
fn wrong_scope(ctx: &Context) -> Option<Response<Body>> {
    let (namespaced, given) = (ctx.resource.namespaced, ctx.target.namespace.is_some());
    let collection = ctx.target.name.is_none();
    if namespaced == given || (namespaced && collection && matches!(ctx.call.verb, "list" | "watch")) {
        return None;
    }
    // No handler of a cluster knows such a path of a custom resource.
    if !ctx.resource.builtin {
        return Some(not_found_page());
    }
    let error = if namespaced && collection {
        ApiError::method_not_allowed()
    } else {
        ApiError::no_such_resource()
    };
    Some(error.into_response())
}

fn injected_error(status: StatusCode, message: &str) -> ApiError {
    let reason = match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::GONE => "Expired",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    };
    ApiError::new(status, reason, message)
}

fn not_found_page() -> Response<Body> {
    let mut response = Response::new(full_body("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// What a caller sees of a server that dies while it answers: a body that breaks off.
fn broken_connection() -> Response<Body> {
    let error = BoxError::from("the connection was broken by an injected crash");
    Response::new(StreamBody::new(stream::iter([Err(error)])).boxed_unsync())
}
