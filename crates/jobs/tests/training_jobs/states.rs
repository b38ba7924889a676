//! When a training is over, and how far it is.

use berth_jobs::training::{RoleState, role_state, training_finish};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn state(status: Value) -> RoleState {
    role_state(&serde_json::from_value(json!({"spec": {"completions": 2}, "status": status})).unwrap())
}

fn ended(kind: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "message": "words"}]})
}

#[test]
fn pods_are_counted_once() {
    let found = state(json!({"active": 2, "ready": 1, "failed": 3}));
    assert_eq!((found.ready, found.pending, found.failed, found.is_up()), (1, 1, 3, false));
    assert!(state(json!({"active": 1, "ready": 1, "succeeded": 1})).is_up());
    assert!(!state(Value::Null).is_up());
}

#[test]
fn the_deciding_role_ends_it_and_any_role_fails_it() {
    let running = json!({"active": 2});
    for (roles, expected) in [
        (vec![("worker", &running)], None),
        (vec![("worker", &ended("Complete"))], Some(true)),
        (vec![("worker", &ended("Failed"))], Some(false)),
        (vec![("worker", &running), ("launcher", &ended("Complete"))], Some(true)),
        (vec![("worker", &ended("Failed")), ("launcher", &running)], Some(false)),
        (vec![("worker", &ended("Complete")), ("chief", &running), ("ps", &running)], None),
        (vec![("worker", &running), ("chief", &ended("Complete"))], Some(true)),
        (vec![("worker", &ended("Complete")), ("ps", &running)], Some(true)),
    ] {
        let states: BTreeMap<String, RoleState> =
            roles.iter().map(|(name, status)| ((*name).to_owned(), state((*status).clone()))).collect();
        let found = training_finish(&states);
        assert_eq!(found.as_ref().map(|finish| finish.success), expected, "{roles:?}");
        assert!(found.is_none_or(|finish| finish.message.contains(": words")));
    }
}
