//! Which form of the resource lists a client wants.

use http::HeaderMap;

use crate::accept::{Form, ranges};

/// The media type of aggregated discovery.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether the client prefers all groups in one document.
pub(super) fn aggregated(headers: &HeaderMap) -> bool {
    for form in ranges(headers).filter_map(Form::of) {
        match (form.kind, form.group, form.version) {
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => return true,
            (None, _, _) => return false,
            // A form that is not served: the next range may be.
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn wants(accept: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        aggregated(&headers)
    }

    #[test]
    fn the_first_form_that_is_served_is_taken() {
        assert!(wants(AGGREGATED));
        assert!(wants(&format!(
            "application/vnd.kubernetes.protobuf;as=x, {AGGREGATED}, application/json"
        )));
        assert!(!wants(&format!("application/json,{AGGREGATED}")));
        assert!(!wants(
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
        ));
        assert!(!wants("*/*"));
    }
}
