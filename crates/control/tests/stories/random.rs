//! The law about the number of workers of elastic jobs under random changes, and the random numbers for the laws of other files.

use berth_control::write::Kind;
pub use berth_sim::dice::Dice;
use berth_sim::shards::part;
use serde_json::{Value, json};

use crate::noted::note;
use crate::stories::checkpoints::save;
use crate::stories::cluster::Cluster;
use crate::stories::elastic::{Judged, elastic, other, with_priorities};

/// The seeds of the runs of a law: the usual number, or the number in `BERTH_STORIES`. `BERTH_SHARD=2/4` selects the second quarter of the seeds.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let wanted = std::env::var("BERTH_STORIES").ok().and_then(|text| text.parse().ok());
    let shard = std::env::var("BERTH_SHARD").unwrap_or_else(|_| "1/1".to_owned());
    let seeds = part(wanted.unwrap_or(usual), &shard);
    note("control", seeds.end - seeds.start);
    seeds
}

#[test]
fn shards_of_a_law_have_each_seed_once() {
    let parts = ["1/3", "2/3", "3/3"].map(|shard| part(10, shard));
    assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), (1..11).collect::<Vec<_>>());
}

#[test]
fn elastic_workers_stay_within_their_bounds_and_their_quota() {
    for seed in seeds(40) {
        let mut dice = Dice::new(seed);
        let mut cluster = with_priorities(crate::stories::elastic::cluster());
        let step = 1 + dice.below(2);
        let policy = json!({"scaleUpStep": step, "scaleDownStep": 1 + dice.below(2)});
        // The workers of the job either find each other again after a change of their number, or are all started again; the job saves checkpoints or not.
        let (restarts_on_scale, saves) = (dice.below(2) == 0, dice.below(2) == 0);
        let mut first = elastic("a", policy.clone());
        if restarts_on_scale {
            first["spec"]["jobType"] = json!("JAXJob");
        }
        cluster.put(Kind::TrainingJob, first);
        let mut others: Vec<String> = Vec::new();
        for event in 0..25 {
            let what = format!("seed {seed}, event {event}");
            match dice.below(8) {
                0 | 1 => {
                    let (name, cpus) = (format!("o{event}"), (1 + dice.below(3)).to_string());
                    cluster.put(Kind::JOB, other(&name, &cpus, if dice.below(2) == 0 { 1 } else { 100 }));
                    others.push(name);
                }
                2 | 3 if !others.is_empty() => {
                    let name = others.remove(dice.below(others.len()));
                    cluster.delete(&Cluster::key(Kind::JOB, "team", &name));
                }
                4 => cluster.nodes = (dice.below(2) == 0).then(|| dice.seconds(2, 6)),
                5 if event > 5 && !cluster.objects().contains_key(&Cluster::key(Kind::TrainingJob, "team", "b")) => {
                    cluster.put(Kind::TrainingJob, elastic("b", policy.clone()));
                }
                6 => {
                    let suspend: Value = json!(dice.below(3) == 0);
                    cluster.edit(Kind::TrainingJob, "team", "a", &json!({"spec": {"suspend": suspend}}));
                }
                7 if saves => save(&mut cluster, "a", event),
                _ => {}
            }
            cluster.pass_judged(dice.seconds(1, 25), &what);
        }
        assert!(berth_engine::check(cluster.control.world()).is_empty(), "seed {seed}");
    }
}
