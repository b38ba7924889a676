use serde_json::json;

use super::*;
use crate::overruns::known::ExcessUsage;
use crate::testing::objects::{admitted, changed, job, workload_of};
use crate::testing::step::step;
use crate::testing::{State, at, in_seconds, named, now};
use crate::write::Kind;

/// The decision about job `a`, whose `pods` (running pods, and pods with quota) were observed `seconds` seconds ago.
fn found(pods: [i64; 2], seconds: i64) -> Option<crate::testing::step::Step> {
    let workload = admitted(changed(workload_of(&job("a")), json!({"status": {"requeueState": {"count": 1}}})));
    let mut state = State::new().with(job("a")).with(workload);
    let object = named(Kind::JOB, "a");
    let usage = ExcessUsage { charge: None, pods };
    state.quota.overruns_mut().take(&object, Some(usage), false, in_seconds(-seconds));
    overgrown(&state.context(), &object, state.workload("w"), now()).map(|decision| step(&decision))
}

#[test]
fn job_over_twice_its_pods_for_a_minute_is_evicted() {
    assert_eq!(found([4, 2], 600), None, "two generations of pods beside each other");
    assert_eq!(found([5, 0], 600), None, "it has no quota");
    assert_eq!(found([5, 2], 59).map(|step| step.what), Some("wait 1s".to_owned()));
    let evicted = found([5, 2], 60).expect("an eviction");
    assert_eq!(evicted.what, "Evict: apply status Workload ns/w");
    let (is_evicted, reason, message) = evicted.condition("Evicted").expect("a condition");
    assert_eq!((is_evicted, reason), (true, "PodsBeyondQuota"));
    assert!(message.starts_with("5 pods of the job run or end, and it has quota for 2"), "{message}");
    assert_eq!(
        evicted.body["status"]["requeueState"],
        json!({"count": 2, "requeueAt": at(120)}),
        "the pause has doubled"
    );
}
