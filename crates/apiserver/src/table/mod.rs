//! Objects as the tables that kubectl prints (`meta.k8s.io/v1` `Table`).
//!
//! What a kind's columns are is data: JSON paths for custom resources, functions for built-in kinds. Nothing
//! here reads the store.

mod age;
mod builtin;
mod jsonpath;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use builtin::builtin_columns;
pub(crate) use jsonpath::JsonPath;

use crate::{
    resource::{Column, ColumnSource, ResourceType},
    server::IncludeObject,
};

/// An object or a list as a table.
pub(crate) fn render(
    resource: &ResourceType,
    value: &Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let columns = Columns::of(resource);
    let (items, metadata) = match value.get("items").and_then(Value::as_array) {
        Some(items) => (
            items.as_slice(),
            value.get("metadata").cloned().unwrap_or_else(|| json!({})),
        ),
        None => {
            let version = value
                .pointer("/metadata/resourceVersion")
                .cloned()
                .unwrap_or_default();
            (std::slice::from_ref(value), json!({ "resourceVersion": version }))
        }
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns.definitions(),
        "rows": items.iter().map(|object| columns.row(resource, object, include, now)).collect::<Vec<_>>(),
    })
}

/// The columns of one kind, ready to be filled.
struct Columns {
    columns: Vec<(Column, Option<JsonPath>)>,
    /// Whether the object's name comes first. Events show it last.
    name_first: bool,
}

impl Columns {
    fn of(resource: &ResourceType) -> Self {
        let mut columns = resource.columns.clone();
        if columns.is_empty() && resource.builtin {
            columns = builtin_columns(&resource.group, &resource.plural);
        }
        let name_first = !columns.iter().any(|column| column.name == "Name");
        let columns = columns
            .into_iter()
            .map(|column| {
                let path = match &column.source {
                    // A path that cannot be read was refused when the definition was stored.
                    ColumnSource::JsonPath(path) => JsonPath::parse(path).ok(),
                    ColumnSource::Computed(_) => None,
                };
                (column, path)
            })
            .collect();
        Self { columns, name_first }
    }

    fn definitions(&self) -> Vec<Value> {
        let name = self.name_first.then(|| {
            json!({
                "name": "Name", "type": "string", "format": "name", "description": "The name of the object.",
                "priority": 0,
            })
        });
        let others = self.columns.iter().map(|(column, _)| {
            let description = match &column.source {
                ColumnSource::JsonPath(path) => {
                    format!("Custom resource definition column (in JSONPath format): {path}")
                }
                ColumnSource::Computed(_) => String::new(),
            };
            json!({
                "name": column.name, "type": column.kind, "format": column.format, "description": description,
                "priority": column.priority,
            })
        });
        name.into_iter().chain(others).collect()
    }

    fn row(&self, resource: &ResourceType, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let name = self
            .name_first
            .then(|| object.pointer("/metadata/name").cloned().unwrap_or_default());
        let others = self
            .columns
            .iter()
            .map(|(column, path)| match (&column.source, path) {
                (ColumnSource::Computed(compute), _) => compute(object, now),
                (ColumnSource::JsonPath(_), Some(path)) => path
                    .find(object)
                    .first()
                    .map_or(Value::Null, |value| cell(&column.kind, value, now)),
                (ColumnSource::JsonPath(_), None) => Value::Null,
            });
        let cells: Vec<Value> = name.into_iter().chain(others).collect();
        let object = match include {
            IncludeObject::None => return json!({ "cells": cells }),
            IncludeObject::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
            }),
            IncludeObject::Object => {
                // Items of a list come without them, but here they stand alone.
                let mut whole = json!({ "kind": resource.kind, "apiVersion": resource.api_version() });
                if let (Some(whole), Some(fields)) = (whole.as_object_mut(), object.as_object()) {
                    whole.extend(fields.clone());
                }
                whole
            }
        };
        json!({ "cells": cells, "object": object })
    }
}

/// A value as a cell of the column's type; null where it is of another type.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::Null) => Value::Null,
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            // As Go converts, towards zero.
            (None, Some(float)) => (float as i64).into(),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(number)) => number.as_f64().into(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(time) => age::since(time, now).into(),
            Err(_) => age::INVALID.into(),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
