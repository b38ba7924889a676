//! Laws against jobs that move to and fro between capacity tiers: once the capacity no longer changes, each move of a job has a reason that the rules name.
//!
//! The laws are derived from the policy alone. While one tier has no nodes and nothing else changes, a job leaves a tier that has nodes only for a better tier,
//! or for a job of a higher priority. A job moves back to better tiers a limited number of times in its life, and to no flavor whose stock-out is remembered. A
//! stock-out lasts as long, and is remembered as long, as the policy says. A job for which no other tier has room tries again no sooner than the stock-out
//! allows.

use std::collections::BTreeMap;

use berth_control::measure::TierStep;
use berth_control::write::{Kind, PodOnNode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, cluster_queue, flavor, job, local_queue};
use crate::stories::elastic::elastic;
use crate::stories::policies::with_tiers;
use crate::stories::random::{Dice, seeds};
use crate::stories::tiers::tiered_cluster;

const TIERS: [&str; 3] = ["reserved", "on-demand", "spot"];
const MOST_PROMOTIONS: usize = 3;
/// Seconds for which a job waits for nodes of its tier (patience), in each tier.
const PATIENCE: i64 = 60;
/// Seconds of a flavor's first back-off after a stock-out; `MAX` is the longest back-off.
const INITIAL: i64 = 60;
const MAX: i64 = 240;
/// Seconds for which each of several successive stock-outs is remembered.
const DECAY: i64 = 60;
/// Tolerance in seconds: control looks for jobs to move back every five seconds, and times in statuses have full seconds.
const SLACK: i64 = 6;
/// Names of the Jobs and the elastic TrainingJobs that move between the tiers.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "t", "u"];
const ENDING: &str = "cloud.google.com/impending-node-termination";

fn is_training(name: &str) -> bool {
    ["t", "u"].contains(&name)
}

/// Reports a checkpoint of a job.
fn save(cluster: &mut Cluster, name: &str) {
    let kind = if is_training(name) { Kind::TrainingJob } else { Kind::JOB };
    let saved = json!({"metadata": {"annotations": {"berth.dev/last-checkpoint-time": cluster.now().to_string()}}});
    cluster.edit(kind, "team", name, &saved);
}

/// Announces the end of a node on which a pod of the job runs.
fn take_node(cluster: &mut Cluster, name: &str, node: &str) {
    let (job, pod_set) =
        if is_training(name) { (format!("{name}-worker"), "worker") } else { (name.to_owned(), "main") };
    let Some(uid) =
        cluster.objects().get(&Cluster::key(Kind::JOB, "team", &job)).map(|job| job["metadata"]["uid"].clone())
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

/// Values of the two priority classes of the jobs.
type Classes = [i32; 2];

fn set_classes(cluster: &mut Cluster, classes: Classes) {
    for (name, value) in ["p1", "p100"].into_iter().zip(classes) {
        cluster.set_class(name, value);
    }
}

/// The back-off of the default policy, and the number of times that a job may move back to a better tier.
fn rules() -> (Value, usize) {
    let seconds = |seconds: i64| format!("{seconds}s");
    (json!({"initial": seconds(INITIAL), "max": seconds(MAX), "decay": seconds(DECAY)}), MOST_PROMOTIONS)
}

/// The kinds of ClusterQueues and flavors in which the jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    Queue,
    /// Two ClusterQueues of a cohort, each with half of every tier: the ClusterQueues borrow from each other, and reclaim their own quota.
    Cohort,
    /// A ClusterQueue with two flavors in every tier; the second flavor is smaller.
    Families,
}

