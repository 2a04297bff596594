//! The rules of an HTTPRoute, parsed into what can be served.
//!
//! Every field of the generated types is taken apart by name: one that a newer version of the API adds does
//! not compile until somebody decides what it does here.

use std::{str::FromStr, time::Duration};

use http::{HeaderName, HeaderValue, Method, header, uri::PathAndQuery};
use kaos_external::gateway_api::{
    HttpRouteRules, HttpRouteRulesBackendRefs, HttpRouteRulesFilters,
    HttpRouteRulesFiltersRequestHeaderModifier, HttpRouteRulesFiltersType, HttpRouteRulesFiltersUrlRewrite,
    HttpRouteRulesFiltersUrlRewritePath, HttpRouteRulesFiltersUrlRewritePathType, HttpRouteRulesMatches,
    HttpRouteRulesMatchesHeaders, HttpRouteRulesMatchesHeadersType, HttpRouteRulesMatchesMethod,
    HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType, HttpRouteRulesMatchesQueryParams,
    HttpRouteRulesMatchesQueryParamsType, HttpRouteRulesTimeouts, HttpRouteSpec,
};

use super::{
    duration,
    filters::{HeaderChanges, PathRewrite},
    matches::{Match, PathMatch},
};

/// A rule that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) matches: Vec<Match>,
    pub(crate) headers: HeaderChanges,
    pub(crate) path: PathRewrite,
    /// What the `Host` header becomes.
    pub(crate) host: Option<HeaderValue>,
    /// How long an answer may take to its last byte, and the field that says so.
    pub(crate) timeout: Option<(Duration, &'static str)>,
    pub(crate) backends: Vec<Backend>,
}

/// One of the places a rule sends requests to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) weight: u64,
    /// Where it is, or why that cannot be told.
    pub(crate) target: Result<Target, String>,
}

/// A Service's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The Service's name in DNS.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Reads the rules of a route. `resolve` finds a backend, given the path of its field.
///
/// # Errors
/// Every field that is not implemented here, with its path and what to do.
pub(crate) fn parse(
    spec: &HttpRouteSpec,
    resolve: &mut dyn FnMut(&HttpRouteRulesBackendRefs, &str) -> Result<Target, String>,
) -> Result<Vec<Rule>, Vec<String>> {
    let mut reader = Reader {
        unsupported: Vec::new(),
    };
    let rules = spec.rules.as_deref().unwrap_or_default();
    let rules = rules
        .iter()
        .enumerate()
        .map(|(at, rule)| reader.rule(rule, &format!("spec.rules[{at}]"), resolve))
        .collect();
    if reader.unsupported.is_empty() {
        Ok(rules)
    } else {
        Err(reader.unsupported)
    }
}

/// Collects what is not implemented.
struct Reader {
    unsupported: Vec<String>,
}

impl Reader {
    fn refuse(&mut self, field: &str, why: &str) {
        self.unsupported.push(format!("{field}: {why}"));
    }

    fn rule(
        &mut self,
        rule: &HttpRouteRules,
        field: &str,
        resolve: &mut dyn FnMut(&HttpRouteRulesBackendRefs, &str) -> Result<Target, String>,
    ) -> Rule {
        let HttpRouteRules {
            backend_refs,
            filters,
            matches,
            // A name for other objects to point at; none of them is served here.
            name: _,
            timeouts,
        } = rule;
        let mut read = Rule {
            matches: Vec::new(),
            headers: HeaderChanges::default(),
            path: PathRewrite::Keep,
            host: None,
            timeout: timeouts
                .as_ref()
                .and_then(|timeouts| self.timeout(timeouts, &format!("{field}.timeouts"))),
            backends: Vec::new(),
        };
        for (at, one) in matches.iter().flatten().enumerate() {
            read.matches
                .push(self.one_match(one, &format!("{field}.matches[{at}]")));
        }
        if read.matches.is_empty() {
            read.matches.push(Match {
                path: PathMatch::prefix("/"),
                method: None,
                headers: Vec::new(),
                query: Vec::new(),
            });
        }
        for (at, filter) in filters.iter().flatten().enumerate() {
            self.filter(filter, &format!("{field}.filters[{at}]"), &mut read);
        }
        for (at, reference) in backend_refs.iter().flatten().enumerate() {
            let field = format!("{field}.backendRefs[{at}]");
            if reference
                .filters
                .as_ref()
                .is_some_and(|filters| !filters.is_empty())
            {
                self.refuse(
                    &format!("{field}.filters"),
                    "filters of one backend are not implemented by the local gateway; move them to the rule",
                );
            }
            read.backends.push(Backend {
                // The API's default.
                weight: reference
                    .weight
                    .map_or(1, |weight| u64::try_from(weight).unwrap_or(0)),
                target: resolve(reference, &field),
            });
        }
        read
    }

