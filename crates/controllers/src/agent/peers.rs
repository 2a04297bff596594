//! The other agents that an agent may delegate to.

use kaos_api::v1alpha1::Agent;
use kaos_kube_ext::{Observed, condition};

use super::validate::SENTENCES;
use crate::common::status::{READY, Standing};

/// The condition that tells whether all peers can be reached.
pub(crate) const PEERS_READY: &str = "PeersReady";
/// Why an agent is not ready whose own pods are.
const PEERS_NOT_READY: &str = "PeersNotReady";

/// What there is of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// No Agent has the name.
    Missing,
    /// It has no Service, and will have none.
    Unexposed,
    /// Its pods do not run its present spec (yet).
    NotReady,
    /// Its pods run its present spec, and it lacks nothing but, perhaps, peers of its own.
    Ready,
}

impl Peer {
    /// What there is of `agent`.
    ///
    /// Agents may name each other: if each waited for the other's `Ready`, both would for ever.
    pub(crate) fn of(agent: Option<&Agent>) -> Self {
        match agent {
            None => Self::Missing,
            Some(agent) if !agent.spec.exposed() => Self::Unexposed,
            Some(agent) if is_ready_but_for_peers(agent) => Self::Ready,
            Some(_) => Self::NotReady,
        }
    }
}

fn is_ready_but_for_peers(agent: &Agent) -> bool {
    let Some(status) = &agent.status else {
        return false;
    };
    let lacks_peers =
        || condition(&status.conditions, READY).is_some_and(|ready| ready.reason == PEERS_NOT_READY);
    status.observed_generation == agent.metadata.generation && (status.ready || lacks_peers())
}

/// What is said of the peers; nothing where there are none.
pub(crate) fn observed(peers: &[(String, Peer)]) -> Option<Observed> {
    if peers.is_empty() {
        return None;
    }
    let problems: Vec<(&'static str, String)> = peers
        .iter()
        .filter_map(|(name, peer)| problem(name, *peer))
        .collect();
    Some(Observed {
        status: Some(problems.is_empty()),
        reason: problems.first().map_or("Ready", |(reason, _)| reason).to_owned(),
        message: problems
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join(SENTENCES),
    })
}

/// What has to be done about peers, one text for each: those that only are not ready yet come by themselves.
pub(crate) fn to_mend(peers: &[(String, Peer)]) -> Vec<String> {
    let to_mend = peers.iter().filter(|(_, peer)| *peer != Peer::NotReady);
    to_mend
        .filter_map(|(name, peer)| problem(name, *peer))
        .map(|(_, text)| text)
        .collect()
}

fn problem(name: &str, peer: Peer) -> Option<(&'static str, String)> {
    match peer {
        Peer::Ready => None,
        Peer::NotReady => Some(("PeerNotReady", format!("Agent {name} is not ready"))),
        Peer::Missing => Some((
            "PeerNotFound",
            format!("Agent {name} not found: create it, or remove it from spec.agentNetwork.access"),
        )),
        Peer::Unexposed => Some((
            "PeerNotExposed",
            format!(
                "Agent {name} is not exposed: set its spec.agentNetwork.expose: true, or remove it from \
                 spec.agentNetwork.access"
            ),
        )),
    }
}

/// How an agent stands whose pods are ready.
pub(crate) fn standing(peers: &[(String, Peer)]) -> Option<Standing> {
    observed(peers)
        .filter(|observed| observed.status != Some(true))
        .map(|observed| Standing::waiting(PEERS_NOT_READY, observed.message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::common::testing::stored;

    fn agent(generation: i64, ready: bool, reason: &str) -> Agent {
        let mut agent: Agent = stored("b", "{modelAPI: models, model: m}");
        agent.status = serde_json::from_value(json!({
            "ready": ready, "observedGeneration": generation,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": reason,
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }))
        .unwrap();
        agent
    }

    #[test]
    fn a_peer_is_ready_when_it_lacks_nothing_but_peers() {
        assert_eq!(Peer::of(None), Peer::Missing);
        assert_eq!(Peer::of(Some(&agent(1, true, "RolledOut"))), Peer::Ready);
        assert_eq!(Peer::of(Some(&agent(1, false, PEERS_NOT_READY))), Peer::Ready);
        assert_eq!(Peer::of(Some(&agent(1, false, "RollingOut"))), Peer::NotReady);
        assert_eq!(Peer::of(Some(&agent(0, true, "RolledOut"))), Peer::NotReady);
        assert_eq!(Peer::of(Some(&agent(0, false, PEERS_NOT_READY))), Peer::NotReady);
        let hidden: Agent = stored("b", "{modelAPI: models, agentNetwork: {expose: false}}");
        assert_eq!(Peer::of(Some(&hidden)), Peer::Unexposed);
    }
}
