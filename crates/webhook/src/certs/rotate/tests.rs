use super::*;
use proptest::prelude::*;

fn start() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn policy() -> Policy {
    Policy::new(vec!["a.b.svc".to_owned(), "127.0.0.1".to_owned()], SignedDuration::from_secs(60))
}

/// The next step of the rotation of certificates, and the certificates that are stored after this step.
fn go(stored: &Stored, is_published: bool, now: Timestamp) -> (Step, Stored) {
    let step = next(stored, is_published, &policy(), now);
    let new = after(stored, step, &policy(), now).unwrap();
    (step, new.unwrap_or_else(|| stored.clone()))
}

fn settled() -> Stored {
    let (step, stored) = go(&Stored::default(), false, start());
    assert_eq!(step, Step::Begin);
    assert_eq!(next(&stored, false, &policy(), start()), Step::Publish);
    stored
}

fn later(hours: i64) -> Timestamp {
    start() + SignedDuration::from_hours(hours)
}

#[test]
fn settled_certificates_rest_until_the_leaf_is_due() {
    let stored = settled();
    let Step::Rest(until) = next(&stored, true, &policy(), start()) else { panic!("it rests") };
    let days = until.duration_since(start()).as_hours() / 24;
    assert_eq!(days, 243);
    let (step, renewed) = go(&stored, true, until);
    assert_eq!(step, Step::Leaf);
    assert_eq!((&renewed.ca, renewed.leaf == stored.leaf), (&stored.ca, false));
    assert!(matches!(next(&renewed, true, &policy(), until), Step::Rest(_)));
}

#[test]
fn new_authority_is_published_before_signing_and_old_kept_after() {
    let old = settled();
    let mut asked = old.clone();
    asked.asked = true;
    let now = later(1);
    let (step, with_next) = go(&asked, true, now);
    assert_eq!((step, &with_next.ca, &with_next.leaf), (Step::Next, &old.ca, &old.leaf));
    assert_eq!(next(&with_next, false, &policy(), now), Step::Publish);
    let (step, published) = go(&with_next, true, now);
    assert_eq!(step, Step::Published);
    let soon = now + SignedDuration::from_secs(59);
    assert_eq!(next(&published, true, &policy(), soon), Step::Rest(now + SignedDuration::from_secs(60)));
    let then = now + SignedDuration::from_secs(60);
    // If another writer removes the next authority from the webhook configuration, the rotation does not switch to this authority before it is published again.
    assert_eq!(next(&published, false, &policy(), then), Step::Publish);
    let (step, switched) = go(&published, true, then);
    assert_eq!(step, Step::Switch);
    assert_eq!(switched.bundle(), published.bundle());
    assert_eq!(switched.previous.as_deref(), old.ca.as_ref().map(|pair| pair.certificate.as_str()));
    assert!(!switched.asked && switched.is_trusted_by(&published.bundle()));
    assert!(old.is_trusted_by(&switched.bundle()), "a replica that has not looked yet serves the old leaf");
    assert_eq!(next(&switched, true, &policy(), then), Step::Rest(then + SignedDuration::from_secs(600)));
    let (step, done) = go(&switched, true, then + SignedDuration::from_secs(600));
    assert_eq!(step, Step::Forget);
    assert_eq!(done.previous, None);
    assert!(matches!(next(&done, true, &policy(), then), Step::Rest(_)));
}

#[test]
fn second_rotation_request_waits_until_no_replica_serves_old_leaf() {
    let asked = |stored: Stored| Stored { asked: true, ..stored };
    let old = settled();
    let minute = |count: i64| start() + SignedDuration::from_mins(count);
    let (mut stored, mut steps) = (asked(old.clone()), Vec::new());
    for count in 0..=16 {
        if count == 3 {
            stored = asked(stored);
        }
        loop {
            let (step, new) = go(&stored, true, minute(count));
            stored = new;
            if matches!(step, Step::Rest(_)) {
                break;
            }
            steps.push((count, step));
            let lingers = steps.iter().any(|(at, step)| *step == Step::Switch && count < at + 10);
            assert!(!lingers || count >= 11 || old.is_trusted_by(&stored.bundle()), "minute {count}: {steps:?}");
        }
    }
    let wanted = [(0, Step::Next), (0, Step::Published), (1, Step::Switch), (3, Step::Next), (3, Step::Published)];
    assert_eq!(steps[..5], wanted);
    assert_eq!(steps[5..], [(11, Step::Forget), (11, Step::Switch)], "ten minutes after the first switch");
}