impl Ground {
    /// The ClusterQueues, each with its LocalQueue.
    const fn queues(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Queue | Self::Families => &[("cq", "lq")],
            Self::Cohort => &[("cq", "lq"), ("cq2", "lq2")],
        }
    }

    /// The flavors of a tier.
    fn flavors(self, tier: &str) -> Vec<String> {
        match self {
            Self::Queue | Self::Cohort => vec![tier.to_owned()],
            Self::Families => vec![tier.to_owned(), format!("{tier}-small")],
        }
    }

    fn cluster(self) -> Cluster {
        let mut cluster = tiered_cluster("4");
        if self == Self::Cohort {
            let half = [("spot", "2"), ("on-demand", "2"), ("reserved", "2")];
            for (queue, local) in self.queues() {
                cluster.put(Kind::ClusterQueue, cluster_queue(queue, Some("team"), &half));
                cluster.put(Kind::LocalQueue, local_queue(local, queue));
            }
        }
        if self == Self::Families {
            let mut quotas = Vec::new();
            for tier in ["spot", "on-demand", "reserved"] {
                let [large, small] = [tier.to_owned(), format!("{tier}-small")];
                let mut flavor = flavor(&small, json!({"tier": tier, "family": "small"}));
                flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
                cluster.put(Kind::ResourceFlavor, flavor);
                quotas.extend([(large, "3"), (small, "2")]);
            }
            let quotas: Vec<(&str, &str)> = quotas.iter().map(|(name, cpus)| (name.as_str(), *cpus)).collect();
            cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &quotas));
        }
        // In both ClusterQueues, victims have a lower priority than their preemptors: jobs of the lower one of the two priority classes preempt no workload.
        let rules = json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"});
        for (queue, _) in self.queues() {
            cluster.edit(Kind::ClusterQueue, "", queue, &json!({"spec": {"preemption": rules}}));
        }
        cluster
    }

    /// A random LocalQueue for a job.
    fn local_queue(self, dice: &mut Dice) -> &'static str {
        let all = self.queues();
        all[if all.len() > 1 { dice.below(all.len()) } else { 0 }].1
    }
}

/// A cluster in which all jobs run, and in which no tier has room for all jobs at once.
fn on_tiers(dice: &mut Dice, ground: Ground, (backoff, promotions): (Value, usize)) -> Cluster {
    let mut cluster = ground.cluster();
    set_classes(&mut cluster, [1, 100]);
    let when = if dice.below(2) == 0 { "Anytime" } else { "AfterCheckpoint" };
    let promotion = json!({"minStay": "1m", "hysteresis": "10s", "when": when, "maxTimes": promotions});
    let patience: BTreeMap<&str, String> = TIERS.into_iter().map(|tier| (tier, format!("{PATIENCE}s"))).collect();
    let tiers = json!({"default": TIERS, "climbBack": promotion, "backoff": backoff, "patience": patience});
    let mut policy = with_tiers(tiers);
    policy["spec"]["clusterQueues"] = ground.queues().iter().map(|(queue, _)| json!(queue)).collect();
    cluster.put(Kind::QueuePolicy, policy);
    for name in NAMES {
        let class = ["p1", "p100"][dice.below(2)];
        let queue = ground.local_queue(dice);
        if is_training(name) {
            let mut job = elastic(name, json!({}));
            if name == "u" {
                // All pods of the job start again when the number of workers changes.
                job["spec"]["jobType"] = json!("JAXJob");
            }
            job["spec"]["schedulingConfig"]["priority"] = json!(class);
            job["spec"]["schedulingConfig"]["queue"] = json!(queue);
            cluster.put(Kind::TrainingJob, job);
        } else {
            let mut job = job(name, queue, "1", true);
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
            cluster.put(Kind::JOB, job);
        }
    }
    cluster
}

/// A random change that does not come from the jobs themselves, such as a change of the tiers without nodes.
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

/// Lets time pass, in which every job saves a checkpoint every ten minutes; `look` is called every half minute.
fn pass_saving(cluster: &mut Cluster, minutes: i64, mut look: impl FnMut(&Cluster)) {
    for half in 0..2 * minutes {
        if half % 20 == 0 {
            for name in NAMES {
                save(cluster, name);
            }
        }
        cluster.pass(30);
        look(cluster);
    }
}

/// A stock-out in the status of the policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    flavor: String,
    failures: i64,
    last: Timestamp,
    until: Timestamp,
    forgotten: Timestamp,
}

