//! The rest of the cluster, as far as controllers notice it.

mod rollouts;
mod routes;

use std::time::Duration;

use kaos_seams::Seams;
use serde_json::Value;

pub use rollouts::{BROKEN, is_rolled_out, rollouts};
pub use routes::routes;

use crate::{Cluster, World};

/// How long each stage of something takes.
const STAGE: Duration = Duration::from_secs(1);

/// Gives the objects of a kind a status, a stage at a time: `next` says which one, or nothing where an object has
/// the status that it is to have. Written is only what differs.
async fn statuses(
    cluster: Cluster,
    seams: Seams,
    kind: &str,
    next: impl Fn(&Value, &World, &str) -> Option<Value>,
) {
    let mut news = cluster.news();
    loop {
        tokio::time::sleep(STAGE).await;
        news.borrow_and_update();
        let now = to_the_second(&seams);
        let world = cluster.world();
        let mut changed = false;
        for (key, object) in world.of_kind(kind) {
            if let Some(status) = next(object, &world, &now) {
                cluster.merge_status(key, status).await;
                changed = true;
            }
        }
        if !changed && news.changed().await.is_err() {
            return;
        }
    }
}

/// A time as objects carry it: to the second.
fn to_the_second(seams: &Seams) -> String {
    let now = seams.clock.now();
    jiff::Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string()
}
