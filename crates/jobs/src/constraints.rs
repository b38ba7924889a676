//! What narrows the nodes of pods beside their requests, node selector and tolerations.

use crate::needs::required_terms;
use berth_api::PodSet;
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodSpec, Volume};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The scheduler of pods that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Digest of all that may keep a pod set's pods from nodes on which other pods of the same requests and node selector run:
/// required affinity, spread constraints, volume claims, resource claims, host ports, runtime class, scheduler. 0 when there is
/// none of it. What pods need near them counts by its topology key only: each job names its own pods there.
#[must_use]
pub fn placement_constraints(set: &PodSet) -> u64 {
    let Some(spec) = &set.template.spec else { return 0 };
    let mut found = Map::new();
    let mut note = |name: &str, value: Value| {
        let nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !nothing {
            found.insert(name.to_owned(), value);
        }
    };
    let affinity = spec.affinity.as_ref();
    note("nodes", json!(required_terms(spec)));
    note("near", json!(near(affinity)));
    note("apart", json!(apart(affinity)));
    note("spread", spread(spec));
    note("volumes", json!(spec.volumes.iter().flatten().filter_map(claim).collect::<Vec<_>>()));
    note("claims", json!(spec.resource_claims));
    note("ports", json!(host_ports(spec)));
    note("runtime", json!(spec.runtime_class_name));
    let scheduler = spec.scheduler_name.as_deref().filter(|name| !name.is_empty() && *name != DEFAULT_SCHEDULER);
    note("scheduler", json!(scheduler));
    note("node", json!(spec.node_name));
    if found.is_empty() {
        return 0;
    }
    let hash: [u8; 32] = Sha256::digest(Value::Object(found).to_string()).into();
    hash.first_chunk().map_or(1, |bytes| u64::from_be_bytes(*bytes).max(1))
}

fn near(affinity: Option<&Affinity>) -> Vec<&str> {
    let pods = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    topology_keys(pods.and_then(|pods| pods.required_during_scheduling_ignored_during_execution.as_ref()))
}

fn apart(affinity: Option<&Affinity>) -> Vec<&str> {
    let pods = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    topology_keys(pods.and_then(|pods| pods.required_during_scheduling_ignored_during_execution.as_ref()))
}

fn topology_keys(terms: Option<&Vec<PodAffinityTerm>>) -> Vec<&str> {
    terms.into_iter().flatten().map(|term| term.topology_key.as_str()).collect()
}

fn spread(spec: &PodSpec) -> Value {
    let hard =
        spec.topology_spread_constraints.iter().flatten().filter(|one| one.when_unsatisfiable == "DoNotSchedule");
    hard.map(|one| json!([one.topology_key, one.max_skew, one.min_domains])).collect()
}

fn claim(volume: &Volume) -> Option<Value> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(json!({"claim": claim.claim_name}));
    }
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    Some(json!({"class": template.spec.storage_class_name, "modes": template.spec.access_modes}))
}

fn host_ports(spec: &PodSpec) -> Vec<i32> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| port.host_port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: Value) -> u64 {
        let set = json!({"name": "main", "count": 1, "template": {"spec": spec}});
        placement_constraints(&serde_json::from_value(set).expect("pod set"))
    }

    fn affinity(kind: &str, term: &Value) -> Value {
        json!({"containers": [], "affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": term}}})
    }

    #[test]
    fn what_narrows_the_nodes_tells_pods_apart() {
        let free = json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}],
            "schedulerName": "default-scheduler", "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]});
        assert_eq!(of(free), 0);
        let terms = |value: &str| {
            let label = json!({"key": "disk", "operator": "In", "values": [value]});
            affinity("nodeAffinity", &json!({"nodeSelectorTerms": [{"matchExpressions": [label]}]}))
        };
        let near = |key: &str, job: &str| {
            let term = json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"job": job}}}]);
            affinity("podAffinity", &term)
        };
        let bound = [
            terms("a"),
            terms("b"),
            near("zone", "a"),
            near("rack", "a"),
            affinity("podAntiAffinity", &json!([{"topologyKey": "zone"}])),
            json!({"containers": [], "topologySpreadConstraints":
                [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}),
            json!({"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
            json!({"containers": [], "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate":
                {"spec": {"storageClassName": "fast"}}}}]}),
            json!({"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}),
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
            json!({"containers": [], "runtimeClassName": "vm"}),
            json!({"containers": [], "schedulerName": "other"}),
            json!({"containers": [], "nodeName": "n1"}),
        ];
        let digests: std::collections::BTreeSet<u64> = bound.iter().cloned().map(of).collect();
        assert_eq!(digests.len(), bound.len(), "each of its own");
        assert!(!digests.contains(&0), "{digests:?}");
        assert_eq!(of(near("zone", "a")), of(near("zone", "b")), "each job names its own pods");
    }
}
