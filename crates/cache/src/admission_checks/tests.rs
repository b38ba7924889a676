use serde_json::{Value, json};

use super::*;
use crate::testing::{at, in_seconds, read};

/// A ClusterQueue spec with the flavors `f` and `g` and these checks, each with the flavors that it is for.
fn queue(checks: &[(&str, &[&str])]) -> api::ClusterQueueSpec {
    let rules = checks.iter().map(|(name, flavors)| json!({"name": name, "onFlavors": flavors}));
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("f"), flavor("g")]}]);
    let checks = json!({"admissionChecks": rules.collect::<Vec<Value>>()});
    read(json!({"resourceGroups": groups, "admissionChecksStrategy": checks}))
}

fn check(controller: &str, active: bool) -> Check {
    let status = if active { "True" } else { "False" };
    let condition =
        json!({"type": "Active", "status": status, "reason": "R", "message": "", "lastTransitionTime": at(0)});
    Check::of(&read(
        json!({"metadata": {"name": "c"}, "spec": {"controllerName": controller}, "status": {"conditions": [condition]}}),
    ))
}

#[test]
fn admission_checks_apply_to_workloads_by_flavor() {
    let spec = queue(&[("all", &[]), ("f", &["f"]), ("both", &["f", "g"])]);
    let given = |flavors: Value| -> api::Admission {
        read(json!({"clusterQueue": "q", "podSetAssignments": [{"name": "main", "flavors": flavors}]}))
    };
    assert_eq!(concerning(&spec, None), ["all", "both"], "checks of every flavor");
    assert_eq!(concerning(&spec, Some(&given(json!({"cpu": "f"})))), ["all", "f", "both"]);
    assert_eq!(concerning(&spec, Some(&given(json!({"cpu": "g"})))), ["all", "both"]);
    assert_eq!(concerning(&spec, Some(&given(json!({})))), [""; 0], "without a flavor there is nothing to check");
}

#[test]
fn faults_of_checks_are_found_in_kueues_order() {
    let faults = |spec: &api::ClusterQueueSpec, known: &[(&str, Check)]| {
        let known = known.iter().map(|(name, check)| ((*name).to_owned(), check.clone())).collect();
        problems(spec, &known).into_iter().map(|problem| problem.reason).collect::<Vec<_>>()
    };
    let one = queue(&[("c", &[])]);
    assert_eq!(faults(&one, &[("c", check("x/y", true))]), [""; 0]);
    assert_eq!(faults(&one, &[]), ["AdmissionCheckNotFound"]);
    assert_eq!(faults(&one, &[("c", check("x/y", false))]), ["AdmissionCheckInactive"]);
    let multi = || check("kueue.x-k8s.io/multikueue", true);
    assert_eq!(faults(&queue(&[("c", &["f"])]), &[("c", multi())]), ["MultiKueueAdmissionCheckAppliedPerFlavor"]);
    assert_eq!(
        faults(&queue(&[("c", &[]), ("d", &[])]), &[("c", multi()), ("d", multi())]),
        ["MultipleMultiKueueAdmissionChecks"]
    );
}

#[test]
fn retry_comes_when_the_last_check_allows_it() {
    let states = |all: &[(&str, i64, i64)]| -> Vec<api::AdmissionCheckState> {
        let state = |(state, since, after): &(&str, i64, i64)| {
            read(
                json!({"name": "c", "state": state, "message": "", "lastTransitionTime": at(*since), "requeueAfterSeconds": after}),
            )
        };
        all.iter().map(state).collect()
    };
    assert_eq!(retry_at(&states(&[("Pending", -5, 60)])), None);
    assert_eq!(retry_at(&states(&[("Retry", -5, 60), ("Retry", -50, 10)])), Some(in_seconds(55)));
    assert!(have_failed(&states(&[("Ready", -5, 0), ("Rejected", -5, 0)])));
    assert!(!have_failed(&states(&[("Ready", -5, 0), ("Pending", -5, 0)])));
}