fn shown(cluster: &Cluster) -> Vec<Shown> {
    let status = &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", "p")]["status"];
    let time = |one: &Value, field: &str| one[field].as_str().unwrap().parse().unwrap();
    let all = status["backoffs"].as_array().into_iter().flatten();
    let read = |one: &Value| Shown {
        flavor: one["flavor"].as_str().unwrap().to_owned(),
        failures: one["failures"].as_i64().unwrap(),
        last: time(one, "lastFailureTime"),
        until: time(one, "until"),
        forgotten: time(one, "forgottenAt"),
    };
    all.map(read).collect()
}

/// A turn of a job: its admission to a tier, or the end of its stay in the tier.
struct Turn {
    at: Timestamp,
    tier: String,
    what: TierStep,
}

impl Turn {
    fn left(&self, reasons: &[&str]) -> bool {
        matches!(&self.what, TierStep::Left { reason, .. } if reasons.contains(&reason.as_str()))
    }

    fn fell(&self) -> bool {
        self.left(&["StockOut", "CapacityReclaimed"])
    }

    fn was_promoted(&self) -> bool {
        self.left(&["ClimbedBack"])
    }
}

/// The admissions of each job to tiers and the ends of its stays, from the cluster's move number `since` on.
fn turns(cluster: &Cluster, since: usize) -> BTreeMap<&'static str, Vec<Turn>> {
    let mut turns: BTreeMap<&str, Vec<Turn>> = NAMES.into_iter().map(|name| (name, Vec::new())).collect();
    for (step, at) in cluster.moves.iter().zip(&cluster.moved_at).skip(since) {
        let of = |name: &&str| {
            let kind = if is_training(name) { "trainingjob" } else { "job" };
            step.workload.starts_with(&format!("{kind}-{name}-"))
        };
        let name = NAMES.into_iter().find(of).unwrap();
        turns.get_mut(name).unwrap().push(Turn { at: *at, tier: step.tier.clone(), what: step.what.clone() });
    }
    turns
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second() - from.as_second()
}

/// Describes a breach of the rules for a stock-out during which no node was added: the stock-out must last as long as the policy says, and be remembered as
/// long as the policy says.
fn judge_shown(one: &Shown) -> Option<String> {
    let delay = (1..one.failures).fold(INITIAL, |delay, _| (2 * delay).min(MAX));
    let (held, kept) = (seconds(one.last, one.until), seconds(one.until, one.forgotten));
    if (held - delay).abs() > 1 {
        return Some(format!("it holds for {held}s, not {delay}s: {one:?}"));
    }
    let memory = DECAY * one.failures;
    ((kept - memory).abs() > 1).then(|| format!("it is remembered for {kept}s, not {memory}s: {one:?}"))
}

/// The stock-outs in the policy's status at several times.
type Looks = Vec<(Timestamp, Vec<Shown>)>;

/// The stock-out of a flavor that is remembered at a time, according to the status before and after that time.
fn remembered<'a>(looks: &'a Looks, flavor: &str, at: Timestamp) -> Option<&'a Shown> {
    let next = looks.iter().position(|(time, _)| *time >= at)?;
    let holds = |one: &&Shown| one.flavor == flavor && one.last < at && one.forgotten > at;
    let before = looks.get(next.checked_sub(1)?)?.1.iter().find(holds)?;
    looks[next].1.iter().filter(holds).find(|one| one.last == before.last)
}

/// Facts about a random world, for the time after which its capacity no longer changes.
struct Known<'a> {
    ground: Ground,
    /// The tiers that have no nodes.
    without: &'a [&'a str],
    quiet: Timestamp,
    looks: &'a Looks,
}

