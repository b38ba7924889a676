//! The quickstart example with the nodes that it needs; the demo and the smoke test both use it.

use anyhow::Result;
use kube::Client;
use serde_json::Value;

use crate::kinds::{self, text};
use crate::nodes::{Pool, Tier};

/// Namespace of the jobs of the quickstart example.
pub const NAMESPACE: &str = "quickstart";
/// ClusterQueue of the quickstart.
pub const CLUSTER_QUEUE: &str = "tpu";

/// The nodes of the quickstart: exactly as many in each tier as its quota covers.
pub fn pools() -> Vec<Pool> {
    vec![
        Pool::tpu("reserved", 2, Tier::Reserved(NAMESPACE.to_owned())),
        Pool::tpu("on-demand", 2, Tier::OnDemand),
        Pool::tpu("spot", 4, Tier::Spot),
    ]
}

/// The objects in a file of the quickstart example.
///
/// # Errors
/// Fails if the file is absent or is no YAML.
pub fn manifests(file: &str) -> Result<Vec<Value>> {
    kinds::example(&format!("quickstart/{file}"))
}

/// Applies the ResourceFlavors and queues of the quickstart example.
///
/// # Errors
/// Fails if the API server refuses an object.
pub async fn apply_queues(client: &Client) -> Result<()> {
    for file in ["01-flavors.yaml", "02-queues.yaml"] {
        for object in manifests(file)? {
            if text(&object, "/kind") == "Namespace" {
                crate::control_plane::create_namespace(client, text(&object, "/metadata/name"), &[]).await?;
            } else {
                kinds::apply(client, &object).await?;
            }
        }
    }
    Ok(())
}

/// The flavor to which a Workload was admitted; empty if the Workload is not admitted.
pub fn flavor_of(workload: &Value) -> &str {
    let sets = kinds::items(workload, "/status/admission/podSetAssignments");
    let flavors = sets.first().and_then(|s| s.get("flavors")).and_then(Value::as_object);
    flavors.and_then(|f| f.values().next()).and_then(Value::as_str).unwrap_or("")
}

/// The tier of the pool to which a node belongs, that is, `reserved`, `on-demand` or `spot`; empty for a node of another cluster.
pub fn tier_of(node: &Value) -> &'static str {
    let label = |key: &str| node.pointer("/metadata/labels").and_then(|l| l.get(key)).is_some();
    if label("cloud.google.com/reservation-name") {
        "reserved"
    } else if label("cloud.google.com/gke-spot") {
        "spot"
    } else if label("cloud.google.com/gke-provisioning") {
        "on-demand"
    } else {
        ""
    }
}
