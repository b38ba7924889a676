//! The needs of a Workload's pod sets: quota and properties of nodes, as plain data.

use crate::limits::{LimitSummary, refused_by, validate_requests};
use crate::requests::{
    Quantities, RequestRules, effective_pod_spec, limits_as_requests, quota_requests, with_own_limits,
};
use berth_api::{PodSet, PodSetTopologyRequest};
use berth_quantity::Amount;
use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PodTemplateSpec, Toleration,
};
use std::collections::BTreeMap;

/// Needs of one pod set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSetNeeds {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods of the pod set.
    pub count: i32,
    /// Smallest accepted number of pods of the pod set.
    pub min_count: Option<i32>,
    /// Requests of one pod, in the units of quota.
    pub requests: BTreeMap<String, Amount>,
    /// The pod template's `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `matchExpressions` of each term of the required node affinity, as alternatives; empty if there is no affinity.
    pub affinity: Vec<Vec<NodeSelectorRequirement>>,
    /// The pod template's tolerations.
    pub tolerations: Vec<Toleration>,
    /// True if the pod set has a topology request.
    pub topology_request: bool,
    /// Name of the pod set group; pod sets of one group get the same flavors.
    pub group: Option<String>,
}

/// Needs of a Workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadNeeds {
    /// Needs of each pod set, in order.
    pub pod_sets: Vec<PodSetNeeds>,
    /// Reason why the Workload may not be admitted: requests that exceed limits, violate LimitRanges, or are no quantities.
    pub refused: Option<String>,
}

/// A pod spec as it will run in a namespace with these LimitRanges. The parameter `overhead` returns the overhead of a RuntimeClass by name.
#[must_use]
pub fn spec_as_run<'a>(
    spec: &PodSpec,
    limits: &LimitSummary,
    overhead: impl Fn(&str) -> Option<&'a Quantities>,
    rules: &RequestRules,
) -> PodSpec {
    let overhead = spec.runtime_class_name.as_deref().and_then(overhead);
    if rules.to_the_letter {
        let mut spec = effective_pod_spec(spec, overhead, limits);
        // Kueue treats every pod-level limit as a request.
        spec.resources.iter_mut().for_each(limits_as_requests);
        return spec;
    }
    effective_pod_spec(&with_own_limits(spec), overhead, limits)
}

/// Needs of pod sets in a namespace with these LimitRanges. The parameter `overhead` returns the overhead of a RuntimeClass by name, empty for a class without
/// overhead. A missing RuntimeClass delays the Workload, because the API server refuses its pods, and the overhead is not known.
#[must_use]
pub fn workload_needs<'a>(
    pod_sets: &[PodSet],
    limits: &LimitSummary,
    overhead: impl Fn(&str) -> Option<&'a Quantities>,
    rules: &RequestRules,
) -> WorkloadNeeds {
    let empty = PodSpec::default();
    let as_run = |set: &PodSet| spec_as_run(set.template.spec.as_ref().unwrap_or(&empty), limits, &overhead, rules);
    let specs: Vec<PodSpec> = pod_sets.iter().map(as_run).collect();
    let mut refused = pod_sets.iter().find_map(|set| lacks_class(set, &overhead)).filter(|_| !rules.to_the_letter);
    refused = refused
        .or_else(|| if rules.to_the_letter { validate_requests(&specs, limits) } else { refused_by(&specs, limits) });
    let needs = pod_sets.iter().zip(specs).map(|(set, spec)| {
        let requests = quota_requests(&spec, rules).unwrap_or_else(|error| {
            refused.get_or_insert_with(|| format!("resources validation failed: {}: {error}", set.effective_name()));
            BTreeMap::new()
        });
        PodSetNeeds {
            name: set.effective_name().to_owned(),
            count: set.effective_count(),
            min_count: set.min_count,
            requests,
            affinity: affinity(&spec),
            node_selector: spec.node_selector.unwrap_or_default(),
            tolerations: spec.tolerations.unwrap_or_default(),
            topology_request: set.topology_request.as_ref().is_some_and(PodSetTopologyRequest::asks),
            group: set.topology_request.as_ref().and_then(|request| request.pod_set_group_name.clone()),
        }
    });
    let pod_sets = needs.collect();
    WorkloadNeeds { pod_sets, refused }
}

