//! A job that an unknown client stops within its admission is started again after longer and longer pauses.

use berth_control::write::{EventType, Kind, Purpose, WriteOutcome};
use serde_json::json;

use crate::stories::cluster::{Cluster, job};
use crate::stories::one_queue;
use crate::stories::training::{cluster as training_cluster, training};

/// A cluster with the running Job `a`.
fn running() -> Cluster {
    let mut cluster = one_queue("4");
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(2);
    assert!(runs(&cluster), "{:?}", cluster.writes);
    cluster
}

fn runs(cluster: &Cluster) -> bool {
    cluster.job("a")["spec"]["suspend"] == json!(false)
}

/// Another client suspends the running Job.
fn suspend(cluster: &mut Cluster) {
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"suspend": true}}));
}

/// Lets time pass until Berth has started the Job again, and returns the seconds.
fn back_after(cluster: &mut Cluster) -> i64 {
    for seconds in 0..400 {
        cluster.settle();
        if runs(cluster) {
            return seconds;
        }
        cluster.pass(1);
    }
    panic!("never: {:?}", cluster.writes);
}

fn messages_of(cluster: &Cluster) -> Vec<&str> {
    let events = cluster.notices.iter().filter(|notice| notice.reason == "RepeatedStart");
    events.inspect(|notice| assert_eq!(notice.event_type, EventType::Warning)).map(|notice| &*notice.message).collect()
}

/// A cluster with a running Job that was suspended four times.
fn started_five_times() -> Cluster {
    let mut cluster = running();
    for _ in 0..4 {
        suspend(&mut cluster);
        back_after(&mut cluster);
    }
    cluster
}

#[test]
fn job_stopped_within_its_admission_restarts_after_doubling_delays() {
    let mut cluster = running();
    assert!(messages_of(&cluster).is_empty(), "the first start never waits");
    let mut pauses = Vec::new();
    for _ in 0..11 {
        suspend(&mut cluster);
        pauses.push(back_after(&mut cluster));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300], "{:?}", cluster.writes);
    let words =
        "start 3 within one admission: it was stopped 2s ago, and neither evicted nor changed; the next one waits 4s";
    assert_eq!(messages_of(&cluster)[1], words);
    assert_eq!(messages_of(&cluster).len(), 11);
    let measured =
        cluster.control.drain_measures().into_iter().filter(|one| format!("{one:?}").contains("berth_repeated_starts"));
    assert_eq!(measured.count(), 11);
}

#[test]
fn eviction_resets_count_of_repeated_starts() {
    let mut cluster = started_five_times();
    let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    for active in [false, true] {
        cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": active}}));
        cluster.pass(5);
    }
    assert!(runs(&cluster), "{:?}", cluster.writes);
    assert_eq!(messages_of(&cluster).len(), 4);
    suspend(&mut cluster);
    assert_eq!(back_after(&mut cluster), 1);
}

#[test]
fn edited_job_is_started_without_repeated_start_delay() {
    let mut cluster = started_five_times();
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"parallelism": 2}}));
    cluster.pass(3);
    assert!(runs(&cluster) && messages_of(&cluster).len() == 4, "{:?}", cluster.writes);
}

#[test]
fn ten_minutes_of_running_reset_count_of_repeated_starts() {
    let mut cluster = started_five_times();
    cluster.pass(600);
    suspend(&mut cluster);
    assert_eq!(back_after(&mut cluster), 1);
}

#[test]
fn job_stop_is_never_delayed_by_repeated_starts() {
    let mut cluster = started_five_times();
    suspend(&mut cluster);
    cluster.settle();
    // The job has lost its quota, so that Berth stops it at once, without the pause before the job's next start.
    let workload = cluster.workload_of("a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.edit(Kind::Workload, "team", &workload, &json!({"spec": {"active": false}}));
    cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"suspend": false}}));
    cluster.settle();
    assert!(!runs(&cluster), "{:?}", cluster.writes);
}

#[test]
fn start_with_lost_answer_counts_once() {
    let mut cluster = one_queue("4");
    cluster.faults.push((Purpose::StartJob, WriteOutcome::Unknown("lost".into()), true));
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(10);
    assert!(runs(&cluster) && messages_of(&cluster).is_empty(), "{:?}", cluster.writes);
    suspend(&mut cluster);
    assert_eq!(back_after(&mut cluster), 1);
}

