//! Rules about a change of a Workload, which compare the stored object with the new object.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::alike::alike;
use super::field_error::{FieldError, supported};
use super::metadata::admission_gates;
use crate::conditions::{is_true, types};
use crate::json::to_text;
use crate::labels::{ADMISSION_GATED_BY, ELASTIC_JOB, WORKLOAD_SLICE_REPLACEMENT_FOR};
use crate::{Admission, PodSet, Workload, WorkloadStatus};

/// Faults of a change of a Workload. A Workload with quota keeps its pod sets and its admission, and the pod set updates of admission checks that are
/// ready. The number of a Workload's reclaimable pods does not decrease, and admission gates are not added after its creation.
pub fn validate_workload_update(old: &Workload, new: &Workload) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let none = WorkloadStatus::default();
    let (before, after) = (old.status.as_ref().unwrap_or(&none), new.status.as_ref().unwrap_or(&none));
    let reserved = |status: &WorkloadStatus| is_true(&status.conditions, types::QUOTA_RESERVED);
    if reserved(before) && !same_pod_sets(old, new) {
        errors.push(FieldError::new("spec.podSets", counts(new), "is immutable while quota is reserved"));
    }
    if reserved(before) && reserved(after) {
        reclaimable(before, after, &shrunk(new), &mut errors);
    }
    if let (Some(before), Some(after)) = (&before.admission, &after.admission)
        && !alike(&fixed(before), &fixed(after))
    {
        let message = "is immutable, except that it may be set and cleared";
        errors.push(FieldError::new("status.admission", shown(after), message));
    }
    ready_checks(before, after, &mut errors);
    // A replacement slice runs in the worker cluster of the slice that it replaces, which need not be nominated.
    let replaces =
        new.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(WORKLOAD_SLICE_REPLACEMENT_FOR));
    if let (None, Some(name)) = (&before.cluster_name, &after.cluster_name)
        && !replaces
        && !before.nominated_cluster_names.contains(name)
    {
        let nominated = before.nominated_cluster_names.iter().map(String::as_str);
        errors.push(supported("status.clusterName".to_owned(), name, nominated));
    }
    errors.extend(validate_admission_gates_update(&old.metadata, &new.metadata));
    errors
}

/// Fault of a change of admission gates: gates may only be removed. The rules about the metadata of a Workload report an annotation with admission gates that
/// cannot be read.
pub fn validate_admission_gates_update(old: &ObjectMeta, new: &ObjectMeta) -> Option<FieldError> {
    let new = new.annotations.as_ref()?;
    let before = old.annotations.as_ref().and_then(|old| admission_gates(old).ok()).unwrap_or_default();
    let after = admission_gates(new).ok()?;
    let added = after.iter().find(|name| !before.contains(name))?;
    let message = format!("{added:?} must not be added after creation; names may only be removed");
    let value = new.get(ADMISSION_GATED_BY).cloned().unwrap_or_default();
    Some(FieldError::new(format!("metadata.annotations[{ADMISSION_GATED_BY}]"), value, message))
}

/// Whether pod sets are equal except for the counts of an elastic job, which may decrease. Kueue lets any client decrease any count while its gate
/// ElasticJobsViaWorkloadSlices is on, and with the count the Workload loses quota of pods that still run.
fn same_pod_sets(old: &Workload, new: &Workload) -> bool {
    let elastic = is_elastic(old) && is_elastic(new);
    old.spec.pod_sets.len() == new.spec.pod_sets.len()
        && old.spec.pod_sets.iter().zip(&new.spec.pod_sets).all(|(old, new)| {
            let mut same = new.clone();
            same.count = old.count;
            let fewer = new.effective_count() < old.effective_count();
            (new.count == old.count || fewer && elastic) && alike(&same, old)
        })
}

fn is_elastic(workload: &Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ELASTIC_JOB)).is_some_and(|value| value == "true")
}

/// Pod sets of an elastic Workload with fewer pods than were admitted: the number of reclaimable pods of these pod sets may decrease.
fn shrunk(workload: &Workload) -> BTreeSet<&str> {
    let size = |name: &str| {
        let set = workload.spec.pod_sets.iter().find(|set| set.effective_name() == name);
        set.map_or(0, PodSet::effective_count)
    };
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let admission = admission.filter(|_| is_elastic(workload));
    let assigned = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
    let fewer = assigned.filter(|set| set.count.is_some_and(|count| count > size(set.effective_name())));
    fewer.map(|set| set.effective_name()).collect()
}

