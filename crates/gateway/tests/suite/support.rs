//! A gateway, an API, backends and routes.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use k8s_openapi::api::core::v1::Service;
use kaos_external::gateway_api::{Gateway, GatewayClass, HTTPRoute};
use kaos_gateway::{CONTROLLER, Options, guard::Access};
use kaos_seams::FixedDialer;
use kaos_testkit::{Builder, PATIENCE, TestApi, eventually, install_gateway_api};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A running gateway with the class `local` and the Gateway `gateway` in the test's namespace.
pub(crate) struct World {
    pub(crate) api: TestApi,
    pub(crate) address: SocketAddr,
    pub(crate) http: reqwest::Client,
    pub(crate) calls: kaos_testkit::Calls,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<Result<(), kaos_gateway::Error>>,
}

/// Starts a gateway that reaches the given Services, which all have port 80 and exist in the API.
pub(crate) async fn start(backends: &[(&str, SocketAddr)]) -> World {
    start_for(Access::default(), backends).await
}

pub(crate) async fn start_for(access: Access, backends: &[(&str, SocketAddr)]) -> World {
    start_with(access, backends, false).await
}

/// As [`start`], for routes of every namespace; its calls are not counted.
pub(crate) async fn start_everywhere(backends: &[(&str, SocketAddr)]) -> World {
    start_with(Access::default(), backends, true).await
}

async fn start_with(access: Access, backends: &[(&str, SocketAddr)], everywhere: bool) -> World {
    let mut builder = Builder::default();
    if everywhere {
        // On a shared server there is more everywhere than this test's.
        builder = builder.embedded();
    }
    let api = builder.start().await;
    install_gateway_api(&api).await;
    let mut dialer = FixedDialer::default();
    for (name, address) in backends {
        dialer = dialer.with(&format!("{name}.{}.svc", api.namespace), 80, *address);
        let spec = json!({"ports": [{"port": 80}], "selector": {"app": name}});
        put::<Service>(&api, name, &json!({ "spec": spec })).await;
    }
    let listeners = kaos_gateway::bind(0).await.unwrap();
    let address = listeners[0].local_addr().unwrap();
    let class: GatewayClass = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "local"}, "spec": {"controllerName": CONTROLLER},
    }))
    .unwrap();
    let classes: Api<GatewayClass> = Api::all(api.client.clone());
    let params = PatchParams::apply("test");
    classes
        .patch("local", &params, &Patch::Apply(&class))
        .await
        .unwrap();
    let spec = json!({
        "gatewayClassName": "local",
        "listeners": [{"name": "http", "protocol": "HTTP", "port": address.port()}],
    });
    put::<Gateway>(&api, "gateway", &json!({ "spec": spec })).await;

    let stop = CancellationToken::new();
    let (limited, calls) = api.client_of_namespace().await;
    let client = if everywhere { api.client.clone() } else { limited };
    let options = Options {
        listeners,
        access,
        grace: GRACE,
        seams: api.seams.clone().with_dialer(std::sync::Arc::new(dialer)),
    };
    let running = tokio::spawn(kaos_gateway::run(client, options, stop.clone()));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    World {
        api,
        address,
        http,
        calls,
        stop,
        running,
    }
}

/// Makes the object of the test's namespace what `fields` say, beside its kind and name.
pub(crate) async fn put<K>(api: &TestApi, name: &str, fields: &Value) -> K
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let mut object = fields.clone();
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object["metadata"]["name"] = name.into();
    let params = PatchParams::apply("test").force();
    api.api::<K>()
        .patch(name, &params, &Patch::Apply(&object))
        .await
        .unwrap()
}

impl World {
    /// A route to the Gateway with these rules, and the conditions its parent has got for them.
    pub(crate) async fn route(&self, name: &str, rules: &Value) -> Vec<(String, String, String, String)> {
        let spec = json!({"parentRefs": [{"name": "gateway"}], "rules": rules});
        self.route_of(name, &spec).await
    }

    /// As [`World::route`], with a whole spec.
    pub(crate) async fn route_of(&self, name: &str, spec: &Value) -> Vec<(String, String, String, String)> {
        let written = put::<HTTPRoute>(&self.api, name, &json!({ "spec": spec })).await;
        eventually("the route has conditions", PATIENCE, async || {
            let route = self.api.api::<HTTPRoute>().get(name).await.ok()?;
            let parents = route.status?.parents;
            let conditions = &parents
                .iter()
                .find(|entry| entry.controller_name == CONTROLLER)?
                .conditions;
            let current = conditions
                .iter()
                .all(|one| one.observed_generation == written.metadata.generation);
            current.then(|| {
                let shown = conditions
                    .iter()
                    .cloned()
                    .map(|one| (one.type_, one.status, one.reason, one.message));
                shown.collect()
            })
        })
        .await
    }

    pub(crate) async fn delete_route(&self, name: &str) {
        let routes = self.api.api::<HTTPRoute>();
        routes.delete(name, &DeleteParams::default()).await.unwrap();
        eventually("the route is gone", PATIENCE, async || {
            routes.get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// An answer, of which the head has come.
    pub(crate) async fn asked(&self, path: &str) -> reqwest::Response {
        self.http.get(self.url(path)).send().await.unwrap()
    }

    /// The status and the text of an answer.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.asked(path).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Waits until `path` is answered with `status`.
    pub(crate) async fn until(&self, path: &str, status: u16) {
        eventually(
            &format!("{path} is answered with {status}"),
            PATIENCE,
            async || {
                let found = self.get(path).await;
                if found.0 == status { Ok(()) } else { Err(found) }
            },
        )
        .await;
    }

    pub(crate) async fn gateway(&self) -> Gateway {
        eventually("the Gateway has been judged", PATIENCE, async || {
            let gateway = self.api.api::<Gateway>().get("gateway").await.ok()?;
            let conditions = gateway.status.as_ref()?.conditions.as_ref()?;
            let current = |type_: &str| {
                conditions
                    .iter()
                    .any(|one| one.type_ == type_ && one.observed_generation == gateway.meta().generation)
            };
            (current("Accepted") && current("Programmed")).then_some(gateway)
        })
        .await
    }
}

/// Serves `router` on a loopback port until the test ends.
pub(crate) async fn backend(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Answers every request with what it was: method, URI, and headers one a line.
pub(crate) async fn echo() -> SocketAddr {
    backend(Router::new().fallback(async |request: axum::extract::Request| {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let mut lines = vec![format!("{} {}", head.method, head.uri)];
        for (name, value) in &head.headers {
            lines.push(format!("{name}: {}", value.to_str().unwrap()));
        }
        lines.push(String::from_utf8(body.to_vec()).unwrap());
        lines.join("\n")
    }))
    .await
}

/// Answers every request with its name.
pub(crate) async fn named(name: &'static str) -> SocketAddr {
    backend(Router::new().fallback(move || async move { name })).await
}

/// An address that refuses connections.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// The rule of one path to one Service.
pub(crate) fn rule(path: &str, service: &str) -> Value {
    json!({
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [{"name": service, "port": 80}],
    })
}

/// Sends bytes as they are and returns all that comes back until the gateway closes.
pub(crate) async fn raw(address: SocketAddr, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
