//! The cluster as its user sees it: beside the wire, never disturbed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kaos_apiserver::{ApiServer, Body};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt;

use crate::mirror::{Key, Mirror, World, revision};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Enough for an event to come.
const MOMENT: Duration = Duration::from_millis(1);

/// Who writes what a scenario says.
pub(crate) const USER: &str = "user";
/// Who tampers.
pub(crate) const SOMEBODY: &str = "somebody";

/// Requests straight to the server.
#[derive(Clone, Debug)]
pub(crate) struct Raw(pub(crate) ApiServer);

impl Raw {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: Option<&Value>,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("user-agent", "kaos-perturb");
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let request = request
            .body(Full::new(Bytes::from(bytes)))
            .expect("a path of an object is a URI");
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn json(
        &self,
        method: &str,
        path: &str,
        content_type: Option<&str>,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let response = self.send(method, path, content_type, body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await;
        let bytes = bytes.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

/// A kind that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Kind {
    fn root(&self) -> String {
        match self.api_version.contains('/') {
            true => format!("/apis/{}", self.api_version),
            false => format!("/api/{}", self.api_version),
        }
    }

    /// The path of all objects.
    pub(crate) fn all(&self) -> String {
        format!("{}/{}", self.root(), self.plural)
    }

    fn path(&self, key: &Key) -> String {
        match self.namespaced {
            true => format!(
                "{}/namespaces/{}/{}/{}",
                self.root(),
                key.namespace,
                self.plural,
                key.name
            ),
            false => format!("{}/{}", self.all(), key.name),
        }
    }
}

/// A refusal: the code and the message of the server.
pub(crate) type Refused = (u16, String);

/// The cluster of a case, as the user and the bystanders see it.
#[derive(Clone, Debug)]
pub struct Cluster {
    raw: Raw,
    kinds: Arc<BTreeMap<String, Kind>>,
    definitions: Arc<BTreeMap<String, Value>>,
    mirror: Mirror,
    namespace: Arc<str>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The definitions that are not installed.
    absent: BTreeSet<String>,
    /// Revisions of what neither the controllers nor the user of the scenario did.
    by_others: BTreeSet<u64>,
}

impl Cluster {
    /// The cluster of a server, on which these definitions are installed; `namespace` is that of objects that name
    /// none.
    pub(crate) async fn open(server: ApiServer, definitions: &[Value], namespace: &str) -> Self {
        let raw = Raw(server);
        for definition in definitions {
            install(&raw, definition).await;
        }
        let named = definitions
            .iter()
            .map(|definition| (name_of(definition).to_owned(), definition.clone()));
        let kinds = discover(&raw).await;
        let mirror = Mirror::start(&raw, kinds.values().cloned());
        Self {
            raw,
            kinds: Arc::new(kinds),
            definitions: Arc::new(named.collect()),
            mirror,
            namespace: namespace.into(),
            state: Arc::default(),
        }
    }

    pub(crate) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// All objects, now.
    pub fn world(&self) -> World {
        self.mirror.world()
    }

    /// Returns at the next change of anything; at once where there was one that this receiver has not seen.
    pub fn news(&self) -> tokio::sync::watch::Receiver<u64> {
        self.mirror.news()
    }

    /// Merges a patch into the status of an object. One that is gone is left alone.
    ///
    /// # Panics
    /// Where the server refuses it.
    pub async fn merge_status(&self, key: &Key, status: Value) {
        let path = format!("{}/status", self.kind(&key.kind).path(key));
        let patch = json!({ "status": status });
        let (code, answer) = self.raw.json("PATCH", &path, Some(MERGE), Some(&patch)).await;
        assert!(matches!(code, 200 | 404), "the status of {key}: {answer}");
        if code == 200 {
            self.state().by_others.insert(revision(&answer));
        }
    }

    /// Revisions of changes by the surroundings, and of those that came with the end of a kind.
    pub(crate) fn by_others(&self) -> BTreeSet<u64> {
        self.state().by_others.clone()
    }

    /// Whether objects of this kind can be made now.
    pub(crate) fn serves(&self, kind: &str) -> bool {
        let state = self.state();
        !state.absent.iter().any(|name| self.kind_of(name) == kind)
    }

    /// Installs and uninstalls until everything but these definitions is there.
    pub(crate) async fn install_all_but(&self, absent: &[String]) {
        for name in self.definitions.keys() {
            match absent.contains(name) {
                true => self.uninstall(name).await,
                false => self.install(name).await,
            }
        }
    }

    /// Installs the definition of this name where it is not, and returns when its kind is served.
    pub(crate) async fn install(&self, name: &str) {
        if self.state().absent.remove(name) {
            install(&self.raw, self.definition(name)).await;
            self.mirror.follow(&self.raw, self.kind(self.kind_of(name)));
        }
    }

    /// Deletes the definition of this name where it is there, and returns when its objects are gone and its kind is
    /// served no longer.
    pub(crate) async fn uninstall(&self, name: &str) {
        const ROUNDS: usize = 1_000;
        if !self.state().absent.insert(name.to_owned()) {
            return;
        }
        let kind = self.kind(self.kind_of(name));
        let before = self.mirror.news().borrow().to_owned();
        self.raw.json("DELETE", &definition_path(name), None, None).await;
        for _ in 0..ROUNDS {
            let (code, _) = self.raw.json("GET", &kind.all(), None, None).await;
            sleep(MOMENT).await;
            if code == 404 {
                let gone = self.mirror.gone_since(before, &kind.kind);
                self.state().by_others.extend(gone);
                return;
            }
        }
        panic!("the definition {name} cannot be deleted");
    }

    fn definition(&self, name: &str) -> &Value {
        let found = self.definitions.get(name);
        found.unwrap_or_else(|| panic!("{name} is not among the definitions of the subject"))
    }

    /// The kind that a definition defines.
    fn kind_of(&self, definition: &str) -> &str {
        let kind = &self.definition(definition)["spec"]["names"]["kind"];
        kind.as_str().unwrap_or_default()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key with the namespace that is meant where none is said.
    pub(crate) fn full(&self, key: &Key) -> Key {
        let mut key = key.clone();
        if key.namespace.is_empty() && self.kind(&key.kind).namespaced {
            key.namespace = self.namespace.to_string();
        }
        key
    }

    /// Applies an object as its user.
    pub(crate) async fn apply(&self, object: &Value, manager: &str) -> Result<Value, Refused> {
        let key = self.full(&Key::of(object));
        let mut object = object.clone();
        if self.kind(&key.kind).namespaced {
            object["metadata"]["namespace"] = json!(key.namespace);
        }
        let path = format!(
            "{}?fieldManager={manager}&force=true&fieldValidation=Strict",
            self.kind(&key.kind).path(&key)
        );
        self.change("PATCH", &path, APPLY, &object).await
    }

    pub(crate) async fn merge(&self, key: &Key, patch: &Value, manager: &str) -> Result<Value, Refused> {
        let key = self.full(key);
        let path = format!("{}?fieldManager={manager}", self.kind(&key.kind).path(&key));
        self.change("PATCH", &path, MERGE, patch).await
    }

    /// Puts the whole object, as it was read and changed.
    pub(crate) async fn replace(&self, key: &Key, object: &Value, manager: &str) -> Result<Value, Refused> {
        let path = format!("{}?fieldManager={manager}", self.kind(&key.kind).path(key));
        self.change("PUT", &path, JSON, object).await
    }

    pub(crate) async fn delete(&self, key: &Key) -> Result<Value, Refused> {
        let key = self.full(key);
        let path = format!("{}?propagationPolicy=Background", self.kind(&key.kind).path(&key));
        let (code, answer) = self.raw.json("DELETE", &path, None, None).await;
        outcome(code, answer)
    }

    async fn change(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, Refused> {
        let (code, answer) = self.raw.json(method, path, Some(kind), Some(body)).await;
        outcome(code, answer)
    }

    fn kind(&self, kind: &str) -> &Kind {
        let found = self.kinds.get(kind);
        found.unwrap_or_else(|| panic!("the kind {kind} is not served"))
    }
}

fn outcome(code: u16, answer: Value) -> Result<Value, Refused> {
    match code {
        200..=202 => Ok(answer),
        _ => Err((code, answer["message"].as_str().unwrap_or_default().to_owned())),
    }
}

/// The kinds whose objects can be listed and watched, by name. Events are no part of the world: they come and
/// go by themselves, and nothing depends on them.
async fn discover(raw: &Raw) -> BTreeMap<String, Kind> {
    let mut versions = vec!["/api/v1".to_owned()];
    let (_, groups) = raw.json("GET", "/apis", None, None).await;
    for group in groups["groups"].as_array().into_iter().flatten() {
        let preferred = group["preferredVersion"]["groupVersion"].as_str();
        versions.push(format!("/apis/{}", preferred.unwrap_or_default()));
    }
    let mut kinds = BTreeMap::new();
    for path in versions {
        let (_, list) = raw.json("GET", &path, None, None).await;
        let api_version = list["groupVersion"].as_str().unwrap_or_default();
        for resource in list["resources"].as_array().into_iter().flatten() {
            let has = |verb: &str| {
                resource["verbs"]
                    .as_array()
                    .is_some_and(|verbs| verbs.contains(&json!(verb)))
            };
            let kind = Kind {
                api_version: api_version.to_owned(),
                kind: resource["kind"].as_str().unwrap_or_default().to_owned(),
                plural: resource["name"].as_str().unwrap_or_default().to_owned(),
                namespaced: resource["namespaced"] == true,
            };
            if has("list") && has("watch") && !kind.plural.contains('/') && kind.kind != "Event" {
                kinds.insert(kind.kind.clone(), kind);
            }
        }
    }
    kinds
}

fn name_of(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

fn definition_path(name: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
}

/// Installs a definition and returns when its kind is served.
async fn install(raw: &Raw, definition: &Value) {
    let name = name_of(definition);
    let path = format!("{}?fieldManager={USER}&force=true", definition_path(name));
    let mut definition = definition.clone();
    definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
    definition["kind"] = json!("CustomResourceDefinition");
    let (code, answer) = raw.json("PATCH", &path, Some(APPLY), Some(&definition)).await;
    assert!(
        matches!(code, 200 | 201),
        "the definition {name} is refused: {answer}"
    );
}
