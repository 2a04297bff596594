//! The status of an MCPServer.

use kaos_api::v1alpha1::{MCPServer, MCPServerStatus};
use kaos_kube_ext::set_condition;

use super::tools::Listing;
use crate::common::{
    children,
    context::Context,
    objects::Owner,
    status::{Standing, observed},
};

/// The condition that tells whether `availableTools` is what the running server offers.
const TOOLS_LISTED: &str = "ToolsListed";

/// The status that says where the MCPServer stands, what its objects are and which tools it offers. Until
/// they have been listed again, those of the last listing stay.
pub(crate) fn status(
    server: &MCPServer,
    owner: &Owner,
    standing: &Standing,
    objects: &children::Observed,
    listing: Option<Listing>,
    context: &Context<MCPServer>,
) -> MCPServerStatus {
    let generation = server.metadata.generation;
    let before = server.status.clone().unwrap_or_default();
    let mut conditions = before.conditions;
    let clock = context.seams.clock.as_ref();
    standing.put(&mut conditions, generation, clock);

    let mut available_tools = before.available_tools;
    if let Some(listing) = listing {
        let (status, reason, message) = match listing {
            Listing::Listed(tools) => {
                let message = match tools.len() {
                    1 => "1 tool".to_owned(),
                    count => format!("{count} tools"),
                };
                available_tools = tools;
                (true, "Listed", message)
            }
            Listing::Failed(problem) => (false, "ListingFailed", problem),
        };
        let observed = kaos_kube_ext::Observed {
            status: Some(status),
            reason: reason.to_owned(),
            message,
        };
        set_condition(&mut conditions, TOOLS_LISTED, observed, generation, clock);
    }
    MCPServerStatus {
        phase: Some(standing.phase),
        ready: standing.is_ready(),
        message: Some(standing.message.clone()),
        endpoint: objects
            .service
            .as_ref()
            .map(|_| owner.endpoint(&context.config.cluster_domain)),
        available_tools,
        observed_generation: generation,
        conditions,
        deployment: objects.deployment.as_deref().and_then(observed),
    }
}
