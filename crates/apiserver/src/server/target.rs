//! What a request is about: its path taken apart, and the verb that path and method mean together.

use http::Method;

/// The path of a request on a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// The API group, empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// The plural name.
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// The first segment after the name.
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// Takes `/api/v1/…` and `/apis/GROUP/VERSION/…` apart. `None` where the path names no resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments = path.strip_prefix('/')?.split('/').map(decode);
        let (group, version) = match segments.next()?.as_str() {
            "api" => (String::new(), segments.next()?),
            "apis" => (segments.next()?, segments.next()?),
            _ => return None,
        };
        let mut segments: Vec<String> = segments.collect();
        // A trailing slash names the same collection.
        if segments.last().is_some_and(String::is_empty) {
            segments.pop();
        }
        let mut segments = segments.into_iter();
        let mut target = Self {
            group,
            version,
            ..Self::default()
        };
        let first = segments.next().filter(|first| !first.is_empty())?;
        if first == "namespaces" {
            let Some(namespace) = segments.next() else {
                return Some(Self {
                    resource: first,
                    ..target
                });
            };
            match segments.next() {
                // Everything below a namespace is a resource in it, but for the namespace's own subresources.
                Some(resource) if resource != "status" && resource != "finalize" => {
                    target.namespace = Some(namespace);
                    target.resource = resource;
                }
                subresource => {
                    return Some(Self {
                        resource: first,
                        name: Some(namespace),
                        subresource,
                        ..target
                    });
                }
            }
        } else {
            target.resource = first;
        }
        target.name = segments.next();
        // What follows is the path that a proxy passes on.
        target.subresource = segments.next();
        Some(target)
    }

    /// The verb, as RBAC and faults name it. `None` where the method means nothing here.
    pub(crate) fn verb(&self, method: &Method, watch: bool) -> Option<&'static str> {
        let named = self.name.is_some();
        match *method {
            Method::GET | Method::HEAD if watch => Some("watch"),
            Method::GET | Method::HEAD if named => Some("get"),
            Method::GET | Method::HEAD => Some("list"),
            // Subresources such as `binding` are created on a named object.
            Method::POST if !named || self.subresource.is_some() => Some("create"),
            Method::PUT if named => Some("update"),
            Method::PATCH if named => Some("patch"),
            Method::DELETE if named => Some("delete"),
            Method::DELETE => Some("deletecollection"),
            _ => None,
        }
    }
}

/// Undoes percent encoding; what is not UTF-8 stays as it was sent, and is then not found.
fn decode(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match hex
            .filter(|_| first == b'%')
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
        {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| segment.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> (String, String, Option<String>, Option<String>, Option<String>) {
        let target = Target::parse(path).unwrap();
        (
            target.group,
            target.resource,
            target.namespace,
            target.name,
            target.subresource,
        )
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(
            parse("/api/v1/pods"),
            (String::new(), "pods".into(), None, None, None)
        );
        assert_eq!(
            parse("/apis/apps/v1/namespaces/a/deployments/b/scale"),
            (
                "apps".into(),
                "deployments".into(),
                some("a"),
                some("b"),
                some("scale")
            )
        );
        assert_eq!(
            parse("/api/v1/namespaces"),
            (String::new(), "namespaces".into(), None, None, None)
        );
        assert_eq!(
            parse("/api/v1/namespaces/a"),
            (String::new(), "namespaces".into(), None, some("a"), None)
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/status"),
            (
                String::new(),
                "namespaces".into(),
                None,
                some("a"),
                some("status")
            )
        );
        assert_eq!(Target::parse("/api/v1"), None);
        assert_eq!(Target::parse("/version"), None);
    }

    #[test]
    fn names_may_carry_a_port_and_percent_encoding() {
        let target = Target::parse("/api/v1/namespaces/a/services/b:http/proxy/v1/models/").unwrap();
        assert_eq!(
            (target.name.as_deref(), target.subresource.as_deref()),
            (Some("b:http"), Some("proxy"))
        );
        assert_eq!(
            Target::parse("/api/v1/namespaces/a/pods/x%2Fy")
                .unwrap()
                .name
                .as_deref(),
            Some("x/y")
        );
    }

    #[test]
    fn methods_and_paths_make_verbs() {
        let one = Target::parse("/api/v1/namespaces/a/pods/b").unwrap();
        let all = Target::parse("/api/v1/pods").unwrap();
        assert_eq!(one.verb(&Method::GET, false), Some("get"));
        assert_eq!(all.verb(&Method::GET, true), Some("watch"));
        assert_eq!(all.verb(&Method::DELETE, false), Some("deletecollection"));
        assert_eq!(one.verb(&Method::POST, false), None);
        assert_eq!(all.verb(&Method::PUT, false), None);
    }
}