/// Message about a RuntimeClass that a pod set names and that does not exist.
fn lacks_class<'a>(set: &PodSet, overhead: &impl Fn(&str) -> Option<&'a Quantities>) -> Option<String> {
    let class = set.template.spec.as_ref()?.runtime_class_name.as_deref().filter(|class| !class.is_empty())?;
    overhead(class)
        .is_none()
        .then(|| format!("RuntimeClass {class:?} of pod set {} does not exist", set.effective_name()))
}

/// A copy of a pod set without fields that [`workload_needs`] does not read: images, commands, environments and volumes. The copy of the pod set is sufficient
/// to compute its needs again after a change of LimitRanges or RuntimeClasses.
#[must_use]
pub fn reduced_pod_set(set: &PodSet) -> PodSet {
    let spec = set.template.spec.as_ref().map(|spec| PodSpec {
        containers: spec.containers.iter().map(reduced_container).collect(),
        init_containers: spec.init_containers.as_ref().map(|all| all.iter().map(reduced_container).collect()),
        overhead: spec.overhead.clone(),
        resources: spec.resources.clone(),
        runtime_class_name: spec.runtime_class_name.clone(),
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.clone(),
        affinity: spec
            .affinity
            .as_ref()
            .map(|affinity| Affinity { node_affinity: affinity.node_affinity.clone(), ..Affinity::default() }),
        ..PodSpec::default()
    });
    PodSet { template: PodTemplateSpec { metadata: None, spec }, ..set.clone() }
}

fn reduced_container(container: &Container) -> Container {
    Container {
        name: container.name.clone(),
        resources: container.resources.clone(),
        restart_policy: container.restart_policy.clone(),
        ..Container::default()
    }
}

fn affinity(spec: &PodSpec) -> Vec<Vec<NodeSelectorRequirement>> {
    required_terms(spec).iter().map(|term| term.match_expressions.clone().unwrap_or_default()).collect()
}

