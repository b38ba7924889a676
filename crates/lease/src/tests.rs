//! Tests of the election, step by step and with two candidates on one simulated Lease.

use super::*;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn timing() -> Timing {
    Timing { lease_duration: secs(15), renew_deadline: secs(10), retry_period: secs(2) }
}

fn record(holder: Option<&str>, transitions: i32, version: u64) -> Record {
    Record { holder: holder.map(str::to_owned), duration: secs(15), transitions, version: version.to_string() }
}

fn candidate(name: &str) -> Candidate {
    Candidate::new(name.into(), timing())
}

#[test]
fn candidate_creates_a_missing_lease_and_renews_it() {
    let mut a = candidate("a");
    assert_eq!(a.next(secs(0)), Action::Read);
    a.observe(None, secs(0));
    assert_eq!(a.next(secs(0)), Action::Create);
    a.written(record(Some("a"), 0, 1), secs(0));
    assert_eq!(a.leading(), Some((Term(1), secs(15))));
    assert_eq!(a.next(secs(1)), Action::Wait(secs(1)));
    assert_eq!(a.next(secs(2)), Action::Renew { version: "1".into() });
    a.written(record(Some("a"), 0, 2), secs(2));
    assert_eq!(a.leading(), Some((Term(1), secs(17))));
}

#[test]
fn candidate_claims_a_lease_that_expired_by_its_own_clock() {
    let mut b = candidate("b");
    b.observe(Some(record(Some("a"), 3, 10)), secs(100));
    assert_eq!(b.next(secs(100)), Action::Wait(secs(2)));
    assert_eq!(b.next(secs(102)), Action::Read);
    // The holder has renewed the Lease, so the waiting time of the other candidate starts again.
    b.observe(Some(record(Some("a"), 3, 11)), secs(102));
    for at in (104..=116).step_by(2) {
        let _pause = b.next(secs(at - 2));
        assert_eq!(b.next(secs(at)), Action::Read, "{at}");
        b.observe(Some(record(Some("a"), 3, 11)), secs(at));
    }
    // The candidate's last pause before the Lease of the other candidate expires is only as long as the remaining time.
    assert_eq!(b.next(secs(116)), Action::Wait(secs(1)));
    assert_eq!(b.next(secs(117)), Action::Read);
    b.observe(Some(record(Some("a"), 3, 11)), secs(117));
    assert_eq!(b.next(secs(117)), Action::Claim { version: "11".into(), transitions: 4 });
    b.written(record(Some("b"), 4, 12), secs(117));
    assert_eq!(b.leading().unwrap().0, Term(5));
}

#[test]
fn candidate_claims_a_released_lease_at_once() {
    let mut b = candidate("b");
    b.observe(Some(record(None, 3, 10)), secs(5));
    assert_eq!(b.next(secs(5)), Action::Claim { version: "10".into(), transitions: 4 });
    b.failed(true, secs(5));
    assert_eq!(b.next(secs(5)), Action::Read, "a lost race is looked at at once");
    b.failed(false, secs(5));
    assert_eq!(b.next(secs(5)), Action::Wait(secs(2)), "a failure waits");
}

#[test]
fn leader_steps_down_before_others_may_claim_its_lease() {
    let mut a = candidate("a");
    a.observe(None, secs(0));
    a.written(record(Some("a"), 0, 1), secs(0));
    for at in [2, 4, 6, 8] {
        a.failed(false, secs(at));
        assert_ne!(a.next(secs(at + 1)), Action::StepDown);
    }
    assert_eq!(a.next(secs(10)), Action::StepDown);
    a.step_down(secs(10));
    assert_eq!(a.leading(), None);
    assert_eq!(a.next(secs(10)), Action::Read);
    // No other process has claimed the Lease, so the candidate claims it again under a new term.
    a.observe(Some(record(Some("a"), 0, 1)), secs(11));
    assert_eq!(a.next(secs(11)), Action::Claim { version: "1".into(), transitions: 1 });
    a.written(record(Some("a"), 1, 2), secs(11));
    assert_eq!(a.leading().unwrap().0, Term(2));
}

#[test]
fn leader_steps_down_when_another_candidate_holds_the_lease() {
    let mut a = candidate("a");
    a.observe(None, secs(0));
    a.written(record(Some("a"), 0, 1), secs(0));
    a.failed(true, secs(2));
    assert_eq!(a.next(secs(2)), Action::Read);
    a.observe(Some(record(Some("b"), 1, 7)), secs(2));
    assert_eq!(a.next(secs(2)), Action::StepDown);
}

/// With two candidates on one Lease, of which one pauses from any second on, the terms of the candidates never overlap.
#[test]
fn candidates_with_pauses_never_lead_at_the_same_time() {
    for stop in 0..60 {
        for pause in [3, 9, 12, 16, 25, 40] {
            run_world(stop, stop + pause);
        }
    }
}

fn run_world(stop: u64, resume: u64) {
    let mut lease: Option<Record> = None;
    let mut version = 0;
    let mut candidates = [candidate("a"), candidate("b")];
    let mut terms = Vec::new();
    for second in 0..160 {
        let now = secs(second);
        for (index, me) in candidates.iter_mut().enumerate() {
            if index == 0 && (stop..resume).contains(&second) {
                continue;
            }
            for _ in 0..4 {
                let (holder, transitions, expected) = match me.next(now) {
                    Action::Wait(_) => break,
                    Action::Read => {
                        me.observe(lease.clone(), now);
                        continue;
                    }
                    Action::StepDown => {
                        me.step_down(now);
                        continue;
                    }
                    Action::Create => (me.identity.clone(), 0, None),
                    Action::Claim { version, transitions } => (me.identity.clone(), transitions, Some(version)),
                    Action::Renew { version } => {
                        (me.identity.clone(), lease.as_ref().map_or(0, |l| l.transitions), Some(version))
                    }
                };
                if lease.as_ref().map(|l| l.version.clone()) != expected {
                    me.failed(true, now);
                    continue;
                }
                version += 1;
                let new = record(Some(&holder), transitions, version);
                lease = Some(new.clone());
                me.written(new, now);
                terms.push(me.leading().unwrap().0);
            }
        }
        let leaders = candidates.iter().filter(|c| c.leading().is_some_and(|(_, until)| now < until)).count();
        assert!(leaders <= 1, "two leaders at {second} (stopped {stop} to {resume})");
    }
    assert!(candidates.iter().any(|c| c.leading().is_some()), "nobody leads at the end");
    assert!(terms.is_sorted(), "terms go up: {terms:?}");
}
