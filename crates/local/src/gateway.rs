//! The gateway of an instance: its port, and the objects that make it one of the Gateway API.

use std::{io, net::SocketAddr, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kaos_external::gateway_api::{
    self, Gateway, GatewayClass, GatewayClassSpec, GatewayListeners, GatewayListenersAllowedRoutes,
    GatewayListenersAllowedRoutesNamespaces, GatewayListenersAllowedRoutesNamespacesFrom, GatewaySpec,
};
use kaos_gateway::{CONTROLLER, guard::Origin};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use tokio::net::TcpListener;

use crate::{
    defaults::{CONTROL_NAMESPACE, GATEWAY},
    instance::{FIELD_MANAGER, StartError, install, install_all},
};

/// The GatewayClass of the local gateway.
const CLASS: &str = "kaos-local";
/// The port of a data folder's first start, where it is free.
const DEFAULT_PORT: u16 = 8888;
/// How many ports after it are tried.
const TRIES: u16 = 100;
/// How long answers that are under way may take to end when the instance stops.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// How the gateway of an instance is reached.
#[derive(Clone, Debug, Default)]
pub struct GatewayOptions {
    /// Its port. `None`: that of the data folder, which is chosen at its first start.
    pub port: Option<u16>,
    /// Web pages that may call it, besides programs of this machine.
    pub allow_origins: Vec<Origin>,
}

/// Where the gateway listens.
pub(crate) struct Listening {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) address: SocketAddr,
    /// The port of the data folder from now on. Another one than that of the address where it was taken.
    pub(crate) kept: u16,
}

/// Takes the port that was asked for, or the one the data folder has, or the first that is free.
pub(crate) async fn listen(asked: Option<u16>, kept: Option<u16>) -> Result<Listening, StartError> {
    if let Some(port) = asked {
        let failed = |source| StartError::GatewayPort { port, source };
        let listening = listening(kaos_gateway::bind(port).await.map_err(failed)?, None);
        return listening.map_err(failed);
    }
    let first = kept.unwrap_or(DEFAULT_PORT);
    let mut port = first;
    loop {
        match kaos_gateway::bind(port).await {
            Ok(listeners) => {
                if let Some(kept) = kept.filter(|kept| *kept != port) {
                    tracing::warn!(
                        "port {kept}, which the gateway of this data folder has, is taken by another program: this \
                         time it listens on {port}"
                    );
                }
                return listening(listeners, kept).map_err(|source| StartError::GatewayPort { port, source });
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port < first.saturating_add(TRIES) => {
                port += 1;
            }
            Err(source) => return Err(StartError::GatewayPort { port, source }),
        }
    }
}

fn listening(listeners: Vec<TcpListener>, kept: Option<u16>) -> io::Result<Listening> {
    let first = listeners.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let address = first.local_addr()?;
    Ok(Listening {
        listeners,
        address,
        kept: kept.unwrap_or(address.port()),
    })
}

/// Which release of the Gateway API a definition is of.
const RELEASE: &str = "gateway.networking.k8s.io/bundle-version";

/// Installs the kinds of the Gateway API where they are not there in this release.
pub(crate) async fn install_kinds(client: &Client) -> Result<(), kube::Error> {
    install_all(gateway_api::crds, |definition| {
        install_kind(client.clone(), definition)
    })
    .await
}

async fn install_kind(client: Client, definition: CustomResourceDefinition) -> Result<(), kube::Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let live = definitions.get_metadata_opt(&definition.name_any()).await?;
    let there =
        live.is_some_and(|live| live.annotations().get(RELEASE) == definition.annotations().get(RELEASE));
    if there {
        return Ok(());
    }
    install(&client, &definition).await
}

/// Makes the class and the Gateway that are served on `port`.
pub(crate) async fn set_up(client: &Client, port: u16) -> Result<(), kube::Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let class = GatewayClass::new(
        CLASS,
        GatewayClassSpec {
            controller_name: CONTROLLER.to_owned(),
            ..GatewayClassSpec::default()
        },
    );
    let classes: Api<GatewayClass> = Api::all(client.clone());
    classes.patch(CLASS, &params, &Patch::Apply(&class)).await?;
    let from = GatewayListenersAllowedRoutesNamespacesFrom::All;
    let gateway = Gateway::new(
        GATEWAY,
        GatewaySpec {
            gateway_class_name: CLASS.to_owned(),
            listeners: vec![GatewayListeners {
                name: "http".to_owned(),
                protocol: "HTTP".to_owned(),
                port: i32::from(port),
                allowed_routes: Some(GatewayListenersAllowedRoutes {
                    namespaces: Some(GatewayListenersAllowedRoutesNamespaces {
                        from: Some(from),
                        selector: None,
                    }),
                    kinds: None,
                }),
                ..GatewayListeners::default()
            }],
            ..GatewaySpec::default()
        },
    );
    let gateways: Api<Gateway> = Api::namespaced(client.clone(), CONTROL_NAMESPACE);
    gateways
        .patch(&gateway.name_any(), &params, &Patch::Apply(&gateway))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_kept_moved_for_once_or_refused() {
        let first = listen(None, None).await.unwrap();
        assert!(first.address.ip().is_loopback() && first.kept == first.address.port());
        let kept = first.kept;

        let moved = listen(None, Some(kept)).await.unwrap();
        assert_ne!(moved.address.port(), kept, "it is taken");
        assert_eq!(moved.kept, kept, "and the folder's all the same");

        let error = listen(Some(kept), None).await.err().unwrap().to_string();
        assert!(
            error.contains(&format!("port {kept}")) && error.contains("--gateway-port"),
            "{error}"
        );
        drop(first);
        let again = listen(Some(kept), Some(1)).await.unwrap();
        assert_eq!(
            (again.address.port(), again.kept),
            (kept, kept),
            "what was asked for is kept"
        );
    }
}
