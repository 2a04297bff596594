//! The query of a request: the options of each verb, checked as kube-apiserver checks them.

use http::StatusCode;
use url::form_urlencoded;

use crate::error::{ApiError, Cause, Details};

/// The parameters of a query, as they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

/// What happens with fields that the schema does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, named in a `Warning` header.
    Warn,
    /// Refused.
    Strict,
}

/// `resourceVersionMatch` of a list or watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Unset,
    NotOlderThan,
    Exact,
}

/// The options of list and watch.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    /// `None` where it was not given; `Some(0)` means any version.
    pub(crate) resource_version: Option<u64>,
    pub(crate) version_match: VersionMatch,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        Self {
            pairs: form_urlencoded::parse(query.unwrap_or_default().as_bytes())
                .into_owned()
                .collect(),
        }
    }

    /// A parameter that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|v| !v.is_empty())
    }

    /// A boolean as Go clients write it: `true`, `1`, or the bare name.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let value = self
            .pairs
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())?;
        // Kubernetes reads anything but `false` and `0` as true.
        Some(!matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// Whether nothing is to be stored.
    pub(crate) fn dry_run(&self, options_kind: &str) -> Result<bool, ApiError> {
        let given: Vec<&str> = self
            .pairs
            .iter()
            .filter(|(key, value)| key == "dryRun" && !value.is_empty())
            .map(|(_, v)| &**v)
            .collect();
        dry_run(&given, options_kind)
    }

    pub(crate) fn field_validation(&self, options_kind: &str) -> Result<FieldValidation, ApiError> {
        match self.get("fieldValidation") {
            Some("Ignore") => Ok(FieldValidation::Ignore),
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => Err(invalid_options(
                options_kind,
                "fieldValidation",
                "NotSupported",
                format!(
                    "Unsupported value: \"{other}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
                ),
            )),
        }
    }

    /// The options of a list, or of a watch where `watch` is set.
    pub(crate) fn list_options(&self, watch: bool) -> Result<ListOptions, ApiError> {
        let resource_version = match self.get("resourceVersion") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| bad_version(text, watch))?),
        };
        let options = ListOptions {
            resource_version,
            version_match: self.version_match()?,
            limit: self
                .number("limit")?
                .filter(|limit| *limit > 0)
                .and_then(|limit| usize::try_from(limit).ok()),
            continue_token: self.get("continue").map(str::to_owned),
            timeout_seconds: self
                .number("timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok()),
            bookmarks: self.flag("allowWatchBookmarks") == Some(true),
            send_initial_events: self.flag("sendInitialEvents"),
        };
        options.check(watch)?;
        Ok(options)
    }

    fn version_match(&self) -> Result<VersionMatch, ApiError> {
        match self.get("resourceVersionMatch") {
            None => Ok(VersionMatch::Unset),
            Some("NotOlderThan") => Ok(VersionMatch::NotOlderThan),
            Some("Exact") => Ok(VersionMatch::Exact),
            Some(other) => Err(invalid_options(
                "ListOptions",
                "resourceVersionMatch",
                "NotSupported",
                format!(
                    "Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\", \"\""
                ),
            )),
        }
    }

    fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let parsed = text.parse();
        parsed.map(Some).map_err(|_| {
            ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
        })
    }
}

impl ListOptions {
    fn check(&self, watch: bool) -> Result<(), ApiError> {
        let forbid = |field: &str, why: &str| {
            Err(invalid_options(
                "ListOptions",
                field,
                "Forbidden",
                format!("Forbidden: {why}"),
            ))
        };
        match (watch, self.send_initial_events, self.version_match) {
            (false, Some(_), _) => {
                return forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
            }
            (true, None, VersionMatch::NotOlderThan | VersionMatch::Exact) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return forbid("resourceVersionMatch", why);
            }
            (true, Some(_), VersionMatch::Unset | VersionMatch::Exact) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return forbid("resourceVersionMatch", why);
            }
            (true, _, _) => return Ok(()),
            (false, None, VersionMatch::Unset) => {}
            (false, None, VersionMatch::NotOlderThan | VersionMatch::Exact) => {
                if self.continue_token.is_some() {
                    let why = "resourceVersionMatch is forbidden when continue is provided";
                    return forbid("resourceVersionMatch", why);
                }
                if self.resource_version.is_none() {
                    let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                    return forbid("resourceVersionMatch", why);
                }
                if self.version_match == VersionMatch::Exact && self.resource_version == Some(0) {
                    let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                    return forbid("resourceVersionMatch", why);
                }
            }
        }
        Ok(())
    }
}

/// `dryRun` of a query or of DeleteOptions.
pub(crate) fn dry_run(given: &[&str], options_kind: &str) -> Result<bool, ApiError> {
    if given.iter().any(|value| *value != "All") {
        let list = given
            .iter()
            .map(|value| format!("\"{value}\""))
            .collect::<Vec<_>>()
            .join(",");
        return Err(invalid_options(
            options_kind,
            "dryRun",
            "NotSupported",
            format!("Unsupported value: [{list}]: supported values: \"All\""),
        ));
    }
    Ok(!given.is_empty())
}

fn bad_version(text: &str, watch: bool) -> ApiError {
    let why = format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    );
    if watch {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why)
    } else {
        ApiError::bad_request(format!("invalid resource version: {why}"))
    }
}

/// An option of a verb breaks a rule.
pub(crate) fn invalid_options(kind: &str, field: &str, reason: &str, message: String) -> ApiError {
    let mut error = ApiError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        format!("{kind}.meta.k8s.io \"\" is invalid: {field}: {message}"),
    );
    error.details = Some(Box::new(Details {
        group: "meta.k8s.io".to_owned(),
        kind: kind.to_owned(),
        causes: vec![Cause {
            reason: format!("FieldValue{reason}"),
            message,
            field: field.to_owned(),
        }],
        ..Details::default()
    }));
    error
}
