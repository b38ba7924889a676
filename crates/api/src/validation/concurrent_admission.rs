//! Rules about the concurrent admission policy of a ClusterQueue, by which several flavors are tried for a Workload at the same time.

use std::collections::BTreeSet;

use super::field_error::{FieldError, supported};
use crate::json::to_text;
use crate::{ClusterQueue, ClusterQueueSpec, ConcurrentAdmissionPolicy};

/// Largest number of flavors that are tried at the same time.
const MAX_VARIANTS: usize = 16;
const GROUPS: &str = "spec.resourceGroups";
/// The migration mode in which a Workload moves to better flavors.
const MOVES: &str = "TryPreferredFlavors";

/// Faults of a change of a ClusterQueue's concurrent admission policy. The policy is immutable, because existing variants of Workloads were created
/// under the old policy.
pub fn validate_cluster_queue_update(old: &ClusterQueue, new: &ClusterQueue) -> Vec<FieldError> {
    let policy = |queue: &ClusterQueue| queue.spec.concurrent_admission_policy.clone();
    if policy(old) == policy(new) {
        return Vec::new();
    }
    let shown = policy(new).or_else(|| policy(old));
    let value = shown.map(|policy| to_text(&policy)).unwrap_or_default();
    vec![FieldError::new("spec.concurrentAdmissionPolicy", value, "is immutable: make the ClusterQueue anew")]
}

/// Faults of a ClusterQueue with a concurrent admission policy; the caller checks the feature gate ConcurrentAdmission.
pub fn validate_concurrent_admission(queue: &ClusterQueue) -> Vec<FieldError> {
    let spec = &queue.spec;
    let Some(policy) = &spec.concurrent_admission_policy else { return Vec::new() };
    let mut errors = Vec::new();
    match spec.resource_groups.as_slice() {
        [group] if group.flavors.len() > MAX_VARIANTS => {
            let message = format!("must be at most {MAX_VARIANTS} with spec.concurrentAdmissionPolicy");
            errors.push(FieldError::new(format!("{GROUPS}[0].flavors"), group.flavors.len().to_string(), message));
        }
        [_] => {}
        groups => {
            let message = "must be exactly one resourceGroup with spec.concurrentAdmissionPolicy";
            errors.push(FieldError::new(GROUPS, groups.len().to_string(), message));
        }
    }
    errors.extend(migration_limits(spec, policy));
    if spec.queueing_strategy.as_deref() == Some("StrictFIFO") {
        let message = "must not be StrictFIFO with spec.concurrentAdmissionPolicy; BestEffortFIFO is allowed";
        errors.push(FieldError::new("spec.queueingStrategy", "StrictFIFO", message));
    }
    errors
}

/// Fault of the limits of migration. Only a policy that moves Workloads to better flavors can name the last acceptable flavor.
fn migration_limits(spec: &ClusterQueueSpec, policy: &ConcurrentAdmissionPolicy) -> Option<FieldError> {
    let path = "spec.concurrentAdmissionPolicy.migration.constraints";
    let constraints = policy.migration.constraints.as_ref()?;
    let mode = policy.migration.mode.as_str();
    if !mode.is_empty() && mode != MOVES {
        let value = to_text(constraints);
        return Some(FieldError::new(
            path,
            value,
            format!("may only be set when migration.mode is {MOVES}, not {mode}"),
        ));
    }
    let last = constraints.last_acceptable_flavor_name.as_deref()?;
    let flavors: BTreeSet<&str> =
        spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect();
    (!flavors.contains(last))
        .then(|| supported(format!("{path}.lastAcceptableFlavorName"), last, flavors.iter().copied()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn queue(flavors: usize, policy: &Value, more: &[(&str, Value)]) -> ClusterQueue {
        let quota = json!([{"name": "cpu", "nominalQuota": "1"}]);
        let flavors: Vec<Value> =
            (0..flavors).map(|at| json!({"name": format!("f{at}"), "resources": quota})).collect();
        let mut spec = json!({"concurrentAdmissionPolicy": policy,
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]});
        for (field, value) in more {
            spec[*field] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn concurrent_admission_policy_unfit_for_its_queue_is_refused() {
        let mode = |mode: &str| json!({"migration": {"mode": mode}});
        let last = |mode: &str, flavor: &str| json!({"migration": {"mode": mode, "constraints": {"lastAcceptableFlavorName": flavor}}});
        let limits = "spec.concurrentAdmissionPolicy.migration.constraints";
        let strict = ("queueingStrategy", json!("StrictFIFO"));
        let flexible = ("queueingStrategy", json!("BestEffortFIFO"));
        let no_group = ("resourceGroups", json!([]));
        let two = json!([{"coveredResources": ["cpu"], "flavors": []}, {"coveredResources": ["gpu"], "flavors": []}]);
        for (queue, expected) in [
            (queue(2, &Value::Null, std::slice::from_ref(&strict)), vec![]),
            (queue(16, &mode(MOVES), &[flexible]), vec![]),
            (queue(2, &mode("RetainFirstAdmission"), &[]), vec![]),
            (queue(17, &mode(MOVES), &[]), vec!["spec.resourceGroups[0].flavors".to_owned()]),
            (queue(1, &mode(MOVES), &[no_group]), vec![GROUPS.to_owned()]),
            (queue(1, &mode(MOVES), &[("resourceGroups", two)]), vec![GROUPS.to_owned()]),
            (queue(2, &mode(MOVES), &[strict]), vec!["spec.queueingStrategy".to_owned()]),
            (queue(2, &last(MOVES, "f1"), &[]), vec![]),
            (queue(2, &last(MOVES, "f2"), &[]), vec![format!("{limits}.lastAcceptableFlavorName")]),
            (queue(2, &last("RetainFirstAdmission", "f1"), &[]), vec![limits.to_owned()]),
        ] {
            assert_eq!(fields(validate_concurrent_admission(&queue)), expected, "{:?}", queue.spec);
        }
        let message = validate_concurrent_admission(&queue(2, &last(MOVES, "x"), &[]));
        assert_eq!(
            message[0].to_string(),
            format!("{limits}.lastAcceptableFlavorName: Invalid value: \"x\": supported values: \"f0\", \"f1\"")
        );
    }

    #[test]
    fn concurrent_admission_policy_is_immutable() {
        let with = |mode: &str| queue(1, &json!({"migration": {"mode": mode}}), &[]);
        let without = || queue(1, &Value::Null, &[]);
        let (moves, retains) = (|| with(MOVES), || with("RetainFirstAdmission"));
        let field = ["spec.concurrentAdmissionPolicy"];
        for (old, new) in [(moves(), retains()), (moves(), without()), (without(), moves())] {
            assert_eq!(fields(validate_cluster_queue_update(&old, &new)), field, "{:?}", new.spec);
        }
        let stopped = queue(1, &json!({"migration": {"mode": MOVES}}), &[("stopPolicy", json!("Hold"))]);
        assert_eq!(validate_cluster_queue_update(&moves(), &stopped), []);
        assert_eq!(validate_cluster_queue_update(&without(), &without()), []);
    }
}
