//! The times at which control asks the engine for a plan.

use berth_control::Step;
use berth_control::write::{Kind, Purpose, Task, WriteOutcome};
use jiff::SignedDuration;
use serde_json::json;

use crate::stories::cluster::{Cluster, job, made_before, settings};
use crate::stories::{one_queue, with_queue};

/// Makes steps of control until control asks for no more writes. Returns the number of new reservations, which are kept in `held` and not performed.
fn reservations(cluster: &mut Cluster, held: &mut Vec<Task>) -> usize {
    let before = held.len();
    loop {
        let step = cluster.control.step(cluster.now());
        if step.tasks.is_empty() {
            return held.len() - before;
        }
        let (reserve, others): (Vec<Task>, Vec<Task>) =
            step.tasks.into_iter().partition(|write| write.purpose == Purpose::ReserveQuota);
        held.extend(reserve);
        cluster.take(Step { tasks: others, ..step });
    }
}

#[test]
fn plan_waits_while_too_many_admissions_are_under_way() {
    let mut settings = settings();
    settings.max_unacknowledged = 8;
    let mut cluster = with_queue(Cluster::with(settings), "20");
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    for number in 0..20 {
        let mut workload = made_before(&template);
        workload["metadata"]["name"] = json!(format!("w{number:02}"));
        cluster.put(Kind::Workload, workload);
    }
    let mut held = Vec::new();
    assert_eq!(reservations(&mut cluster, &mut held), 8, "no more may be under way");
    let acknowledge = |cluster: &mut Cluster, held: &mut Vec<Task>| {
        let tasks = vec![held.remove(0)];
        cluster.take(Step { tasks, ..Step::default() });
    };
    acknowledge(&mut cluster, &mut held);
    assert_eq!(reservations(&mut cluster, &mut held), 0, "a plan for one looks at as many heads as one for all");
    acknowledge(&mut cluster, &mut held);
    assert_eq!(reservations(&mut cluster, &mut held), 2, "a quarter is free");
    // If acknowledgements are slow, planning waits for at most a second.
    acknowledge(&mut cluster, &mut held);
    assert_eq!(reservations(&mut cluster, &mut held), 0);
    let wake = cluster.control.step(cluster.now()).wake_at.expect("it comes back by itself");
    let latest = cluster.now().checked_add(SignedDuration::from_secs(1)).unwrap();
    assert!(wake <= latest, "{wake}");
    cluster.set_now(latest);
    assert_eq!(reservations(&mut cluster, &mut held), 1);
}

/// The API server creates the Workloads of jobs of one second in any order. A plan does not wait for the creation of a Workload that takes longer than a
/// quarter of a second, or that has failed.
#[test]
fn plan_waits_at_most_250ms_for_workloads_of_simultaneous_jobs() {
    for (passed, answer, admitted) in [(0, None, "a"), (250, None, "b"), (0, Some(WriteOutcome::Busy(5_000)), "b")] {
        let mut cluster = one_queue("1");
        for name in ["a", "b"] {
            cluster.put(Kind::JOB, job(name, "lq", "1", true));
        }
        let step = cluster.control.step(cluster.now());
        let of_a = |write: &Task| write.purpose == Purpose::CreateWorkload && write.key.name.starts_with("job-a");
        let (mut first, others): (Vec<Task>, Vec<Task>) = step.tasks.into_iter().partition(of_a);
        assert_eq!(first.len(), 1, "{others:?}");
        cluster.take(Step { tasks: others, ..Step::default() });
        let step = cluster.control.step(cluster.now());
        assert!(step.tasks.iter().all(|write| write.purpose != Purpose::ReserveQuota), "{:?}", step.tasks);
        let wake = step.wake_at.expect("a delayed plan comes by itself");
        assert!(wake <= cluster.now().checked_add(SignedDuration::from_millis(250)).unwrap(), "{wake}");
        cluster.take(Step { tasks: step.tasks, ..Step::default() });
        cluster.set_now(cluster.now().checked_add(SignedDuration::from_millis(passed)).unwrap());
        match answer {
            Some(answer) => cluster.control.outcome(first.remove(0).id, answer, cluster.now()),
            None if passed == 0 => cluster.take(Step { tasks: first, ..Step::default() }),
            None => {}
        }
        cluster.settle();
        assert!(cluster.is(admitted, "Admitted"), "{admitted}: {:?}", cluster.writes);
    }
}

/// A Workload that no watch shows delays one plan, and not each later plan.
#[test]
fn creation_without_an_end_delays_only_one_plan() {
    let mut cluster = one_queue("9");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    let creates = |write: &Task| write.purpose == Purpose::CreateWorkload;
    let step = cluster.control.step(cluster.now());
    assert!(step.tasks.iter().any(creates), "{:?}", step.tasks);
    let tasks = step.tasks.into_iter().filter(|write| !creates(write)).collect();
    cluster.take(Step { tasks, ..Step::default() });
    for (name, delayed) in [("b", true), ("c", false)] {
        cluster.put(Kind::JOB, job(name, "lq", "1", true));
        cluster.settle();
        assert_eq!(!cluster.is(name, "Admitted"), delayed, "{name}: {:?}", cluster.writes);
        cluster.set_now(cluster.now().checked_add(SignedDuration::from_millis(250)).unwrap());
        cluster.settle();
        assert!(cluster.is(name, "Admitted"), "{name}: {:?}", cluster.writes);
    }
}

/// While Berth writes the reason why a job waits, a user starts the job, and then the job's queue opens: the job is not admitted until its pods have ended.
#[test]
fn job_started_during_reason_write_waits_until_its_pods_end() {
    let mut cluster = one_queue("4");
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "Hold"}}));
    cluster.put(Kind::JOB, job("t", "lq", "1", true));
    cluster.controller_sleeps = true;
    let reason = (0..200).find_map(|_| {
        let step = cluster.control.step(cluster.now());
        if step.tasks.iter().any(|write| matches!(write.purpose, Purpose::ExplainPending | Purpose::ExplainUnseen)) {
            return Some(step);
        }
        cluster.take(step);
        cluster.set_now(cluster.now().checked_add(SignedDuration::from_millis(50)).unwrap());
        None
    });
    let reason = reason.unwrap_or_else(|| panic!("no reason why it waits: {:?}", cluster.writes));
    cluster.edit(Kind::JOB, "team", "t", &json!({"spec": {"suspend": false}, "status": {"active": 1}}));
    let started = cluster.control.step(cluster.now());
    cluster.take(started);
    cluster.edit(Kind::ClusterQueue, "", "cq", &json!({"spec": {"stopPolicy": "None"}}));
    let opened = cluster.control.step(cluster.now());
    cluster.take(opened);
    cluster.take(reason);
    cluster.pass(7);
    assert!(!cluster.is("t", "QuotaReserved"), "its pod runs: {:?}", cluster.writes);
    let charged = &cluster.objects()[&Cluster::key(Kind::ClusterQueue, "", "cq")]["status"]["flavorsUsage"];
    assert_eq!(charged[0]["resources"][0]["total"], json!("1"), "and is charged");
    cluster.edit(Kind::JOB, "team", "t", &json!({"status": {"active": 0}}));
    cluster.controller_sleeps = false;
    cluster.pass(7);
    assert!(cluster.is("t", "Admitted"), "{:?}", cluster.writes);
}
