//! `pods/NAME/log`.

use std::sync::Arc;

use futures::TryStreamExt;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use url::form_urlencoded;

use super::{no_backend, refused};
use crate::{
    BoxError,
    backend::{Backend, LogOptions},
    error::{ApiError, Cause, Details},
    server::Body,
};

/// The log of a pod's container, as plain text; with `follow`, for as long as the caller listens.
pub(crate) async fn pod_log(
    backend: Option<Arc<dyn Backend>>,
    namespace: &str,
    pod: &str,
    query: Option<&str>,
    now: Timestamp,
) -> Result<Response<Body>, ApiError> {
    let options = options(query.unwrap_or_default(), now)?;
    let backend = backend.ok_or_else(no_backend)?;
    let log = backend.pod_log(namespace, pod, options).await.map_err(refused)?;
    let frames = log.map_ok(Frame::data).map_err(BoxError::from);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    Ok(response)
}

/// Reads `PodLogOptions` from a query.
fn options(query: &str, now: Timestamp) -> Result<LogOptions, ApiError> {
    let mut options = LogOptions::default();
    let mut since_time = None;
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "container" if !value.is_empty() => options.container = Some(value.into_owned()),
            "follow" => options.follow = flag(&value),
            "previous" => options.previous = flag(&value),
            "timestamps" => options.timestamps = flag(&value),
            "tailLines" => options.tail_lines = Some(number("tailLines", &value, 0)?),
            "limitBytes" => options.limit_bytes = Some(number("limitBytes", &value, 1)?),
            "sinceSeconds" => options.since_seconds = Some(number("sinceSeconds", &value, 1)?),
            "sinceTime" => since_time = Some(time(&value)?),
            "stream" if !matches!(&*value, "" | "All") => {
                return Err(invalid(
                    "stream",
                    &format!("Invalid value: \"{value}\": only All is served here"),
                ));
            }
            // `pretty` and the like say nothing about a log.
            _ => {}
        }
    }
    if let Some(since) = since_time {
        if options.since_seconds.is_some() {
            return Err(invalid(
                "sinceSeconds",
                "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ));
        }
        // Rounded up: nothing written since then may be missing.
        let passed = now.duration_since(since).as_secs().max(0).unsigned_abs();
        options.since_seconds = Some(passed + 1);
    }
    Ok(options)
}

/// As Kubernetes reads booleans: a bare name is true.
fn flag(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

fn number(field: &str, value: &str, least: u64) -> Result<u64, ApiError> {
    let number: i64 = value.parse().map_err(|_| {
        ApiError::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
    })?;
    u64::try_from(number)
        .ok()
        .filter(|number| *number >= least)
        .ok_or_else(|| {
            let bound = if least == 0 {
                "greater than or equal to 0"
            } else {
                "greater than 0"
            };
            invalid(field, &format!("Invalid value: {number}: must be {bound}"))
        })
}

fn time(value: &str) -> Result<Timestamp, ApiError> {
    value.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "sinceTime: \"{value}\" is no time such as 2026-01-01T00:00:00Z"
        ))
    })
}

fn invalid(field: &str, message: &str) -> ApiError {
    let mut error = ApiError::new(
        http::StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        format!("PodLogOptions \"\" is invalid: {field}: {message}"),
    );
    error.details = Some(Box::new(Details {
        kind: "PodLogOptions".to_owned(),
        causes: vec![Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        }],
        ..Details::default()
    }));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<LogOptions, String> {
        options(query, "2026-01-01T00:01:00Z".parse().unwrap()).map_err(|error| error.message)
    }

    #[test]
    fn options_are_read() {
        let all =
            read("container=c&follow=true&tailLines=3&previous=false&timestamps&limitBytes=9&sinceSeconds=5");
        let expected = LogOptions {
            container: Some("c".to_owned()),
            follow: true,
            tail_lines: Some(3),
            since_seconds: Some(5),
            previous: false,
            timestamps: true,
            limit_bytes: Some(9),
        };
        assert_eq!(all, Ok(expected));
        assert_eq!(
            read("sinceTime=2026-01-01T00:00:30Z").unwrap().since_seconds,
            Some(31)
        );
        assert_eq!(
            read("sinceTime=2027-01-01T00:00:30Z").unwrap().since_seconds,
            Some(1)
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let message =
            "PodLogOptions \"\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(read("tailLines=-1").unwrap_err(), message);
        assert!(read("tailLines=x").unwrap_err().contains("invalid syntax"));
        assert!(read("limitBytes=0").is_err());
        assert!(read("sinceSeconds=1&sinceTime=2026-01-01T00:00:30Z").is_err());
        assert!(read("sinceTime=yesterday").is_err());
        assert!(read("stream=Stderr").is_err());
    }
}
