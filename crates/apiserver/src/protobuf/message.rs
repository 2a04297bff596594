//! A message by the table: from bytes to the JSON that `encoding/json` makes of the same Go struct.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::{
    table::{Field, MESSAGES, Presence, Type},
    wire::{Item, Reader, WireError},
};

/// How deep messages, lists and maps may nest. Kubernetes' own kinds come to some 20; only the schemas of custom
/// resources may be deeper.
const MAX_DEPTH: usize = 100;

/// Why a message cannot be read, and in which field.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// From the innermost field outwards.
    path: Vec<&'static str>,
    why: String,
}

impl Unreadable {
    fn new(why: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            why: why.into(),
        }
    }

    fn under(mut self, field: &'static str) -> Self {
        if !field.is_empty() {
            self.path.push(field);
        }
        self
    }
}

impl From<WireError> for Unreadable {
    fn from(error: WireError) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.path.iter().rev().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{field}")?;
        }
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.why)
    }
}

/// Reads the message called `name` into `fields`.
///
/// # Errors
/// Where the table has no such message, or the bytes are none.
pub(super) fn read(name: &str, bytes: &[u8], fields: &mut Map<String, Value>) -> Result<(), Unreadable> {
    message(name, bytes, fields, 0)
}

fn message(
    name: &str,
    bytes: &[u8],
    fields: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), Unreadable> {
    if depth > MAX_DEPTH {
        return Err(Unreadable::new(format!("nested deeper than {MAX_DEPTH} levels")));
    }
    let known = MESSAGES
        .get(name)
        .ok_or_else(|| Unreadable::new(format!("{name} has no form in protobuf here")))?;
    let mut reader = Reader::new(bytes);
    while let Some((number, item)) = reader.next_field()? {
        // Fields of newer versions are dropped, as Go does.
        if let Some(field) = known.iter().find(|field| field.number == number) {
            put(field, item, fields, depth).map_err(|error| error.under(field.name))?;
        }
    }
    for field in known {
        match field.presence {
            Presence::Always if !fields.contains_key(field.name) => {
                if let Some(zero) = zero(&field.kind, depth)? {
                    fields.insert(field.name.to_owned(), zero);
                }
            }
            Presence::Filled if fields.get(field.name).is_some_and(is_zero) => {
                fields.shift_remove(field.name);
            }
            Presence::Inline if let Type::Message(inner) = &field.kind => {
                message(inner, &[], fields, depth)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds what is on the wire to what is there: lists and maps grow, messages merge, of everything else the last counts.
fn put(
    field: &Field,
    item: Item<'_>,
    fields: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), Unreadable> {
    let below = depth + 1;
    match (&field.kind, item) {
        (Type::Message(name), Item::Bytes(bytes)) if field.presence == Presence::Inline => {
            message(name, bytes, fields, depth)
        }
        (Type::Message(name), Item::Bytes(bytes)) => {
            let inner = fields
                .entry(field.name)
                .or_insert_with(|| Value::Object(Map::new()));
            inner
                .as_object_mut()
                .map_or(Ok(()), |inner| message(name, bytes, inner, below))
        }
        (Type::List(kind), item) => {
            let list = fields
                .entry(field.name)
                .or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(list) = list else { return Ok(()) };
            match (&**kind, item) {
                (Type::Int32 | Type::Int64 | Type::Bool, Item::Bytes(packed)) => {
                    let mut numbers = Reader::new(packed);
                    while let Some(number) = numbers.next_packed()? {
                        list.extend(value(kind, Item::Varint(number), below)?);
                    }
                }
                _ => list.push(value(kind, item, below)?.unwrap_or_default()),
            }
            Ok(())
        }
        (Type::Map(kind), Item::Bytes(entry)) => {
            let map = fields
                .entry(field.name)
                .or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(map) = map else { return Ok(()) };
            let (key, entry) = map_entry(kind, entry, below)?;
            map.insert(key, entry);
            Ok(())
        }
        (kind, item) => {
            match value(kind, item, depth)? {
                Some(value) => fields.insert(field.name.to_owned(), value),
                None => fields.shift_remove(field.name),
            };
            Ok(())
        }
    }
}

/// A map is a list of messages, each of a key and a value.
fn map_entry(kind: &Type, bytes: &[u8], depth: usize) -> Result<(String, Value), Unreadable> {
    let (mut key, mut found) = (String::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Item::Bytes(bytes)) => key = text(bytes)?,
            (2, item) => found = value(kind, item, depth)?,
            _ => {}
        }
    }
    let found = match found {
        Some(found) => found,
        None => zero(kind, depth)?.unwrap_or_default(),
    };
    Ok((key, found))
}

/// A value by itself; `None` where it is null.
fn value(kind: &Type, item: Item<'_>, depth: usize) -> Result<Option<Value>, Unreadable> {
    let value = match (kind, item) {
        (Type::Text, Item::Bytes(bytes)) => text(bytes)?.into(),
        (Type::Bool, Item::Varint(number)) => (number != 0).into(),
        (Type::Int32, Item::Varint(number)) => int32(number)?.into(),
        (Type::Int64, Item::Varint(number)) => number.cast_signed().into(),
        (Type::Double, Item::Fixed64(bits)) => Number::from_f64(f64::from_bits(bits))
            .map(Value::Number)
            .ok_or_else(|| Unreadable::new("JSON has no such number"))?,
        (Type::Bytes, Item::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Type::Time, Item::Bytes(bytes)) => return time(bytes, Precision::Seconds),
        (Type::MicroTime, Item::Bytes(bytes)) => return time(bytes, Precision::Micros),
        (Type::Quantity, Item::Bytes(bytes)) => quantity(bytes)?,
        (Type::IntOrString, Item::Bytes(bytes)) => int_or_string(bytes)?,
        (Type::Json, Item::Bytes(bytes)) => return json(bytes),
        (Type::Choice(name), Item::Bytes(bytes)) => {
            let mut fields = Map::new();
            message(name, bytes, &mut fields, depth)?;
            return Ok(chosen(fields));
        }
        (Type::Message(name), Item::Bytes(bytes)) => {
            let mut fields = Map::new();
            message(name, bytes, &mut fields, depth + 1)?;
            fields.into()
        }
        (kind, item) => {
            let found = match item {
                Item::Varint(_) => "a number",
                Item::Fixed64(_) => "64 bits",
                Item::Bytes(_) => "bytes",
                Item::Fixed32(_) => "32 bits",
            };
            return Err(Unreadable::new(format!("{found} where {kind} is expected")));
        }
    };
    Ok(Some(value))
}

/// What Go writes of a value that was never set.
fn zero(kind: &Type, depth: usize) -> Result<Option<Value>, Unreadable> {
    match kind {
        Type::Text | Type::Quantity | Type::IntOrString | Type::Message(_) => {
            value(kind, Item::Bytes(&[]), depth)
        }
        Type::Bool | Type::Int32 | Type::Int64 => value(kind, Item::Varint(0), depth),
        Type::Double => value(kind, Item::Fixed64(0), depth),
        // They are null.
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Json
        | Type::Choice(_)
        | Type::List(_)
        | Type::Map(_) => Ok(None),
    }
}

/// Whether `omitempty` leaves a value out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn text(bytes: &[u8]) -> Result<String, Unreadable> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| Unreadable::new("the text is not UTF-8"))
}

/// A negative number is written in as many bits as 64.
fn int32(number: u64) -> Result<i32, Unreadable> {
    let number = number.cast_signed();
    i32::try_from(number).map_err(|_| Unreadable::new(format!("{number} has more than 32 bits")))
}

#[derive(Clone, Copy)]
enum Precision {
    Seconds,
    Micros,
}

/// `Timestamp`: seconds and nanoseconds. An empty one is no time.
fn time(bytes: &[u8], precision: Precision) -> Result<Option<Value>, Unreadable> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Item::Varint(number)) => seconds = number.cast_signed(),
            (2, Item::Varint(number)) => nanos = int32(number)?,
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let micros = match precision {
        Precision::Seconds => 0,
        Precision::Micros => nanos / 1000 * 1000,
    };
    let time = Timestamp::new(seconds, micros)
        .map_err(|_| Unreadable::new(format!("{seconds} seconds and {nanos} nanoseconds are no time")))?;
    Ok(Some(
        match precision {
            Precision::Seconds => time.to_string(),
            Precision::Micros => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        }
        .into(),
    ))
}

