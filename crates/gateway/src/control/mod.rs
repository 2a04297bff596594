//! The controller: watches, plans, publishes what is served and then says so in statuses.

mod backends;
mod conditions;
mod gateways;
mod plan;

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kaos_external::gateway_api::{Gateway, GatewayClass, GatewayClassStatus, HTTPRoute};
use kaos_kube_ext::{Applier, watched};
use kaos_seams::Seams;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, ValidationDirective},
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    MANAGER,
    control::plan::{Plan, World, plan},
    routes::table::Table,
};

/// How long to wait before statuses that could not be written are tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How many events of one moment are looked at together.
const TOGETHER: usize = 1024;

/// Runs until `stop`.
pub(crate) async fn run(
    client: Client,
    address: SocketAddr,
    seams: Seams,
    publish: watch::Sender<Arc<Table>>,
    stop: CancellationToken,
) {
    let any = watcher::Config::default;
    let (gateways, gateway_events) = watched::<Gateway>(client.clone(), any());
    let (routes, route_events) = watched::<HTTPRoute>(client.clone(), any());
    let (services, service_events) = watched::<Service>(client.clone(), any());
    // `watched` is for kinds of a namespace.
    let (classes, writer) = reflector::store::<GatewayClass>();
    let class_events = watcher(Api::<GatewayClass>::all(client.clone()), any())
        .default_backoff()
        .reflect(writer)
        .map(drop);

    let events = stream::select_all([
        gateway_events.map(drop).boxed(),
        route_events.map(drop).boxed(),
        service_events.map(drop).boxed(),
        class_events.boxed(),
    ]);
    let mut events = events.ready_chunks(TOGETHER);
    let listed = async {
        // A store whose writer is gone is one that nobody asks any more.
        let _ = futures::join!(
            gateways.wait_until_ready(),
            routes.wait_until_ready(),
            services.wait_until_ready(),
            classes.wait_until_ready()
        );
    };
    let mut listed = pin!(listed.fuse());
    let (mut complete, mut again) = (false, None::<Instant>);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = &mut listed, if !complete => complete = true,
            _ = events.next() => {}
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
        }
        // Before every kind is listed, a Service that is there would be taken for missing.
        if !complete {
            continue;
        }
        let world = World {
            classes: classes.state(),
            gateways: gateways.state(),
            routes: routes.state(),
            services: services.state(),
        };
        let plan = plan(&world, address, seams.clock.as_ref());
        // First served, then said.
        publish.send_if_modified(|table| {
            let changed = **table != plan.table;
            if changed {
                *table = Arc::new(plan.table.clone());
            }
            changed
        });
        let written = tokio::select! {
            () = stop.cancelled() => return,
            written = write(&client, plan) => written,
        };
        again = (!written).then(|| Instant::now() + RETRY);
    }
}

/// Writes the statuses that are not as planned. Whether all of them are now.
async fn write(client: &Client, plan: Plan) -> bool {
    let applier = Applier::new(client.clone(), MANAGER);
    let mut all = true;
    let mut told = |kind: &str, name: String, result: Result<(), kube::Error>| {
        if let Err(error) = result {
            tracing::warn!(kind, name, %error, "a status could not be written");
            all = false;
        }
    };
    for (class, status) in plan.classes {
        told(
            "GatewayClass",
            class.name_any(),
            apply_class_status(client, &class, &status).await,
        );
    }
    for (gateway, status) in plan.gateways {
        let result = applier.apply_status(gateway.as_ref(), &status).await.map(drop);
        told("Gateway", gateway.name_any(), result);
    }
    for (route, status) in plan.routes {
        // Other controllers have entries of their own in the list of parents, which is written as a whole.
        let result = applier.apply_shared_status(route.as_ref(), &status).await;
        told("HTTPRoute", route.name_any(), result);
    }
    all
}

/// As [`Applier::apply_status`], for a kind that belongs to no namespace. Nobody else writes these conditions.
async fn apply_class_status(
    client: &Client,
    class: &GatewayClass,
    status: &GatewayClassStatus,
) -> Result<(), kube::Error> {
    let holds = |class: &GatewayClass| {
        let there = class
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let wanted = status.conditions.as_deref().unwrap_or_default();
        wanted
            .iter()
            .all(|condition| there.unwrap_or_default().contains(condition))
    };
    if holds(class) {
        return Ok(());
    }
    let api: Api<GatewayClass> = Api::all(client.clone());
    let name = class.name_any();
    let live = api.get_opt(&name).await?;
    if live.is_none_or(|live| live.metadata.uid != class.metadata.uid || holds(&live)) {
        return Ok(());
    }
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply(MANAGER).force()
    };
    let intent = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": { "name": name },
        "status": status,
    });
    api.patch_status(&name, &params, &Patch::Apply(&intent))
        .await
        .map(drop)
}
