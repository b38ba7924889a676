//! Digests of two runs of one seed.

use berth_sim::simulation::{Profile, run};

/// Events from outside in a run.
const EVENTS: usize = 200;

#[test]
fn run_of_one_seed_is_the_same_byte_for_byte() {
    for seed in 1..3 {
        let digests = [0, 1].map(|_| run(seed, EVENTS, &Profile::usual()).digest);
        assert_eq!(digests[0], digests[1], "seed {seed}");
        assert_ne!(digests[0], run(seed + 100, EVENTS, &Profile::usual()).digest, "seed {seed}");
    }
}
