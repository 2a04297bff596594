//! A controller small enough to be wrong in exactly one way.
//!
//! A `Widget` becomes a ConfigMap `widget-NAME` with its text; its status is ready when that is there.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use kaos_perturb::{Key, Limits, Subject, World};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::time::sleep;

const MANAGER: &str = "toy";
const RETRY: Duration = Duration::from_secs(2);

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// Its objects outlive their owner.
    ForgetsTheOwner,
    /// The status comes before what it tells of.
    SaysReadyFirst,
    /// Every status is written anew, which is news, which is written.
    WritesWhatItReads,
    /// Makes something under a new name, and notes it afterwards.
    MakesTwo,
    /// Looks at its own kind only.
    NeverLooksAtItsObjects,
    /// Takes everything with its label for its own.
    PrunesByLabel,
    /// An error ends it.
    StopsAtAnError,
    /// What an older text made stays.
    LeavesTheOldBehind,
    /// Looks again and again, without a pause, until it is ready itself.
    NeverWaits,
    /// Waits for a finalizer's work that it forgets when it is stopped.
    ForgetsItsFinalizer,
    /// Waits for a kind that need not be installed, and asks for it again and again.
    NeedsAnotherKind,
}

/// The definition of the kind without which all but one can do.
pub(crate) const GADGETS: &str = "gadgets.example.com";

fn widgets() -> ApiResource {
    resource("Widget")
}

fn resource(kind: &str) -> ApiResource {
    ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

fn config_maps() -> ApiResource {
    ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&())
}

pub(crate) fn subject(mistake: Mistake) -> Arc<Subject> {
    Arc::new(Subject {
        name: format!("toy: {mistake:?}"),
        namespace: "work".to_owned(),
        definitions: vec![definition(&resource("Gadget")), definition(&widgets())],
        fixed: Vec::new(),
        primaries: vec!["Widget".to_owned()],
        start: Arc::new(move |client, _, _| Box::pin(run(client, mistake))),
        surroundings: Arc::new(|_, _| Box::pin(std::future::pending())),
        ready: Arc::new(ready),
        limits: Limits {
            more_writes: 4,
            ..Limits::default()
        },
    })
}

fn ready(widget: &Value, world: &World) -> Result<(), String> {
    if widget["status"]["ready"] != true
        || widget["status"]["observedGeneration"] != widget["metadata"]["generation"]
    {
        return Ok(());
    }
    let key = Key::of(widget);
    let map = Key::new("ConfigMap", &key.namespace, &format!("widget-{}", key.name));
    match world.get(&map) {
        Some(map) if map["data"]["text"] == widget["spec"]["text"] => Ok(()),
        _ => Err("its text is not there".to_owned()),
    }
}

fn definition(resource: &ApiResource) -> Value {
    let ApiResource { kind, plural, .. } = resource;
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

async fn run(client: Client, mistake: Mistake) {
    let watch = |resource: ApiResource| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        watcher(api, watcher::Config::default())
            .default_backoff()
            .map(drop)
            .boxed()
    };
    let mut events = match mistake {
        Mistake::NeverLooksAtItsObjects => watch(widgets()),
        _ => stream::select(watch(widgets()), watch(config_maps())).boxed(),
    };
    while mistake == Mistake::NeverWaits || events.next().await.is_some() {
        if mistake == Mistake::NeverWaits {
            sleep(Duration::from_millis(200)).await;
        }
        while let Err(error) = pass(&client, mistake).await {
            assert!(mistake != Mistake::StopsAtAnError, "cannot go on: {error}");
            sleep(if mistake == Mistake::NeedsAnotherKind {
                RETRY / 20
            } else {
                RETRY
            })
            .await;
        }
    }
}

async fn pass(client: &Client, mistake: Mistake) -> kube::Result<()> {
    if mistake == Mistake::NeedsAnotherKind {
        let gadgets: Api<DynamicObject> = Api::all_with(client.clone(), &resource("Gadget"));
        gadgets.list(&ListParams::default()).await?;
    }
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &widgets());
    for widget in all.list(&ListParams::default()).await? {
        one(client, &widget, mistake).await?;
    }
    Ok(())
}

