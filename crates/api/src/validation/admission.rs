//! Fit of an admission to the pod sets of its Workload: an admission that does not fit is invalid, and no pods may run under it
//! (`docs/departures/0033-admissions-fit.md`).

use super::field_error::{FieldError, supported};
use crate::conditions::{is_true, types};
use crate::labels::ELASTIC_JOB;
use crate::{PodSet, Workload, WorkloadStatus, berth};

/// Faults of a Workload's admission compared with its pod sets, while the Workload holds quota. The admission must have each pod set of the Workload
/// once and no other pod set, and an allowed number of pods for each. The number of pods of a pod set in the admission may include pods that have
/// ended since the quota was reserved.
pub fn misfit(workload: &Workload) -> Vec<FieldError> {
    let reserved = workload.status.as_ref().filter(|status| is_true(&status.conditions, types::QUOTA_RESERVED));
    let Some((status, admission)) = reserved.and_then(|status| Some((status, status.admission.as_ref()?))) else {
        return Vec::new();
    };
    let (sets, field) = (&workload.spec.pod_sets, "status.admission.podSetAssignments");
    let shrinks = may_shrink(workload);
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::with_capacity(sets.len());
    for (index, assignment) in admission.pod_set_assignments.iter().enumerate() {
        let name = assignment.effective_name();
        let Some(set) = sets.iter().find(|set| set.effective_name() == name) else {
            let known = sets.iter().map(PodSet::effective_name);
            errors.push(supported(format!("{field}[{index}].name"), name, known));
            continue;
        };
        if seen.contains(&name) {
            errors.push(FieldError::new(format!("{field}[{index}].name"), name, "must be unique"));
        }
        seen.push(name);
        if let Some((count, message)) =
            assignment.count.and_then(|count| Some((count, wrong(count, set, status, shrinks)?)))
        {
            errors.push(FieldError::new(format!("{field}[{index}].count"), count.to_string(), message));
        }
    }
    for name in sets.iter().map(PodSet::effective_name).filter(|name| !seen.contains(name)) {
        errors.push(FieldError::new(field, "", format!("must have one for each pod set: none is for {name:?}")));
    }
    errors
}

/// Reason why a pod set cannot be admitted with `count` pods; `None` if `count` is allowed.
fn wrong(count: i32, set: &PodSet, status: &WorkloadStatus, shrinks: bool) -> Option<String> {
    let name = set.effective_name();
    let over = status.reclaimable_pods.iter().find(|pods| pods.name == name).map_or(0, |pods| pods.count.max(0));
    let all = set.effective_count();
    let left = all.saturating_sub(over).max(0);
    let least = set.min_count.map_or(left, |least| least.min(left));
    if count < least {
        return Some(format!("must be enough for its pod set: at least {least}"));
    }
    (count > all && !shrinks).then(|| format!("must not be more than its pod set has: {all}"))
}

