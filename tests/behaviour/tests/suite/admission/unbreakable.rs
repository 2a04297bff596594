//! Whatever the schemas admit: no controller panics, spins, or leaves a resource without a status.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kaos_controllers::{Config, Gateway, RouteTimeouts, Runtime};
use kaos_seams::Dialer;
use kaos_testkit::{Builder, Calls, TestApi, install_crd, install_crds, mark_pods_ready};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{collection, create, specs};

/// Worlds of one resource of each kind.
const WORLDS: usize = 40;
/// How many smaller worlds are tried where one shows a defect.
const SMALLER: usize = 200;
/// Longer than any delay between two looks at a resource that changes.
const SOON: Duration = Duration::from_secs(60);
/// In which a resource that does not change is left alone, but for the longest delays.
const LONG: Duration = Duration::from_secs(15 * 60);
/// Writes to make three resources and all that belongs to them, and to tell of their pods twice.
const WRITES: usize = 80;
/// One attempt every five minutes for each resource that cannot be applied, and one more. Of others, nothing is
/// written.
const WRITES_OF_A_FAILURE: usize = 4;

/// The kinds, and the names of their resources. The specs refer to each other by these.
const KINDS: [(&str, &str); 3] = [("ModelAPI", "m"), ("MCPServer", "t"), ("Agent", "a")];

#[derive(Debug)]
struct Nowhere;

impl Dialer for Nowhere {
    fn address(&self, _host: &str, _port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([127, 0, 0, 1], 1)))
    }
}

fn config() -> Config {
    let mut config = Config::new("example.com/kaos:1", "example.com/tools:1");
    let plain = Runtime {
        image: "example.com/plain:1".to_owned(),
        ..Runtime::default()
    };
    config.runtimes.insert("plain".to_owned(), plain);
    Config {
        gateway: Some(Gateway {
            name: "gateway".to_owned(),
            namespace: "edge".to_owned(),
            timeouts: RouteTimeouts::default(),
        }),
        ..config
    }
}

/// Controllers, and the API they look after.
struct Subject {
    api: TestApi,
    calls: Calls,
    controllers: JoinHandle<()>,
    _stop: DropGuard,
}

impl Subject {
    async fn start() -> Self {
        let api = Builder::default().embedded().workloads().start().await;
        install_crds(&api).await;
        let definitions = kaos_external::gateway_api::crds();
        let routes = definitions
            .iter()
            .find(|definition| definition.spec.names.kind == "HTTPRoute");
        install_crd(&api.client, routes.unwrap()).await;
        let (client, calls) = api.client_of_namespace().await;
        let (seams, stop) = (
            api.seams.clone().with_dialer(Arc::new(Nowhere)),
            CancellationToken::new(),
        );
        let token = stop.clone();
        let controllers = tokio::spawn(async move {
            kaos_controllers::run(client, config(), seams, token)
                .await
                .expect("the kinds are served");
        });
        Self {
            api,
            calls,
            controllers,
            _stop: stop.drop_guard(),
        }
    }

    /// What is wrong with what the controllers make of these specs, and how many were admitted.
    async fn judge(&self, world: &[Value]) -> (Result<(), String>, usize) {
        self.calls.clear();
        let mut admitted = Vec::new();
        for ((kind, name), spec) in KINDS.into_iter().zip(world) {
            let (code, answer) = create(&self.api, kind, name, spec).await;
            match code {
                201 => admitted.push((kind, name)),
                400 | 422 => {}
                _ => return (Err(format!("{kind}: {code} {answer}")), 0),
            }
        }
        let verdict = self.observe(&admitted).await;
        for (kind, name) in &admitted {
            let path = format!("{}/{name}", collection(&self.api, kind));
            self.api.raw("DELETE", &path, &[], ()).await;
        }
        sleep(SOON).await;
        (verdict, admitted.len())
    }

    async fn observe(&self, admitted: &[(&str, &str)]) -> Result<(), String> {
        // Once for what does not wait, and once for what waited for it.
        for _ in 0..2 {
            sleep(SOON).await;
            mark_pods_ready(&self.api.client, &self.api.namespace).await;
        }
        sleep(SOON).await;
        if self.controllers.is_finished() {
            return Err("the controllers have ended".to_owned());
        }
        let mut failed = Vec::new();
        for (kind, name) in admitted {
            let path = format!("{}/{name}", collection(&self.api, kind));
            let (_, object) = self.api.raw("GET", &path, &[], ()).await;
            let status = &object["status"];
            if status["observedGeneration"] != object["metadata"]["generation"] {
                return Err(format!("{kind} {name} has no status: {status}"));
            }
            if status["phase"] == "Failed" && status["message"].as_str().is_none_or(str::is_empty) {
                return Err(format!("{kind} {name} failed without a word: {status}"));
            }
            if status["phase"] == "Failed" {
                failed.push(*name);
            }
        }
        let writes = self.calls.writes();
        if writes.len() > WRITES {
            return Err(format!("{} writes: {writes:#?}", writes.len()));
        }
        self.calls.clear();
        sleep(LONG).await;
        let writes = self.calls.writes();
        for (kind, name) in admitted {
            let about: Vec<_> = writes.iter().filter(|call| is_about(&call.path, name)).collect();
            let allowed = if failed.contains(name) {
                WRITES_OF_A_FAILURE
            } else {
                0
            };
            if about.len() > allowed {
                let count = about.len();
                return Err(format!("{count} writes for {kind} {name} long after: {about:#?}"));
            }
        }
        Ok(())
    }
}

/// Whether a request is about the resource of this name or an object of it, which is called `PREFIX-NAME`.
fn is_about(path: &str, name: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    path.split('/')
        .any(|part| part.rsplit('-').next() == Some(name) && !part.starts_with("test-"))
}

#[tokio::test(start_paused = true)]
async fn no_resource_that_is_admitted_makes_a_controller_panic_or_spin() {
    let subject = Subject::start().await;
    let definitions = kaos_api::crds();
    let worlds: Vec<_> = KINDS
        .iter()
        .map(|(kind, _)| {
            let definition = definitions
                .iter()
                .find(|definition| definition.spec.names.kind == *kind);
            let schema =
                json!(definition.unwrap())["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
            specs::values("spec", &schema["properties"]["spec"])
        })
        .collect();
    let mut runner = TestRunner::deterministic();
    let mut admitted = 0;
    for _ in 0..WORLDS {
        let mut tree = worlds.new_tree(&mut runner).unwrap();
        let (verdict, count) = subject.judge(&tree.current()).await;
        admitted += count;
        let Err(mut problem) = verdict else { continue };
        let mut smallest = tree.current();
        for _ in 0..SMALLER {
            // Controllers that have ended cannot judge a smaller world.
            if subject.controllers.is_finished() {
                break;
            }
            let (verdict, _) = subject.judge(&tree.current()).await;
            let moved = match verdict {
                Err(found) => {
                    (problem, smallest) = (found, tree.current());
                    tree.simplify()
                }
                Ok(()) => tree.complicate(),
            };
            if !moved {
                break;
            }
        }
        panic!("{problem}\n{}", serde_saphyr::to_string(&smallest).unwrap());
    }
    let all = WORLDS * KINDS.len();
    assert!(
        admitted * 4 > all,
        "only {admitted} of {all} specs were admitted: they show too little"
    );
}
