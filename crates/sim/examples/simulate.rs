//! Simulates two replicas of Berth by seeds, and says which seeds broke an invariant.
//!
//! `simulate 1..301` runs 300 seeds, `simulate 7` runs one and prints its trace, and `simulate planted` looks for each planted bug.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use berth_sim::simulation::{Planted, Profile, Report, run, run_traced};

/// Events from outside in a run.
const EVENTS: usize = 200;
/// Seeds within which each planted bug is to be found.
const WITHIN: u64 = 10_000;

/// Prints the failure of a run; true if there is one.
fn failed(report: &Report) -> bool {
    let Some(failure) = &report.failure else { return false };
    println!("seed {}: {}", report.seed, failure.what);
    failure.holders.iter().for_each(|line| println!("  {line}"));
    true
}

/// Runs seeds, and prints what was broken and how fast the simulation is. Returns the number of seeds that failed.
fn simulate(seeds: Range<u64>) -> usize {
    let (profile, begun, number) = (Profile::usual(), Instant::now(), seeds.end.saturating_sub(seeds.start));
    let (mut failures, mut revisions, mut faults, mut terms) = (0_usize, 0, 0, 0);
    for seed in seeds {
        let report = run(seed, EVENTS, &profile);
        failures += usize::from(failed(&report));
        revisions += report.revisions;
        faults += report.faults;
        terms += report.terms;
    }
    let seconds = begun.elapsed().as_secs();
    println!("{failures} of {number} seeds of {EVENTS} events failed, in {seconds} s");
    println!("{revisions} revisions judged, {faults} faults, {terms} terms of leaders; profile: {profile}");
    failures
}

/// Looks for each planted bug. Returns the number of bugs that were not found.
fn planted() -> usize {
    let mut hidden = 0;
    for bug in Planted::ALL {
        let profile = Profile::with(bug);
        let found = (1..=WITHIN).find_map(|seed| Some((seed, run(seed, EVENTS, &profile).failure?.what)));
        match found {
            Some((seed, what)) => println!("{bug:?}: seed {seed}: {what}"),
            None => {
                hidden += 1;
                println!("{bug:?} is not found within {WITHIN} seeds");
            }
        }
    }
    hidden
}

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let range = argument.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    let failures = match (argument.as_str(), range, argument.parse()) {
        ("planted", ..) => planted(),
        (_, Some(seeds), _) => simulate(seeds),
        (_, None, Ok(seed)) => usize::from(failed(&run_traced(seed, EVENTS, &Profile::usual(), true))),
        _ => {
            eprintln!("{argument:?}: allowed are a seed (7), a range of seeds (1..301) and `planted`");
            1
        }
    };
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