/// Largest number of bytes of an object in an error.
const SHOWN: usize = 512;

/// An object as JSON, cut as an error shows it.
fn shown(value: &impl Serialize) -> String {
    let mut text = to_text(value);
    if text.len() > SHOWN {
        text.truncate(text.floor_char_boundary(SHOWN));
        text.push_str("...");
    }
    text
}

/// The pod sets of a Workload by name and number of pods, because their templates would be too long for an error.
fn counts(workload: &Workload) -> String {
    let sets = workload.spec.pod_sets.iter();
    let sets: Vec<String> = sets.map(|set| format!("{} x{}", set.effective_name(), set.effective_count())).collect();
    sets.join(", ")
}

fn reclaimable(before: &WorkloadStatus, after: &WorkloadStatus, shrunk: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    for old in before.reclaimable_pods.iter().filter(|pods| !shrunk.contains(pods.name.as_str())) {
        let path = format!("status.reclaimablePods[{}].count", old.name);
        match after.reclaimable_pods.iter().find(|pods| pods.name == old.name) {
            None => errors.push(FieldError::new(path, "", "must not be removed while quota is reserved")),
            Some(new) if new.count < old.count => {
                let message = format!("must not become less than {} while quota is reserved", old.count);
                errors.push(FieldError::new(path, new.count.to_string(), message));
            }
            Some(_) => {}
        }
    }
}

/// The admission without the placements of its pods, which may be decided later.
fn fixed(admission: &Admission) -> Admission {
    let mut fixed = admission.clone();
    for assignment in &mut fixed.pod_set_assignments {
        assignment.topology_assignment = None;
        assignment.delayed_topology_request = None;
    }
    fixed
}

