//! Giving up a field that was applied, without a change of its value.
//!
//! An apply removes what its manager applied before and no longer names. A field that others are to have from then
//! on (the number of replicas, say, which would fall back to one) is therefore given up first, as the documentation
//! of server-side apply recommends. Nobody owns it until somebody writes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::{
    Api, Resource,
    api::ApiResource,
    core::{DynamicObject, NamespaceResourceScope},
};
use serde_json::{Map, Value};

use crate::{
    apply::{ATTEMPTS, Applier, is_overtaken},
    handover::{APPLY, fields_of, is, write},
};

impl Applier {
    /// Gives up `field` (its path, as in `["spec", "replicas"]`) of the live object of `object`'s name and uid.
    /// Sends nothing where there is no such object, or this manager has not applied the field.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    pub async fn release<K>(&self, object: &K, field: &[&str]) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let meta = object.meta();
        let (Some(name), Some(namespace)) = (&meta.name, &meta.namespace) else {
            return Ok(());
        };
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let mut attempt = 1;
        loop {
            let Some(live) = api.get_opt(name).await? else {
                return Ok(());
            };
            let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
            let entries = released(entries, self.manager, field);
            let Some(entries) = entries.filter(|_| live.metadata.uid == meta.uid) else {
                return Ok(());
            };
            match write(&api, &live, self, entries).await {
                Err(error) if attempt < ATTEMPTS && is_overtaken(&error) => attempt += 1,
                outcome => return outcome.map(drop),
            }
        }
    }
}

/// The entries without the manager's part in `field`. Nothing where it has none.
fn released(
    entries: &[ManagedFieldsEntry],
    manager: &str,
    field: &[&str],
) -> Option<Vec<ManagedFieldsEntry>> {
    let is_ours = |entry: &ManagedFieldsEntry| {
        let whole = entry.subresource.as_deref().unwrap_or_default().is_empty();
        whole && is(entry, APPLY) && entry.manager.as_deref() == Some(manager)
    };
    let mut after = entries.to_vec();
    let ours = after.iter_mut().find(|entry| is_ours(entry))?;
    let mut fields = fields_of(ours);
    let (last, path) = field.split_last()?;
    let mut place: &mut Map<String, Value> = &mut fields;
    for name in path {
        place = place.get_mut(&format!("f:{name}"))?.as_object_mut()?;
    }
    place.shift_remove(&format!("f:{last}"))?;
    ours.fields_v1 = Some(FieldsV1(Value::Object(fields)));
    Some(after)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_our_part_in_the_field_goes() {
        let entries = |ours: Value| -> Vec<ManagedFieldsEntry> {
            serde_json::from_value(json!([
                {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": ours}},
                {"manager": "hpa", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            ]))
            .unwrap()
        };
        let before = entries(json!({"f:replicas": {}, "f:template": {}}));
        let after = released(&before, "us", &["spec", "replicas"]).unwrap();
        assert_eq!(after, entries(json!({"f:template": {}})));
        assert_eq!(released(&after, "us", &["spec", "replicas"]), None);
        assert_eq!(released(&before, "hpa", &["spec", "replicas"]), None);
    }
}
