//! The Gateway API, of which tests need the kinds but nobody who serves them.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kaos_external::gateway_api;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{api::TestApi, crds::install_crd};

/// Has the API server serve GatewayClasses, Gateways and HTTPRoutes.
///
/// On a real server the kinds are those that are published, and tests share them: a test that needs them to be
/// absent, or to arrive late, is one of the embedded server. There they are [brief](brief_gateway_api).
///
/// # Panics
/// As [`install_crd`].
pub async fn install_gateway_api(api: &TestApi) {
    static ON_REAL_SERVER: OnceCell<()> = OnceCell::const_new();
    static BRIEF: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(brief_gateway_api);
    if api.is_embedded() {
        for definition in BRIEF.iter() {
            install_crd(&api.client, definition).await;
        }
        return;
    }
    let install = async || {
        for definition in gateway_api::crds() {
            install_crd(&api.client, &definition).await;
        }
    };
    ON_REAL_SERVER.get_or_init(install).await;
}

/// The definitions without what takes the most time of an embedded server and decides nothing in a test: prose, and
/// the older versions.
pub fn brief_gateway_api() -> Vec<CustomResourceDefinition> {
    gateway_api::crds().into_iter().map(brief).collect()
}

fn brief(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| name != "description" || !value.is_string());
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    definition.spec.versions.retain(|version| version.name == "v1");
    let mut value = serde_json::to_value(definition).expect("a definition is JSON");
    strip(&mut value);
    serde_json::from_value(value).expect("nothing that a definition needs is prose")
}
