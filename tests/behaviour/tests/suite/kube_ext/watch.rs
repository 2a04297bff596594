//! Watches: of kinds that are not served, and of those that may not be watched.

use std::borrow::Cow;
use std::future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response, StatusCode};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kaos_apiserver::Fault;
use kaos_kube_ext::{watched, watched_modified, watched_optional};
use kaos_seams::Seams;
use kaos_testkit::{Builder, Faults, PATIENCE, TestApi, eventually, install_crd};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time;
use tower::service_fn;

/// A kind of another project.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Gizmo {
    metadata: ObjectMeta,
}

const GROUP: &str = "watch-optional.example.com";

impl Resource for Gizmo {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Gizmo".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "gizmos".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

async fn install(api: &TestApi) {
    let definition = json!({
        "metadata": {"name": format!("gizmos.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Gizmo", "listKind": "GizmoList", "plural": "gizmos", "singular": "gizmo"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    install_crd(&api.client, &serde_json::from_value(definition).unwrap()).await;
}

async fn uninstall(api: &TestApi) {
    let definitions: Api<CustomResourceDefinition> = Api::all(api.client.clone());
    let name = format!("gizmos.{GROUP}");
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("the definition is gone", PATIENCE, async || {
        definitions.get_opt(&name).await.unwrap().is_none()
    })
    .await;
}

async fn create(api: &TestApi, name: &str) {
    let gizmo = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Gizmo", "metadata": {"name": name}});
    let path = format!("/apis/{GROUP}/v1/namespaces/{}/gizmos", api.namespace);
    let (code, answer) = api.raw("POST", &path, &[], gizmo).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn a_kind_that_comes_late_is_watched_and_one_that_goes_is_forgotten() {
    let api = TestApi::start().await;
    if api.is_embedded() {
        time::pause();
    }
    let (client, _) = api.client_of_namespace().await;
    let (store, objects, availability) =
        watched_optional::<Gizmo>(client, watcher::Config::default(), Seams::simulated(1).random);
    assert_eq!(availability.is_served(), None);
    let (seen, told) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let answers = (availability.clone(), told.clone());
    tokio::spawn(availability.changes().for_each(move |()| {
        answers.1.lock().unwrap().push(answers.0.is_served());
        future::ready(())
    }));
    let names = seen.clone();
    tokio::spawn(objects.for_each(move |object| {
        names.lock().unwrap().push(object.unwrap().name_any());
        future::ready(())
    }));
    let is = async |what: &str, served: bool, held: &[&str]| {
        eventually(what, PATIENCE, async || {
            let names: Vec<_> = store.state().iter().map(|object| object.name_any()).collect();
            if availability.is_served() == Some(served) && names == held {
                Ok(())
            } else {
                Err((availability.is_served(), names))
            }
        })
        .await;
    };
    store.wait_until_ready().await.unwrap();
    is("it is not served", false, &[]).await;

    install(&api).await;
    create(&api, "one").await;
    is("its objects are in the store", true, &["one"]).await;
    assert_eq!(seen.lock().unwrap().drain(..).collect::<Vec<_>>(), ["one"]);

    uninstall(&api).await;
    is("its objects are forgotten", false, &[]).await;
    let gone = seen.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert!(gone.iter().any(|name| name == "one"), "{gone:?}");

    install(&api).await;
    create(&api, "two").await;
    is("it is watched again", true, &["two"]).await;
    assert_eq!(
        *told.lock().unwrap(),
        [Some(false), Some(true), Some(false), Some(true)]
    );
    uninstall(&api).await;
}

#[tokio::test(start_paused = true)]
async fn of_an_absent_kind_only_discovery_is_asked_and_not_often() {
    let api = TestApi::embedded().await;
    let (client, calls) = api.client_of_namespace().await;
    let (_, objects, availability) =
        watched_optional::<Gizmo>(client, watcher::Config::default(), Seams::simulated(1).random);
    let watching = tokio::spawn(objects.for_each(|_| future::ready(())));
    time::sleep(Duration::from_secs(600)).await;
    let asked = calls.all();
    assert!(
        asked.iter().all(|call| call.path == format!("/apis/{GROUP}/v1")),
        "{asked:?}"
    );
    // Every 15 to 30 seconds.
    assert!((20..=41).contains(&asked.len()), "{}", asked.len());
    assert_eq!(availability.is_served(), Some(false));
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_not_taken_for_absence() {
    let api = TestApi::embedded().await;
    install(&api).await;
    create(&api, "one").await;
    let broken = Arc::new(AtomicBool::new(true));
    let (inner, is_broken) = (api.client.clone(), broken.clone());
    let client = Client::new(
        service_fn(move |request: Request<Body>| {
            let (inner, is_broken) = (inner.clone(), is_broken.load(Ordering::SeqCst));
            async move {
                if is_broken && request.uri().path() == format!("/apis/{GROUP}/v1") {
                    let answer = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
                    return Ok(answer.body(Body::empty()).unwrap());
                }
                inner.send(request).await
            }
        }),
        "default",
    );
    let (store, objects, availability) =
        watched_optional::<Gizmo>(client, watcher::Config::default(), Seams::simulated(1).random);
    tokio::spawn(objects.for_each(|_| future::ready(())));
    time::sleep(Duration::from_secs(300)).await;
    assert_eq!(availability.is_served(), None);
    broken.store(false, Ordering::SeqCst);
    time::timeout(Duration::from_secs(61), store.wait_until_ready())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(availability.is_served(), Some(true));
    assert_eq!(store.state().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed_is_tried_less_and_less_often() {
    let faults = Faults::default();
    let api = Builder::default().faults(Arc::new(faults.clone())).start().await;
    let forbidden = Fault::Error(StatusCode::FORBIDDEN, "no".to_owned());
    let refused = faults.inject(1_000, forbidden, |call| {
        call.verb == "list" && call.resource == "configmaps"
    });
    let (store, objects) = watched::<ConfigMap>(api.client.clone(), watcher::Config::default());
    tokio::spawn(objects.for_each(|_| future::ready(())));
    time::sleep(Duration::from_secs(600)).await;
    // At first after a second, at last every 30 or more.
    assert!((15..=40).contains(&refused.fired()), "{}", refused.fired());
    faults.stop();
    let ready = time::timeout(Duration::from_secs(61), store.wait_until_ready());
    ready.await.unwrap().unwrap();
}

#[tokio::test]
async fn objects_are_modified_before_anybody_sees_them() {
    let api = TestApi::start().await;
    let object = serde_json::from_value(json!({"metadata": {"name": "one"}, "data": {"a": "1"}})).unwrap();
    let created = api
        .api::<ConfigMap>()
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    assert!(created.metadata.managed_fields.is_some());
    let (client, _) = api.client_of_namespace().await;
    let config = watcher::Config::default().fields("metadata.name=one");
    let (store, objects) = watched_modified::<ConfigMap>(client, config, |object| {
        object.metadata.managed_fields = None;
    });
    let mut objects = Box::pin(objects);
    let seen = objects.next().await.unwrap().unwrap();
    assert_eq!(seen.metadata.uid, created.metadata.uid);
    assert_eq!(seen.metadata.managed_fields, None);
    assert_eq!(store.state()[0].metadata.managed_fields, None);
}
