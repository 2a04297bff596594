//! What a rule asks of a request, and which of several rules that fit is asked first.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::form_urlencoded;

/// What the path must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathMatch {
    /// This and nothing else.
    Exact(String),
    /// These path elements and any that follow. Without the slash at the end: empty for `/`.
    Prefix(String),
}

impl PathMatch {
    pub(crate) fn prefix(text: &str) -> Self {
        Self::Prefix(text.trim_end_matches('/').to_owned())
    }

    pub(crate) fn fits(&self, path: &str) -> bool {
        match self {
            Self::Exact(whole) => path == whole,
            Self::Prefix(prefix) => rest(path, prefix).is_some(),
        }
    }

    /// As a person writes it.
    pub(crate) fn shown(&self) -> &str {
        match self {
            Self::Exact(whole) => whole,
            Self::Prefix(prefix) if prefix.is_empty() => "/",
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// What follows `prefix` in `path`, whole path elements only: nothing, or it begins with a slash.
pub(crate) fn rest<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix)
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// One alternative of a rule: all of it must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) path: PathMatch,
    pub(crate) method: Option<Method>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) query: Vec<(String, String)>,
}

impl Match {
    pub(crate) fn fits(&self, request: &Asked<'_>) -> bool {
        self.path.fits(request.path)
            && self.method.as_ref().is_none_or(|method| method == request.method)
            && self
                .headers
                .iter()
                .all(|(name, value)| request.headers.get_all(name).iter().any(|sent| sent == value))
            && self.query.iter().all(|(name, value)| {
                // Of a name that comes twice, the first counts.
                form_urlencoded::parse(request.query.as_bytes())
                    .find(|(sent, _)| sent == name)
                    .is_some_and(|(_, sent)| sent == *value)
            })
    }

    /// Smaller is asked first: the order that the API prescribes.
    pub(crate) fn precedence(&self) -> impl Ord + use<> {
        let (inexact, length) = match &self.path {
            PathMatch::Exact(_) => (false, 0),
            PathMatch::Prefix(prefix) => (true, prefix.len()),
        };
        (
            inexact,
            Reverse(length),
            self.method.is_none(),
            Reverse(self.headers.len()),
            Reverse(self.query.len()),
        )
    }
}

/// The parts of a request that matches look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The name in `Host`, in lower case and without the port.
    pub(crate) host: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

/// The host a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostMatch {
    /// This one.
    Exact(String),
    /// Those that end in this, which begins with a dot, and have more before it.
    Suffix(String),
    /// Every one.
    Any,
}

impl HostMatch {
    /// A hostname of a route, whose form the API has checked.
    pub(crate) fn parse(hostname: &str) -> Self {
        let hostname = hostname.to_ascii_lowercase();
        match hostname.strip_prefix('*') {
            Some(suffix) => Self::Suffix(suffix.to_owned()),
            None => Self::Exact(hostname),
        }
    }

    pub(crate) fn fits(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => host == name,
            Self::Suffix(suffix) => host
                .strip_suffix(suffix.as_str())
                .is_some_and(|before| !before.is_empty()),
            Self::Any => true,
        }
    }

    /// Smaller is asked first: the more is said, the earlier.
    pub(crate) fn precedence(&self) -> impl Ord + use<> {
        match self {
            Self::Exact(_) => (0, Reverse(0)),
            Self::Suffix(suffix) => (1, Reverse(suffix.len())),
            Self::Any => (2, Reverse(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_whole_path_elements() {
        for (prefix, path, fits) in [
            ("/abc", "/abc", true),
            ("/abc", "/abc/", true),
            ("/abc", "/abc/def", true),
            ("/abc", "/abcd", false),
            ("/abc/", "/abc", true),
            ("/abc/", "/abc/def", true),
            ("/", "/", true),
            ("/", "/anything", true),
            ("/abc", "/", false),
            ("/abc", "/ABC", false),
        ] {
            assert_eq!(PathMatch::prefix(prefix).fits(path), fits, "{prefix} {path}");
        }
        let exact = PathMatch::Exact("/abc".to_owned());
        assert!(exact.fits("/abc") && !exact.fits("/abc/"));
    }

    #[test]
    fn every_part_of_a_match_must_fit() {
        let one = Match {
            path: PathMatch::prefix("/a"),
            method: Some(Method::POST),
            headers: vec![(
                HeaderName::from_static("version"),
                HeaderValue::from_static("two"),
            )],
            query: vec![("q".to_owned(), "x y".to_owned())],
        };
        let mut headers = HeaderMap::new();
        headers.append("version", HeaderValue::from_static("one"));
        headers.append("version", HeaderValue::from_static("two"));
        let asked = Asked {
            host: "localhost",
            method: &Method::POST,
            path: "/a/b",
            query: "z=1&q=x+y&q=other",
            headers: &headers,
        };
        assert!(one.fits(&asked));
        assert!(!one.fits(&Asked {
            method: &Method::GET,
            ..asked
        }));
        assert!(!one.fits(&Asked { path: "/b", ..asked }));
        assert!(!one.fits(&Asked {
            query: "q=other&q=x+y",
            ..asked
        }));
        assert!(!one.fits(&Asked {
            headers: &HeaderMap::new(),
            ..asked
        }));
    }

    #[test]
    fn a_wildcard_is_at_least_one_label() {
        let wildcard = HostMatch::parse("*.Example.com");
        assert!(wildcard.fits("a.example.com") && wildcard.fits("a.b.example.com"));
        assert!(!wildcard.fits("example.com") && !wildcard.fits("badexample.com"));
        assert!(HostMatch::parse("example.com").fits("example.com"));
    }
}
