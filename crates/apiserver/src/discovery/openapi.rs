//! OpenAPI v3 documents, one for each group and version: what kubectl checks objects with and explains.
//!
//! Only what is served is described. Operations name the query parameters that kubectl looks for before it
//! uses them (`fieldValidation`, `dryRun`, `fieldManager`) and the kinds of patch.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Answer, GIT_VERSION, JSON, hash, subresources::subresources};
use crate::resource::ResourceType;

/// Where schemas stand in a document.
const SCHEMAS: &str = "#/components/schemas/";

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The documents of all groups and versions, by the path below `/openapi/v3/`.
#[derive(Debug)]
pub(super) struct Documents {
    documents: BTreeMap<String, Document>,
}

#[derive(Debug)]
struct Document {
    body: Bytes,
    hash: String,
}

impl Documents {
    pub(super) fn of(resources: &[Arc<ResourceType>]) -> Self {
        let mut by_version: BTreeMap<String, Vec<&ResourceType>> = BTreeMap::new();
        for resource in resources {
            let root = if resource.group.is_empty() { "api" } else { "apis" };
            by_version
                .entry(format!("{root}/{}", resource.api_version()))
                .or_default()
                .push(resource);
        }
        let documents = by_version
            .into_iter()
            .map(|(path, members)| {
                let body = Bytes::from(document(&path, &members).to_string());
                let hash = hash(&body);
                (path, Document { body, hash })
            })
            .collect();
        Self { documents }
    }

    /// `/openapi/v3`. The hash in each address lets clients keep a document until it changes.
    pub(super) fn index(&self) -> Value {
        let paths: Map<String, Value> = self
            .documents
            .iter()
            .map(|(path, document)| {
                let address = format!("/openapi/v3/{path}?hash={}", document.hash);
                (path.clone(), json!({ "serverRelativeURL": address }))
            })
            .collect();
        json!({ "paths": paths })
    }

    /// One document. Who asks for it by an old hash is sent to the new one.
    pub(super) fn document(&self, path: &str, asked: Option<&str>) -> Option<Answer> {
        let document = self.documents.get(path)?;
        let mut answer = Answer::new(JSON, document.body.clone());
        answer.etag = Some(document.hash.clone());
        match asked {
            Some(hash) if hash != document.hash => {
                answer.moved_to = Some(format!("/openapi/v3/{path}?hash={}", document.hash));
            }
            Some(_) => answer.immutable = true,
            None => {}
        }
        Some(answer)
    }
}

fn document(root: &str, resources: &[&ResourceType]) -> Value {
    let mut schemas = BTreeMap::new();
    let mut paths = Map::new();
    for resource in resources {
        let name = schema_name(resource);
        add_schemas(&mut schemas, resource, &name);
        add_paths(&mut paths, root, resource, &name);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": GIT_VERSION },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// The schema's own name, or, for custom resources, `com.example.v1.Widget` of `example.com`.
fn schema_name(resource: &ResourceType) -> String {
    match resource.schema.definition() {
        Some(name) => name.to_owned(),
        None => {
            let group: Vec<&str> = resource.group.rsplit('.').collect();
            format!("{}.{}.{}", group.join("."), resource.version, resource.kind)
        }
    }
}

fn add_schemas(schemas: &mut BTreeMap<String, Value>, resource: &ResourceType, name: &str) {
    schemas.extend(resource.schema.definitions());
    let of_kind =
        |kind: &str| json!([{ "group": resource.group, "version": resource.version, "kind": kind }]);
    let one = schemas
        .entry(name.to_owned())
        .or_insert_with(|| resource.schema.to_openapi());
    one["x-kubernetes-group-version-kind"] = of_kind(&resource.kind);
    // The list's metadata is always the same, and described nowhere else.
    schemas.entry(LIST_META.to_owned()).or_insert_with(|| {
        json!({
            "type": "object",
            "properties": {
                "continue": { "type": "string" },
                "remainingItemCount": { "type": "integer", "format": "int64" },
                "resourceVersion": { "type": "string" },
            },
        })
    });
    let list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "$ref": format!("{SCHEMAS}{LIST_META}") },
            "items": { "type": "array", "items": { "$ref": format!("{SCHEMAS}{name}") } },
        },
        "x-kubernetes-group-version-kind": of_kind(&resource.list_kind),
    });
    schemas.insert(format!("{name}List"), list);
}

