//! Defaults and rules of Jobs (`pkg/apis/batch/v1/defaults.go`, `pkg/registry/batch/job`,
//! `pkg/apis/batch/validation`), as far as Jobs without indexes and policies go.

use serde_json::{Map, Value, json};

use super::{
    defaults::{object, present, set},
    names, pods,
};
use crate::schema::FieldError;

/// The labels that tell the pods of one Job from those of another, in today's form and in the one before it.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// The one of them that a generated selector asks for.
const SELECTED: &str = "batch.kubernetes.io/controller-uid";

/// Fills in the defaults of a Job.
pub(super) fn apply_defaults(job: &mut Value) {
    let labels = job
        .pointer("/spec/template/metadata/labels")
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned();
    if let Some(labels) = labels
        && let Some(metadata) = object(job, "metadata")
        && metadata
            .get("labels")
            .and_then(Value::as_object)
            .is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
    let Some(spec) = present(job, "spec") else {
        return;
    };
    // Without either it is one pod, once; with a parallelism alone it is a work queue.
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") {
        i32::MAX
    } else {
        6
    };
    set(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set(spec, "podReplacementPolicy", replacement);
    set(spec, "manualSelector", false);
    if let Some(pod) = spec
        .get_mut("template")
        .and_then(|template| present(template, "spec"))
    {
        pods::apply_defaults(pod);
    }
}

/// Gives a new Job the selector and the labels that only its own pods have, unless it brings a selector.
pub(super) fn generate_selector(job: &mut Value) {
    if job.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let (name, uid) = (job["metadata"]["name"].clone(), job["metadata"]["uid"].clone());
    let Some(spec) = present(job, "spec") else { return };
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let Some(labels) = within(template, ["metadata", "labels"]) else {
        return;
    };
    let before = labels.clone();
    for label in NAME_LABELS {
        set(labels, label, name.clone());
    }
    for label in UID_LABELS {
        set(labels, label, uid.clone());
    }
    // As Go writes maps, so that a message that quotes them reads the same.
    labels.sort_keys();
    let after = labels.clone();
    if let Some(selected) = job
        .get_mut("spec")
        .and_then(|spec| within(spec, ["selector", "matchLabels"]))
    {
        set(selected, SELECTED, uid);
    }
    // Labels that were taken over from the template go on being those of the template.
    if let Some(labels) = within(job, ["metadata", "labels"])
        && (labels.is_empty() || *labels == before)
    {
        *labels = after;
    }
}

/// The object two names down, made where it is absent; nothing where there is something else.
fn within<'a>(value: &'a mut Value, [outer, inner]: [&str; 2]) -> Option<&'a mut Map<String, Value>> {
    object(value, outer)?;
    object(value.get_mut(outer)?, inner)
}

/// What is wrong with a Job; `old` is the stored one of an update.
pub(super) fn validate(job: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &job["spec"];
    generated_selector(job, errors);
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        names::not_negative(&format!("spec.{field}"), &spec[field], errors);
    }
    completion_mode(spec, errors);
    names::one_of(
        "spec.podReplacementPolicy",
        &spec["podReplacementPolicy"],
        &["Failed", "TerminatingOrFailed"],
        errors,
    );
    pods::validate(&spec["template"]["spec"], "spec.template.spec", errors);
    let (field, policy) = (
        "spec.template.spec.restartPolicy",
        &spec["template"]["spec"]["restartPolicy"],
    );
    if policy == "Always" {
        let valid = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(field, valid));
    } else {
        names::one_of(field, policy, &["OnFailure", "Never"], errors);
    }
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector.is_null() || !names::selects(selector, labels) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    if let Some(old) = old {
        update(spec, old, errors);
    }
}

/// The labels that a generated selector needs must be those that were generated.
fn generated_selector(job: &Value, errors: &mut Vec<FieldError>) {
    let spec = &job["spec"];
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
    let labels = &spec["template"]["metadata"]["labels"];
    let mut generated = Map::new();
    for index in [0, 1] {
        for (label, expected) in [(UID_LABELS[index], uid), (NAME_LABELS[index], name)] {
            generated.insert(label.to_owned(), expected.clone());
            let field = format!("spec.template.metadata.labels[{label}]");
            let why = format!("must be '{}'", expected.as_str().unwrap_or_default());
            if labels[label].is_null() {
                errors.push(FieldError::required(field, &why));
            } else if labels[label] != *expected {
                errors.push(FieldError::invalid(field, labels, &why));
            }
        }
    }
    if !names::selects(&spec["selector"], &Value::Object(generated)) {
        let why = "`selector` not auto-generated";
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], why));
    }
}

/// What goes with indexes only.
fn completion_mode(spec: &Value, errors: &mut Vec<FieldError>) {
    names::one_of(
        "spec.completionMode",
        &spec["completionMode"],
        &["NonIndexed", "Indexed"],
        errors,
    );
    if spec["completionMode"] == "Indexed" {
        if spec["completions"].is_null() {
            let why = "when completion mode is Indexed";
            errors.push(FieldError::required("spec.completions", why));
        }
        return;
    }
    for field in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
        if !spec[field].is_null() {
            let why = "requires indexed completion mode";
            errors.push(FieldError::invalid(format!("spec.{field}"), &spec[field], why));
        }
    }
}

/// What an update may not change: what pods were made of, and how they are counted.
fn update(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = &old["spec"];
    let why = "field is immutable";
    let indexed = spec["completionMode"] == "Indexed";
    let in_tandem =
        spec["completions"] == before["completions"] || spec["completions"] == spec["parallelism"];
    if indexed && !in_tandem {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid("spec.completions", &spec["completions"], why));
    }
    let (template, earlier) = (&spec["template"], &before["template"]);
    let (template_field, template_is_kept) = if is_idle(old) {
        (
            "spec.template.spec",
            unscheduled(template) == unscheduled(earlier),
        )
    } else {
        ("spec.template", template == earlier)
    };
    let mut unchanged = |field: &str| {
        if spec[field] != before[field] {
            errors.push(FieldError::invalid(format!("spec.{field}"), &spec[field], why));
        }
    };
    if !indexed {
        unchanged("completions");
    }
    unchanged("selector");
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        unchanged(field);
    }
    if !template_is_kept {
        errors.push(FieldError::invalid(template_field, template, why));
    }
}

/// Whether a Job is suspended and none of its pods runs, so that where they will run may still be said.
fn is_idle(job: &Value) -> bool {
    let status = &job["status"];
    let is_suspended = |condition: &Value| condition["type"] == "Suspended" && condition["status"] == "True";
    let conditions = status["conditions"].as_array();
    let told = conditions.is_some_and(|conditions| conditions.iter().any(is_suspended));
    job["spec"]["suspend"] == true
        && (status["startTime"].is_null() || told)
        && status["active"].as_i64().unwrap_or_default() == 0
}

/// A pod template without what says where its pods run and what they ask for.
fn unscheduled(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(metadata) = present(&mut template, "metadata") {
        metadata.retain(|field, _| field != "labels" && field != "annotations");
    }
    if let Some(spec) = present(&mut template, "spec") {
        spec.retain(|field, _| !matches!(field.as_str(), "nodeSelector" | "tolerations" | "schedulingGates"));
        if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.shift_remove("nodeAffinity");
            if affinity.is_empty() {
                spec.shift_remove("affinity");
            }
        }
        for list in ["containers", "initContainers"] {
            for container in super::defaults::each(spec, list).filter_map(Value::as_object_mut) {
                container.shift_remove("resources");
            }
        }
    }
    template
}
