use super::*;
use crate::job::tests::case_of;
use crate::testing::objects::{job, job_set};
use crate::testing::{State, in_seconds, named, now};
use crate::write::{EventType, Kind};

/// The case of a JobSet is made from the case of one of its Jobs, if the JobSet is decided about because of the Job.
#[test]
fn case_of_controlling_job_keeps_state_and_time() {
    let mut state = State::new().with(job("a")).with(job_set("s", 1));
    state.notes.jobs_mut().change("s-uid", |notes| notes.note_stopped(now()));
    let set = named(Kind::JOB_SET, "s");
    let found = case_of(&state, &named(Kind::JOB, "a"), |case| {
        let job = case.ctx.view.jobs().get(&set).expect("the JobSet");
        let of_set = JobCase { key: &set, job, ..case };
        let waits = [case, of_set].map(|case| case.stopped_just_now().is_some());
        let later = JobCase { now: in_seconds(60), ..of_set };
        (of_set.now, waits, later.stopped_just_now().is_some())
    });
    assert_eq!(found, (now(), [false, true], false), "only the JobSet was stopped, and a minute is enough");
}

#[test]
fn event_about_job_has_reporter_of_its_kind() {
    let state = State::new().with(job("a")).with(job_set("s", 1));
    let sent = |kind: Kind, name: &str| {
        let object = named(kind, name);
        let notice = case_of(&state, &object, |case| case.notice(EventType::Warning, "Reason", "in words".to_owned()));
        assert_eq!((&notice.key, notice.event_type), (&object, EventType::Warning));
        (notice.uid, notice.reporter, format!("{}: {}", notice.reason, notice.message))
    };
    let text = "Reason: in words".to_owned();
    assert_eq!(sent(Kind::JOB, "a"), ("a-uid".to_owned(), "batch/job-kueue-controller", text.clone()));
    assert_eq!(sent(Kind::JOB_SET, "s"), ("s-uid".to_owned(), "jobset.x-k8s.io/jobset-kueue-controller", text));
}