#[test]
fn job_set_stopped_within_its_admission_restarts_after_doubling_delays() {
    use crate::stories::jobsets::{jobset, slices, stopped};
    let mut cluster = one_queue("4");
    let mut suspended = slices();
    suspended["spec"]["suspend"] = json!(true);
    cluster.put(Kind::JOB_SET, suspended);
    let mut pauses = Vec::new();
    for start in 0..4 {
        stopped(&mut cluster);
        // The Jobs of the JobSet may exist before control observes them, so that control waits before the first start.
        cluster.pass(if start == 0 { 4 } else { 0 });
        let suspends = |cluster: &Cluster| jobset(cluster)["spec"]["suspend"] != json!(false);
        let seconds = (0..100).find(|_| {
            cluster.settle();
            let waits = suspends(&cluster);
            cluster.pass(i64::from(waits));
            !waits
        });
        pauses.push(seconds.unwrap_or(100));
        cluster.edit(Kind::JOB_SET, "team", "a", &json!({"spec": {"suspend": true}, "status": {"conditions": []}}));
    }
    assert_eq!(pauses, [0, 1, 2, 4], "{:?}", cluster.writes);
}

#[test]
fn deleted_job_of_training_job_is_remade_after_doubling_delays() {
    let mut cluster = training_cluster("4");
    cluster.put(Kind::TrainingJob, training("t", json!({})));
    cluster.pass(5);
    assert!(cluster.has_job("t-worker"), "{:?}", cluster.writes);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        cluster.delete(&Cluster::key(Kind::JOB, "team", "t-worker"));
        let mut seconds = 0;
        cluster.settle();
        while !cluster.has_job("t-worker") && seconds < 100 {
            cluster.pass(1);
            seconds += 1;
        }
        pauses.push(seconds);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16], "{:?}", cluster.writes);
    assert!(
        messages_of(&cluster)[0].starts_with("Job t-worker: start 2 within one admission"),
        "{:?}",
        messages_of(&cluster)
    );
}

/// Berth stops a job without quota at once. If a client starts the job again each time, Berth stops the job at most once a second, and the job's pods are
/// charged until then.
#[test]
fn job_started_by_another_client_is_stopped_once_a_second() {
    let mut cluster = one_queue("1");
    cluster.put(Kind::JOB, job("first", "lq", "1", true));
    cluster.pass(5);
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(5);
    let resume = |cluster: &mut Cluster| {
        cluster.edit(Kind::JOB, "team", "a", &json!({"spec": {"suspend": false}}));
        cluster.settle();
    };
    for _ in 0..2 {
        resume(&mut cluster);
        assert!(!runs(&cluster), "the first stop never waits: {:?}", cluster.writes);
        let stops = cluster.count(Purpose::SuspendJob);
        for _ in 0..5 {
            resume(&mut cluster);
            assert!(runs(&cluster), "{:?}", cluster.writes);
            let active = cluster.objects()[&Cluster::key(Kind::JOB, "team", "a")]["status"]["active"].as_i64();
            let beyond = cluster.control.world().beyond("cq");
            let is_charged = beyond.into_iter().any(|(_, amount)| amount.get() > 0);
            assert_eq!(is_charged, active > Some(0), "its pods are charged, as far as there are any");
            cluster.pass(1);
            assert!(!runs(&cluster), "{:?}", cluster.writes);
        }
        assert_eq!(cluster.count(Purpose::SuspendJob), stops + 5, "{:?}", cluster.writes);
        cluster.pass(5);
    }
}

#[test]
fn standby_that_takes_over_continues_count_of_repeated_starts() {
    let mut cluster = one_queue("4");
    cluster.stand_by();
    cluster.put(Kind::JOB, job("a", "lq", "1", true));
    cluster.pass(2);
    for _ in 0..3 {
        suspend(&mut cluster);
        back_after(&mut cluster);
    }
    cluster.fail_over();
    suspend(&mut cluster);
    assert_eq!(back_after(&mut cluster), 8);
}
