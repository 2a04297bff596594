//! Answers: in which of its forms the caller wants an object, and the bytes of it.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Body, decode::JSON, full_body, query::Query, versions::in_version};
use crate::{
    accept::{Form, ranges},
    error::ApiError,
    resource::ResourceType,
    table,
};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The whole object.
    Full,
    /// Only its metadata.
    Metadata,
    /// A table for people.
    Table(IncludeObject),
}

/// What a table's rows carry beside their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl Shape {
    /// Reads the `Accept` header.
    ///
    /// # Errors
    /// Where the caller takes none of what is served: it wants protobuf only, for example.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Self, ApiError> {
        let mut accepted = ranges(headers).peekable();
        if accepted.peek().is_none() {
            return Ok(Self::Full);
        }
        for range in accepted {
            let Some(form) = Form::of(range) else { continue };
            let meta_v1 = (form.group, form.version) == (Some("meta.k8s.io"), Some("v1"));
            match form.kind {
                None => return Ok(Self::Full),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") if meta_v1 => {
                    return Ok(Self::Metadata);
                }
                Some("Table") if meta_v1 => return Ok(Self::Table(include_object(query)?)),
                // Another form, or another version of one: the next range may do.
                Some(_) => {}
            }
        }
        Err(ApiError::not_acceptable(&[JSON]))
    }

    /// One object in this form.
    pub(crate) fn object(self, resource: &ResourceType, object: &Value, now: Timestamp) -> Value {
        let object = in_version(resource, object);
        match self {
            Self::Full => object.into_owned(),
            Self::Metadata => metadata_only(&object),
            Self::Table(include) => table::render(resource, &object, include, now),
        }
    }

    /// A list in this form. `metadata` is that of the list.
    pub(crate) fn list(
        self,
        resource: &ResourceType,
        items: Vec<Value>,
        metadata: Value,
        now: Timestamp,
    ) -> Value {
        match self {
            Self::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items.iter().map(metadata_only).collect::<Vec<_>>(),
            }),
            Self::Full | Self::Table(_) => {
                let list = json!({
                    "kind": resource.list_kind,
                    "apiVersion": resource.api_version(),
                    "metadata": metadata,
                    "items": items,
                });
                match self {
                    Self::Table(include) => table::render(resource, &list, include, now),
                    Self::Full | Self::Metadata => list,
                }
            }
        }
    }
}

fn include_object(query: &Query) -> Result<IncludeObject, ApiError> {
    match query.get("includeObject") {
        None | Some("Metadata") => Ok(IncludeObject::Metadata),
        Some("None") => Ok(IncludeObject::None),
        Some("Object") => Ok(IncludeObject::Object),
        Some(other) => Err(ApiError::bad_request(format!(
            "unrecognized includeObject value: \"{other}\""
        ))),
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(full_body(value.to_string()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// Adds `Warning` headers, which kubectl prints.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let text: String = warning
            .chars()
            .flat_map(|c| {
                if matches!(c, '"' | '\\') {
                    vec!['\\', c]
                } else {
                    vec![c]
                }
            })
            .filter(|c| !c.is_control())
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(accept: &str) -> Option<Shape> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        Shape::negotiate(&headers, &Query::default()).ok()
    }

    #[test]
    fn the_first_acceptable_form_is_taken() {
        assert_eq!(shape("application/json"), Some(Shape::Full));
        assert_eq!(shape("*/*"), Some(Shape::Full));
        assert_eq!(
            shape("application/vnd.kubernetes.protobuf,application/json"),
            Some(Shape::Full)
        );
        assert_eq!(shape("application/vnd.kubernetes.protobuf"), None);
        assert_eq!(
            shape("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Some(Shape::Table(IncludeObject::Metadata))
        );
        assert_eq!(
            shape("application/json;as=Table;v=v9;g=meta.k8s.io,application/json"),
            Some(Shape::Full)
        );
        assert_eq!(
            shape("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Some(Shape::Metadata)
        );
    }
}