/// Terms of the required node affinity; empty if there is none.
pub(crate) fn required_terms(spec: &PodSpec) -> &[NodeSelectorTerm] {
    let node = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = node.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    required.map(|selector| selector.node_selector_terms.as_slice()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::LimitRange;
    use serde_json::{Value, json};

    fn needs(spec: Value) -> WorkloadNeeds {
        let set: PodSet = serde_json::from_value(json!({"count": 2, "template": {"spec": spec}})).expect("pod set");
        let overhead = BTreeMap::from([("cpu".to_owned(), serde_json::from_value(json!("100m")).expect("quantity"))]);
        let find = |class: &str| (class == "vm").then_some(&overhead);
        workload_needs(&[set], &LimitSummary::default(), find, &RequestRules::default())
    }

    #[test]
    fn workload_needs_are_taken_from_effective_pod_spec() {
        let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchFields": []});
        let found = needs(json!({
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}],
            "runtimeClassName": "vm", "nodeSelector": {"n": "1"}, "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [term, {}]}}},
        }));
        assert_eq!(found.refused, None);
        let [set] = found.pod_sets.as_slice() else { panic!("one pod set") };
        assert_eq!((set.name.as_str(), set.count), ("main", 2));
        assert_eq!(set.requests, BTreeMap::from([("cpu".to_owned(), Amount::new(1100))]));
        assert_eq!(set.affinity.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
        assert_eq!((set.node_selector.len(), set.tolerations.len(), set.topology_request), (1, 1, false));
    }

    #[test]
    fn container_limit_becomes_request_before_limit_range_default() {
        let set = json!({"count": 1, "template": {"spec": {
            "containers": [
                {"name": "limited", "resources": {"limits": {"cpu": "4"}}},
                {"name": "asks", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}},
                {"name": "says-nothing"},
            ],
        }}});
        let set: PodSet = serde_json::from_value(set).expect("pod set");
        let range = json!({"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "500m"}}]}});
        let range: LimitRange = serde_json::from_value(range).expect("LimitRange");
        for (to_the_letter, limited) in [(false, 4000), (true, 500)] {
            let rules = RequestRules { to_the_letter, ..RequestRules::default() };
            let needs = workload_needs(std::slice::from_ref(&set), &LimitSummary::of([&range]), |_| None, &rules);
            assert_eq!(needs.pod_sets[0].requests["cpu"], Amount::new(limited + 1000 + 500));
        }
    }

    #[test]
    fn missing_runtime_class_is_waited_for_by_name() {
        let spec = json!({"containers": [{"name": "c"}], "runtimeClassName": "rc"});
        let set: PodSet =
            serde_json::from_value(json!({"name": "w", "count": 1, "template": {"spec": spec}})).expect("pod set");
        let none = Quantities::new();
        let refused = |class: Option<&Quantities>, to_the_letter| {
            let rules = RequestRules { to_the_letter, ..RequestRules::default() };
            workload_needs(std::slice::from_ref(&set), &LimitSummary::default(), |_| class, &rules).refused
        };
        assert_eq!(refused(None, false).as_deref(), Some("RuntimeClass \"rc\" of pod set w does not exist"));
        assert_eq!((refused(Some(&none), false), refused(None, true)), (None, None));
    }

    #[test]
    fn topology_request_with_only_index_labels_asks_for_no_topology() {
        for (request, asks) in [
            (json!({"podIndexLabel": "index", "subGroupIndexLabel": "group", "subGroupCount": 2}), false),
            (json!({"required": "rack"}), true),
            (json!({"preferred": "rack"}), true),
            (json!({"unconstrained": true}), true),
            (json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}), true),
            (json!({"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 4}]}), true),
        ] {
            let set = json!({"count": 1, "template": {"spec": {"containers": []}}, "topologyRequest": request});
            let set: PodSet = serde_json::from_value(set).expect("pod set");
            let found = workload_needs(&[set], &LimitSummary::default(), |_| None, &RequestRules::default());
            let found: Vec<bool> = found.pod_sets.iter().map(|set| set.topology_request).collect();
            assert_eq!(found, [asks], "{request}");
        }
    }

    #[test]
    fn reduced_pod_set_has_same_needs() {
        let set: PodSet = serde_json::from_value(json!({"name": "w", "count": 3, "minCount": 2, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [{"name": "c", "image": "i", "env": [{"name": "E"}], "resources": {"limits": {"cpu": "1"}}}],
                "initContainers": [
                    {"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
                    {"name": "i", "command": ["x"], "resources": {"requests": {"cpu": "7"}}},
                ],
                "volumes": [{"name": "v"}], "runtimeClassName": "vm", "nodeSelector": {"n": "1"},
                "resources": {"requests": {"memory": "4Gi"}},
                "affinity": {"podAffinity": {}, "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
            },
        }}))
        .expect("pod set");
        let overhead = BTreeMap::from([("cpu".to_owned(), serde_json::from_value(json!("100m")).expect("quantity"))]);
        let needs = |set: &PodSet| {
            let find = |_: &str| Some(&overhead);
            workload_needs(std::slice::from_ref(set), &LimitSummary::default(), find, &RequestRules::default())
        };
        let reduced = reduced_pod_set(&set);
        assert_eq!(needs(&reduced), needs(&set));
        let text = serde_json::to_string(&reduced).expect("JSON");
        assert!(!text.contains("image") && !text.contains("volumes") && !text.contains("labels"), "{text}");
    }

    #[test]
    fn workload_with_invalid_requests_is_refused_with_reason() {
        let with = |requests: Value| needs(json!({"containers": [{"name": "c", "resources": requests}]})).refused;
        assert_eq!(with(json!({"requests": {"cpu": "1"}})), None);
        let over = with(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}));
        assert!(over.is_some_and(|text| text.contains("requests must not exceed its limits")));
        let odd = with(json!({"requests": {"cpu": "two"}}));
        assert!(odd.is_some_and(|text| text.contains("request of cpu") && text.contains("two")));
    }
}
