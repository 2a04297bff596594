//! What manifests become, without a cluster and without running anything: the embedded API server in memory, our
//! kinds, the controllers that run everywhere, and in place of a node a stand-in that says of each Deployment that
//! its pods are ready.
//!
//! So `kaos validate` and `kaos render` know exactly what `kaos up` and a cluster know, because it is the same
//! program: schema, CEL rules, defaults, references and builders.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentStatus},
        core::v1::{ConfigMap, Service},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kaos_api::{
    names,
    v1alpha1::{Agent, MCPServer, ModelAPI},
};
use kaos_apiserver::{ApiServer, OpenError, Options, Storage};
use kaos_external::gateway_api::HTTPRoute;
use kaos_seams::{Dialer, Seams};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::{ApplyError, apply},
    defaults::controllers_config,
    finding::{Finding, Findings, Severity},
    gateway,
    instance::set_up,
    manifest::{self, Manifest},
    references,
};

/// How long the controllers may take to come to rest; far more than they ever need.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often their work is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The port in the Gateway that is not there.
const GATEWAY_PORT: u16 = 8888;

/// Why nothing can be said about manifests.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// The manifests are not what the API takes.
    #[error("{0}")]
    Refused(Findings),
    /// The API in memory does not work: a bug.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// As [`OfflineError::Open`].
    #[error("the API in memory does not answer: {0}")]
    Api(#[from] kube::Error),
}

/// An object that a resource becomes.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The resource as `kind/name`.
    pub of: String,
    /// `file:line` of the resource.
    pub place: String,
    /// The object, as it would be applied.
    pub object: Value,
}

/// Everything that is wrong with the manifests of `paths`, or worth knowing of them; errors first in each file.
///
/// # Errors
/// When nothing can be said.
pub async fn validate(paths: &[std::path::PathBuf], namespace: &str) -> Result<Validated, OfflineError> {
    let (manifests, mut findings) = manifest::read(paths);
    if !manifests.is_empty() {
        match World::of(&manifests, namespace).await {
            Ok(world) => {
                let stood = world.stands(&manifests, namespace).await;
                world.end().await;
                findings.extend(stood?);
            }
            Err(OfflineError::Refused(Findings(refused))) => findings.extend(refused),
            Err(error) => return Err(error),
        }
    }
    findings.sort_by(|a, b| (&a.file, a.line, a.severity).cmp(&(&b.file, b.line, b.severity)));
    findings.dedup();
    Ok(Validated {
        objects: manifests.len(),
        findings,
    })
}

/// What came of looking at manifests.
#[derive(Clone, Debug)]
pub struct Validated {
    /// How many objects were read.
    pub objects: usize,
    /// What was found, by file and line.
    pub findings: Vec<Finding>,
}

/// The objects that the manifests of `paths` become.
///
/// # Errors
/// When one of them is refused, or cannot become anything.
pub async fn render(paths: &[std::path::PathBuf], namespace: &str) -> Result<Vec<Rendered>, OfflineError> {
    let manifests = manifest::load(paths).map_err(OfflineError::Refused)?;
    let world = World::of(&manifests, namespace).await?;
    let rendered = world.rendered(&manifests, namespace).await;
    world.end().await;
    rendered
}

/// A cluster of which nothing is real but the API and the controllers.
struct World {
    server: ApiServer,
    client: Client,
    stop: CancellationToken,
    controllers: tokio::task::JoinHandle<()>,
}

impl World {
    /// Makes it, applies the manifests, and waits until the controllers have done what they can.
    async fn of(manifests: &[Manifest], namespace: &str) -> Result<Self, OfflineError> {
        let seams = Seams::system().with_dialer(Arc::new(Nowhere));
        let server = ApiServer::open(Options {
            storage: Storage::Memory,
            seams: seams.clone(),
            faults: None,
        })
        .await?;
        let client = Client::new(server.clone(), "default");
        tokio::try_join!(set_up(&client), gateway::install_kinds(&client))?;
        gateway::set_up(&client, GATEWAY_PORT).await?;
        let applied = apply(&client, manifests, namespace).await;
        match applied {
            Ok(_) => {}
            Err(ApplyError::Refused(findings)) => return Err(OfflineError::Refused(findings)),
            Err(ApplyError::Failed(finding)) => return Err(OfflineError::Refused(Findings(vec![finding]))),
            Err(ApplyError::Unreachable(error)) => return Err(error.into()),
        }
        let stop = CancellationToken::new();
        let run = kaos_controllers::run(client.clone(), controllers_config("INFO"), seams, stop.clone());
        let controllers = tokio::spawn(async move {
            if let Err(error) = run.await {
                tracing::error!(%error, "the controllers have ended");
            }
        });
        let world = Self {
            server,
            client,
            stop,
            controllers,
        };
        world.settle().await?;
        Ok(world)
    }