/// `Quantity`: its text.
fn quantity(bytes: &[u8]) -> Result<Value, Unreadable> {
    let mut found = String::new();
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next_field()? {
        if let (1, Item::Bytes(bytes)) = field {
            found = text(bytes)?;
        }
    }
    Ok(if found.is_empty() {
        "0".into()
    } else {
        found.into()
    })
}

/// `IntOrString`: which of the two, the number and the text.
fn int_or_string(bytes: &[u8]) -> Result<Value, Unreadable> {
    let (mut which, mut number, mut found) = (0, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next_field()? {
        match field {
            (1, Item::Varint(bits)) => which = bits,
            (2, Item::Varint(bits)) => number = int32(bits)?,
            (3, Item::Bytes(bytes)) => found = text(bytes)?,
            _ => {}
        }
    }
    match which {
        0 => Ok(number.into()),
        1 => Ok(found.into()),
        other => Err(Unreadable::new(format!(
            "{other} is neither the type of a number (0) nor of a text (1)"
        ))),
    }
}

/// `RawExtension` and its like: a message with a text of JSON in it.
fn json(bytes: &[u8]) -> Result<Option<Value>, Unreadable> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.next_field()? {
        if let (1, Item::Bytes(bytes)) = field {
            raw = bytes;
        }
    }
    if raw.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(raw)
        .map(Some)
        .map_err(|error| Unreadable::new(format!("the JSON in it cannot be read: {error}")))
}

/// The value of a choice of a CustomResourceDefinition's schema: a schema, a list, or whether anything is allowed.
fn chosen(mut fields: Map<String, Value>) -> Option<Value> {
    ["schema", "jSONSchemas", "property", "allows"]
        .into_iter()
        .find_map(|name| fields.shift_remove(name))
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "a text",
            Self::Bool => "a boolean",
            Self::Int32 | Self::Int64 => "an integer",
            Self::Double => "a floating-point number",
            Self::Bytes => "bytes",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Time
            | Self::MicroTime
            | Self::Quantity
            | Self::IntOrString
            | Self::Json
            | Self::Choice(_)
            | Self::Message(_) => "a message",
        })
    }
}
