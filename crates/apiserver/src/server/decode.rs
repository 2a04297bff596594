//! Bodies of requests: from bytes in JSON, YAML or protobuf to JSON values, within a size limit, with duplicate
//! fields found.

use std::{cell::RefCell, fmt};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::{
    BoxError,
    error::ApiError,
    protobuf::{self, PROTOBUF},
    resource::ResourceType,
};

/// The largest body that is read, as kube-apiserver's `MaxRequestBodyBytes`.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Media types of whole objects.
pub(crate) const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// The paths of fields that were given more than once; the last one counts.
    pub(crate) duplicates: Vec<String>,
}

/// What a body shall be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: &'a str,
    /// The name of the kind's definition in OpenAPI; custom resources have none, and no form in protobuf.
    pub(crate) definition: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    pub(crate) const BINDING: Self = Self {
        kind: "Binding",
        definition: Some("io.k8s.api.core.v1.Binding"),
    };
    pub(crate) const DELETE_OPTIONS: Self = Self {
        kind: "DeleteOptions",
        definition: Some("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
    };
    pub(crate) const SCALE: Self = Self {
        kind: "Scale",
        definition: Some("io.k8s.api.autoscaling.v1.Scale"),
    };

    /// An object of a resource.
    pub(crate) fn of(resource: &'a ResourceType) -> Self {
        Self {
            kind: &resource.kind,
            definition: resource.schema.definition(),
        }
    }
}

/// Reads the whole body.
///
/// # Errors
/// Where it is too large or breaks off.
pub(crate) async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("the body of the request broke off: {}", error.into()))
        })?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > MAX_BODY_BYTES {
                return Err(ApiError::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "RequestEntityTooLarge",
                    format!("Request entity too large: limit is {MAX_BODY_BYTES}"),
                ));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes.freeze())
}

/// The media type of the body without its parameters; JSON where none is given.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or(JSON);
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Decodes a whole object.
///
/// # Errors
/// Where the media type is unknown or the body is not an object of the kind.
pub(crate) fn object(media_type: &str, bytes: &[u8], wanted: Wanted<'_>) -> Result<Decoded, ApiError> {
    let decoded = match (media_type, wanted.definition) {
        (JSON, _) => {
            json(bytes).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
        }
        (YAML, _) => yaml(bytes),
        (PROTOBUF, Some(definition)) => protobuf::decode(definition, bytes).map(|value| Decoded {
            value,
            duplicates: Vec::new(),
        }),
        (_, Some(_)) => return Err(ApiError::unsupported_media_type(&[JSON, YAML, PROTOBUF])),
        (_, None) => return Err(ApiError::unsupported_media_type(&[JSON, YAML])),
    };
    let unrecognized = |why: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why}",
            wanted.kind
        ))
    };
    let decoded = decoded.map_err(unrecognized)?;
    if decoded.value.is_object() {
        Ok(decoded)
    } else {
        Err(unrecognized(
            "couldn't get version/kind; json parse error: the body is not an object".to_owned(),
        ))
    }
}

/// Decodes JSON.
pub(crate) fn json(bytes: &[u8]) -> Result<Decoded, String> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node {
        path: &Path::Root,
        duplicates: &duplicates,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|error| error.to_string())?;
    Ok(Decoded {
        value,
        duplicates: duplicates.into_inner(),
    })
}

/// Decodes YAML, of which JSON is a part.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Decoded, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("error decoding YAML: {error}"))?;
    // Duplicate keys are an error of the YAML reader itself.
    let value =
        serde_saphyr::from_str(text).map_err(|error| format!("error converting YAML to JSON: {error}"))?;
    Ok(Decoded {
        value,
        duplicates: Vec::new(),
    })
}

/// Where a value stands in the document, to name a duplicate.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Builds one value and notes the duplicates below it.
struct Node<'a> {
    path: &'a Path<'a>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("the number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Item(self.path, list.len());
            match items.next_element_seed(Node {
                path: &path,
                duplicates: self.duplicates,
            })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let path = Path::Field(self.path, &name);
            if fields.contains_key(&name) {
                self.duplicates.borrow_mut().push(path.to_string());
            }
            let value = entries.next_value_seed(Node {
                path: &path,
                duplicates: self.duplicates,
            })?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WIDGET: Wanted<'_> = Wanted {
        kind: "Widget",
        definition: None,
    };

    #[test]
    fn duplicates_are_found_and_the_last_one_counts() {
        let decoded = json(br#"{"spec":{"a":1,"a":2,"list":[{"b":1,"b":2}]},"x":-1.5}"#).unwrap();
        assert_eq!(
            decoded.value,
            json!({"spec": {"a": 2, "list": [{"b": 2}]}, "x": -1.5})
        );
        assert_eq!(decoded.duplicates, ["spec.a", "spec.list[0].b"]);
    }

    #[test]
    fn broken_bodies_are_refused() {
        for (media_type, body, code) in [
            (JSON, r#"{"a":"#, 400),
            (JSON, r#"{} {}"#, 400),
            (JSON, "[]", 400),
            (YAML, "a: [", 400),
            ("text/plain", "x", 415),
            (PROTOBUF, "k8s\0", 415),
        ] {
            let error = object(media_type, body.as_bytes(), WIDGET).unwrap_err();
            assert_eq!(error.code.as_u16(), code, "{media_type} {body}");
        }
        assert_eq!(
            object(YAML, b"a: {b: 1}", WIDGET).unwrap().value,
            json!({"a": {"b": 1}})
        );
        let error = object(PROTOBUF, b"k8s\0\x0a", Wanted::SCALE).unwrap_err();
        assert_eq!(
            (error.code.as_u16(), error.message.as_str()),
            (
                400,
                "the object provided is unrecognized (must be of type Scale): the protobuf envelope cannot be \
                 read: the bytes end in the middle of a value"
            )
        );
    }

    #[tokio::test]
    async fn a_large_body_is_refused() {
        let body = http_body_util::Full::new(Bytes::from(vec![b' '; MAX_BODY_BYTES + 1]));
        assert_eq!(read(body).await.unwrap_err().code, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
