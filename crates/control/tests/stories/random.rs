//! Laws of what goes up and down by itself, under changes that nobody has thought of.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::cluster::{Cluster, job};
use crate::elastic::{elastic, other, with_priorities};
use crate::policies::{evictions, with_tiers};
use crate::tiers::{flavor_of, ladder};

/// Runs of each law; `BERTH_STORIES` sets more of them.
fn seeds() -> std::ops::Range<u64> {
    let wanted = std::env::var("BERTH_STORIES").ok().and_then(|text| text.parse().ok());
    1..wanted.unwrap_or(40_u64) + 1
}

/// xorshift64*: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % end
    }

    fn seconds(&mut self, from: usize, to: usize) -> i64 {
        i64::try_from(from + self.below(to - from)).unwrap()
    }
}

const TIERS: [&str; 3] = ["reserved", "on-demand", "spot"];
const MOST_CLIMBS: i64 = 3;

/// Reasons for which a job leaves its tier downwards.
fn falls(cluster: &Cluster, name: &str) -> i64 {
    evictions(cluster, name, "StockOut") + evictions(cluster, name, "CapacityReclaimed")
}

#[test]
fn nobody_swings_between_tiers_once_the_capacity_holds_still() {
    for seed in seeds() {
        let mut dice = Dice::new(seed);
        let mut cluster = ladder("2");
        let climb = json!({"minStay": "1m", "hysteresis": "10s", "when": "Anytime", "maxTimes": MOST_CLIMBS});
        let patience = json!({"reserved": "1m", "on-demand": "1m", "spot": "1m"});
        let backoff = json!({"initial": "1m", "max": "4m", "decay": "1m"});
        let tiers = json!({"default": TIERS, "climbBack": climb, "backoff": backoff, "patience": patience});
        cluster.put(Kind::QueuePolicy, with_tiers(tiers));
        let names = ["a", "b", "c", "d", "e"];
        for name in names {
            cluster.put(Kind::Job, job(name, "lq", "1", true));
        }
        for _ in 0..20 {
            cluster.without_nodes = TIERS.into_iter().filter(|_| dice.below(3) == 0).collect();
            cluster.pass(dice.seconds(10, 400));
        }
        // The last change from outside: at most one tier lacks nodes.
        cluster.without_nodes = TIERS.into_iter().filter(|_| dice.below(3) == 0).take(1).collect();
        let before = names.map(|name| (falls(&cluster, name), evictions(&cluster, name, "ClimbedBack")));
        cluster.pass(6 * 3600);
        for (name, (fell, climbed)) in names.into_iter().zip(before) {
            let climbs = evictions(&cluster, name, "ClimbedBack");
            assert!(climbs <= MOST_CLIMBS, "seed {seed}: {name} climbed {climbs} times");
            let settled = cluster.is(name, "Admitted")
                && !cluster.without_nodes.iter().any(|tier| flavor_of(&cluster, name) == json!(tier));
            // Who is up falls once for each time that it climbs, and once for where it was; who has nowhere to go tries again at the
            // pace of the back-off, four minutes and one of patience.
            let most = if settled { climbs - climbed + 2 } else { 80 };
            let fallen = falls(&cluster, name) - fell;
            assert!(fallen <= most, "seed {seed}: {name} fell {fallen} times and climbed {} times", climbs - climbed);
        }
        let rest = names.map(|name| falls(&cluster, name) + evictions(&cluster, name, "ClimbedBack"));
        if cluster.without_nodes.is_empty() {
            cluster.pass(6 * 3600);
            let later = names.map(|name| falls(&cluster, name) + evictions(&cluster, name, "ClimbedBack"));
            assert_eq!(rest, later, "seed {seed}: there is room for all, and they rest");
        }
        assert!(berth_engine::check(cluster.control.world()).is_empty(), "seed {seed}");
    }
}

#[test]
fn elastic_workers_stay_within_their_bounds_and_their_quota() {
    for seed in seeds() {
        let mut dice = Dice::new(seed);
        let mut cluster = with_priorities(crate::elastic::cluster());
        let step = 1 + dice.below(2);
        let policy = json!({"scaleUpStep": step, "scaleDownStep": 1 + dice.below(2)});
        cluster.put(Kind::TrainingJob, elastic("a", policy.clone()));
        let mut others: Vec<String> = Vec::new();
        for event in 0..25 {
            let what = format!("seed {seed}, event {event}");
            match dice.below(8) {
                0 | 1 => {
                    let (name, cpus) = (format!("o{event}"), (1 + dice.below(3)).to_string());
                    cluster.put(Kind::Job, other(&name, &cpus, if dice.below(2) == 0 { 1 } else { 100 }));
                    others.push(name);
                }
                2 | 3 if !others.is_empty() => {
                    let name = others.remove(dice.below(others.len()));
                    cluster.delete(&Cluster::key(Kind::Job, "team", &name));
                }
                4 => cluster.nodes = (dice.below(2) == 0).then(|| dice.seconds(2, 6)),
                5 if event > 5 && !cluster.objects.contains_key(&Cluster::key(Kind::TrainingJob, "team", "b")) => {
                    cluster.put(Kind::TrainingJob, elastic("b", policy.clone()));
                }
                6 => {
                    let suspend: Value = json!(dice.below(3) == 0);
                    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": suspend}}));
                }
                _ => {}
            }
            cluster.pass_judged(dice.seconds(1, 25), &what);
        }
        assert!(berth_engine::check(cluster.control.world()).is_empty(), "seed {seed}");
    }
}
