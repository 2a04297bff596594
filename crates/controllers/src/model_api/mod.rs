//! ModelAPI: models behind one address. A proxy to a provider becomes a program with a configuration file; a
//! hosted model becomes Ollama and a step that has it pull the model, whose progress is in the status.

pub(crate) mod accepts;
mod build;
mod config_file;
mod given;
mod hosted;
mod proxy;
pub(crate) mod pulls;
mod resolve;
#[cfg(test)]
mod tests;
mod validate;

use futures::Stream;
use kaos_api::{
    names::Kind,
    v1alpha1::{ModelAPI, ModelAPIStatus, ModelApiMode},
};
use kaos_kube_ext::Observed;
use kaos_seams::Seams;
use kube::runtime::reflector::ObjectRef;

use crate::{
    common::{
        asked::Rollout,
        children::Live,
        driver::{Pass, Workload},
        objects::Owner,
        plan::{Keep, Plan},
        route,
        status::Standing,
    },
    config::Config,
};
use pulls::{Pulls, Told};

/// ModelAPIs.
#[derive(Debug)]
pub(crate) struct ModelApis {
    pulls: Pulls,
}

impl ModelApis {
    /// Nothing is being pulled yet, and the stream of the ModelAPIs of whose pull there is news.
    pub(crate) fn new(seams: Seams) -> (Self, impl Stream<Item = ObjectRef<ModelAPI>> + Send + 'static) {
        let (pulls, news) = Pulls::new(seams);
        (Self { pulls }, news)
    }
}

impl Workload for ModelApis {
    type Resource = ModelAPI;
    type Status = ModelAPIStatus;
    type Resolved = ();

    const KIND: Kind = Kind::ModelApi;
    const MANAGER: &'static str = "kaos-modelapi";

    fn resolve(&self, _model_api: &ModelAPI) {}

    fn plan(owner: &Owner, model_api: &ModelAPI, _resolved: &(), config: &Config) -> Plan {
        let spec = &model_api.spec;
        let mut notes = Vec::new();
        let objects = validate::validate(spec, config, &mut notes)
            .and_then(|valid| build::build(owner, spec, &valid, config));
        notes.extend(route::without_effect(
            spec.gateway_route.as_ref(),
            config.gateway.is_some(),
            true,
        ));
        Plan {
            objects,
            port: build::port(spec.mode),
            keep: Keep {
                config_maps: spec.mode == ModelApiMode::Proxy,
                ..Keep::all(config.gateway.is_some())
            },
            lacks: None,
            notes,
            conditions: Vec::new(),
        }
    }

    fn live(
        &self,
        pass: &Pass<'_, Self>,
        standing: Standing,
        live: &Live,
    ) -> (Standing, Vec<(&'static str, Observed)>) {
        let key = ObjectRef::from_obj(pass.resource);
        let pulls = pass.plan.objects.as_ref().is_ok_and(hosted::pulls);
        let (true, Some(deployment)) = (pulls, live.deployment.as_deref()) else {
            self.pulls.forget(&key);
            return (standing, Vec::new());
        };
        if standing.is_ready() {
            // The pods are ready only while the step is.
            self.pulls.forget(&key);
            return (standing, vec![(pulls::MODEL_PULLED, pulls::pulled())]);
        }
        let endpoint = hosted::pull_endpoint(pass.owner, &pass.config.cluster_domain);
        let told = self.pulls.told(key, Rollout::of(deployment), endpoint);
        let before = match told {
            Told::Nothing => pass.still_said(pulls::MODEL_PULLED, &standing),
            Told::Progress(_) => None,
        };
        let observed = before.unwrap_or_else(|| told.observed());
        (told.explains(standing), vec![(pulls::MODEL_PULLED, observed)])
    }

    fn forget(&self, model_api: &ModelAPI) {
        self.pulls.forget(&ObjectRef::from_obj(model_api));
    }
}
