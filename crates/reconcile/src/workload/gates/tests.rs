use berth_cache::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{changed, condition, with_condition, workload};
use crate::testing::step::{event, written};
use crate::testing::{State, at, now};

fn gated(names: &str) -> Value {
    changed(workload("w"), json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": names}}}))
}

#[test]
fn gates_of_admission_are_named_until_they_are_gone() {
    let state = State::new().with(gated("a,b"));
    assert_eq!(message(state.workload("w")).as_deref(), Some("Admission is gated by: a,b"));
    assert_eq!(event(&closed(state.workload("w"))), "Normal AdmissionGated: Workload admission is gated by: a,b");
    let found_condition = condition("QuotaReserved", false, "AdmissionGated");
    let blocked = condition("BlockedOnPreemptionGates", true, "PreemptionGated");
    for (name, workload, expected) in [
        ("still gated", with_condition(gated("a"), found_condition.clone()), false),
        ("gates are gone", with_condition(workload("w"), found_condition.clone()), true),
        ("it was never said", workload("w"), false),
        ("it may not preempt", with_condition(with_condition(workload("w"), found_condition), blocked), false),
    ] {
        let state = State::new().with(workload);
        assert_eq!(lifted(state.workload("w")).is_some(), expected, "{name}");
    }
}

#[test]
fn admission_gates_are_replaced_only_by_fewer_gates() {
    let state = State::new().with(gated("a, b"));
    let left = |named: Option<&str>| fewer(state.workload("w"), named);
    assert_eq!(left(Some("a")), Some(json!("a")));
    assert_eq!(left(Some("")), Some(Value::Null));
    assert_eq!(left(None), Some(Value::Null));
    assert_eq!(left(Some("a,b")), None);
    assert_eq!(left(Some("c")), None, "another name");
    let free = State::new().with(workload("w"));
    assert_eq!(fewer(free.workload("w"), Some("a")), None, "gates are never added");
}

#[test]
fn gates_of_preemption_are_listed_closed_and_no_others() {
    let gates = |names: &[&str], states: &[&str]| {
        let named = |name: &&str| json!({"name": name});
        let open = |name: &&str| json!({"name": name, "position": "Open", "lastTransitionTime": at(-5)});
        let spec = json!({"preemptionGates": names.iter().map(named).collect::<Vec<_>>()});
        let status = json!({"preemptionGates": states.iter().map(open).collect::<Vec<_>>()});
        changed(workload("w"), json!({"spec": spec, "status": status}))
    };
    let synced = |enabled: bool, object: Value| {
        let settings = Settings { preemption_gates: enabled, ..Settings::default() };
        let state = State::with_settings(settings).with(object);
        let draft = sync(&state.context(), state.workload("w"), now())?;
        let listed = written(&draft).body["status"]["preemptionGates"].as_array().cloned().unwrap_or_default();
        let states = listed.iter().map(|gate| (gate["name"].to_string(), gate["position"].to_string()));
        Some(states.collect::<Vec<_>>())
    };
    let state = |name: &str, position: &str| (format!("{name:?}"), format!("{position:?}"));
    assert_eq!(synced(true, gates(&["a"], &["a"])), None);
    assert_eq!(synced(true, gates(&["a", "b"], &["a", "x"])), Some(vec![state("a", "Open"), state("b", "Closed")]));
    assert_eq!(synced(false, gates(&["a"], &[])), None, "the gate is off");
}
