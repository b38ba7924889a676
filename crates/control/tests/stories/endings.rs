//! A law: jobs come to rest. After the last change of a job, its Workload or the objects made for the job by another client, Berth's writes come to an end, and
//! controllers stop making pods and Jobs, whatever was done before.
//!
//! Two cases are left out, because their writes go on by design: jobs that wait without a limit for pods that never become ready, and webhooks that are off
//! while a controller makes pods to which nobody adds a scheduling gate.

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::stories::cluster::{ATTEMPT, Cluster, PART, cluster_queue, flavor, job, local_queue, settings};
use crate::stories::groups::member;
use crate::stories::jobsets::slices;
use crate::stories::pods::pod;
use crate::stories::random::{Dice, seeds};
use crate::stories::training::training;

/// The seconds after the last change from outside within which every timer of control has fired, and the seconds after that in which control may write nothing
/// more. A job whose pods never get ready is evicted after 30 minutes, and the next job may then begin its own 30 minutes.
const CALM: (i64, i64) = (6_000, 600);

struct World {
    cluster: Cluster,
    dice: Dice,
}

fn begin(seed: u64) -> World {
    let mut dice = Dice::new(seed);
    let mut settings = settings();
    settings.job_kinds.insert(Kind::Pod);
    if dice.below(2) == 0 {
        settings.wait_for_pods_ready = None;
    }
    if dice.below(4) == 0 {
        settings.job_kinds.remove(&Kind::JOB_SET);
    }
    let mut cluster = Cluster::with(settings);
    cluster.job_sets_run = true;
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({"tier": "reserved"})));
    cluster.put(Kind::ResourceFlavor, flavor("spot", json!({"tier": "spot"})));
    let quota = (2 + dice.below(6)).to_string();
    let mut queue = cluster_queue("cq", None, &[("default", &quota), ("spot", "2")]);
    queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    cluster.put(Kind::ClusterQueue, queue);
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster.put(Kind::LocalQueue, local_queue("other", "cq"));
    cluster.set_class("high", 100);
    World { cluster, dice }
}

impl World {
    fn pick(&mut self, kind: Kind) -> Option<String> {
        let names: Vec<String> =
            self.cluster.objects().keys().filter(|key| key.kind == kind).map(|key| key.name.clone()).collect();
        (!names.is_empty()).then(|| names[self.dice.below(names.len())].clone())
    }

    fn labels(&mut self) -> Value {
        let mut labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        if self.dice.below(3) == 0 {
            labels["kueue.x-k8s.io/priority-class"] = json!("high");
        }
        labels
    }