fn ready_checks(before: &WorkloadStatus, after: &WorkloadStatus, errors: &mut Vec<FieldError>) {
    for (index, check) in after.admission_checks.iter().enumerate().filter(|(_, check)| check.state == "Ready") {
        let old = before.admission_checks.iter().find(|old| old.name == check.name && old.state == "Ready");
        if old.is_some_and(|old| !alike(&old.pod_set_updates, &check.pod_set_updates)) {
            let path = format!("status.admissionChecks[{index}].podSetUpdates");
            let value = shown(&check.pod_set_updates);
            errors.push(FieldError::new(path, value, "is immutable while the check stays Ready"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workload(count: i32, status: Value, annotations: Value) -> Workload {
        let set = json!({"name": "main", "count": count, "template": {"spec": {"containers": [{"name": "c"}]}}});
        serde_json::from_value(json!({
            "metadata": {"annotations": annotations}, "spec": {"podSets": [set]}, "status": status,
        }))
        .unwrap()
    }

    fn reserved(more: Value) -> Value {
        let mut status = json!({
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 3}]},
        });
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        status
    }

    /// Faults of a change of a Workload, each as a text with field and message.
    fn refused(old: &Workload, new: &Workload) -> Vec<String> {
        let errors = validate_workload_update(old, new).into_iter();
        errors.map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    const POD_SETS: &str = "spec.podSets: is immutable while quota is reserved";
    const LESS: &str = "status.reclaimablePods[main].count: must not become less than 2 while quota is reserved";
    const NONE: &str = "status.reclaimablePods[main].count: must not be removed while quota is reserved";

    #[test]
    fn refused_workload_update_shows_rejected_value_cut_to_length() {
        let held = |queue: &str, template: &str| {
            let updates = json!([{"name": "main", "labels": {"a": template}}]);
            let mut held = workload(
                3,
                reserved(json!({"admission": {"clusterQueue": queue}, "admissionChecks": [
                {"name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "podSetUpdates": updates}]})),
                json!({}),
            );
            held.spec.pod_sets[0].template.spec.as_mut().unwrap().host_network = Some(template == "y");
            held
        };
        let long = "ä".repeat(SHOWN);
        let messages = |queue: &str| -> Vec<String> {
            let found = validate_workload_update(&held("q", "x"), &held(queue, "y"));
            found.iter().map(ToString::to_string).collect()
        };
        let lines = messages("other");
        let [sets, admission, updates] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(sets.starts_with("spec.podSets: Invalid value: \"main x3\": is immutable"), "{sets}");
        assert!(
            admission.starts_with("status.admission: Invalid value: ") && admission.contains("other"),
            "{admission}"
        );
        let path = "status.admissionChecks[0].podSetUpdates: Invalid value: ";
        assert!(updates.starts_with(path) && updates.contains("labels"), "{updates}");
        assert!(messages(&long).iter().all(|line| line.len() < 3 * SHOWN), "what is long is cut");
    }

    #[test]
    fn pod_sets_are_immutable_while_workload_holds_quota() {
        let none = json!({});
        let (held, free) = (workload(3, reserved(json!({})), none.clone()), workload(3, json!({}), none.clone()));
        assert_eq!(refused(&held, &workload(2, reserved(json!({})), none.clone())), [POD_SETS]);
        assert_eq!(refused(&free, &workload(2, json!({}), none.clone())), [""; 0]);
        // A client may not give up a Workload's quota and change its pod sets in one write, because the running job has the old pod sets.
        assert_eq!(refused(&held, &workload(2, json!({}), none)), [POD_SETS]);
        let elastic = json!({ELASTIC_JOB: "true"});
        let old = workload(3, reserved(json!({})), elastic.clone());
        assert_eq!(refused(&old, &workload(2, reserved(json!({})), elastic.clone())), [""; 0]);
        assert_eq!(refused(&old, &workload(4, reserved(json!({})), elastic)), [POD_SETS]);
        let least = |count: i32| {
            let mut least = workload(count, reserved(json!({})), json!({}));
            least.spec.pod_sets[0].min_count = Some(1);
            least
        };
        // Only Berth decides which jobs run with fewer pods than requested, and no webhook reviews Berth's own writes.
        assert_eq!(refused(&least(3), &least(2)), [POD_SETS]);
        assert_eq!(refused(&least(3), &least(4)), [POD_SETS]);
    }

    #[test]
    fn workload_written_back_in_go_notation_is_accepted() {
        let held = |cpu: &str, template: Value| {
            let updates = json!([{"name": "main", "labels": {"a": ""}, "tolerations": [{"key": "k", "value": cpu}]}]);
            let usage = json!([{"name": "main", "count": 3, "resourceUsage": {"cpu": cpu}}]);
            let status = reserved(json!({
                "admission": {"clusterQueue": "q", "podSetAssignments": usage},
                "admissionChecks": [{"name": "c", "state": "Ready", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "podSetUpdates": updates}],
            }));
            let mut held = workload(3, status, json!({}));
            held.spec.pod_sets[0].template = serde_json::from_value(template).unwrap();
            held
        };
        let ours = json!({"spec": {"hostNetwork": false, "containers": [
            {"name": "c", "env": [{"name": "A", "value": ""}], "resources": {"requests": {"cpu": "1000m"}}},
            {"name": "d"}]}});
        let theirs = |cpu: &str| {
            json!({"metadata": {}, "spec": {"containers": [
            {"name": "c", "env": [{"name": "A"}], "resources": {"requests": {"cpu": cpu}}},
            {"name": "d", "resources": {}}]}})
        };
        assert_eq!(refused(&held("3", ours.clone()), &held("3", theirs("1"))), [""; 0]);
        assert_eq!(refused(&held("3", ours.clone()), &held("3", theirs("2"))), [POD_SETS]);
        let usage = |cpu: &str| {
            let mut held = held("3", ours.clone());
            let sets = &mut held.status.as_mut().unwrap().admission.as_mut().unwrap().pod_set_assignments;
            sets[0].resource_usage = serde_json::from_value(json!({"cpu": cpu})).unwrap();
            held
        };
        assert_eq!(refused(&usage("3000m"), &usage("3")), [""; 0]);
        assert_eq!(
            refused(&usage("3"), &usage("6")),
            ["status.admission: is immutable, except that it may be set and cleared"]
        );
    }

    #[test]
    fn admission_may_be_set_and_cleared_but_not_changed() {
        let none = json!({});
        let held = workload(3, reserved(json!({})), none.clone());
        let other = json!({"admission": {"clusterQueue": "other"}});
        let changed = "status.admission: is immutable, except that it may be set and cleared";
        assert_eq!(refused(&held, &workload(3, reserved(other), none.clone())), [changed]);
        assert_eq!(refused(&held, &workload(3, json!({}), none.clone())), [""; 0]);
        assert_eq!(refused(&workload(3, json!({}), none.clone()), &held), [""; 0]);
        let placed = json!({"admission": {"clusterQueue": "q", "podSetAssignments": [
            {"name": "main", "count": 3, "delayedTopologyRequest": "Ready"}]}});
        assert_eq!(refused(&held, &workload(3, reserved(placed), none)), [""; 0]);
    }

    #[test]
    fn reclaimable_pods_may_not_decrease_while_quota_is_held() {
        let pods = |count: i32| reserved(json!({"reclaimablePods": [{"name": "main", "count": count}]}));
        let none = json!({});
        let old = workload(3, pods(2), none.clone());
        assert_eq!(refused(&old, &workload(3, pods(1), none.clone())), [LESS]);
        assert_eq!(refused(&old, &workload(3, reserved(json!({})), none.clone())), [NONE]);
        assert_eq!(refused(&old, &workload(3, pods(3), none.clone())), [""; 0]);
        assert_eq!(refused(&old, &workload(3, json!({}), none)), [""; 0]);
    }

    #[test]
    fn reclaimable_pods_of_elastic_workload_may_decrease_when_it_shrinks() {
        let pods = |count: i32| reserved(json!({"reclaimablePods": [{"name": "main", "count": count}]}));
        let elastic = json!({ELASTIC_JOB: "true"});
        let old = workload(3, pods(2), elastic.clone());
        assert_eq!(refused(&old, &workload(2, pods(1), elastic.clone())), [""; 0]);
        assert_eq!(refused(&old, &workload(2, reserved(json!({})), elastic.clone())), [""; 0]);
        assert_eq!(refused(&old, &workload(3, pods(1), elastic)), [LESS]);
        let plain = workload(3, pods(2), json!({}));
        assert_eq!(refused(&plain, &workload(2, pods(1), json!({}))), [POD_SETS, LESS]);
    }

    #[test]
    fn ready_check_cluster_name_and_gates_change_only_as_allowed() {
        let none = json!({});
        let check = |state: &str, value: &str| {
            let updates = json!([{"name": "main", "labels": {"a": value}}]);
            let check = json!({"name": "c", "state": state, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "podSetUpdates": updates});
            workload(3, json!({"admissionChecks": [check]}), none.clone())
        };
        let field = "status.admissionChecks[0].podSetUpdates: is immutable while the check stays Ready";
        assert_eq!(refused(&check("Ready", "x"), &check("Ready", "y")), [field]);
        assert_eq!(refused(&check("Pending", "x"), &check("Ready", "y")), [""; 0]);
        let nominated = workload(3, json!({"nominatedClusterNames": ["a"]}), none.clone());
        assert_eq!(refused(&nominated, &workload(3, json!({"clusterName": "a"}), none.clone())), [""; 0]);
        assert_eq!(
            refused(&nominated, &workload(3, json!({"clusterName": "b"}), none.clone())),
            ["status.clusterName: supported values: \"a\""]
        );
        let slice = |status: Value| workload(3, status, json!({WORKLOAD_SLICE_REPLACEMENT_FOR: "team/older"}));
        assert_eq!(refused(&slice(json!({})), &slice(json!({"clusterName": "b"}))), [""; 0]);
        let gated = |names: &str| workload(3, json!({}), json!({ADMISSION_GATED_BY: names}));
        let added = "\"a.io/y\" must not be added after creation; names may only be removed";
        let field = format!("metadata.annotations[{ADMISSION_GATED_BY}]: {added}");
        assert_eq!(refused(&gated("a.io/x,a.io/y"), &gated("a.io/y")), [""; 0]);
        assert_eq!(refused(&gated("a.io/x"), &gated("a.io/x,a.io/y")), [field.as_str()]);
        assert_eq!(refused(&workload(3, json!({}), none), &gated("a.io/y")), [field]);
    }
}
