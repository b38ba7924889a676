//! Planted bugs: the simulation finds each of them.

use berth_sim::simulation::{Planted, Profile, run};

use crate::seeds::{EVENTS, number};

/// Seeds within which each planted bug is found.
const WITHIN: u64 = 10_000;

/// The seed at which a bug is found, and what was broken.
fn found(planted: Planted) -> Option<(u64, String)> {
    let profile = Profile::with(planted);
    (1..=WITHIN).find_map(|seed| Some((seed, run(seed, EVENTS, &profile).failure?.what)))
}

#[test]
fn planted_bugs_are_each_found() {
    let only = number("BERTH_PLANTED").and_then(|index| usize::try_from(index).ok());
    for (index, planted) in
        Planted::ALL.into_iter().enumerate().filter(|(index, _)| only.is_none_or(|only| only == *index))
    {
        let Some((seed, what)) = found(planted) else { panic!("{planted:?} is not found within {WITHIN} seeds") };
        println!("planted bug {index}, {planted:?}: seed {seed}: {what}");
    }
}