async fn one(client: &Client, widget: &DynamicObject, mistake: Mistake) -> kube::Result<()> {
    let namespace = widget.namespace().unwrap_or_default();
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &widgets());
    let maps: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &config_maps());
    let params = PatchParams::apply(MANAGER).force();
    let text = &widget.data["spec"]["text"];
    let name = format!("widget-{}", widget.name_any());

    if mistake == Mistake::ForgetsItsFinalizer {
        let finalizers = widget.finalizers();
        if widget.meta().deletion_timestamp.is_some() {
            // What shows that it may go is noted first, in a place that does not outlive the object.
            if widget.data["status"]["cleaned"] == true {
                return Ok(());
            }
            let status = json!({"status": {"cleaned": true}});
            widgets
                .patch_status(&widget.name_any(), &PatchParams::default(), &Patch::Merge(status))
                .await?;
            let none = json!({"metadata": {"finalizers": null}});
            widgets
                .patch(&widget.name_any(), &PatchParams::default(), &Patch::Merge(none))
                .await?;
            return Ok(());
        }
        if finalizers.is_empty() {
            let own = json!({"metadata": {"finalizers": ["example.com/toy"]}});
            widgets
                .patch(&widget.name_any(), &PatchParams::default(), &Patch::Merge(own))
                .await?;
        }
    }
    if widget.meta().deletion_timestamp.is_some() {
        return Ok(());
    }

    let mut desired = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "toy"}},
        "data": {"text": text},
    });
    if mistake != Mistake::ForgetsTheOwner {
        desired["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "example.com/v1", "kind": "Widget", "name": widget.name_any(),
            "uid": widget.uid(), "controller": true,
        }]);
    }
    if mistake == Mistake::SaysReadyFirst {
        say_ready(&widgets, widget, mistake).await?;
    }
    if mistake == Mistake::LeavesTheOldBehind {
        let mut old = desired.clone();
        old["metadata"]["name"] = json!(format!("{name}-{}", text.as_str().unwrap_or_default()));
        let other = old["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if maps.get_opt(&other).await?.is_none() {
            maps.patch(&other, &params, &Patch::Apply(&old)).await?;
        }
    }
    if mistake == Mistake::MakesTwo && widget.data["status"]["token"].is_null() {
        let mut token = desired.clone();
        token["metadata"]["name"] = Value::Null;
        token["metadata"]["generateName"] = json!("token-");
        let token: DynamicObject = serde_json::from_value(token).map_err(kube::Error::SerdeError)?;
        let made = maps.create(&PostParams::default(), &token).await?;
        let status = json!({"status": {"token": made.name_any()}});
        widgets
            .patch_status(&widget.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await?;
    }

    let live = maps.get_opt(&name).await?;
    let holds = live.is_some_and(|live| {
        live.data["data"] == desired["data"]
            && live.labels().get("app").is_some_and(|app| app == "toy")
            && (mistake == Mistake::ForgetsTheOwner || !live.owner_references().is_empty())
    });
    if !holds {
        maps.patch(&name, &params, &Patch::Apply(&desired)).await?;
    }
    if mistake == Mistake::PrunesByLabel {
        for map in maps.list(&ListParams::default().labels("app=toy")).await? {
            if !map.name_any().starts_with("widget-") {
                maps.delete(&map.name_any(), &DeleteParams::default()).await?;
            }
        }
    }
    say_ready(&widgets, widget, mistake).await
}

async fn say_ready(
    widgets: &Api<DynamicObject>,
    widget: &DynamicObject,
    mistake: Mistake,
) -> kube::Result<()> {
    let mut status = json!({"ready": true, "observedGeneration": widget.metadata.generation});
    if mistake == Mistake::WritesWhatItReads {
        status["passes"] = json!(widget.data["status"]["passes"].as_i64().unwrap_or_default() + 1);
    }
    let live = &widget.data["status"];
    if live["ready"] == status["ready"]
        && live["observedGeneration"] == status["observedGeneration"]
        && live["passes"] == status["passes"]
    {
        return Ok(());
    }
    let patch = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": widget.name_any()},
        "status": status,
    });
    let params = PatchParams::apply(MANAGER).force();
    widgets
        .patch_status(&widget.name_any(), &params, &Patch::Apply(patch))
        .await?;
    Ok(())
}
