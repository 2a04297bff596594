//! The trace that something is part of, as it goes from one process to the next:
//! <https://www.w3.org/TR/trace-context/> and <https://www.w3.org/TR/baggage/>.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    context::{FutureExt, WithContext},
    propagation::TextMapPropagator,
    trace::TraceContextExt,
};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

/// The fields that carry a context, as headers and as keys of a request's metadata.
const FIELDS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// A place in a trace, and the baggage on the way there. The default is in no trace. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TraceContext(pub(crate) Context);

/// What a place in a trace is found by, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The trace.
    pub trace_id: String,
    /// The place in it.
    pub span_id: String,
}

impl TraceContext {
    /// The context of a request with `headers`. One that cannot be read is none.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        Self::read(|field| {
            let values = headers.get_all(field).into_iter();
            // A list may come in several headers, with the same meaning.
            let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
            (!values.is_empty()).then(|| values.join(","))
        })
    }

    /// The context whose fields `find` looks up by name.
    pub fn read(find: impl Fn(&str) -> Option<String>) -> Self {
        let fields: HashMap<String, String> = FIELDS
            .into_iter()
            .filter_map(|field| Some((field.to_owned(), find(field)?)))
            .collect();
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields);
        Self(BaggagePropagator::new().extract_with_context(&context, &fields))
    }

    /// The fields by which the next process continues this context: none where there is nothing to continue.
    pub fn fields(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let mut fields = HashMap::new();
        TraceContextPropagator::new().inject_context(&self.0, &mut fields);
        BaggagePropagator::new().inject_context(&self.0, &mut fields);
        fields.into_iter().filter(|(_, value)| !value.is_empty())
    }

    /// The same as headers.
    pub fn headers(&self) -> HeaderMap {
        let headers = self.fields().filter_map(|(name, value)| {
            let name = HeaderName::try_from(name).ok()?;
            Some((name, HeaderValue::try_from(value).ok()?))
        });
        headers.collect()
    }

    /// Where this is; `None` in no trace.
    pub fn ids(&self) -> Option<Ids> {
        ids(&self.0)
    }

    /// Has the log lines of a future or a stream name this place.
    pub fn attach<T>(&self, of: T) -> WithContext<T> {
        of.with_context(self.0.clone())
    }
}

/// The place whose future or stream is going on here; `None` in no trace.
pub(crate) fn current() -> Option<Ids> {
    Context::map_current(ids)
}

fn ids(context: &Context) -> Option<Ids> {
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| Ids {
        trace_id: context.trace_id().to_string(),
        span_id: context.span_id().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_context_is_passed_on_as_it_came() {
        let came = headers(&[
            ("traceparent", PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("baggage", "user=u%201"),
            ("baggage", "team=t"),
            ("authorization", "Bearer x"),
        ]);
        let context = TraceContext::of_headers(&came);
        let passed = context.headers();
        assert_eq!(passed["traceparent"], PARENT);
        assert_eq!(passed["tracestate"], "a=1,b=2");
        let mut baggage: Vec<&str> = passed["baggage"].to_str().unwrap().split(',').collect();
        baggage.sort_unstable();
        assert_eq!(baggage, ["team=t", "user=u%201"]);
        assert_eq!(passed.len(), 3);
        let ids = context.ids().unwrap();
        assert_eq!(ids.trace_id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(ids.span_id, "b7ad6b7169203331");
    }

    #[test]
    fn what_is_in_no_trace_passes_nothing_on() {
        for came in [
            headers(&[]),
            headers(&[("traceparent", "00-xyz-2-01")]),
            headers(&[("traceparent", PARENT), ("traceparent", PARENT)]),
            headers(&[("traceparent", PARENT.replace('b', "é").as_str())]),
        ] {
            let context = TraceContext::of_headers(&came);
            assert!(context.headers().is_empty(), "{came:?}");
            assert_eq!(context.ids(), None, "{came:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(
            values in proptest::collection::vec((0..3_usize, proptest::collection::vec(any::<u8>(), 0..80)), 0..6),
        ) {
            let values = values.into_iter().filter_map(|(at, value)| {
                Some((HeaderName::from_static(FIELDS[at]), HeaderValue::from_bytes(&value).ok()?))
            });
            TraceContext::of_headers(&values.collect()).headers();
        }
    }
}
