//! Laws of what goes up and down by itself, under changes that nobody has thought of.

use berth_control::write::{Kind, PodOnNode};
use serde_json::{Value, json};

use crate::cluster::{Cluster, job};
use crate::elastic::{elastic, other, with_priorities};
use crate::policies::with_tiers;
use crate::tiers::{flavor_of, ladder};

/// Runs of a law, so many where `BERTH_STORIES` does not set more of them.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let wanted = std::env::var("BERTH_STORIES").ok().and_then(|text| text.parse().ok());
    1..wanted.unwrap_or(usual) + 1
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
/// Jobs, and elastic TrainingJobs, that go up and down.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "t", "u"];
const ENDING: &str = "cloud.google.com/impending-node-termination";

fn is_training(name: &str) -> bool {
    ["t", "u"].contains(&name)
}

/// Since the beginning of its life: how often it left its tier downwards, climbed, and was preempted. Of two slices of a job the one that
/// takes the other's place knows both.
fn turns(cluster: &Cluster, name: &str) -> [i64; 3] {
    let kind = if is_training(name) { Kind::TrainingJob } else { Kind::JOB };
    let uid = &cluster.objects[&Cluster::key(kind, "team", name)]["metadata"]["uid"];
    let owned = cluster
        .objects
        .iter()
        .filter(|(key, object)| key.kind == Kind::Workload && &object["metadata"]["ownerReferences"][0]["uid"] == uid);
    let count = |object: &Value, reasons: &[&str]| {
        let all = object["status"]["schedulingStats"]["evictions"].as_array().into_iter().flatten();
        let named = all.filter(|entry| reasons.contains(&entry["reason"].as_str().unwrap()));
        named.map(|entry| entry["count"].as_i64().unwrap()).sum::<i64>()
    };
    let of = |object: &Value| {
        [&["StockOut", "CapacityReclaimed"][..], &["ClimbedBack"], &["Preempted"]].map(|reasons| count(object, reasons))
    };
    owned.map(|(_, object)| of(object)).fold([0_i64; 3], |sum, one| std::array::from_fn(|at| sum[at].max(one[at])))
}

/// The tier in which it has its quota; none while it waits.
fn tier_of(cluster: &Cluster, name: &str) -> Option<String> {
    if is_training(name) {
        return Some(cluster.tier_of(name).to_owned()).filter(|tier| !tier.is_empty());
    }
    cluster.is(name, "Admitted").then(|| flavor_of(cluster, name).as_str().unwrap().to_owned())
}

/// It tells of a checkpoint.
fn save(cluster: &mut Cluster, name: &str) {
    let kind = if is_training(name) { Kind::TrainingJob } else { Kind::JOB };
    let saved = json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": cluster.now.to_string()}}});
    cluster.edit(kind, "team", name, &saved);
}

/// A node under a job is to be taken away.
fn take_node(cluster: &mut Cluster, name: &str, node: &str) {
    let (job, pod_set) =
        if is_training(name) { (format!("{name}-worker"), "worker") } else { (name.to_owned(), "main") };
    let Some(uid) =
        cluster.objects.get(&Cluster::key(Kind::JOB, "team", &job)).map(|job| job["metadata"]["uid"].clone())
    else {
        return;
    };
    let of = (job.clone(), uid.as_str().unwrap().to_owned());
    let pod = PodOnNode {
        namespace: "team".into(),
        name: format!("{job}-0"),
        uid: format!("pod-{node}"),
        pod_set: pod_set.into(),
        job: Some(of),
    };
    cluster.on_node.insert(node.to_owned(), vec![pod]);
    let taints = json!([{"key": ENDING, "effect": "NoSchedule"}]);
    cluster.put(Kind::Node, json!({"metadata": {"name": node}, "spec": {"taints": taints}}));
}

/// Values of the two classes that jobs have.
type Classes = [i32; 2];

fn set_classes(cluster: &mut Cluster, classes: Classes) {
    for (name, value) in ["p1", "p100"].into_iter().zip(classes) {
        cluster.set_class(name, value);
    }
}