    fn new_job(&mut self, name: &str) {
        let mut made = job(name, "lq", "1", self.dice.below(2) == 0);
        made["metadata"]["labels"] = self.labels();
        made["spec"]["parallelism"] = json!(1 + self.dice.below(3));
        made["spec"]["completions"] = json!(1 + self.dice.below(5));
        if self.dice.below(3) == 0 {
            made["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
        }
        self.cluster.put(Kind::JOB, made);
    }

    fn new_set(&mut self, name: &str) {
        let mut set = slices();
        set["metadata"] = json!({"namespace": "team", "name": name, "labels": self.labels()});
        set["spec"]["suspend"] = json!(self.dice.below(2) == 0);
        if self.dice.below(2) == 0 {
            set["spec"]["failurePolicy"] = json!({"maxRestarts": self.dice.below(3)});
        }
        if self.dice.below(3) == 0 {
            // The Jobs of the JobSet name the queue, and the JobSet itself names the queue in every second case.
            let label = json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}});
            set["spec"]["replicatedJobs"][0]["template"]["metadata"] = label;
            if self.dice.below(2) == 0 {
                set["metadata"]["labels"] = json!({});
            }
        }
        self.cluster.put(Kind::JOB_SET, set);
    }

    /// One or all pods of a running Job succeed, or the Job fails.
    fn ends(&mut self, name: &str) {
        let job = self.cluster.job(name).clone();
        let active = job["status"]["active"].as_i64().unwrap_or(0);
        if active == 0 || job["spec"]["suspend"] == json!(true) {
            return;
        }
        match self.dice.below(3) {
            0 => self.cluster.complete(name),
            1 => self.cluster.fail(name),
            _ if active > 1 => {
                let succeeded = job["status"]["succeeded"].as_i64().unwrap_or(0) + 1;
                let status = json!({"succeeded": succeeded, "active": active - 1, "ready": active - 1});
                self.cluster.edit(Kind::JOB, "team", name, &json!({"status": status}));
            }
            _ => {}
        }
    }

    /// A tenant makes a random edit of a job.
    fn tenant_edits(&mut self, kind: Kind, name: &str) {
        let change = match self.dice.below(9) {
            0 => json!({"spec": {"suspend": true}}),
            1 => json!({"spec": {"suspend": false}}),
            2 => json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}}),
            3 => json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}}),
            4 => json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}),
            5 if kind == Kind::JOB => json!({"spec": {"parallelism": 1 + self.dice.below(4)}}),
            5 => json!({"spec": {"failurePolicy": {"maxRestarts": 2}}}),
            6 | 7 => {
                let owner = if self.dice.below(2) == 0 { Kind::JOB } else { Kind::JOB_SET };
                let Some(other) = self.pick(owner) else { return };
                let mut metadata = json!({"ownerReferences": self.cluster.controlled_by(owner, &other)});
                if self.dice.below(2) == 0 {
                    // The labels that the JobSet controller writes on the Jobs that it makes and starts.
                    metadata["labels"] = json!({ATTEMPT: "0", PART: "job"});
                }
                json!({"metadata": metadata})
            }
            _ => {
                self.cluster.delete(&Cluster::key(kind, "team", name));
                return;
            }
        };
        self.cluster.edit(kind, "team", name, &change);
    }

    /// Another client writes an admission for another number of pods, or an admission without a count.
    fn forge(&mut self, name: &str) {
        let workload = &self.cluster.objects()[&Cluster::key(Kind::Workload, "team", name)];
        let sets = workload["spec"]["podSets"].as_array().cloned().unwrap_or_default();
        let mut given = Vec::new();
        for set in &sets {
            let mut assignment =
                json!({"name": set["name"], "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}});
            if self.dice.below(3) > 0 {
                assignment["count"] = json!(self.dice.below(4));
            }
            given.push(assignment);
        }
        let time = self.cluster.now().to_string();
        let is_true = |kind: &str| json!({"type": kind, "status": "True", "reason": "Forged", "message": "", "lastTransitionTime": time});
        let status = json!({"admission": {"clusterQueue": "cq", "podSetAssignments": given},
            "conditions": [is_true("QuotaReserved"), is_true("Admitted")]});
        self.cluster.edit(Kind::Workload, "team", name, &json!({"status": status}));
    }

    fn event(&mut self, number: usize) {
        match self.dice.below(14) {
            0 | 1 => self.new_job(&format!("j{number}")),
            2 | 3 => self.new_set(&format!("s{number}")),
            4 if number < 8 => self.cluster.put(Kind::TrainingJob, training(&format!("t{number}"), json!({}))),
            5 | 6 => {
                if let Some(name) = self.pick(Kind::JOB) {
                    self.ends(&name);
                }
            }
            7 => {
                let kind = if self.dice.below(3) == 0 { Kind::JOB_SET } else { Kind::JOB };
                if let Some(name) = self.pick(kind) {
                    self.tenant_edits(kind, &name);
                }
            }
            8 => {
                if let Some(name) = self.pick(Kind::Workload) {
                    let active = self.dice.below(2) == 0;
                    self.cluster.edit(Kind::Workload, "team", &name, &json!({"spec": {"active": active}}));
                }
            }
            9 if self.dice.below(3) == 0 => self.cluster.restart(),
            10 => {
                if let Some(name) = self.pick(Kind::Workload) {
                    self.forge(&name);
                }
            }
            11 => self.cluster.put(Kind::Pod, pod(&format!("p{number}"), "1")),
            12 => {
                for place in 0..1 + self.dice.below(3) {
                    self.cluster.put(Kind::Pod, member(&format!("g{number}-{place}"), "1", 2, &[]));
                }
            }
            13 => {
                if let Some(name) = self.pick(Kind::Pod) {
                    self.cluster.delete(&Cluster::key(Kind::Pod, "team", &name));
                }
            }
            _ => {}
        }
    }
}

/// Keys and uids of the Jobs and pods of the cluster.
fn made(cluster: &Cluster) -> Vec<(ObjectKey, Value)> {
    let runs = cluster.objects().iter().filter(|(key, _)| [Kind::JOB, Kind::Pod].contains(&key.kind));
    runs.map(|(key, object)| (key.clone(), object["metadata"]["uid"].clone())).collect()
}

#[test]
fn jobs_without_outside_changes_come_to_rest_and_writes_end() {
    for seed in seeds(60) {
        // Prints the seed, because the message of a panic in the cluster does not name the seed.
        println!("seed {seed}");
        let mut world = begin(seed);
        for number in 0..10 + world.dice.below(15) {
            world.event(number);
            let seconds = world.dice.seconds(0, 40);
            world.cluster.pass(seconds);
        }
        world.cluster.pass(CALM.0);
        let (writes, before) = (world.cluster.writes.len(), made(&world.cluster));
        world.cluster.pass(CALM.1);
        let since = &world.cluster.writes[writes..];
        assert!(since.is_empty(), "seed {seed}: {} writes: {:?}", since.len(), &since[..since.len().min(20)]);
        assert_eq!(made(&world.cluster), before, "seed {seed}");
    }
}
