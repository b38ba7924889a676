//! The checks of Berth's API server and webhooks, for the objects of the output.

use crate::decide::manifests::text;
use berth_api::berth::duration_seconds;
use berth_api::validation::{
    FieldError, label_value, subdomain, summary, validate_cluster_queue, validate_cohort, validate_resource_flavor,
};
use berth_control::offline::{self, examine};
use berth_jobs::pods::validate_pod;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Largest number of resources of a resource group, from the schema.
const MOST_RESOURCES: usize = 64;
/// Fields of the checked objects that have the name of a cluster-scoped object.
const NAMES: [&str; 3] = ["/spec/cohortName", "/spec/parentName", "/spec/clusterQueue"];

/// Checks an object as a server with Berth would check it.
///
/// # Errors
/// The error has the field, the value, and what is allowed.
pub(super) fn check(object: &Value) -> Result<(), String> {
    let unknown = match examine(object).map_err(|fault| fault.to_string())? {
        offline::Manifest::Read { unknown } => unknown,
        // Objects of Volcano's kinds are not checked, because the import leaves their fields as they are.
        offline::Manifest::Foreign => Vec::new(),
    };
    let kind = text(object, "/kind");
    if !unknown.is_empty() && kind != "Pod" {
        return Err(format!("{}: the kind has no such field", unknown.join(", ")));
    }
    let mut faults: Vec<FieldError> = Vec::new();
    let mut name = |path: &str, name: &str, wrong: Option<String>| {
        let field = path.trim_start_matches('/').replace('/', ".");
        faults.extend(wrong.map(|wrong| FieldError::new(field, name, wrong)));
    };
    let own = text(object, "/metadata/name");
    name("/metadata/name", &own, subdomain(&own));
    if kind == "LocalQueue" {
        // The name of a LocalQueue must be a label value, because jobs name their LocalQueue in a label.
        name("/metadata/name", &own, label_value(&own));
    }
    for path in NAMES {
        let other = text(object, path);
        let wrong = if other.is_empty() { None } else { subdomain(&other) };
        name(path, &other, wrong);
    }
    let duration = text(object, "/spec/preemption/protectedRunningTime");
    if kind == "QueuePolicy" && duration_seconds(&duration).is_none() {
        name("/spec/preemption/protectedRunningTime", &duration, Some("must be a time such as 90s or 10m".to_owned()));
    }
    let covered = object.pointer("/spec/resourceGroups/0/coveredResources").and_then(Value::as_array);
    let count = covered.map_or(0, Vec::len);
    if count > MOST_RESOURCES {
        let message = format!("is the number of resources; at most {MOST_RESOURCES} are allowed");
        name("/spec/resourceGroups", &count.to_string(), Some(message));
    }
    match kind.as_str() {
        "ResourceFlavor" => faults.extend(validate_resource_flavor(&read(object)?)),
        "Cohort" => faults.extend(validate_cohort(&read(object)?)),
        "ClusterQueue" => faults.extend(validate_cluster_queue(&read(object)?)),
        "Pod" => faults.extend(validate_pod(&read(object)?)),
        _ => {}
    }
    if faults.is_empty() { Ok(()) } else { Err(summary(&faults)) }
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    serde_json::from_value(object.clone()).map_err(|error| error.to_string())
}