fn add_paths(paths: &mut Map<String, Value>, root: &str, resource: &ResourceType, name: &str) {
    let operations = Operations {
        resource,
        schema: format!("{SCHEMAS}{name}"),
    };
    let plural = &resource.plural;
    let collection = if resource.namespaced {
        format!("/{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("/{root}/{plural}")
    };
    let place = if resource.namespaced {
        vec![path_parameter("namespace")]
    } else {
        Vec::new()
    };
    let mut named = place.clone();
    named.push(path_parameter("name"));
    if resource.namespaced {
        let all = json!({ "get": operations.list() });
        paths.insert(format!("/{root}/{plural}"), all);
    }
    paths.insert(
        collection.clone(),
        json!({ "get": operations.list(), "post": operations.create(), "parameters": place }),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operations.get(),
            "put": operations.update(),
            "patch": operations.patch(),
            "delete": operations.delete(),
            "parameters": named,
        }),
    );
    if subresources(resource)
        .iter()
        .any(|subresource| subresource.name == "status")
    {
        paths.insert(
            format!("{collection}/{{name}}/status"),
            json!({
                "get": operations.get(),
                "put": operations.update(),
                "patch": operations.patch(),
                "parameters": named,
            }),
        );
    }
}

fn path_parameter(name: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } })
}

fn query_parameters(names: &[(&str, &str)]) -> Value {
    names
        .iter()
        .map(|(name, kind)| {
            json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
        })
        .collect()
}

/// The operations on one resource.
struct Operations<'a> {
    resource: &'a ResourceType,
    /// A reference to the schema of an object.
    schema: String,
}

impl Operations<'_> {
    fn operation(&self, action: &str, description: &str, schema: &str) -> Value {
        json!({
            "description": format!("{description} {}", self.resource.kind),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": self.resource.group,
                "version": self.resource.version,
                "kind": self.resource.kind,
            },
            "responses": {
                "200": { "description": "OK", "content": { JSON: { "schema": { "$ref": schema } } } },
            },
        })
    }

    fn write(&self, action: &str, description: &str, content: Value, parameters: &[(&str, &str)]) -> Value {
        let mut operation = self.operation(action, description, &self.schema);
        operation["parameters"] = query_parameters(parameters);
        operation["requestBody"] = json!({ "required": true, "content": content });
        operation
    }

    fn get(&self) -> Value {
        self.operation("get", "read the specified", &self.schema)
    }

    fn list(&self) -> Value {
        let mut operation = self.operation(
            "list",
            "list or watch objects of kind",
            &format!("{}List", self.schema),
        );
        operation["parameters"] = query_parameters(&[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ]);
        operation
    }

    fn create(&self) -> Value {
        self.write("post", "create a", self.object(), WRITE_PARAMETERS)
    }

    fn update(&self) -> Value {
        self.write("put", "replace the specified", self.object(), WRITE_PARAMETERS)
    }

    fn object(&self) -> Value {
        json!({ JSON: { "schema": { "$ref": self.schema } } })
    }

    fn patch(&self) -> Value {
        let mut kinds = vec![
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if self.resource.builtin {
            kinds.push("application/strategic-merge-patch+json");
        }
        let content: Map<String, Value> = kinds
            .into_iter()
            .map(|kind| (kind.to_owned(), json!({ "schema": { "type": "object" } })))
            .collect();
        let mut parameters = WRITE_PARAMETERS.to_vec();
        parameters.push(("force", "boolean"));
        self.write(
            "patch",
            "partially update the specified",
            content.into(),
            &parameters,
        )
    }

    fn delete(&self) -> Value {
        let mut operation = self.operation("delete", "delete a", &self.schema);
        operation["parameters"] = query_parameters(&[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("propagationPolicy", "string"),
        ]);
        operation
    }
}

const WRITE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
