//! Which pods of a group are alike.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Hex digits of a role's name.
const DIGITS: usize = 8;

/// Name of a pod's role: pods of one group are in one pod set when what decides about their admission is equal. Labels,
/// images and commands play no part.
#[must_use]
pub fn role_hash(spec: &PodSpec) -> String {
    let digest = Sha256::digest(shape(spec).to_string());
    let mut name = String::with_capacity(DIGITS);
    for byte in digest.iter().take(DIGITS / 2) {
        // Writing into a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// What of a pod decides about its admission, by field.
pub(super) fn shape(spec: &PodSpec) -> Value {
    json!({
        "initContainers": containers(spec.init_containers.as_deref().unwrap_or_default()),
        "containers": containers(&spec.containers),
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "tolerations": spec.tolerations,
        "runtimeClassName": spec.runtime_class_name,
        "priority": spec.priority,
        "topologySpreadConstraints": spec.topology_spread_constraints,
        "overhead": spec.overhead,
        "resourceClaims": spec.resource_claims,
    })
}

fn containers(list: &[Container]) -> Vec<Value> {
    let shape = |container: &Container| {
        let resources = container.resources.as_ref();
        json!({
            "requests": resources.and_then(|resources| resources.requests.as_ref()),
            "limits": resources.and_then(|resources| resources.limits.as_ref()),
            "claims": resources.and_then(|resources| resources.claims.as_ref()),
            "ports": container.ports,
            "restartPolicy": container.restart_policy,
        })
    };
    list.iter().map(shape).collect()
}
