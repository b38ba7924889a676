//! Random writes of the tenant to any field of any job.

use berth_api::labels;
use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::{World, active, holds, of_pod, uid};
use crate::stories::cluster::{ATTEMPT, Cluster, PART, job, merge};
use crate::stories::jobsets::slices;
use crate::stories::training::training;

/// The label that names a JobSet's uid on the pods of the JobSet.
const JOB_SET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
/// Keys of labels and annotations that a tenant may try in an attack.
const KEYS: [&str; 25] = [
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
    ATTEMPT,
    PART,
    "berth.dev/own-parallelism",
];

impl World {
    /// A random value that is valid for some of the labels and annotations in [`KEYS`].
    fn value(&mut self) -> Value {
        match self.dice.below(10) {
            0 | 1 => Value::Null,
            2 => json!(["lq", "other", "missing"][self.dice.below(3)]),
            3 => json!((self.dice.below(5)).to_string()),
            4 => json!(["true", "false"][self.dice.below(2)]),
            5 => json!("1-4"),
            6 => {
                let kind = self.any_kind();
                let name = self.pick(kind);
                json!(name.and_then(|name| {
                    uid(&self.cluster.objects()[&Cluster::key(kind, "team", &name)]).map(str::to_owned)
                }))
            }
            7 => json!(self.pick(Kind::Workload)),
            8 => json!("job"),
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
                    // A name that a Job of the JobSet has, or would have if the JobSet had more Jobs.
                    name = format!("{set}-job-{}", self.dice.below(4));
                    if self.cluster.objects().contains_key(&Cluster::key(Kind::JOB, "team", &name)) {
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
                    if self.dice.below(2) == 0 {
                        merge(&mut made["metadata"]["labels"], &json!({ATTEMPT: "0", PART: "job"}));
                    }
                }
                if self.dice.below(6) == 0
                    && let Some(workload) = self.pick(Kind::Workload)
                {
                    made["metadata"]["labels"][labels::PREBUILT_WORKLOAD_NAME] = json!(workload);
                }
                if self.dice.below(6) == 0
                    && let Some(workload) = self.pick(Kind::Workload)
                {
                    // The label and the annotation that Berth gives a pod template at a start.
                    made["spec"]["template"]["metadata"] =
                        json!({"labels": {labels::POD_SET: "main"}, "annotations": {labels::WORKLOAD: workload}});
                }
                self.cluster.put(Kind::JOB, made);
                name
            }
        }
    }

    /// One write of the tenant to one of the tenant's objects; the write may change two fields at once.
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
        let suspended = self.cluster.objects()[&Cluster::key(kind, "team", name)]["spec"]["suspend"] == json!(true);
        match self.dice.below(14) {
            0 | 1 => json!({"spec": {"suspend": self.dice.below(2) == 0}}),
            2 | 3 => json!({"metadata": {"labels": {KEYS[self.dice.below(KEYS.len())]: self.value()}}}),
            4 => json!({"metadata": {"annotations": {KEYS[self.dice.below(KEYS.len())]: self.value()}}}),
            5 => {
                json!({"metadata": {"labels": {labels::QUEUE_NAME: ([None, Some("lq"), Some("other")][self.dice.below(3)])}}})
            }
            6 if self.dice.below(2) == 0 => {
                let labels = json!({ATTEMPT: "0", PART: "job"});
                json!({"metadata": {"ownerReferences": self.controller(), "labels": labels}})
            }
            6 => json!({"metadata": {"ownerReferences": self.controller()}}),
            7 => json!({"metadata": {"finalizers": ([[].as_slice(), &["example.com/hold"]][self.dice.below(2)])}}),
            _ if kind == Kind::JOB && suspended && self.dice.below(2) == 0 => {
                let cpu = (1 + self.dice.below(3)).to_string();
                let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
                json!({"spec": {"template": {"spec": {"containers": [container]}}}})
            }
            _ if kind == Kind::JOB && suspended && self.dice.below(2) == 0 => {
                json!({"spec": {"template": self.marks()}})
            }
            _ if kind == Kind::JOB => json!({"spec": {"parallelism": 1 + self.dice.below(5)}}),
            _ if kind == Kind::JOB_SET => self.change_of_set(name, suspended),
            _ => self.change_of_training(),
        }
    }

    /// Random labels, annotations and node selectors of a pod template.
    fn marks(&mut self) -> Value {
        let part = ["labels", "annotations"][self.dice.below(2)];
        let marks = json!({part: {KEYS[self.dice.below(KEYS.len())]: self.value()}});
        let tier = [json!("reserved"), json!("spot"), Value::Null, self.value()];
        json!({"metadata": marks, "spec": {"nodeSelector": {"tier": tier[self.dice.below(tier.len())]}}})
    }

    /// A random change of a JobSet's spec. The random change may add or remove the JobSet's failure policy, and does not alter an existing failure policy.
    fn change_of_set(&mut self, name: &str, suspended: bool) -> Value {
        let spec = &self.cluster.objects()[&Cluster::key(Kind::JOB_SET, "team", name)]["spec"];
        let (mut jobs, has_policy) = (spec["replicatedJobs"].clone(), spec["failurePolicy"].is_object());
        match self.dice.below(6) {
            0 if has_policy => return json!({"spec": {"failurePolicy": null}}),
            0 => return json!({"spec": {"failurePolicy": {"maxRestarts": self.dice.below(3)}}}),
            _ if !suspended => return json!({"metadata": {"annotations": {"example.com/x": self.value()}}}),
            1 => jobs[0]["replicas"] = json!(1 + self.dice.below(3)),
            2 => jobs[0]["template"]["spec"]["parallelism"] = json!(1 + self.dice.below(3)),
            3 => merge(&mut jobs[0]["template"]["spec"]["template"], &self.marks()),
            4 => {
                let label = json!({"labels": {KEYS[self.dice.below(KEYS.len())]: self.value()}});
                merge(&mut jobs[0]["template"]["metadata"], &label);
            }
            _ => {
                let cpu = (1 + self.dice.below(3)).to_string();
                jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                    json!(cpu);
            }
        }
        json!({"spec": {"replicatedJobs": jobs}})
    }

    fn change_of_training(&mut self) -> Value {
        match self.dice.below(4) {
            0 => json!({"spec": {"resources": {"maxReplicas": 1 + self.dice.below(4)}}}),
            1 => json!({"spec": {"schedulingConfig": {"queue": (["lq", "other"][self.dice.below(2)])}}}),
            2 => {
                json!({"spec": {"template": {"metadata": {"labels": {KEYS[self.dice.below(KEYS.len())]: self.value()}}}}})
            }
            _ => json!({"spec": {"resources": {"replicaResources": {"cpu": (1 + self.dice.below(2)).to_string()}}}}),
        }
    }

    /// The tenant deletes an object in the background or in the foreground, or leaves the pods of the object behind.
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

    /// Deletes a job without its pods, if the job has pods that run by its quota.
    fn leaves_pods(&mut self, key: &ObjectKey) -> bool {
        let object = &self.cluster.objects()[key];
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

    /// A pod that no Job counts loses or gains a label, or loses its annotation.
    pub(super) fn remarks(&mut self) -> String {
        let Some(name) = self.pick(Kind::JobPod) else { return "nothing".to_owned() };
        let change = match self.dice.below(4) {
            0 => json!({"labels": {labels::POD_SET: null}}),
            1 => json!({"labels": {labels::POD_SET: (["main", "job", "worker"][self.dice.below(3)])}}),
            2 => json!({"annotations": {labels::WORKLOAD: self.value()}}),
            _ => {
                // The random label is one that names a job's uid, and no controller adopts a pod by any of these labels.
                let key = ["controller-uid", JOB_SET_UID, labels::TRAINING_JOB_UID][self.dice.below(3)];
                json!({"labels": {key: self.value()}})
            }
        };
        self.cluster.mark_pod(&Cluster::key(Kind::JobPod, "team", &name), &change);
        format!("pod {name}: {change}")
    }

    /// The Workload by whose quota a Job runs, and the labels that the Job's pods have beside the labels of the Job.
    fn held_by(&self, name: &str) -> Option<(String, Value)> {
        let key = Cluster::key(Kind::JOB, "team", name);
        let job = self.cluster.job(name);
        let governs = self.runs_by((&key, job));
        let uid = &governs["metadata"]["uid"];
        let mut all = self.all(Kind::Workload);
        let held = all.find(|(_, one)| holds(one) && one["metadata"]["ownerReferences"][0]["uid"] == *uid);
        let labels = match job["metadata"]["ownerReferences"][0]["kind"].as_str() {
            _ if governs == job => json!({}),
            Some("TrainingJob") => json!({labels::POD_SET: "worker", labels::TRAINING_JOB_UID: uid}),
            _ => json!({labels::POD_SET: "job", JOB_SET_UID: uid}),
        };
        held.map(|(key, _)| (key.name.clone(), labels))
    }

    /// A pod of a Job that runs by quota loses the labels by which the Job knows the pod, and the Job makes another pod.
    pub(super) fn relabels(&mut self) -> String {
        let Some(name) = self.pick(Kind::JOB) else { return "nothing".to_owned() };
        let job = self.cluster.job(&name).clone();
        let Some((workload, labels)) = self.held_by(&name) else { return "nothing".to_owned() };
        if active(&job) == 0 || job["metadata"]["deletionTimestamp"].is_string() {
            return "nothing".to_owned();
        }
        let (pod, cpu) = (format!("{name}-p{}", self.number), of_pod(&job["spec"]["template"]["spec"]).to_string());
        let pod = self.cluster.put_pod_of(&pod, (&name, &labels), &workload, &cpu);
        self.cluster.release_pod(&pod);
        format!("a pod of {name} loses its labels")
    }
}
