//! Constraints on the nodes of pods other than requests, node selector and tolerations.

use crate::needs::required_terms;
use crate::pods::shape_with;
use crate::requests::Quantities;
use berth_api::{PodSet, PodSetTopologyRequest};
use berth_quantity::{Nano, parse_quantity};
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodSpec, Volume};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Name of the scheduler for pods that name no scheduler.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Digest of the constraints that may keep the pods of a pod set from nodes that are suitable by requests and node selector: required affinity, spread
/// constraints, volume claims, resource claims, host ports, runtime class, scheduler and node name. The digest of no constraints is 0. The digest contains only
/// the topology keys of pod affinity, because its label selectors differ between equal jobs, each of which selects its own pods.
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
    digest(&Value::Object(found))
}

/// Digest of the fields of a pod spec that Kueue compares in order to find equal workloads: requests and ports of each container, node selector, affinity and
/// spread constraints including preferences, tolerations, priority, runtime class, resource claims, and the topology request.
#[must_use]
pub fn template_shape(spec: &PodSpec, place: Option<&PodSetTopologyRequest>) -> u64 {
    let shape = shape_with(spec, amounts);
    match place {
        None => digest(&shape),
        Some(place) => digest(&json!([shape, place])),
    }
}

/// Resource amounts as texts that do not depend on the notation of quantities.
fn amounts(quantities: Option<&Quantities>) -> Value {
    let amount = |text: &str| parse_quantity(text).map_or_else(|_| text.to_owned(), |Nano(nano)| nano.to_string());
    let all = quantities.into_iter().flatten();
    all.map(|(resource, quantity)| (resource.clone(), Value::String(amount(&quantity.0)))).collect()
}

fn digest(value: &Value) -> u64 {
    let hash: [u8; 32] = Sha256::digest(value.to_string()).into();
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
    use crate::limits::LimitSummary;
    use crate::needs::spec_as_run;
    use crate::requests::RequestRules;

    fn set(spec: Value) -> PodSet {
        serde_json::from_value(json!({"name": "main", "count": 1, "template": {"spec": spec}})).expect("pod set")
    }

    fn of(spec: Value) -> u64 {
        placement_constraints(&set(spec))
    }

    fn shape(spec: Value) -> u64 {
        shape_at(spec, None)
    }

    fn shape_at(spec: Value, place: Option<&PodSetTopologyRequest>) -> u64 {
        let spec = set(spec).template.spec.expect("pod spec");
        template_shape(&spec_as_run(&spec, &LimitSummary::default(), |_| None, &RequestRules::default()), place)
    }

    #[test]
    fn template_shapes_differ_only_where_kueue_distinguishes_pods() {
        let container = |requests: Value| json!({"name": "c", "resources": {"requests": requests}});
        let plain = || json!({"containers": [container(json!({"cpu": "1"}))]});
        let with = |field: &str, value: Value| {
            let mut spec = plain();
            spec[field] = value;
            shape(spec)
        };
        let base = shape(plain());
        for (field, value) in [
            ("containers", json!([{"name": "d", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}])),
            ("containers", json!([{"name": "c", "resources": {"limits": {"cpu": "1"}}}])),
            ("schedulerName", json!("other")),
            ("nodeName", json!("n1")),
            ("volumes", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])),
        ] {
            assert_eq!(with(field, value), base, "{field}");
        }
        for (field, value) in [
            ("containers", json!([container(json!({"cpu": "500m"})), container(json!({"cpu": "500m"}))])),
            (
                "containers",
                json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}]),
            ),
            ("priority", json!(5)),
            ("nodeSelector", json!({"a": "b"})),
            ("tolerations", json!([{"operator": "Exists"}])),
            (
                "topologySpreadConstraints",
                json!([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]),
            ),
            ("runtimeClassName", json!("vm")),
            ("resources", json!({"requests": {"cpu": "1"}})),
        ] {
            assert_ne!(with(field, value), base, "{field}");
        }
        let at = |place: Value| shape_at(plain(), Some(&serde_json::from_value(place).expect("topology request")));
        let places =
            [json!({}), json!({"podIndexLabel": "i"}), json!({"required": "rack"}), json!({"required": "block"})];
        let mut shapes: std::collections::BTreeSet<u64> = places.into_iter().map(at).collect();
        shapes.insert(base);
        assert_eq!(shapes.len(), 5, "each wish about the place is one of its own");
    }

    fn affinity(kind: &str, term: &Value) -> Value {
        json!({"containers": [], "affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": term}}})
    }

    #[test]
    fn placement_constraints_that_narrow_nodes_have_distinct_digests() {
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
