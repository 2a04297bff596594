//! A kind to test with, and short forms of raw requests.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kaos_testkit::{SharedKind, TestApi, install_crd};
use serde_json::{Value, json};

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// A served custom resource `widgets` with a status and a scale.
pub(super) struct Widgets {
    pub(super) api: TestApi,
    /// The collection in the test's namespace.
    pub(super) path: String,
    pub(super) api_version: String,
    /// `widgets.GROUP`, as messages name it.
    pub(super) resource: String,
    /// `Widget.GROUP`, as messages name it.
    pub(super) kind: String,
}

impl Widgets {
    pub(super) async fn start() -> Self {
        Self::on(TestApi::start().await).await
    }

    pub(super) async fn on(api: TestApi) -> Self {
        static WIDGETS: SharedKind = SharedKind::new();
        let group = WIDGETS.install(&api, definition).await;
        Self::of_group(api, &group)
    }

    /// As [`Widgets::start`], with a definition that the test may change and delete.
    pub(super) async fn start_with_own_definition() -> Self {
        let api = TestApi::start().await;
        let group = api.group();
        install_crd(&api.client, &definition(&group)).await;
        Self::of_group(api, &group)
    }

    fn of_group(api: TestApi, group: &str) -> Self {
        Self {
            path: format!("/apis/{group}/v1/namespaces/{}/widgets", api.namespace),
            api_version: format!("{group}/v1"),
            resource: format!("widgets.{group}"),
            kind: format!("Widget.{group}"),
            api,
        }
    }

    /// A widget; `fields` are its top-level fields beyond the name.
    pub(super) fn widget(&self, name: &str, fields: Value) -> Value {
        let mut widget = json!({
            "apiVersion": self.api_version, "kind": "Widget", "metadata": {"name": name},
        });
        for (field, value) in fields.as_object().unwrap() {
            match (field.as_str(), value.as_object()) {
                ("metadata", Some(more)) => {
                    let metadata = widget["metadata"].as_object_mut().unwrap();
                    metadata.extend(more.clone());
                }
                _ => widget[field] = value.clone(),
            }
        }
        widget
    }

    /// Creates a widget of the given size.
    pub(super) async fn create(&self, name: &str, size: i64) -> Value {
        let (code, widget) = self
            .post(&self.widget(name, json!({"spec": {"size": size}})))
            .await;
        assert_eq!(code, 201, "{widget}");
        widget
    }

    pub(super) async fn post(&self, widget: &Value) -> (u16, Value) {
        self.api.raw("POST", &self.path, &[], widget).await
    }

    pub(super) async fn get(&self, name: &str) -> (u16, Value) {
        self.api
            .raw("GET", &format!("{}/{name}", self.path), &[], ())
            .await
    }

    pub(super) async fn put(&self, name: &str, widget: &Value) -> (u16, Value) {
        self.api
            .raw("PUT", &format!("{}/{name}", self.path), &[], widget)
            .await
    }

    /// A patch of the given media type; `name` may carry a subresource and a query.
    pub(super) async fn patch(&self, name: &str, media_type: &str, patch: Value) -> (u16, Value) {
        let headers = [("content-type", media_type)];
        self.api
            .raw("PATCH", &format!("{}/{name}", self.path), &headers, patch)
            .await
    }

    pub(super) async fn delete(&self, name: &str) -> (u16, Value) {
        self.api
            .raw("DELETE", &format!("{}/{name}", self.path), &[], ())
            .await
    }

    /// The names of the widgets that a query selects.
    pub(super) async fn names(&self, query: &str) -> Vec<String> {
        let (code, list) = self
            .api
            .raw("GET", &format!("{}?{query}", self.path), &[], ())
            .await;
        assert_eq!(code, 200, "{list}");
        names(&list)
    }
}

fn definition(group: &str) -> CustomResourceDefinition {
    let definition = json!({
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "required": ["size"],
                            "properties": {
                                "size": {"type": "integer", "minimum": 1},
                                "color": {"type": "string", "default": "red"},
                                "replicas": {"type": "integer"},
                            },
                        },
                        "status": {
                            "type": "object",
                            "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}},
                        },
                    },
                }},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// The names of a list's items.
pub(super) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The resource version of an object or a list.
pub(super) fn version(value: &Value) -> &str {
    value["metadata"]["resourceVersion"].as_str().unwrap()
}

/// Code, reason and message of a refusal.
pub(super) fn refusal(answer: &(u16, Value)) -> (u16, &str, &str) {
    let text = |field: &str| answer.1[field].as_str().unwrap_or_default();
    assert_eq!(answer.1["kind"], "Status", "{}", answer.1);
    (answer.0, text("reason"), text("message"))
}
