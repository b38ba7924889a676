use super::*;
use berth_api::{AdmissionCheckState, PodSetAssignment};
use serde_json::{Value, json};

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Pod sets of equal workers and driver, and a monitor without accelerators.
fn pod_sets() -> Vec<PodSet> {
    let accelerator = json!({"limits": {"nvidia.com/gpu": "1", "cpu": "2"}});
    let set = |name: &str, image: &str, resources: &Value| {
        json!({"name": name, "count": 3, "template": {"metadata": {"labels": {"app": "train"}},
            "spec": {"containers": [{"name": "c", "image": image, "resources": resources}]}}})
    };
    of(json!([
        set("driver", "train", &accelerator),
        set("worker", "train", &accelerator),
        set("monitor", "watch", &json!({"requests": {"cpu": "2"}})),
        set("other", "other", &accelerator),
    ]))
}

fn placements(counts: &[i32], flavor: &str) -> Vec<Placement> {
    let place = |(set, count): (PodSet, &i32)| {
        let assignment: PodSetAssignment = of(json!({"name": set.name, "count": count, "flavors": {"cpu": "f"}}));
        let about = crate::AdmittedAs { workload: "w", cluster_queue: "cq", local_queue: "lq" };
        let flavor = of(json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": flavor}}}));
        Placement::of(&assignment, 0, about, &Vec::<AdmissionCheckState>::new(), |_| Some(&flavor)).expect("placement")
    };
    pod_sets().into_iter().zip(counts).map(place).collect()
}

fn config(more: Value) -> ProvisioningRequestConfigSpec {
    let mut config = json!({"provisioningClassName": "queued", "parameters": {"a": "1", "b": "2"}});
    for (key, value) in more.as_object().expect("fields") {
        config[key] = value.clone();
    }
    of(config)
}

fn asked(counts: &[i32], more: Value) -> Vec<(String, i32)> {
    let found = requested_pods(&pod_sets(), &placements(counts, "spot"), &LimitSummary::default(), &config(more));
    found.expect("pods").into_iter().map(|pods| (pods.pod_set, pods.count)).collect()
}

fn named(pods: &[(&str, i32)]) -> Vec<(String, i32)> {
    pods.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn provisioning_request_asks_for_admitted_pods_merged_by_policy() {
    let all = named(&[("driver", 3), ("worker", 2), ("monitor", 3), ("other", 3)]);
    assert_eq!(asked(&[3, 2, 3, 3], json!({})), all, "admitted pods, not those of the spec");
    let gpu = json!({"managedResources": ["nvidia.com/gpu"]});
    assert_eq!(asked(&[3, 0, 3, 3], gpu), named(&[("driver", 3), ("other", 3)]), "limits count as requests");
    assert_eq!(asked(&[3, 2, 3, 3], json!({"managedResources": ["tpu"]})), []);
    let templates = json!({"podSetMergePolicy": "IdenticalPodTemplates"});
    assert_eq!(asked(&[3, 2, 3, 3], templates), named(&[("driver", 5), ("monitor", 3), ("other", 3)]));
    let requirements = json!({"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"});
    assert_eq!(asked(&[3, 2, 3, 1], requirements), named(&[("driver", 6), ("monitor", 3)]));
}

#[test]
fn provisioning_request_asks_for_what_quota_is_charged() {
    let range =
        json!({"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}]}});
    let limits = LimitSummary::of([&of(range)]);
    let found = requested_pods(&pod_sets(), &placements(&[3, 0, 0, 0], "spot"), &limits, &config(json!({})));
    let found = found.expect("pods");
    let requests = &found[0].template["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}));
}

#[test]
fn pod_sets_of_different_flavors_are_not_merged() {
    let mut places = placements(&[3, 2, 3, 3], "spot");
    places[1] = placements(&[3, 2, 3, 3], "on-demand").swap_remove(1);
    for policy in ["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] {
        let config = config(json!({"podSetMergePolicy": policy}));
        let found = requested_pods(&pod_sets()[..2], &places[..2], &LimitSummary::default(), &config).expect("pods");
        assert_eq!(found.len(), 2, "{policy}");
    }
}

#[test]
fn pod_sets_that_differ_in_limits_merge_by_scheduling_requirements() {
    let mut sets = pod_sets();
    let wider = json!({"requests": {"nvidia.com/gpu": "1", "cpu": "2"}, "limits": {"nvidia.com/gpu": "1", "cpu": "8"}});
    sets[1].template.spec.as_mut().expect("a spec").containers[0].resources = of(wider);
    let places = placements(&[3, 2, 0, 0], "spot");
    let pods = |policy: &str| {
        let config = config(json!({"podSetMergePolicy": policy}));
        let found = requested_pods(&sets, &places, &LimitSummary::default(), &config).expect("pods");
        found.into_iter().map(|pods| (pods.pod_set, pods.count)).collect::<Vec<_>>()
    };
    assert_eq!(pods("IdenticalWorkloadSchedulingRequirements"), named(&[("driver", 5)]));
    assert_eq!(pods("IdenticalPodTemplates"), named(&[("driver", 3), ("worker", 2)]));
}

#[test]
fn provisioning_pod_template_has_selector_requests_and_labels_of_pods() {
    let found =
        requested_pods(&pod_sets(), &placements(&[1, 0, 0, 0], "spot"), &LimitSummary::default(), &config(json!({})));
    let template = &found.expect("pods")[0].template;
    assert_eq!(template["spec"]["nodeSelector"], json!({"pool": "spot"}));
    assert_eq!(template["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"], json!("1"));
    assert_eq!(template["metadata"]["labels"]["app"], json!("train"));
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], json!("driver"));
}

#[test]
fn long_provisioning_request_names_are_cut_and_stay_distinct() {
    assert_eq!(provisioning_request_name("job-a-1f00d", "check", 2), "job-a-1f00d-check-2");
    assert_eq!(pod_template_name("job-a-1f00d-check-2", "main"), "ppt-job-a-1f00d-check-2-main");
    let long = "w".repeat(253);
    let (first, second) = (provisioning_request_name(&long, "check", 1), provisioning_request_name(&long, "check", 2));
    assert_eq!((first.len(), second.len(), first == second), (253, 253, false));
    assert_eq!(&first[247..248], "-");
}

#[test]
fn provisioning_parameters_of_job_win_over_config() {
    let annotations = BTreeMap::from([
        ("provreq.kueue.x-k8s.io/b".to_owned(), "3".to_owned()),
        ("provreq.kueue.x-k8s.io/c".to_owned(), "4".to_owned()),
        ("other".to_owned(), "5".to_owned()),
    ]);
    let own = provisioning_parameters(&annotations);
    let pods = [RequestedPods { pod_set: "main".into(), count: 2, template: json!({}) }];
    let spec = serde_json::to_value(provisioning_request_spec("r-1", &pods, &config(json!({})), &own)).expect("JSON");
    let expected = json!({"provisioningClassName": "queued", "parameters": {"a": "1", "b": "3", "c": "4"},
        "podSets": [{"podTemplateRef": {"name": "ppt-r-1-main"}, "count": 2}]});
    assert_eq!(spec, expected);
}

fn request(conditions: &[(&str, &str, &str)]) -> ProvisioningRequest {
    let condition = |(kind, status, message): &(&str, &str, &str)| {
        json!({"type": kind, "status": status, "reason": kind, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    of(json!({"metadata": {"name": "r-1"}, "spec": {"provisioningClassName": "queued",
        "podSets": [{"podTemplateRef": {"name": "ppt-r-1-driver"}, "count": 5}]},
        "status": {"conditions": conditions, "provisioningClassDetails": {"pool": "p-7"}}}))
}

#[test]
fn provisioning_state_is_worst_of_its_conditions() {
    let accepted = ("Accepted", "True", "");
    let provisioned = ("Provisioned", "True", "there");
    for (conditions, expected) in [
        (vec![], Provisioning::Unanswered),
        (vec![("Provisioned", "False", "in an hour")], Provisioning::Unanswered),
        (vec![accepted], Provisioning::Accepted(None)),
        (vec![accepted, ("Provisioned", "False", "in an hour")], Provisioning::Accepted(Some("in an hour"))),
        (vec![accepted, provisioned], Provisioning::Provisioned("there")),
        (vec![accepted, ("Failed", "True", "no")], Provisioning::Failed("no")),
        (vec![accepted, provisioned, ("BookingExpired", "True", "late")], Provisioning::BookingExpired("late")),
        (
            vec![provisioned, ("BookingExpired", "True", "late"), ("CapacityRevoked", "True", "gone")],
            Provisioning::CapacityRevoked("gone"),
        ),
        (vec![accepted, ("Failed", "False", "no")], Provisioning::Accepted(None)),
    ] {
        assert_eq!(provisioning_state(&request(&conditions)), expected, "{conditions:?}");
    }
}

#[test]
fn pod_sets_of_provisioning_request_get_consume_annotations() {
    let selector = json!([{"key": "pool", "valueFromProvisioningClassDetail": "pool"},
        {"key": "zone", "valueFromProvisioningClassDetail": "zone"}]);
    let config = config(json!({"podSetUpdates": {"nodeSelector": selector}}));
    let updates = provisioned_updates(&request(&[]), ["driver", "worker"].into_iter(), Some(&config));
    let expected = json!([{"name": "driver", "nodeSelector": {"pool": "p-7"}, "annotations": {
        "autoscaling.x-k8s.io/consume-provisioning-request": "r-1",
        "autoscaling.x-k8s.io/provisioning-class-name": "queued"}}]);
    assert_eq!(serde_json::to_value(updates).expect("JSON"), expected, "a detail that is not there adds nothing");
}

#[test]
fn provisioning_retry_delay_doubles_up_to_limits() {
    let delays = |strategy: Option<&ProvisioningRequestRetryStrategy>, attempts: std::ops::RangeInclusive<i32>| {
        attempts.map(|attempt| retry_after(strategy, attempt)).collect::<Vec<_>>()
    };
    assert_eq!(delays(None, 1..=4), [Some(60), Some(120), Some(240), None]);
    let strategy = of(json!({"backoffLimitCount": 7, "backoffBaseSeconds": 100, "backoffMaxSeconds": 500}));
    let expected = [Some(100), Some(200), Some(400), Some(500), Some(500), Some(500), Some(500), None];
    assert_eq!(delays(Some(&strategy), 1..=8), expected);
    let none = of(json!({"backoffLimitCount": 0}));
    assert_eq!(delays(Some(&none), 1..=1), [None]);
    let odd = of(json!({"backoffLimitCount": i32::MAX, "backoffBaseSeconds": -5, "backoffMaxSeconds": i32::MAX}));
    assert_eq!(delays(Some(&odd), 100..=100), [Some(0)]);
}