#[test]
fn certificate_authority_is_replaced_after_two_thirds_of_its_life() {
    let stored = settled();
    let now = later(24 * 2434);
    // At this time, both the server certificate and its certificate authority are due, and the server certificate is replaced first.
    let (step, stored) = go(&stored, true, now);
    assert_eq!(step, Step::Leaf);
    assert_eq!(next(&stored, true, &policy(), now), Step::Next);
}

#[test]
fn certificate_that_is_missing_expired_foreign_or_unreadable_is_reissued() {
    let good = settled();
    let other = settled();
    let rubbish = || Some(Pair { certificate: "x".into(), key: "y".into() });
    let step = |stored: Stored| next(&stored, true, &policy(), start());
    assert_eq!(step(Stored { ca: None, ..good.clone() }), Step::Begin);
    assert_eq!(step(Stored { ca: rubbish(), ..good.clone() }), Step::Begin);
    assert_eq!(next(&good, true, &policy(), later(24 * 3651)), Step::Begin);
    assert_eq!(step(Stored { leaf: None, ..good.clone() }), Step::Leaf);
    assert_eq!(step(Stored { leaf: rubbish(), ..good.clone() }), Step::Leaf);
    assert_eq!(step(Stored { leaf: other.leaf.clone(), ..good.clone() }), Step::Leaf);
    assert_eq!(step(Stored { ca: other.ca.clone(), ..good.clone() }), Step::Leaf);
    assert_eq!(step(Stored { next: rubbish(), ..good.clone() }), Step::Next);
    let elsewhere = Policy { names: vec!["c.d.svc".to_owned()], ..policy() };
    assert_eq!(next(&good, true, &elsewhere, start()), Step::Leaf);
    // After a clock was set back, a certificate that is valid only from a later time counts as invalid.
    assert_eq!(next(&good, true, &policy(), later(-2)), Step::Begin);
    // An authority that is replaced while it is still valid stays trusted as the previous one for a while.
    let keyless = Stored { ca: good.ca.clone().map(|ca| Pair { key: "y".into(), ..ca }), ..good.clone() };
    let (step, begun) = go(&keyless, true, start());
    assert_eq!(step, Step::Begin);
    assert!(good.is_trusted_by(&begun.bundle()) && begun.is_trusted_by(&begun.bundle()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// In any order of events, an API server that trusts the last published bundle accepts the server certificate of every replica, except at the
    /// very beginning; and the steps come to an end.
    #[test]
    fn served_leaf_is_always_trusted_by_the_published_bundle(
        moves in proptest::collection::vec((0_u8..5, 1_i64..2000), 1..60),
    ) {
        let mut stored = settled();
        let mut believed = stored.bundle();
        // State of each replica: the stored certificates that it has loaded, and the time at which it last read them.
        let mut loaded = [stored.clone(), stored.clone()];
        let mut looked = [start(); 2];
        let mut now = start();
        for (what, seconds) in moves {
            match what {
                0 => stored.asked = true,
                1 => believed = stored.bundle(),
                2 => now += SignedDuration::from_secs(seconds / 20),
                3 => now += SignedDuration::from_secs(seconds),
                _ => {}
            }
            // A replica reads the certificates at least once a minute, which is a tenth of `linger`.
            for (index, (loaded, looked)) in loaded.iter_mut().zip(&mut looked).enumerate() {
                if now.duration_since(*looked).as_secs() > 40 + 20 * i64::try_from(index).unwrap() {
                    loaded.clone_from(&stored);
                    *looked = now;
                }
            }
            let is_published = believed == stored.bundle();
            stored = go(&stored, is_published, now).1;
            for one in &loaded {
                prop_assert!(one.is_trusted_by(&believed));
            }
        }
        for _ in 0..10 {
            believed = stored.bundle();
            now += SignedDuration::from_secs(601);
            stored = go(&stored, true, now).1;
        }
        prop_assert_eq!(stored.bundle().matches("BEGIN").count(), 1);
        prop_assert!(stored.is_trusted_by(&believed));
    }
}