/// Whether the pod sets of a Workload may become smaller while it holds quota for more: true for elastic jobs and TrainingJobs.
fn may_shrink(workload: &Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    let elastic = annotations.and_then(|all| all.get(ELASTIC_JOB)).is_some_and(|value| value == "true");
    let mut owners = workload.metadata.owner_references.iter().flatten();
    let group = |version: &str| version.split_once('/').is_some_and(|(group, _)| group == berth::GROUP);
    elastic || owners.any(|owner| owner.controller == Some(true) && group(&owner.api_version))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::validation::{newly_broken, validate_workload};

    /// A Workload with quota, `over` ended pods and the pod set assignments `assignments`. The Workload's pod set `main` has three pods, or `least`
    /// to three, and its pod set `head` has one pod.
    fn reserved(least: Option<i32>, over: i32, assignments: Value) -> Workload {
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let sets = json!([
            {"name": "main", "count": 3, "minCount": least, "template": template},
            {"name": "head", "count": 1, "template": template},
        ]);
        let condition = json!({"type": "QuotaReserved", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition], "reclaimablePods": [{"name": "main", "count": over}],
            "admission": {"clusterQueue": "q", "podSetAssignments": assignments}});
        serde_json::from_value(json!({"metadata": {}, "spec": {"podSets": sets}, "status": status})).unwrap()
    }

    fn with_count(least: Option<i32>, over: i32, count: Option<i32>) -> Vec<String> {
        let workload = reserved(least, over, json!([{"name": "main", "count": count}, {"name": "head", "count": 1}]));
        misfit(&workload).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn admitted_count_below_remaining_pods_or_above_total_is_refused() {
        let few = "status.admission.podSetAssignments[0].count: Invalid value: \"X\": must be enough for its pod set: at least";
        let many = "status.admission.podSetAssignments[0].count: Invalid value: \"X\": must not be more than its pod set has: 3";
        for (least, over, count, messages) in [
            (None, 0, 3, None),
            (None, 0, 2, Some(format!("{few} 3"))),
            (None, 0, 0, Some(format!("{few} 3"))),
            (None, 0, -1, Some(format!("{few} 3"))),
            (None, 0, 4, Some(many.to_owned())),
            (None, 1, 2, None),
            (None, 1, 3, None),
            (None, 1, 1, Some(format!("{few} 2"))),
            (None, 3, 0, None),
            (None, 9, 0, None),
            (None, -9, 2, Some(format!("{few} 3"))),
            (Some(2), 0, 2, None),
            (Some(2), 0, 1, Some(format!("{few} 2"))),
            (Some(2), 2, 1, None),
            (Some(2), 2, 0, Some(format!("{few} 1"))),
            (Some(2), 0, 4, Some(many.to_owned())),
        ] {
            let messages: Vec<String> =
                messages.map(|messages| messages.replace('X', &count.to_string())).into_iter().collect();
            assert_eq!(with_count(least, over, Some(count)), messages, "{least:?} {over} {count}");
        }
        assert_eq!(with_count(None, 0, None), [""; 0], "that of the pod set");
    }

    #[test]
    fn admission_without_one_assignment_for_each_pod_set_is_refused() {
        let field = "status.admission.podSetAssignments";
        let messages = |assignments: Value| -> Vec<String> {
            misfit(&reserved(None, 0, assignments)).iter().map(ToString::to_string).collect()
        };
        let main = json!({"name": "main", "count": 3});
        assert_eq!(messages(json!([main])), [format!("{field}: must have one for each pod set: none is for \"head\"")]);
        let head = json!({"name": "head", "count": 1});
        assert_eq!(messages(json!([head, main])), [""; 0], "in any order");
        assert_eq!(
            messages(json!([main, head, head])),
            [format!("{field}[2].name: Invalid value: \"head\": must be unique")]
        );
        let other = json!({"name": "other", "count": 1});
        let known = format!("{field}[2].name: Invalid value: \"other\": supported values: \"main\", \"head\"");
        assert_eq!(messages(json!([main, head, other])), [known]);
    }

    #[test]
    fn scaled_down_elastic_workload_may_keep_quota_for_more_pods() {
        let smaller = || reserved(None, 0, json!([{"name": "main", "count": 4}, {"name": "head", "count": 1}]));
        assert_eq!(misfit(&smaller()).len(), 1);
        let mut elastic = smaller();
        elastic.metadata.annotations = Some([(ELASTIC_JOB.to_owned(), "true".to_owned())].into());
        assert_eq!(misfit(&elastic), []);
        let mut owned = smaller();
        let owner = json!([{"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "name": "t", "uid": "u", "controller": true}]);
        owned.metadata.owner_references = serde_json::from_value(owner).unwrap();
        assert_eq!(misfit(&owned), []);
    }

    #[test]
    fn misfit_admission_stored_earlier_allows_updates_but_no_new_misfit() {
        let stored =
            |over: i32| reserved(None, over, json!([{"name": "main", "count": 1}, {"name": "head", "count": 1}]));
        let broken = |over: i32| validate_workload(&stored(over));
        assert_eq!(broken(0).len(), 1);
        assert_eq!(newly_broken(broken(1), &broken(0)), [], "pods of it end");
        let worse = reserved(None, 0, json!([{"name": "main", "count": 2}, {"name": "head", "count": 1}]));
        assert_eq!(newly_broken(validate_workload(&worse), &broken(0)).len(), 1);
    }

    #[test]
    fn admitted_condition_without_quota_reservation_is_refused() {
        let with = |reserved: &str| {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "R",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let conditions = json!([condition("QuotaReserved", reserved), condition("Admitted", "True")]);
            let template = json!({"spec": {"containers": [{"name": "c"}]}});
            let status = json!({"conditions": conditions, "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]}});
            let object = json!({"metadata": {}, "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
                "status": status});
            let found = validate_workload(&serde_json::from_value(object).unwrap());
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(with("True"), [""; 0]);
        let messages =
            "status.conditions[Admitted].status: Invalid value: \"True\": must not be True while QuotaReserved is not";
        assert_eq!(with("False"), [messages]);
    }
}