    async fn end(self) {
        self.stop.cancel();
        // It was told to end, and has logged its own error.
        let _ = self.controllers.await;
        self.server.shutdown().await;
    }

    /// Says of every Deployment that its pods are ready, until each resource is, or waits for what will not come.
    async fn settle(&self) -> Result<(), kube::Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.make_ready().await?;
            let stands = self.standings().await?;
            if stands.values().all(|stand| stand.is_settled(&stands)) || Instant::now() > deadline {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// What a Deployment controller and a node would say.
    async fn make_ready(&self) -> Result<(), kube::Error> {
        let all: Api<Deployment> = Api::all(self.client.clone());
        for deployment in all.list(&ListParams::default()).await? {
            let replicas = deployment.spec.replicas.unwrap_or(1);
            let status = DeploymentStatus {
                observed_generation: deployment.metadata.generation,
                replicas: Some(replicas),
                updated_replicas: Some(replicas),
                ready_replicas: Some(replicas),
                available_replicas: Some(replicas),
                ..DeploymentStatus::default()
            };
            if deployment.status.as_ref() == Some(&status) {
                continue;
            }
            let api: Api<Deployment> =
                Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(&deployment.name_any(), &PatchParams::default(), &patch)
                .await?;
        }
        Ok(())
    }

    async fn standings(&self) -> Result<BTreeMap<Key, Stand>, kube::Error> {
        let all = ListParams::default();
        let mut stands = BTreeMap::new();
        for agent in Api::<Agent>::all(self.client.clone()).list(&all).await? {
            let namespace = agent.namespace().unwrap_or_default();
            let key = |kind: &'static str, name: &String| (kind, namespace.clone(), name.clone());
            let needs = std::iter::once(key("ModelAPI", &agent.spec.model_api))
                .chain(agent.spec.mcp_servers.iter().map(|name| key("MCPServer", name)))
                .chain(agent.spec.peers().iter().map(|name| key("Agent", name)))
                .collect();
            let status = serde_json::to_value(&agent.status).unwrap_or_default();
            stands.insert(key("Agent", &agent.name_any()), Stand::of(&agent, &status, needs));
        }
        for model_api in Api::<ModelAPI>::all(self.client.clone()).list(&all).await? {
            let status = serde_json::to_value(&model_api.status).unwrap_or_default();
            let key = (
                "ModelAPI",
                model_api.namespace().unwrap_or_default(),
                model_api.name_any(),
            );
            stands.insert(key, Stand::of(&model_api, &status, Vec::new()));
        }
        for server in Api::<MCPServer>::all(self.client.clone()).list(&all).await? {
            let status = serde_json::to_value(&server.status).unwrap_or_default();
            let key = (
                "MCPServer",
                server.namespace().unwrap_or_default(),
                server.name_any(),
            );
            stands.insert(key, Stand::of(&server, &status, Vec::new()));
        }
        Ok(stands)
    }

    /// What the controllers say of the resources, and what the pods would look for and not find.
    async fn stands(&self, manifests: &[Manifest], namespace: &str) -> Result<Vec<Finding>, OfflineError> {
        let stands = self.standings().await?;
        let mut findings = Vec::new();
        for manifest in manifests {
            let kind = manifest.gvk().kind;
            let key = |key: &&Key| {
                key.0 == kind && key.1 == manifest.namespace_or(namespace) && key.2 == manifest.name()
            };
            let Some(stand) = stands.keys().find(key).and_then(|key| stands.get(key)) else {
                continue;
            };
            findings.extend(stand.findings(manifest));
        }
        let deployments: Api<Deployment> = Api::all(self.client.clone());
        let deployments = deployments.list(&ListParams::default()).await?.items;
        findings.extend(references::missing(&deployments, manifests, namespace));
        Ok(findings)
    }

    async fn rendered(&self, manifests: &[Manifest], namespace: &str) -> Result<Vec<Rendered>, OfflineError> {
        let found = self.stands(manifests, namespace).await?;
        let errors: Vec<Finding> = found
            .into_iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        if !errors.is_empty() {
            return Err(OfflineError::Refused(Findings(errors)));
        }
        let ours = ListParams::default().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGER));
        let mut objects = Vec::new();
        for kind in [
            ApiResource::erase::<ConfigMap>(&()),
            ApiResource::erase::<Deployment>(&()),
            ApiResource::erase::<Service>(&()),
            ApiResource::erase::<HTTPRoute>(&()),
        ] {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
            objects.extend(
                api.list(&ours)
                    .await?
                    .items
                    .into_iter()
                    .map(|object| (kind.clone(), object)),
            );
        }
        let mut rendered = Vec::new();
        for manifest in manifests {
            let kind = manifest.gvk().kind;
            let is_of = |object: &DynamicObject| {
                let owners = object.metadata.owner_references.iter().flatten();
                object.metadata.namespace.as_deref() == Some(manifest.namespace_or(namespace))
                    && owners
                        .into_iter()
                        .any(|owner| owner.kind == kind && owner.name == manifest.name())
            };
            for (kind, object) in objects.iter().filter(|(_, object)| is_of(object)) {
                rendered.push(Rendered {
                    of: manifest.label(),
                    place: format!("{}:{}", manifest.file.display(), manifest.line),
                    object: plain(kind, object),
                });
            }
        }
        Ok(rendered)
    }
}