    fn timeout(
        &mut self,
        timeouts: &HttpRouteRulesTimeouts,
        field: &str,
    ) -> Option<(Duration, &'static str)> {
        let HttpRouteRulesTimeouts {
            backend_request,
            request,
        } = timeouts;
        // There is one request to a backend for one to the gateway: the shorter of the two limits it.
        [
            (request, "timeouts.request", "request"),
            (backend_request, "timeouts.backendRequest", "backendRequest"),
        ]
        .into_iter()
        .filter_map(|(text, shown, name)| {
            let text = text.as_ref()?;
            let read = duration::parse(text);
            if read.is_none() {
                self.refuse(
                    &format!("{field}.{name}"),
                    &format!("\"{text}\" is not a duration; write it as in 90s, 1m30s or 500ms"),
                );
            }
            // Zero is no limit.
            read.filter(|limit| !limit.is_zero()).map(|limit| (limit, shown))
        })
        .min()
    }

    fn one_match(&mut self, one: &HttpRouteRulesMatches, field: &str) -> Match {
        let HttpRouteRulesMatches {
            headers,
            method,
            path,
            query_params,
        } = one;
        Match {
            path: self.path(path.as_ref(), &format!("{field}.path")),
            method: method
                .as_ref()
                .and_then(|method| self.method(method, &format!("{field}.method"))),
            headers: headers
                .iter()
                .flatten()
                .enumerate()
                .filter_map(|(at, header)| self.header_match(header, &format!("{field}.headers[{at}]")))
                .collect(),
            query: query_params
                .iter()
                .flatten()
                .enumerate()
                .map(|(at, parameter)| self.query_match(parameter, &format!("{field}.queryParams[{at}]")))
                .collect(),
        }
    }

    fn path(&mut self, path: Option<&HttpRouteRulesMatchesPath>, field: &str) -> PathMatch {
        use HttpRouteRulesMatchesPathType as Type;
        let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
        match path.and_then(|path| path.r#type.as_ref()) {
            Some(Type::Exact) => PathMatch::Exact(value.to_owned()),
            Some(Type::PathPrefix) | None => PathMatch::prefix(value),
            Some(Type::RegularExpression | Type::Unrecognized) => {
                self.refuse(
                    &format!("{field}.type"),
                    "the local gateway matches paths by PathPrefix and Exact only",
                );
                PathMatch::Exact(value.to_owned())
            }
        }
    }

    fn method(&mut self, method: &HttpRouteRulesMatchesMethod, field: &str) -> Option<Method> {
        use HttpRouteRulesMatchesMethod as Wanted;
        Some(match method {
            Wanted::Get => Method::GET,
            Wanted::Head => Method::HEAD,
            Wanted::Post => Method::POST,
            Wanted::Put => Method::PUT,
            Wanted::Delete => Method::DELETE,
            Wanted::Options => Method::OPTIONS,
            Wanted::Trace => Method::TRACE,
            Wanted::Patch => Method::PATCH,
            Wanted::Connect | Wanted::Unrecognized => {
                self.refuse(field, "the local gateway does not serve this method");
                return None;
            }
        })
    }

