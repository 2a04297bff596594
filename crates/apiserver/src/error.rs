//! Refusals in Kubernetes' own words: the `Status` object, its reasons and its messages.
//!
//! kubectl prints these messages and clients decide by `reason` and `code`, so the wording follows
//! kube-apiserver (`k8s.io/apimachinery/pkg/api/errors`).

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    resource::ResourceType,
    server::{Body, full_body},
};

/// A refusal; becomes the body and the HTTP status of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    /// The HTTP status.
    pub(crate) code: StatusCode,
    /// The machine-readable reason, such as `NotFound`; empty where Kubernetes gives none.
    pub(crate) reason: &'static str,
    /// The sentence shown to people.
    pub(crate) message: String,
    /// What the refusal is about.
    pub(crate) details: Option<Box<Details>>,
}

/// `Status.details`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Details {
    pub(crate) group: String,
    /// The plural resource name, or the kind for `Invalid`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) causes: Vec<Cause>,
    pub(crate) retry_after_seconds: Option<u64>,
}

/// One of several reasons of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Such as `FieldValueRequired`.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The path of the field, such as `spec.model`.
    pub(crate) field: String,
}

impl ApiError {
    /// A refusal without details.
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            ..Details::default()
        }));
        self
    }

    fn caused_by(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    /// The object does not exist.
    pub(crate) fn not_found(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified_name());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(&resource.group, &resource.plural, name)
    }

    /// The path names nothing that is served.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
        .about("", "", "")
    }

    /// The object exists already.
    pub(crate) fn already_exists(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_name());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(
            &resource.group,
            &resource.plural,
            name,
        )
    }

    /// The object changed under the caller, or a precondition does not hold.
    pub(crate) fn conflict(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.qualified_name()
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(&resource.group, &resource.plural, name)
    }

    /// A precondition of a deletion does not hold. Kubernetes names the kind here, not the resource.
    pub(crate) fn precondition(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified_kind(resource)
        );
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(&resource.group, &resource.kind, name)
    }

    /// [`ApiError::conflict`] on a subresource, such as `pods/binding`.
    pub(crate) fn conflict_on(resource: &ResourceType, path: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {path} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(&resource.group, path, name)
    }

    /// [`ApiError::conflict`] with the usual text for a stale resource version.
    pub(crate) fn stale(resource: &ResourceType, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Fields of server-side apply belong to others. The causes name them one by one.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self::new(StatusCode::CONFLICT, "Conflict", message).caused_by(causes)
    }

    /// The object breaks the rules of its kind.
    pub(crate) fn invalid(resource: &ResourceType, name: &str, causes: Vec<Cause>) -> Self {
        let lines: Vec<String> = causes
            .iter()
            .map(|cause| {
                if cause.field.is_empty() {
                    cause.message.clone()
                } else {
                    format!("{}: {}", cause.field, cause.message)
                }
            })
            .collect();
        let what = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind = qualified_kind(resource);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{kind} \"{name}\" is invalid: {what}"),
        )
        .about(&resource.group, &resource.kind, name)
        .caused_by(causes)
    }

    /// The request itself makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The request is understood and refused.
    pub(crate) fn forbidden(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified_name());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(&resource.group, &resource.plural, name)
    }

    /// The verb is not served on this path.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .about("", "", "")
    }

    /// The resource version is older than history reaches.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The body's media type is not understood.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// None of the media types the caller accepts is served.
    pub(crate) fn not_acceptable(served: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            served.join(", ")
        );
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// What is needed to answer is not there now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The server's own fault.
    pub(crate) fn internal(why: impl std::fmt::Display) -> Self {
        let cause = Cause {
            reason: String::new(),
            message: why.to_string(),
            field: String::new(),
        };
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {why}"),
        )
        .caused_by(vec![cause])
    }

    /// The `Status` object.
    pub(crate) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status["code"] = self.code.as_u16().into();
        status
    }

    /// The HTTP answer.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(full_body(self.to_status().to_string()));
        *response.status_mut() = self.code;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self
            .details
            .as_ref()
            .and_then(|details| details.retry_after_seconds)
        {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// `Kind.group`, as messages name a kind; only the kind for the core group.
fn qualified_kind(resource: &ResourceType) -> String {
    if resource.group.is_empty() {
        resource.kind.clone()
    } else {
        format!("{}.{}", resource.kind, resource.group)
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut value = serde_json::Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                value.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(Cause::to_value).collect();
            value.insert("causes".to_owned(), Value::Array(causes));
        }
        if let Some(seconds) = self.retry_after_seconds {
            value.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        Value::Object(value)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut value = serde_json::Map::new();
        for (key, text) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                value.insert(key.to_owned(), text.as_str().into());
            }
        }
        Value::Object(value)
    }
}
