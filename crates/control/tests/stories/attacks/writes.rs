//! Writes of the tenant: any field of any job, at random.

use berth_api::labels;
use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::{World, active, holds, of_pod, uid};
use crate::stories::cluster::{Cluster, job, merge};
use crate::stories::jobsets::slices;
use crate::stories::training::training;

/// Keys of labels and annotations that a tenant may hope something of.
const KEYS: [&str; 24] = [
    labels::QUEUE_NAME,
    labels::PREBUILT_WORKLOAD_NAME,
    labels::PRIORITY_CLASS,
    labels::MAX_EXEC_TIME_SECONDS,
    labels::MANAGED,
    labels::POD_SET,
    labels::JOB_UID,
    labels::WORKLOAD,
    labels::WORKLOAD_SLICE_NAME,
    labels::WORKLOAD_SLICE_REPLACEMENT_FOR,
    labels::ELASTIC_JOB,
    labels::ADMISSION_GATED_BY,
    labels::JOB_MIN_PARALLELISM,
    labels::JOB_COMPLETIONS_EQUAL_PARALLELISM,
    labels::STOPPING,
    labels::POD_SUSPENDING_PARENT,
    labels::CAPACITY_TIERS,
    labels::ELASTIC_WORKERS,
    labels::LAST_SCALE,
    labels::TOLD_WORKERS,
    labels::BEFORE_GROWTH,
    labels::SUSPENDED_WITH_JOB,
    "jobset.sigs.k8s.io/restart-attempt",
    "berth.dev/own-parallelism",
];

impl World {
    /// A value that may mean something under some key.
    fn value(&mut self) -> Value {
        match self.dice.below(9) {
            0 | 1 => Value::Null,
            2 => json!(["lq", "other", "missing"][self.dice.below(3)]),
            3 => json!((self.dice.below(5)).to_string()),
            4 => json!(["true", "false"][self.dice.below(2)]),
            5 => json!("1-4"),
            6 => {
                let kind = self.any_kind();
                let name = self.pick(kind);
                json!(
                    name.and_then(
                        |name| uid(&self.cluster.objects[&Cluster::key(kind, "team", &name)]).map(str::to_owned)
                    )
                )
            }
            7 => json!(self.pick(Kind::Workload)),
            _ => json!("high"),
        }
    }

