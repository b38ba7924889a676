use serde_json::json;

use super::*;
use crate::testing::State;
use crate::testing::objects::{admitted, changed, flavor, job, workload_of};

/// Node selector of a placement, and its number of pods.
type Placed = (Vec<(String, String)>, i32);

/// Selectors and counts of the placements of the Workload `w`, or the error in words.
fn placed(state: &State) -> Result<Vec<Placed>, String> {
    let found = placements(&state.context(), state.workload("w")).map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(|one| (one.node_selector.into_iter().collect(), one.count)).collect())
}

#[test]
fn placement_has_flavor_labels_and_never_exceeds_spec_count() {
    let labelled = || changed(flavor("f"), json!({"spec": {"nodeLabels": {"pool": "a"}}}));
    let pool = vec![("pool".to_owned(), "a".to_owned())];
    let workload = || admitted(workload_of(&job("a")));
    let given = |count: i32| {
        let mut workload = workload();
        workload["status"]["admission"]["podSetAssignments"][0]["count"] = json!(count);
        workload
    };
    let of = |workload| placed(&State::new().with(labelled()).with(workload));
    assert_eq!(of(workload_of(&job("a"))), Ok(Vec::new()), "it has no quota");
    assert_eq!(of(given(2)), Ok(vec![(pool.clone(), 2)]));
    assert_eq!(of(given(1)), Ok(vec![(pool.clone(), 1)]));
    assert_eq!(of(given(5)), Ok(vec![(pool, 2)]), "the job has shrunk");
}

#[test]
fn placement_in_missing_flavor_is_error_with_its_name() {
    let mut workload = admitted(workload_of(&job("a")));
    workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = json!("gone");
    let error = placed(&State::new().with(workload)).expect_err("no such flavor");
    assert!(error.contains("gone"), "{error}");
}
