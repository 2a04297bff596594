//! Objects of built-in kinds in protobuf, which typed clients in Go send: `kubectl create namespace`, for one.
//!
//! Only bodies of requests are read in it. Such clients take JSON for an answer, and custom resources have no other
//! form (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).
//!
//! What is read becomes the JSON that Kubernetes writes of the same object, and goes the same way from then on.

mod message;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::{Map, Value};

use self::wire::{Item, Reader};

/// The media type.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Reads an object. `definition` is the name of its kind in OpenAPI, such as `io.k8s.api.core.v1.ConfigMap`.
///
/// # Errors
/// Where the body is none, or one of another kind. Sentences for people.
pub(crate) fn decode(definition: &str, body: &[u8]) -> Result<Value, String> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")?;
    let Envelope {
        api_version,
        kind,
        encoding,
        object,
    } = Envelope::read(envelope).map_err(|error| format!("the protobuf envelope cannot be read: {error}"))?;
    if !encoding.is_empty() {
        return Err(format!(
            "the protobuf envelope has the content encoding {encoding:?}, which is not read here"
        ));
    }
    let expected = definition.rsplit('.').next().unwrap_or_default();
    if !kind.is_empty() && kind != expected {
        return Err(format!("the body is a {kind}"));
    }
    let mut fields = Map::new();
    if !kind.is_empty() {
        fields.insert("kind".to_owned(), kind.into());
    }
    if !api_version.is_empty() {
        fields.insert("apiVersion".to_owned(), api_version.into());
    }
    message::read(definition, object, &mut fields).map_err(|error| format!("protobuf: {error}"))?;
    Ok(Value::Object(fields))
}

/// `runtime.Unknown`: an object that says what it is.
#[derive(Debug, Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    encoding: &'a str,
    object: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next_field().map_err(|error| error.to_string())? {
            match field {
                (1, Item::Bytes(type_meta)) => envelope.read_type(type_meta)?,
                (2, Item::Bytes(object)) => envelope.object = object,
                (3, Item::Bytes(encoding)) => envelope.encoding = text(encoding)?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next_field().map_err(|error| error.to_string())? {
            match field {
                (1, Item::Bytes(api_version)) => self.api_version = text(api_version)?,
                (2, Item::Bytes(kind)) => self.kind = text(kind)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())
}
