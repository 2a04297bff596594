//! The `Accept` header of Kubernetes' clients: media ranges whose parameters name the form of an answer, such
//! as `application/json;as=Table;g=meta.k8s.io;v=v1`.

use http::{HeaderMap, header};

/// The ranges of the header, in the client's order of preference.
pub(crate) fn ranges(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
}

/// The form that a range of JSON asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form<'a> {
    /// The kind; `None`: the object as it is.
    pub(crate) kind: Option<&'a str>,
    /// The kind's group.
    pub(crate) group: Option<&'a str>,
    /// The group's version.
    pub(crate) version: Option<&'a str>,
}

impl<'a> Form<'a> {
    /// The form of a range, or `None` where the range is not JSON.
    pub(crate) fn of(range: &'a str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next(), Some("application/json" | "application/*" | "*/*")) {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name: &str| {
            parameters
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        Some(Self {
            kind: parameter("as"),
            group: parameter("g"),
            version: parameter("v"),
        })
    }
}