    fn header_match(
        &mut self,
        header: &HttpRouteRulesMatchesHeaders,
        field: &str,
    ) -> Option<(HeaderName, HeaderValue)> {
        use HttpRouteRulesMatchesHeadersType as Type;
        let HttpRouteRulesMatchesHeaders { name, r#type, value } = header;
        if !matches!(r#type, None | Some(Type::Exact)) {
            self.refuse(
                &format!("{field}.type"),
                "the local gateway matches headers by Exact only",
            );
        }
        self.header(name, value, field)
    }

    fn query_match(&mut self, parameter: &HttpRouteRulesMatchesQueryParams, field: &str) -> (String, String) {
        use HttpRouteRulesMatchesQueryParamsType as Type;
        let HttpRouteRulesMatchesQueryParams { name, r#type, value } = parameter;
        if !matches!(r#type, None | Some(Type::Exact)) {
            self.refuse(
                &format!("{field}.type"),
                "the local gateway matches query parameters by Exact only",
            );
        }
        (name.clone(), value.clone())
    }

    fn filter(&mut self, filter: &HttpRouteRulesFilters, field: &str, rule: &mut Rule) {
        use HttpRouteRulesFiltersType as Type;
        let HttpRouteRulesFilters {
            request_header_modifier,
            url_rewrite,
            r#type,
            cors: _,
            extension_ref: _,
            request_mirror: _,
            request_redirect: _,
            response_header_modifier: _,
        } = filter;
        match r#type {
            Type::RequestHeaderModifier => {
                if let Some(changes) = request_header_modifier {
                    rule.headers = self.header_changes(changes, &format!("{field}.requestHeaderModifier"));
                }
            }
            Type::UrlRewrite => {
                if let Some(rewrite) = url_rewrite {
                    self.rewrite(rewrite, &format!("{field}.urlRewrite"), rule);
                }
            }
            Type::ResponseHeaderModifier
            | Type::RequestMirror
            | Type::RequestRedirect
            | Type::ExtensionRef
            | Type::Cors
            | Type::Unrecognized => {
                let found = serde_json::to_value(r#type).unwrap_or_default();
                self.refuse(
                    &format!("{field}.type"),
                    &format!(
                        "{} is not implemented by the local gateway, which has URLRewrite and RequestHeaderModifier",
                        found.as_str().unwrap_or("this filter")
                    ),
                );
            }
        }
    }

    fn header_changes(
        &mut self,
        changes: &HttpRouteRulesFiltersRequestHeaderModifier,
        field: &str,
    ) -> HeaderChanges {
        let HttpRouteRulesFiltersRequestHeaderModifier { add, remove, set } = changes;
        let mut read = HeaderChanges::default();
        for (at, one) in set.iter().flatten().enumerate() {
            read.set
                .extend(self.changed_header(&one.name, &one.value, &format!("{field}.set[{at}]")));
        }
        for (at, one) in add.iter().flatten().enumerate() {
            read.add
                .extend(self.changed_header(&one.name, &one.value, &format!("{field}.add[{at}]")));
        }
        for (at, name) in remove.iter().flatten().enumerate() {
            let header = self.changed_header(name, "", &format!("{field}.remove[{at}]"));
            read.remove.extend(header.map(|(name, _)| name));
        }
        read
    }

    fn changed_header(&mut self, name: &str, value: &str, field: &str) -> Option<(HeaderName, HeaderValue)> {
        let header = self.header(name, value, field)?;
        let belongs_to_connection = crate::serving::headers::is_hop_by_hop(&header.0)
            || [header::HOST, header::CONTENT_LENGTH].contains(&header.0);
        if belongs_to_connection {
            self.refuse(
                field,
                &format!(
                    "{name} belongs to the connection and cannot be changed; for the host, use URLRewrite"
                ),
            );
        }
        Some(header)
    }

    fn header(&mut self, name: &str, value: &str, field: &str) -> Option<(HeaderName, HeaderValue)> {
        let read = HeaderName::from_str(name)
            .ok()
            .zip(HeaderValue::from_str(value).ok());
        if read.is_none() {
            self.refuse(field, &format!("\"{name}: {value}\" cannot be a header"));
        }
        read
    }

    fn rewrite(&mut self, rewrite: &HttpRouteRulesFiltersUrlRewrite, field: &str, rule: &mut Rule) {
        use HttpRouteRulesFiltersUrlRewritePathType as Type;
        let HttpRouteRulesFiltersUrlRewrite { hostname, path } = rewrite;
        if let Some(hostname) = hostname {
            rule.host = HeaderValue::from_str(hostname).ok();
        }
        let Some(path) = path else { return };
        let HttpRouteRulesFiltersUrlRewritePath {
            replace_full_path,
            replace_prefix_match,
            r#type,
        } = path;
        let (name, value) = match r#type {
            Type::ReplaceFullPath => ("replaceFullPath", replace_full_path),
            Type::ReplacePrefixMatch => ("replacePrefixMatch", replace_prefix_match),
            Type::Unrecognized => {
                return self.refuse(
                    &format!("{field}.path.type"),
                    "the local gateway rewrites paths by ReplacePrefixMatch and ReplaceFullPath only",
                );
            }
        };
        let value = value.as_deref().unwrap_or_default();
        let is_path = value.is_empty()
            || value
                .parse::<PathAndQuery>()
                .is_ok_and(|path| path.path() == value);
        if !is_path {
            return self.refuse(
                &format!("{field}.path.{name}"),
                &format!("\"{value}\" is not a path"),
            );
        }
        rule.path = match r#type {
            Type::ReplaceFullPath => PathRewrite::Full(value.to_owned()),
            _ => PathRewrite::Prefix(value.trim_end_matches('/').to_owned()),
        };
        let prefixes = rule
            .matches
            .iter()
            .all(|one| matches!(one.path, PathMatch::Prefix(_)));
        if matches!(rule.path, PathRewrite::Prefix(_)) && !prefixes {
            self.refuse(
                &format!("{field}.path.type"),
                "ReplacePrefixMatch needs matches of type PathPrefix",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(rule: &Value) -> Result<Vec<Rule>, Vec<String>> {
        let spec: HttpRouteSpec = serde_json::from_value(json!({ "rules": [rule] })).unwrap();
        parse(&spec, &mut |reference, _| {
            Ok(Target {
                host: reference.name.clone(),
                port: 80,
            })
        })
    }

    #[test]
    fn a_rule_of_nothing_but_a_backend_matches_every_request() {
        let rules = parsed(&json!({"backendRefs": [{"name": "s", "port": 80}]})).unwrap();
        assert_eq!(rules[0].matches[0].path, PathMatch::prefix("/"));
        assert_eq!(rules[0].backends[0].weight, 1);
        assert_eq!(rules[0].timeout, None);
    }

    #[test]
    fn the_shorter_timeout_counts_and_zero_is_none() {
        for (timeouts, expected) in [
            (json!({"request": "10s"}), Some((10, "timeouts.request"))),
            (
                json!({"request": "10s", "backendRequest": "3s"}),
                Some((3, "timeouts.backendRequest")),
            ),
            (
                json!({"request": "0s", "backendRequest": "3s"}),
                Some((3, "timeouts.backendRequest")),
            ),
            (json!({"request": "0s"}), None),
        ] {
            let found = parsed(&json!({ "timeouts": timeouts }))
                .unwrap()
                .remove(0)
                .timeout;
            assert_eq!(
                found.map(|(limit, field)| (limit.as_secs(), field)),
                expected,
                "{timeouts}"
            );
        }
    }

    #[test]
    fn what_is_not_implemented_is_named() {
        for (rule, expected) in [
            (
                json!({"matches": [{"path": {"type": "RegularExpression", "value": "/.*"}}]}),
                "spec.rules[0].matches[0].path.type: the local gateway matches paths by PathPrefix and Exact only",
            ),
            (
                json!({"matches": [{"headers": [{"name": "a", "value": "b", "type": "RegularExpression"}]}]}),
                "spec.rules[0].matches[0].headers[0].type: ",
            ),
            (
                json!({"matches": [{"queryParams": [{"name": "a", "value": "b", "type": "RegularExpression"}]}]}),
                "spec.rules[0].matches[0].queryParams[0].type: ",
            ),
            (
                json!({"matches": [{"method": "CONNECT"}]}),
                "spec.rules[0].matches[0].method: ",
            ),
            (
                json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"port": 1}}]}),
                "spec.rules[0].filters[0].type: RequestRedirect is not implemented",
            ),
            (
                json!({"filters": [{"type": "CORS", "cors": {}}]}),
                "spec.rules[0].filters[0].type: CORS is not",
            ),
            (
                json!({"filters": [{"type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"set": [{"name": "Host", "value": "x"}]}}]}),
                "spec.rules[0].filters[0].requestHeaderModifier.set[0]: Host belongs to the connection",
            ),
            (
                json!({"filters": [{"type": "URLRewrite",
                    "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a?b"}}}]}),
                "spec.rules[0].filters[0].urlRewrite.path.replaceFullPath: \"/a?b\" is not a path",
            ),
            (
                json!({"matches": [{"path": {"type": "Exact", "value": "/a"}}], "filters": [{"type": "URLRewrite",
                    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}]}),
                "spec.rules[0].filters[0].urlRewrite.path.type: ReplacePrefixMatch needs",
            ),
            (
                json!({"backendRefs": [{"name": "s", "filters": [{"type": "CORS"}]}]}),
                "spec.rules[0].backendRefs[0].filters: ",
            ),
            (
                json!({"timeouts": {"request": "soon"}}),
                "spec.rules[0].timeouts.request: \"soon\" is not a duration",
            ),
        ] {
            let found = parsed(&rule).unwrap_err().join("\n");
            assert!(found.starts_with(expected), "{rule}: {found}");
        }
    }
}