/// The object as it would be written by hand: without what only a server says.
fn plain(kind: &ApiResource, object: &DynamicObject) -> Value {
    let ObjectMeta {
        name,
        namespace,
        labels,
        annotations,
        ..
    } = object.metadata.clone();
    let metadata = ObjectMeta {
        name,
        namespace,
        labels,
        annotations,
        ..ObjectMeta::default()
    };
    let mut plain = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata});
    if let (Some(plain), Some(data)) = (plain.as_object_mut(), object.data.as_object()) {
        for (field, value) in data.iter().filter(|(field, _)| *field != "status") {
            plain.insert(field.clone(), value.clone());
        }
        if kind.kind == "Service"
            && let Some(spec) = plain.get_mut("spec").and_then(Value::as_object_mut)
        {
            // Given by the server, another one each time.
            for given in [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "internalTrafficPolicy",
                "sessionAffinity",
            ] {
                spec.shift_remove(given);
            }
        }
    }
    plain
}

/// Kind, namespace and name.
type Key = (&'static str, String, String);

/// How a resource stands.
#[derive(Clone, Debug)]
struct Stand {
    is_current: bool,
    is_ready: bool,
    phase: String,
    message: String,
    /// Reason and text of what the controllers note of a valid spec.
    notes: Option<(String, String)>,
    needs: Vec<Key>,
}

impl Stand {
    fn of<K: Resource>(resource: &K, status: &Value, needs: Vec<Key>) -> Self {
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array();
        let valid = conditions
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "ConfigurationValid" && one["status"] == "True");
        let notes = valid.and_then(|valid| {
            let part = |key: &str| valid[key].as_str().filter(|text| !text.is_empty());
            Some((part("reason")?.to_owned(), part("message")?.to_owned()))
        });
        Self {
            is_current: status["observedGeneration"].as_i64() == resource.meta().generation,
            is_ready: status["ready"] == true,
            phase: text("phase"),
            message: text("message"),
            notes,
            needs,
        }
    }

    /// Whether nothing more will come of it: it is ready, refused, or needs something that will not be.
    fn is_settled(&self, all: &BTreeMap<Key, Self>) -> bool {
        let is_lost = |need: &Key| {
            all.get(need)
                .is_none_or(|stand| !stand.is_ready && stand.is_settled_alone(all))
        };
        self.is_current && (self.is_ready || self.phase == "Failed" || self.needs.iter().any(is_lost))
    }

    /// As [`Stand::is_settled`], looking one step far: peers may name each other.
    fn is_settled_alone(&self, all: &BTreeMap<Key, Self>) -> bool {
        let is_lost = |need: &Key| {
            all.get(need)
                .is_none_or(|stand| stand.is_current && stand.phase == "Failed")
        };
        self.is_current && (self.phase == "Failed" || self.needs.iter().any(is_lost))
    }

    fn findings(&self, manifest: &Manifest) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.is_ready {
            let field = mentioned(manifest, &self.message);
            let mut finding = manifest.finding(field.as_deref(), self.message.clone());
            if self.phase != "Failed" {
                // What it waits for is told where that stands.
                finding = finding.into_warning();
            }
            findings.push(finding);
        }
        if let Some((_, notes)) = &self.notes {
            for note in notes.split("; spec.").enumerate().map(|(at, note)| {
                if at == 0 {
                    note.to_owned()
                } else {
                    format!("spec.{note}")
                }
            }) {
                let field = mentioned(manifest, &note);
                findings.push(manifest.finding(field.as_deref(), note).into_warning());
            }
        }
        findings
    }
}

/// The field of the manifest that a sentence is about: the first one it mentions that is written down.
fn mentioned(manifest: &Manifest, sentence: &str) -> Option<String> {
    sentence
        .split(|c: char| c.is_whitespace() || ",;()\"`".contains(c))
        .map(|word| word.trim_end_matches([':', '.']))
        .filter(|word| word.starts_with("spec."))
        .find(|word| manifest.positions.has(word))
        .map(ToOwned::to_owned)
}

/// Every name leads to a port that nobody can listen on: nothing is asked, and DNS is not either.
#[derive(Debug)]
struct Nowhere;

impl Dialer for Nowhere {
    fn address(&self, _host: &str, _port: u16) -> Option<SocketAddr> {
        Some(([127, 0, 0, 1], 0).into())
    }
}