/// Breaches of the laws in the admissions of one job to tiers and in the ends of its stays.
fn judge(name: &str, turns: &[Turn], known: &Known) -> Vec<String> {
    let Known { ground, without, quiet, looks } = *known;
    let mut faults = Vec::new();
    // Times at which the job tried a tier without success, since its last admission to a tier with nodes.
    let mut tries: Vec<Timestamp> = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        let (at, tier, when) = (turn.at, turn.tier.as_str(), seconds(quiet, turn.at));
        let lacks = without.contains(&tier);
        match &turn.what {
            TierStep::Admitted { .. } if lacks => {}
            TierStep::Admitted { .. } => tries.clear(),
            TierStep::Left { .. } if turn.fell() && lacks => {
                tries.push(at);
                // Between the first and the third of three tries, a whole back-off passes besides the patience of two tries: the first back-off grows unless
                // its stock-out is forgotten, which takes as long. An elastic job tries each of its three sizes, and every job tries each flavor.
                let sizes = if is_training(name) { 3 } else { 1 };
                let between = 2 * sizes * ground.flavors(tier).len();
                let first = tries.iter().rev().nth(between);
                if first.is_some_and(|first| seconds(*first, at) < 2 * PATIENCE + INITIAL + DECAY - SLACK) {
                    faults.push(format!("{name} tries {tier} too often: {tries:?}"));
                }
            }
            // The job left its tier shortly after the last random change, because it had lacked nodes before the change, or because the end of its node was
            // announced.
            TierStep::Left { .. } if turn.fell() && when <= PATIENCE + SLACK => {}
            TierStep::Left { .. } if turn.was_promoted() => {
                let next = turns.get(index + 1).map(|next| next.tier.as_str()).unwrap_or_default();
                let flavors = ground.flavors(next);
                let backoffs: Vec<_> = flavors.iter().filter_map(|flavor| remembered(looks, flavor, at)).collect();
                if !backoffs.is_empty() && backoffs.len() == flavors.len() {
                    faults.push(format!("{name} climbs after {when}s to what is remembered: {backoffs:?}"));
                }
            }
            TierStep::Left { .. } if turn.left(&["Preempted"]) => {}
            TierStep::Left { reason, .. } => {
                faults.push(format!("{name} leaves {tier}, which has nodes, after {when}s: {reason}"));
            }
        }
    }
    let promotions = turns.iter().filter(|turn| turn.was_promoted()).count();
    if promotions > MOST_PROMOTIONS {
        faults.push(format!("{name} climbs too often: {promotions} times"));
    }
    faults
}

/// Breaches of the laws in a random world with random changes, followed by two hours without a change.
fn world(seed: u64, ground: Ground, rules: (Value, usize)) -> Vec<String> {
    let mut dice = Dice::new(seed);
    let mut cluster = on_tiers(&mut dice, ground, rules);
    let mut classes = [1, 100];
    for event in 0..20 {
        change(&mut cluster, &mut dice, &mut classes, event);
        cluster.pass(dice.seconds(10, 400));
    }
    // The last random change of the world leaves at most one tier without nodes.
    cluster.without_nodes = TIERS.into_iter().filter(|_| dice.below(3) == 0).take(1).collect();
    let (quiet, before) = (cluster.now(), cluster.moves.len());
    let mut looks = Looks::new();
    pass_saving(&mut cluster, 120, |cluster| looks.push((cluster.now(), shown(cluster))));
    let fresh = |one: &&Shown| seconds(quiet, one.last) > PATIENCE + SLACK;
    let mut fresh: Vec<Shown> = looks.iter().flat_map(|(_, backoffs)| backoffs.iter().filter(fresh).cloned()).collect();
    fresh.sort();
    fresh.dedup();
    let mut faults: Vec<String> = fresh.iter().filter_map(judge_shown).collect();
    let turns = turns(&cluster, before);
    let known = Known { ground, without: &cluster.without_nodes, quiet, looks: &looks };
    faults.extend(turns.iter().flat_map(|(name, turns)| judge(name, turns, &known)));
    // Every preemption follows from a job that has started or changed its tier. A job that starts or changes its tier takes the quota of at most four jobs,
    // which have a lower priority and preempt no workload.
    let count = |wanted: fn(&Turn) -> bool| turns.values().flatten().filter(|turn| wanted(turn)).count();
    let (preempted, left) = (count(|turn| turn.left(&["Preempted"])), count(|turn| turn.fell() || turn.was_promoted()));
    if preempted > 4 * (left + NAMES.len()) {
        faults.push(format!("{preempted} preemptions, and {left} times somebody came from elsewhere"));
    }
    if cluster.without_nodes.is_empty() {
        let before = cluster.moves.len();
        pass_saving(&mut cluster, 60, |_| {});
        faults.extend(cluster.moves[before..].iter().map(|step| format!("nothing is lacking, and yet: {step:?}")));
    }
    faults.extend(berth_engine::check(cluster.control.world()).into_iter().map(|fault| format!("{fault:?}")));
    faults
}

