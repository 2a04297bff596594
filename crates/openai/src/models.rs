//! The list of models.

use serde::{Deserialize, Serialize};

use crate::{Extra, lenient};

/// The body of `GET /v1/models`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelList {
    /// `list`.
    #[serde(default = "list")]
    pub object: String,
    /// The models.
    pub data: Vec<Model>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ModelList {
    /// A list of `models`.
    pub fn new(models: Vec<Model>) -> Self {
        Self {
            object: list(),
            data: models,
            extra: Extra::new(),
        }
    }
}

/// A model that can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The name that requests use.
    pub id: String,
    /// `model`.
    #[serde(default = "model")]
    pub object: String,
    /// When it was made, in seconds since the epoch.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub created: i64,
    /// Whose it is.
    #[serde(default, deserialize_with = "lenient::null_as_default")]
    pub owned_by: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Model {
    /// The model `id` of `owned_by`, made at `created` (seconds since the epoch).
    pub fn new(id: impl Into<String>, created: i64, owned_by: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            object: model(),
            created,
            owned_by: owned_by.into(),
            extra: Extra::new(),
        }
    }
}

fn list() -> String {
    "list".to_owned()
}

fn model() -> String {
    "model".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_shape_of_the_api() {
        let text = serde_json::to_string(&ModelList::new(vec![Model::new("m", 3, "kaos")])).unwrap();
        assert_eq!(
            text,
            r#"{"object":"list","data":[{"id":"m","object":"model","created":3,"owned_by":"kaos"}]}"#
        );
        let read: ModelList = serde_json::from_str(r#"{"data":[{"id":"m"}]}"#).unwrap();
        assert_eq!((read.data[0].id.as_str(), read.data[0].created), ("m", 0));
    }
}