    pub(super) fn creates(&mut self) -> String {
        let number = self.number;
        let mut labelled = json!({labels::QUEUE_NAME: (["lq", "other"][self.dice.below(2)])});
        if self.dice.below(4) == 0 {
            labelled = json!({});
        }
        match self.dice.below(6) {
            0 => {
                let mut set = slices();
                let name = format!("s{number}");
                set["metadata"] = json!({"namespace": "team", "name": name, "labels": labelled});
                set["spec"]["suspend"] = json!(self.dice.below(2) == 0);
                set["spec"]["replicatedJobs"][0]["replicas"] = json!(1 + self.dice.below(2));
                set["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = json!(1);
                if self.dice.below(2) == 0 {
                    set["spec"]["failurePolicy"] = json!({"maxRestarts": self.dice.below(3)});
                }
                self.cluster.put(Kind::JOB_SET, set);
                name
            }
            1 => {
                let name = format!("t{number}");
                self.cluster.put(Kind::TrainingJob, training(&name, json!({})));
                name
            }
            _ => {
                let mut name = format!("j{number}");
                if let Some(set) = self.pick(Kind::JOB_SET).filter(|_| self.dice.below(3) == 0) {
                    // The name that one of the Jobs of a JobSet has, or would have if there were more of them.
                    name = format!("{set}-job-{}", self.dice.below(4));
                    if self.cluster.objects.contains_key(&Cluster::key(Kind::JOB, "team", &name)) {
                        return "nothing: the name is taken".to_owned();
                    }
                }
                let mut made = job(&name, "lq", &(1 + self.dice.below(3)).to_string(), self.dice.below(2) == 0);
                made["metadata"]["labels"] = labelled;
                made["spec"]["parallelism"] = json!(1 + self.dice.below(4));
                made["spec"]["completions"] = json!(1 + self.dice.below(6));
                if self.dice.below(3) == 0
                    && let Some(controller) = self.controller()
                {
                    made["metadata"]["ownerReferences"] = controller;
                }
                if self.dice.below(6) == 0
                    && let Some(workload) = self.pick(Kind::Workload)
                {
                    made["metadata"]["labels"][labels::PREBUILT_WORKLOAD_NAME] = json!(workload);
                }
                self.cluster.put(Kind::JOB, made);
                name
            }
        }
    }

    /// One write of the tenant to something that he has; two things may be changed at once.
    pub(super) fn writes(&mut self) -> String {
        let kind = self.any_kind();
        let Some(name) = self.pick(kind) else { return "nothing".to_owned() };
        let mut patch = json!({});
        for _ in 0..1 + self.dice.below(2) {
            let change = self.change(kind, &name);
            merge(&mut patch, &change);
        }
        self.cluster.edit(kind, "team", &name, &patch);
        format!("{kind:?} {name}: {patch}")
    }

    fn change(&mut self, kind: Kind, name: &str) -> Value {
        let suspended = self.cluster.objects[&Cluster::key(kind, "team", name)]["spec"]["suspend"] == json!(true);
        match self.dice.below(12) {
            0 | 1 => json!({"spec": {"suspend": self.dice.below(2) == 0}}),
            2 | 3 => json!({"metadata": {"labels": {KEYS[self.dice.below(KEYS.len())]: self.value()}}}),
            4 => json!({"metadata": {"annotations": {KEYS[self.dice.below(KEYS.len())]: self.value()}}}),
            5 => {
                json!({"metadata": {"labels": {labels::QUEUE_NAME: ([None, Some("lq"), Some("other")][self.dice.below(3)])}}})
            }
            6 => json!({"metadata": {"ownerReferences": self.controller()}}),
            7 => json!({"metadata": {"finalizers": ([[].as_slice(), &["example.com/hold"]][self.dice.below(2)])}}),
            _ if kind == Kind::JOB && suspended && self.dice.below(2) == 0 => {
                let cpu = (1 + self.dice.below(3)).to_string();
                let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
                json!({"spec": {"template": {"spec": {"containers": [container]}}}})
            }
            _ if kind == Kind::JOB => json!({"spec": {"parallelism": 1 + self.dice.below(5)}}),
            _ if kind == Kind::JOB_SET => self.change_of_set(name, suspended),
            _ => self.change_of_training(),
        }
    }

    /// A change of a JobSet's spec. Its failure policy may come and go, and not change.
    fn change_of_set(&mut self, name: &str, suspended: bool) -> Value {
        let spec = &self.cluster.objects[&Cluster::key(Kind::JOB_SET, "team", name)]["spec"];
        let (mut jobs, has_policy) = (spec["replicatedJobs"].clone(), spec["failurePolicy"].is_object());
        match self.dice.below(4) {
            0 if has_policy => return json!({"spec": {"failurePolicy": null}}),
            0 => return json!({"spec": {"failurePolicy": {"maxRestarts": self.dice.below(3)}}}),
            _ if !suspended => return json!({"metadata": {"annotations": {"example.com/x": self.value()}}}),
            1 => jobs[0]["replicas"] = json!(1 + self.dice.below(3)),
            2 => jobs[0]["template"]["spec"]["parallelism"] = json!(1 + self.dice.below(3)),
            _ => {
                let cpu = (1 + self.dice.below(3)).to_string();
                jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                    json!(cpu);
            }
        }
        json!({"spec": {"replicatedJobs": jobs}})
    }

    fn change_of_training(&mut self) -> Value {
        match self.dice.below(3) {
            0 => json!({"spec": {"resources": {"maxReplicas": 1 + self.dice.below(4)}}}),
            1 => json!({"spec": {"schedulingConfig": {"queue": (["lq", "other"][self.dice.below(2)])}}}),
            _ => json!({"spec": {"resources": {"replicaResources": {"cpu": (1 + self.dice.below(2)).to_string()}}}}),
        }
    }

    /// Something is deleted, and its pods in the background or before it, or they are left behind.
    pub(super) fn deletes(&mut self) -> String {
        let kind = self.any_kind();
        let Some(name) = self.pick(kind) else { return "nothing".to_owned() };
        let key = Cluster::key(kind, "team", &name);
        let mode = self.dice.below(3);
        if mode == 2 && self.leaves_pods(&key) {
            return format!("{kind:?} {name} is deleted, and its pods are left");
        }
        self.cluster.delete_as(&key, mode == 1);
        self.cluster.left_behind.retain(|(_, pod)| pod.job.as_ref().is_none_or(|(job, _)| *job != name));
        format!("{kind:?} {name} is deleted, in the foreground: {}", mode == 1)
    }

    /// Deletes a job without its pods, where some run by its quota.
    fn leaves_pods(&mut self, key: &ObjectKey) -> bool {
        let object = &self.cluster.objects[key];
        let uid = uid(object).unwrap().to_owned();
        let runs = |job: &Value| active(job) > 0 && job["metadata"]["deletionTimestamp"].is_null();
        let is_of = |job: &Value| job["metadata"]["ownerReferences"][0]["uid"] == json!(uid);
        let any_runs = runs(object) || self.all(Kind::JOB).any(|(_, job)| is_of(job) && runs(job));
        let was_left = self.cluster.left_behind.iter().any(|(_, pod)| pod.job.as_ref().is_some_and(|job| job.1 == uid));
        if !any_runs || was_left || !self.has_quota(object) || object["metadata"]["deletionTimestamp"].is_string() {
            return false;
        }
        if key.kind == Kind::JOB && self.cluster.workload_of(&key.name).is_some() {
            self.orphaned.insert(format!("{uid}-left"), of_pod(&object["spec"]["template"]["spec"]));
        }
        self.cluster.delete_orphaning(key);
        true
    }

    /// A pod of a Job that runs by its own quota loses the labels by which the Job knows it, and the Job makes another one.
    pub(super) fn relabels(&mut self) -> String {
        let Some(name) = self.pick(Kind::JOB) else { return "nothing".to_owned() };
        let job = self.cluster.job(&name).clone();
        let workload = self.cluster.workload_of(&name).filter(|workload| holds(workload));
        let Some(workload) = workload.and_then(|workload| workload["metadata"]["name"].as_str()).map(str::to_owned)
        else {
            return "nothing".to_owned();
        };
        if active(&job) == 0 || job["metadata"]["deletionTimestamp"].is_string() {
            return "nothing".to_owned();
        }
        let (pod, cpu) = (format!("{name}-p{}", self.number), of_pod(&job["spec"]["template"]["spec"]).to_string());
        let pod = self.cluster.put_pod_of(&pod, (&name, &json!({})), &workload, &cpu);
        self.cluster.release_pod(&pod);
        format!("a pod of {name} loses its labels")
    }
}