/// A ladder on which all of them run that has no room for all at once in any tier.
fn on_a_ladder(dice: &mut Dice) -> Cluster {
    let mut cluster = ladder("4");
    let preempting = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    cluster.edit(Kind::ClusterQueue, "", "cq", &preempting);
    set_classes(&mut cluster, [1, 100]);
    let when = if dice.below(2) == 0 { "Anytime" } else { "AfterCheckpoint" };
    let climb = json!({"minStay": "1m", "hysteresis": "10s", "when": when, "maxTimes": MOST_CLIMBS});
    let patience = json!({"reserved": "1m", "on-demand": "1m", "spot": "1m"});
    let backoff = json!({"initial": "1m", "max": "4m", "decay": "1m"});
    let tiers = json!({"default": TIERS, "climbBack": climb, "backoff": backoff, "patience": patience});
    cluster.put(Kind::QueuePolicy, with_tiers(tiers));
    for name in NAMES {
        let class = ["p1", "p100"][dice.below(2)];
        if is_training(name) {
            let mut job = elastic(name, json!({}));
            job["spec"]["schedulingConfig"]["priority"] = json!(class);
            cluster.put(Kind::TrainingJob, job);
        } else {
            let mut job = job(name, "lq", "1", true);
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
            cluster.put(Kind::JOB, job);
        }
    }
    cluster
}

/// Something that nobody on the ladder has done.
fn change(cluster: &mut Cluster, dice: &mut Dice, classes: &mut Classes, event: usize) {
    let name = NAMES[dice.below(NAMES.len())];
    match dice.below(8) {
        0..=2 => cluster.without_nodes = TIERS.into_iter().filter(|_| dice.below(3) == 0).collect(),
        3 => take_node(cluster, name, &format!("n{event}")),
        4 => {
            let share = json!({"reserved": 25 * (1 + dice.below(4)), "on-demand": 50 * (1 + dice.below(2))});
            let policy = json!({"spec": {"capacityTiers": {"maxSharePercent": share}}});
            cluster.edit(Kind::QueuePolicy, "", "p", &policy);
        }
        5 => {
            *classes = [1 + i32::try_from(dice.below(60)).unwrap(), 1 + i32::try_from(dice.below(60)).unwrap()];
            set_classes(cluster, *classes);
        }
        6 => {
            cluster.restart();
            set_classes(cluster, *classes);
        }
        _ => save(cluster, name),
    }
}

/// Everybody saves every ten minutes.
fn pass_saving(cluster: &mut Cluster, hours: i64) {
    for _ in 0..6 * hours {
        for name in NAMES {
            save(cluster, name);
        }
        cluster.pass(600);
    }
}

#[test]
fn nobody_swings_between_tiers_once_the_capacity_holds_still() {
    for seed in seeds(8) {
        let mut dice = Dice::new(seed);
        let mut cluster = on_a_ladder(&mut dice);
        let mut classes = [1, 100];
        for event in 0..20 {
            change(&mut cluster, &mut dice, &mut classes, event);
            cluster.pass(dice.seconds(10, 400));
        }
        // The last change from outside: at most one tier lacks nodes.
        cluster.without_nodes = TIERS.into_iter().filter(|_| dice.below(3) == 0).take(1).collect();
        let before = NAMES.map(|name| turns(&cluster, name));
        pass_saving(&mut cluster, 2);
        for (name, [fell, climbed, preempted]) in NAMES.into_iter().zip(before) {
            let [falls, climbs, preemptions] = turns(&cluster, name);
            assert!(climbs <= MOST_CLIMBS, "seed {seed}: {name} climbed {climbs} times");
            let settled = tier_of(&cluster, name).is_some_and(|tier| !cluster.without_nodes.contains(&tier.as_str()));
            // Who is up falls once for each time that it climbs, and once for where it was; who has nowhere to go tries again at the
            // pace of the back-off, four minutes and one of patience; an elastic job does either with each of the three sizes that it
            // may begin with, since fewer pods may have nodes where more had none.
            let sizes = if is_training(name) { 3 } else { 1 };
            let (fallen, risen) = (falls - fell, climbs - climbed);
            let most = sizes * if settled { risen + 2 } else { 30 };
            assert!(fallen <= most, "seed {seed}: {name} fell {fallen} times and climbed {risen} times");
            // Who comes from a tier without nodes may take the place of one that is worth less, each time.
            let taken = preemptions - preempted;
            assert!(taken <= 30, "seed {seed}: {name} was preempted {taken} times");
        }
        let rest = NAMES.map(|name| turns(&cluster, name));
        if cluster.without_nodes.is_empty() {
            pass_saving(&mut cluster, 1);
            assert_eq!(rest, NAMES.map(|name| turns(&cluster, name)), "seed {seed}: nothing is lacking, and they rest");
        }
        assert!(berth_engine::check(cluster.control.world()).is_empty(), "seed {seed}");
    }
}

#[test]
fn elastic_workers_stay_within_their_bounds_and_their_quota() {
    for seed in seeds(40) {
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
                    cluster.put(Kind::JOB, other(&name, &cpus, if dice.below(2) == 0 { 1 } else { 100 }));
                    others.push(name);
                }
                2 | 3 if !others.is_empty() => {
                    let name = others.remove(dice.below(others.len()));
                    cluster.delete(&Cluster::key(Kind::JOB, "team", &name));
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
