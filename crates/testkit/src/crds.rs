//! Custom resource definitions, ours and those of a test.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{Mutex, OnceCell};

use crate::api::TestApi;
use crate::eventually::{PATIENCE, eventually};

/// Installs this project's kinds and returns when they are served.
///
/// # Panics
/// When the server refuses them or does not come to serve them.
pub async fn install_crds(api: &TestApi) {
    // Tests of one process share the real server. One of them installs; the others wait for it.
    static INSTALLED: Mutex<bool> = Mutex::const_new(false);
    let mut installed = INSTALLED.lock().await;
    if *installed && !api.is_embedded() {
        return;
    }
    for crd in kaos_api::crds() {
        install_crd(&api.client, &crd).await;
    }
    *installed |= !api.is_embedded();
}

/// A kind of which tests need any objects but no definition of their own.
///
/// A real server takes seconds to serve a new kind, and its garbage collector and namespace controller look
/// at every kind there is. So the tests of one process share it there, each in its own namespace. Embedded
/// servers belong to one test each, and so does the kind.
#[derive(Debug, Default)]
pub struct SharedKind {
    group: OnceCell<String>,
}

impl SharedKind {
    /// A kind that is installed when it is first asked for.
    pub const fn new() -> Self {
        Self {
            group: OnceCell::const_new(),
        }
    }

    /// Makes the kind served where it is not, by the definition for a given group. Returns the group.
    ///
    /// # Panics
    /// As [`install_crd`].
    pub async fn install(
        &self,
        api: &TestApi,
        definition: impl FnOnce(&str) -> CustomResourceDefinition,
    ) -> String {
        let install = async || {
            let group = api.group();
            install_crd(&api.client, &definition(&group)).await;
            group
        };
        if api.is_embedded() {
            return install().await;
        }
        self.group.get_or_init(install).await.clone()
    }
}

/// Installs a kind and returns when it is served.
///
/// # Panics
/// When the server refuses it or does not come to serve it.
pub async fn install_crd(client: &Client, crd: &CustomResourceDefinition) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    // Most servers are new; creating is quicker than applying for definitions as large as these.
    match crds.create(&PostParams::default(), crd).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let params = PatchParams::apply("kaos-testkit").force().validation_strict();
            crds.patch(&name, &params, &Patch::Apply(crd)).await
        }
        created => created,
    }
    .expect("the definition is accepted");
    eventually(&format!("{name} is established"), PATIENCE, async || {
        let conditions = crds.get(&name).await.ok()?.status?.conditions?;
        conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
            .then_some(())
    })
    .await;
    // A server may say so a moment before it serves the kind.
    let version = crd.spec.versions.first().expect("a definition has a version");
    let path = format!(
        "/apis/{}/{}/{}?limit=1",
        crd.spec.group, version.name, crd.spec.names.plural
    );
    eventually(&format!("{path} is served"), PATIENCE, async || {
        client
            .request_text(http::Request::get(&path).body(Vec::new()).expect("a request"))
            .await
    })
    .await;
}