fn nobody_swings_on(ground: Ground, usual: u64) {
    for seed in seeds(usual) {
        let faults = world(seed, ground, rules());
        assert!(faults.is_empty(), "{ground:?}, seed {seed}: {faults:#?}");
    }
}

#[test]
fn jobs_do_not_swing_between_tiers_once_capacity_is_stable() {
    nobody_swings_on(Ground::Queue, 20);
}

#[test]
fn jobs_do_not_swing_between_tiers_when_cohort_reclaims_quota() {
    nobody_swings_on(Ground::Cohort, 10);
}

#[test]
fn jobs_do_not_swing_between_tiers_with_two_flavors_each() {
    nobody_swings_on(Ground::Families, 10);
}

/// Each rule of the back-off prevents moves to and fro: under a policy without the rule, the laws for the default policy are broken.
#[test]
fn swing_law_catches_jobs_under_policy_without_backoff_rules() {
    let backoff = |initial: &str, max: &str, decay: &str| json!({"initial": initial, "max": max, "decay": decay});
    for (fault, rules) in [
        ("tries", (backoff("5s", "5s", "1s"), MOST_PROMOTIONS)),
        ("it holds for", (backoff("60s", "60s", "60s"), MOST_PROMOTIONS)),
        ("it is remembered for", (backoff("60s", "240s", "1s"), MOST_PROMOTIONS)),
    ] {
        let caught =
            (1..=30).any(|seed| world(seed, Ground::Queue, rules.clone()).iter().any(|found| found.contains(fault)));
        assert!(caught, "nobody is caught by {fault:?}");
    }
}

#[test]
fn swing_judge_catches_job_leaving_nodes_or_moving_back_early() {
    let quiet: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let at = |second: i64| Timestamp::from_second(quiet.as_second() + second).unwrap();
    let left = |second: i64, tier: &str, reason: &str| {
        let what = TierStep::Left { reason: reason.into(), stayed: 9 };
        Turn { at: at(second), tier: tier.into(), what }
    };
    let came =
        |second: i64, tier: &str| Turn { at: at(second), tier: tier.into(), what: TierStep::Admitted { waited: 9 } };
    let entry = |forgotten: i64| Shown {
        flavor: "reserved".into(),
        failures: 1,
        last: at(100),
        until: at(160),
        forgotten: at(forgotten),
    };
    let faults = |turns: &[Turn], forgotten: i64| {
        let looks = vec![(at(190), vec![entry(forgotten)]), (at(220), vec![entry(forgotten)])];
        let (ground, without) = (Ground::Queue, &["reserved"][..]);
        judge("a", turns, &Known { ground, without, quiet, looks: &looks })
    };
    let promotions = [left(200, "spot", "ClimbedBack"), came(201, "reserved"), left(261, "reserved", "StockOut")];
    assert_eq!(faults(&promotions, 200), [""; 0]);
    assert!(faults(&promotions, 300)[0].starts_with("a climbs after 200s to what is remembered"));
    let often: Vec<Turn> = (1..5).map(|hour| left(3_600 * hour, "spot", "ClimbedBack")).collect();
    assert_eq!(faults(&often, 200), ["a climbs too often: 4 times"]);
    assert_eq!(faults(&[left(60, "spot", "StockOut")], 0), [""; 0], "it lacked its nodes before");
    assert_eq!(faults(&[left(100, "spot", "StockOut")], 0), ["a leaves spot, which has nodes, after 100s: StockOut"]);
}
