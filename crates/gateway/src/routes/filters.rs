//! What a rule changes in a request before it is passed on.

use http::{HeaderMap, HeaderName, HeaderValue, uri::PathAndQuery};

use super::matches::{PathMatch, rest};

/// Changes of headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderChanges {
    pub(crate) set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) add: Vec<(HeaderName, HeaderValue)>,
    pub(crate) remove: Vec<HeaderName>,
}

impl HeaderChanges {
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
        for name in &self.remove {
            headers.remove(name);
        }
    }
}

/// What becomes of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PathRewrite {
    /// It stays.
    #[default]
    Keep,
    /// It becomes this one.
    Full(String),
    /// The prefix that matched becomes this, which has no slash at the end.
    Prefix(String),
}

impl PathRewrite {
    /// The path and query to ask a backend for. `None` where they are no URI.
    pub(crate) fn apply(&self, matched: &PathMatch, path: &str, query: Option<&str>) -> Option<PathAndQuery> {
        let mut target = match (self, matched) {
            (Self::Full(full), _) => full.clone(),
            (Self::Prefix(replacement), PathMatch::Prefix(prefix)) => {
                format!("{replacement}{}", rest(path, prefix).unwrap_or_default())
            }
            (Self::Keep | Self::Prefix(_), _) => path.to_owned(),
        };
        if !target.starts_with('/') {
            target.insert(0, '/');
        }
        if let Some(query) = query {
            target.push('?');
            target.push_str(query);
        }
        target.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_replaced_as_the_api_prescribes() {
        for (path, prefix, replacement, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/foo//bar%20x", "/foo", "/", "//bar%20x"),
            ("/", "/", "/xyz", "/xyz/"),
        ] {
            let rewrite = PathRewrite::Prefix(replacement.trim_end_matches('/').to_owned());
            let found = rewrite.apply(&PathMatch::prefix(prefix), path, None).unwrap();
            assert_eq!(found.as_str(), expected, "{path} {prefix} {replacement}");
        }
    }

    #[test]
    fn the_query_is_kept() {
        let matched = PathMatch::prefix("/a");
        let full = PathRewrite::Full("/b".to_owned());
        assert_eq!(
            full.apply(&matched, "/a/c", Some("x=%20&y")).unwrap().as_str(),
            "/b?x=%20&y"
        );
        assert_eq!(
            PathRewrite::Keep.apply(&matched, "/a/c", None).unwrap().as_str(),
            "/a/c"
        );
    }

    #[test]
    fn headers_are_set_added_and_removed() {
        let value = HeaderValue::from_static;
        let name = HeaderName::from_static;
        let mut headers = HeaderMap::new();
        for (key, content) in [("a", "1"), ("b", "1"), ("c", "1")] {
            headers.append(name(key), value(content));
        }
        HeaderChanges {
            set: vec![(name("a"), value("2"))],
            add: vec![(name("b"), value("2"))],
            remove: vec![name("c")],
        }
        .apply(&mut headers);
        let all = |key| {
            headers
                .get_all(key)
                .iter()
                .map(|v| v.to_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (all("a"), all("b"), all("c")),
            (vec!["2"], vec!["1", "2"], vec![])
        );
    }
}
