//! Runs of many seeds, and the digests of two runs of one seed.

use std::ops::Range;
use std::time::{Duration, Instant};

use berth_sim::simulation::{Profile, Report, run, run_traced};

use crate::noted::note;

/// Events from outside in a run.
pub(crate) const EVENTS: usize = 200;
/// Seeds where laws are tried on few seeds, and at least where they are tried on many.
const FEW: u64 = 20;
const LEAST: u64 = 300;
/// Seconds in which more seeds are tried where laws are tried on many.
const SECONDS: u64 = 120;

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Seeds of this run, and whether more may be tried while there is time.
fn planned() -> (Range<u64>, bool) {
    if let Some(all) = number("BERTH_STORIES") {
        let shard = std::env::var("BERTH_SHARD").unwrap_or_else(|_| "1/1".to_owned());
        let (part, of) = shard.split_once('/').expect("BERTH_SHARD is to be like 2/4");
        let [part, of] = [part, of].map(|text| text.parse::<u64>().expect("BERTH_SHARD is to be like 2/4"));
        return (1 + all * (part - 1) / of..1 + all * part / of, false);
    }
    let wide = number("BERTH_CASES").is_some_and(|cases| cases >= 5_000);
    (1..1 + if wide { LEAST } else { FEW }, wide)
}

/// Fails with the seed of a run, its end, and how to see it again.
fn judge(report: &Report) {
    let Some(failure) = &report.failure else { return };
    let trace = failure.trace.join("\n  ");
    panic!(
        "seed {}: {}\n  {trace}\nagain: BERTH_SEED={} cargo test --locked --workspace --test simulation -- --nocapture seeds_keep",
        report.seed, failure.what, report.seed
    );
}

#[test]
fn seeds_keep_every_invariant_and_come_to_rest() {
    let profile = Profile::usual();
    if let Some(seed) = number("BERTH_SEED") {
        return judge(&run_traced(seed, EVENTS, &profile, true));
    }
    let begun = Instant::now();
    let (seeds, may_go_on) = planned();
    let (mut seed, mut steps, mut revisions, mut faults, mut terms) = (seeds.start, 0, 0, 0, 0);
    while seed < seeds.end || (may_go_on && begun.elapsed() < Duration::from_secs(SECONDS)) {
        let report = run(seed, EVENTS, &profile);
        judge(&report);
        steps += report.steps;
        revisions += report.revisions;
        faults += report.faults;
        terms += report.terms;
        seed += 1;
    }
    let (number, seconds) = (seed - seeds.start, begun.elapsed().as_secs_f64().max(0.001));
    note("sim", number);
    let each_second = (number * EVENTS as u64) as f64 / seconds;
    println!("{number} seeds of {EVENTS} events in {seconds:.1} s: {each_second:.0} events a second");
    println!("{steps} messages, {revisions} revisions judged, {faults} faults, {terms} terms of leaders");
    println!("profile: {profile}");
}

#[test]
fn run_of_one_seed_is_the_same_byte_for_byte() {
    for seed in 1..4 {
        let digests = [0, 1].map(|_| run(seed, EVENTS, &Profile::usual()).digest);
        assert_eq!(digests[0], digests[1], "seed {seed}");
        assert_ne!(digests[0], run(seed + 100, EVENTS, &Profile::usual()).digest, "seed {seed}");
    }
}
