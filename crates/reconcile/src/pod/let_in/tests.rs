use serde_json::{Value, json};

use super::*;
use crate::pod::tests::{case_of, pending};
use crate::testing::objects::{admitted, changed, deleting, pod, reserved, started};
use crate::testing::step::{Step, step};
use crate::testing::{State, in_seconds, own_name};

/// A running pod that no webhook has reviewed, with the label of managed pods if `marked`.
fn let_in(marked: bool) -> Value {
    let labels = if marked {
        json!({"kueue.x-k8s.io/podset": null})
    } else {
        json!({"kueue.x-k8s.io/podset": null, "kueue.x-k8s.io/managed": null})
    };
    let bare = json!({"metadata": {"labels": labels, "annotations": null, "finalizers": null}});
    changed(started(pod("a")), bare)
}

fn tried_since(mut state: State, seconds: i64) -> State {
    state.quota.begin_trials(vec![(own_name("a"), "a-uid".into())], in_seconds(-seconds));
    state
}

fn marked(state: &State) -> Step {
    case_of(state, "a", |case| step(&case.mark()))
}

#[test]
fn let_in_pod_is_marked_and_stopped_after_its_trial() {
    let state = || State::managing_pods().with(let_in(false));
    let marks = marked(&state());
    assert_eq!(marks.what, "MarkPod: merge Pod ns/a");
    assert_eq!(marks.body["metadata"]["labels"]["kueue.x-k8s.io/managed"], json!("true"));
    assert!(marks.events[0].starts_with("Warning NotReviewed: "), "{:?}", marks.events);
    assert_eq!(marked(&tried_since(state(), 4)).what, "MarkPod: merge Pod ns/a");
    assert_eq!(marked(&tried_since(state(), 5)).what, "CondemnPod: apply status Pod ns/a");
    assert_eq!(marked(&State::managing_pods().with(deleting(let_in(false)))).what, "done");
    assert_eq!(marked(&State::new().with(let_in(false))).what, "done", "pods are not managed");
}

/// If the queue holds quota for a pod, the trial of the pod lasts a minute, because an API server may be busy after an outage.
#[test]
fn pod_trial_with_reserved_quota_lasts_a_minute() {
    let over = |workload: Option<Value>, seconds: i64| {
        let state = workload.into_iter().fold(State::new().with(let_in(true)), State::with);
        let state = tried_since(state, seconds);
        let name = own_name("a");
        let pod = state.view.pods().get(&name).expect("the pod").clone();
        state.context().trial_is_over(&name, &pod, crate::testing::now())
    };
    assert!(!over(None, 4) && over(None, 5));
    assert!(!over(Some(reserved(pending())), 59) && over(Some(reserved(pending())), 60));
}

#[test]
fn workload_is_on_trial_with_its_pod() {
    let on_trial = |pod: Value| {
        let state = State::managing_pods().with(pod).with(pending());
        (state.context().is_on_trial(state.workload("w")), tried(&state.context()).len())
    };
    assert_eq!(on_trial(let_in(true)), (true, 1));
    assert_eq!(on_trial(pod("a")), (false, 0));
    assert_eq!(on_trial(started(pod("a"))), (false, 0), "a webhook has reviewed it");
}

#[test]
fn admitted_pod_that_was_let_in_gets_its_admission() {
    let reported_by = |pod: Value| {
        let state = State::new().with(pod).with(admitted(pending()));
        case_of(&state, "a", |case| case.annotate_admission(state.workload("w")).map(|decision| step(&decision)))
    };
    assert_eq!(reported_by(started(pod("a"))), None);
    let found = reported_by(let_in(true)).expect("a write");
    assert_eq!(found.what, "MarkPod: merge Pod ns/a");
    assert_eq!(found.events, ["Normal Started: Admitted by clusterQueue cq"]);
}
