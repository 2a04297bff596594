//! What a request brings along for the agents that it leads to: the way it came, so that no task goes in
//! circles.
//!
//! Agents are told apart by name, so that two of one name in different namespaces count as one.

use http::{HeaderMap, HeaderName, HeaderValue};
use url::form_urlencoded;

/// The agents that handed a task on, from the first to the one that sends the request, in the form
/// `name,name`, each name percent-encoded.
pub(crate) const PATH_HEADER: HeaderName = HeaderName::from_static("x-kaos-delegation-path");

/// How many agents may hand on a task, one to the other.
pub(crate) const DEPTH_LIMIT: usize = 5;

/// The way a request came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The agents that handed on the task, the first one first: at most [`DEPTH_LIMIT`].
    path: Vec<String>,
}

impl Hop {
    /// That of a request with `headers`. There is no wrong one: what cannot be read names no agent.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(PATH_HEADER).into_iter();
        let path = values
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(|name| decoded(name.trim_ascii()))
            .filter(|name| !name.is_empty())
            .take(DEPTH_LIMIT);
        Self { path: path.collect() }
    }

    /// Why the agent `own` must not hand the task to an agent that goes by `names`, if it must not.
    pub(crate) fn bars<'a>(&self, own: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
        for name in names {
            if name == own {
                return Some(format!("{name:?} is this agent itself: do the task without it"));
            }
            if self.path.iter().any(|known| known == name) {
                return Some(format!(
                    "the task came by way of {name:?}, which waits for this answer: do it without {name:?}"
                ));
            }
        }
        (self.path.len() >= DEPTH_LIMIT).then(|| {
            format!(
                "the task was handed on {DEPTH_LIMIT} times, which is the limit: do it without other agents"
            )
        })
    }

    /// The headers of a request by which `own` hands on the task.
    pub(crate) fn headers(&self, own: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let names: Vec<String> = self
            .path
            .iter()
            .map(String::as_str)
            .chain([own])
            .map(encoded)
            .collect();
        // Encoded names are ASCII.
        if let Ok(value) = HeaderValue::from_str(&names.join(",")) {
            headers.insert(PATH_HEADER, value);
        }
        headers
    }
}

fn encoded(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

fn decoded(name: &[u8]) -> String {
    // Without a `=`, what is parsed is the name of a pair.
    let pair = form_urlencoded::parse(name).next();
    pair.map(|(name, _)| name.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn came(path: &str) -> Hop {
        let mut headers = HeaderMap::new();
        headers.insert(PATH_HEADER, path.parse().unwrap());
        Hop::of(&headers)
    }

    #[test]
    fn the_path_grows_by_the_agent_that_hands_on() {
        let headers = came("a, b").headers("c");
        assert_eq!(headers[PATH_HEADER], "a,b,c");
        assert_eq!(Hop::default().headers("ä,b")[PATH_HEADER], "%C3%A4%2Cb");
    }

    #[test]
    fn circles_and_long_ways_are_barred() {
        let bars = |path: &str, names: &[&str]| {
            let reason = came(path).bars("me", names.iter().copied());
            reason.unwrap_or_default()
        };
        assert_eq!(bars("a,b", &["c"]), "");
        assert!(bars("a,b", &["a"]).starts_with("the task came by way of \"a\""));
        assert!(bars("a,b", &["alias", "b"]).starts_with("the task came by way of \"b\""));
        assert!(bars("", &["me"]).starts_with("\"me\" is this agent itself"));
        assert_eq!(bars("1,2,3,4", &["c"]), "");
        assert!(bars("1,2,3,4,5", &["c"]).starts_with("the task was handed on 5 times"));
        assert!(bars("1,2,3,4,5,6,7", &["c"]).starts_with("the task was handed on 5 times"));
    }

    proptest! {
        #[test]
        fn names_survive_the_way_and_no_path_makes_it_panic(
            names in proptest::collection::vec(".{1,20}", 1..4), any in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut hop = Hop::default();
            for name in &names {
                hop = Hop::of(&hop.headers(name));
            }
            prop_assert_eq!(&hop.path, &names);
            if let Ok(value) = HeaderValue::from_bytes(&any) {
                let headers = HeaderMap::from_iter([(PATH_HEADER, value)]);
                let hop = Hop::of(&headers);
                prop_assert!(hop.path.len() <= DEPTH_LIMIT);
                hop.headers("me");
            }
        }
    }
}
