use std::collections::BTreeMap;

use berth_api::TopologyAssignment;
use berth_jobs::ObjectPatch;
use berth_jobs::pods::{PodState, place};
use serde_json::{Value, json};

use crate::pod_groups::{member, pod};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn assignment(value: Value) -> TopologyAssignment {
    serde_json::from_value(value).unwrap()
}

#[test]
fn pods_fill_topology_domains_in_order() {
    let both = assignment(json!({"levels": ["block", "rack"], "slices": [
        {"domainCount": 2, "valuesPerLevel": [{"universal": "b1"},
            {"individual": {"prefix": "r-", "suffix": "-x", "roots": ["1", "2"]}}], "podCounts": {"individual": [1, 2]}},
        {"domainCount": 1, "valuesPerLevel": [{"universal": "b2"}, {"universal": "r-3"}], "podCounts": {"universal": 1}},
    ]}));
    let at = |rack: &str, block: &str| labels(&[("block", block), ("rack", rack)]);
    let found = |placed: &[BTreeMap<String, String>], before: usize| place(&both, placed, before);
    let all: Vec<_> = (0..5).map(|before| found(&[], before)).collect();
    let second = || Some(at("r-2-x", "b1"));
    assert_eq!(all, [Some(at("r-1-x", "b1")), second(), second(), Some(at("r-3", "b2")), None]);
    // A pod in a domain leaves the other domains free, and a pod outside of the assigned domains takes no room in them.
    let placed = [at("r-1-x", "b1"), at("r-2-x", "b1"), at("r-9", "b9"), labels(&[("rack", "r-3")])];
    assert_eq!(found(&placed, 0), second());
    assert_eq!(found(&placed, 1), Some(at("r-3", "b2")));
    assert_eq!(found(&placed, 2), None);
}

#[test]
fn unreadable_topology_slice_gives_no_place() {
    for slice in [
        json!({"domainCount": 1, "valuesPerLevel": [{"universal": "r"}], "podCounts": {}}),
        json!({"domainCount": 1, "valuesPerLevel": [{}], "podCounts": {"universal": 1}}),
        json!({"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}}),
        json!({"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": []}}], "podCounts": {"universal": 1}}),
        json!({"domainCount": -1, "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": 1}}),
        json!({"domainCount": i32::MAX, "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": i32::MIN}}),
    ] {
        let one = assignment(json!({"levels": ["rack"], "slices": [slice]}));
        assert_eq!(place(&one, &[], 0), None, "{slice}");
    }
}

#[test]
fn pod_waits_for_topology_domain_only_once_started() {
    let with = |gates: &[&str]| {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        PodState::read(&pod(json!({"spec": {"schedulingGates": gates}})))
    };
    let (admission, topology) = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology");
    let rack = labels(&[("rack", "r1")]);
    for gates in [&[][..], &["other/gate"], &[admission], &[admission, topology]] {
        let pod = with(gates);
        assert!(!pod.placing && pod.place_patch(&rack).is_none(), "{gates:?}");
    }
    let waits = with(&[topology, "other/gate"]);
    assert!(waits.placing && waits.runs() && !waits.gated);
    let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"nodeSelector": {"rack": "r1"}, "schedulingGates": [{"name": "other/gate"}]}});
    assert_eq!(waits.place_patch(&rack).map(ObjectPatch::into_body), Some(expected));
    let alone = with(&[topology]).place_patch(&BTreeMap::new()).unwrap().into_body();
    assert_eq!(alone["spec"], json!({"schedulingGates": null}));
    assert_eq!(waits.place_patch(&labels(&[("disk", "hdd")])), None, "it asks for another disk itself");
}

#[test]
fn placed_pod_of_group_with_topology_remembers_its_selectors() {
    let place = |notes: Value| {
        let spec = json!({"schedulingGates": null, "nodeSelector": {"rack": "r1"}});
        PodState::read(&member("2", json!({"metadata": {"annotations": notes}, "spec": spec}))).selectors
    };
    assert_eq!(place(json!({})), None, "a group that is in no topology costs nothing more");
    let found = place(json!({"kueue.x-k8s.io/podset-unconstrained-topology": "true"})).unwrap();
    assert_eq!(*found, labels(&[("disk", "ssd"), ("rack", "r1")]));
}
