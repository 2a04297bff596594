//! Objects that may not be readable as what they are to be.
//!
//! kube-rs has this as `DeserializeGuard`, which makes a tree of each object and a copy of the tree before it reads
//! it: with a few thousand objects, most of what watching them costs. Here the text is kept instead.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::value::RawValue;

/// A `K`, or what kept it from being read.
#[derive(Clone, Debug)]
pub(crate) struct Readable<K>(pub(crate) Result<K, Unreadable>);

/// An object that is no `K`.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) error: String,
    pub(crate) metadata: ObjectMeta,
}

/// What every object has.
#[derive(Deserialize)]
pub(crate) struct Identified {
    pub(crate) metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let read = match serde_json::from_str(text.get()) {
            Ok(object) => Ok(object),
            Err(error) => {
                let Identified { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                Err(Unreadable {
                    error: error.to_string(),
                    metadata,
                })
            }
        };
        Ok(Self(read))
    }
}

impl<K: Resource> Resource for Readable<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::WatchEvent;

    use super::*;

    #[test]
    fn an_event_of_an_object_of_another_shape_says_which_object_it_is() {
        let read = |data: &str| {
            let event =
                format!(r#"{{"type": "ADDED", "object": {{"metadata": {{"name": "a"}}, "data": {data}}}}}"#);
            let WatchEvent::Added(object) = serde_json::from_str::<WatchEvent<Readable<ConfigMap>>>(&event)?
            else {
                panic!("an object was added");
            };
            Ok::<_, serde_json::Error>(object)
        };
        let good = read(r#"{"b": "c"}"#).unwrap();
        assert_eq!(good.0.as_ref().unwrap().data.iter().flatten().count(), 1);
        let bad = read("[1]").unwrap();
        assert_eq!(bad.meta().name.as_deref(), Some("a"));
        assert!(bad.0.unwrap_err().error.contains("expected a map"));
        assert!(read("[").is_err());
    }
}
