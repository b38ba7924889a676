//! A simulated tenant who writes, at random, every field, label, annotation, owner and finalizer of the tenant's jobs that the API server allows.

use berth_api::labels;
use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, merge};
use crate::controllers::{ATTEMPT, PART};
use crate::dice::Dice;
use crate::manifests::{job, job_set, training_job};

/// Keys of labels and annotations by which a tenant may hope to influence Berth.
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

/// The way in which the objects that a deleted object owns are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Owned objects are deleted after their owner.
    Background,
    /// Owned objects are deleted before their owner.
    Foreground,
    /// Owned objects are not deleted.
    Orphan,
}

/// A write of the tenant.
#[derive(Clone, Debug)]
pub enum Deed {
    /// The tenant creates an object.
    Create(Kind, Value),
    /// The tenant changes an object by a merge patch.
    Edit(ObjectKey, Value),
    /// The tenant deletes an object.
    Delete(ObjectKey, Propagation),
}

/// The simulated tenant, with the tenant's own random numbers.
#[derive(Clone, Debug)]
pub struct Tenant {
    dice: Dice,
    number: usize,
    /// True if every job needs a queue, even if the job names no queue.
    all_managed: bool,
}

impl Tenant {
    /// A tenant in a cluster; `all_managed` is true if every job needs a queue, and false if only jobs that name a queue do.
    #[must_use]
    pub const fn new(dice: Dice, all_managed: bool) -> Self {
        Self { dice, number: 0, all_managed }
    }

    /// The tenant's next write; `None` if there is no object to write to.
    pub fn next(&mut self, api: &ApiServer) -> Option<Deed> {
        self.number += 1;
        match self.dice.below(10) {
            0..=2 => self.creates(api),
            3..=8 => self.edits(api),
            _ => {
                let key = self.pick_job(api)?;
                let ways = [Propagation::Background, Propagation::Foreground, Propagation::Orphan];
                Some(Deed::Delete(key, self.dice.pick(&ways)))
            }
        }
    }

    fn pick(&mut self, api: &ApiServer, kind: Kind) -> Option<ObjectKey> {
        let keys: Vec<&ObjectKey> = api.objects().keys().filter(|key| key.kind == kind).collect();
        (!keys.is_empty()).then(|| keys[self.dice.below(keys.len())].clone())
    }

    fn any_kind(&mut self) -> Kind {
        self.dice.pick(&[Kind::JOB, Kind::JOB, Kind::JOB, Kind::JOB_SET, Kind::TrainingJob])
    }

    fn pick_job(&mut self, api: &ApiServer) -> Option<ObjectKey> {
        let kind = self.any_kind();
        self.pick(api, kind)
    }

    /// The owner reference to a random job of the tenant, as controller.
    fn controller(&mut self, api: &ApiServer) -> Option<Value> {
        let key = self.pick_job(api)?;
        let (api_version, kind) = match key.kind {
            Kind::TrainingJob => ("berth.dev/v1alpha1", "TrainingJob"),
            Kind::Job(kind) => (kind.info().api_version, kind.info().kind),
            _ => return None,
        };
        let uid = &api.get(&key)?["metadata"]["uid"];
        Some(json!([{"apiVersion": api_version, "kind": kind, "name": key.name, "uid": uid, "controller": true}]))
    }

    /// A random value that may have a meaning under some label or annotation.
    fn value(&mut self, api: &ApiServer) -> Value {
        match self.dice.below(10) {
            0 | 1 => Value::Null,
            2 => json!(self.dice.pick(&["lq", "other", "missing"])),
            3 => json!(self.dice.below(5).to_string()),
            4 => json!(self.dice.pick(&["true", "false"])),
            5 => json!("1-4"),
            6 => self.pick_job(api).and_then(|key| Some(api.get(&key)?["metadata"]["uid"].clone())).unwrap_or_default(),
            7 => json!(self.pick(api, Kind::Workload).map(|key| key.name)),
            8 => json!("job"),
            _ => json!("high"),
        }
    }

    fn queue_labels(&mut self) -> Value {
        if self.dice.below(4) == 0 { json!({}) } else { json!({labels::QUEUE_NAME: self.dice.pick(&["lq", "other"])}) }
    }

    fn creates(&mut self, api: &ApiServer) -> Option<Deed> {
        let (number, labelled) = (self.number, self.queue_labels());
        match self.dice.below(6) {
            0 => {
                let mut set = job_set();
                set["metadata"] = json!({"namespace": "team", "name": format!("s{number}"), "labels": labelled});
                set["spec"]["suspend"] = json!(self.dice.coin());
                set["spec"]["replicatedJobs"][0]["replicas"] = json!(1 + self.dice.below(2));
                set["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = json!(1);
                if self.dice.coin() {
                    set["spec"]["failurePolicy"] = json!({"maxRestarts": self.dice.below(3)});
                }
                Some(Deed::Create(Kind::JOB_SET, set))
            }
            1 => Some(Deed::Create(Kind::TrainingJob, training_job(&format!("t{number}"), &json!({})))),
            _ => self.creates_job(api, labelled),
        }
    }

    fn creates_job(&mut self, api: &ApiServer, labelled: Value) -> Option<Deed> {
        let mut name = format!("j{}", self.number);
        if let Some(set) = self.pick(api, Kind::JOB_SET).filter(|_| self.dice.below(3) == 0) {
            // The new Job has the name of one of the JobSet's Jobs, or the name that one more Job of the JobSet would have.
            name = format!("{}-job-{}", set.name, self.dice.below(4));
            if api.get(&ApiServer::key(Kind::JOB, "team", &name)).is_some() {
                return None;
            }
        }
        let mut made = job(&name, "lq", &(1 + self.dice.below(3)).to_string(), self.dice.coin());
        made["metadata"]["labels"] = labelled;
        made["spec"]["parallelism"] = json!(1 + self.dice.below(4));
        made["spec"]["completions"] = json!(1 + self.dice.below(6));
        if self.dice.below(3) == 0
            && let Some(controller) = self.controller(api)
        {
            made["metadata"]["ownerReferences"] = controller;
            if self.dice.coin() {
                merge(&mut made["metadata"]["labels"], &json!({ATTEMPT: "0", PART: "job"}));
            }
        }
        if self.dice.below(6) == 0
            && let Some(workload) = self.pick(api, Kind::Workload)
        {
            made["metadata"]["labels"][labels::PREBUILT_WORKLOAD_NAME] = json!(workload.name);
        }
        if self.dice.below(6) == 0
            && let Some(workload) = self.pick(api, Kind::Workload)
        {
            // The labels and annotations of the new Job's template have the form that Berth writes when it starts a job.
            made["spec"]["template"]["metadata"] =
                json!({"labels": {labels::POD_SET: "main"}, "annotations": {labels::WORKLOAD: workload.name}});
        }
        Some(Deed::Create(Kind::JOB, made))
    }

    /// A merge patch of a job with one or two changes.
    fn edits(&mut self, api: &ApiServer) -> Option<Deed> {
        let key = self.pick_job(api)?;
        let mut patch = json!({});
        for _ in 0..1 + self.dice.below(2) {
            let change = self.change(api, &key)?;
            merge(&mut patch, &change);
        }
        Some(Deed::Edit(key, patch))
    }

    fn key_and_value(&mut self, api: &ApiServer) -> Value {
        json!({self.dice.pick(&KEYS): self.value(api)})
    }

    fn change(&mut self, api: &ApiServer, key: &ObjectKey) -> Option<Value> {
        let suspended = api.get(key)?["spec"]["suspend"] == json!(true);
        Some(match self.dice.below(14) {
            0 | 1 => json!({"spec": {"suspend": self.dice.coin()}}),
            2 | 3 => json!({"metadata": {"labels": self.key_and_value(api)}}),
            4 => json!({"metadata": {"annotations": self.key_and_value(api)}}),
            5 => {
                json!({"metadata": {"labels": {labels::QUEUE_NAME: self.dice.pick(&[None, Some("lq"), Some("other")])}}})
            }
            6 if self.dice.coin() => {
                let labels = json!({ATTEMPT: "0", PART: "job"});
                json!({"metadata": {"ownerReferences": self.controller(api), "labels": labels}})
            }
            6 => json!({"metadata": {"ownerReferences": self.controller(api)}}),
            7 => json!({"metadata": {"finalizers": self.dice.pick(&[[].as_slice(), &["example.com/hold"]])}}),
            _ if key.kind == Kind::JOB && suspended && self.dice.coin() => {
                let cpu = (1 + self.dice.below(3)).to_string();
                let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
                json!({"spec": {"template": {"spec": {"containers": [container]}}}})
            }
            _ if key.kind == Kind::JOB && suspended && self.dice.coin() => {
                json!({"spec": {"template": self.marks(api)}})
            }
            _ if key.kind == Kind::JOB => json!({"spec": {"parallelism": 1 + self.dice.below(5)}}),
            _ if key.kind == Kind::JOB_SET => self.change_of_set(api, key, suspended)?,
            _ => self.change_of_training(api),
        })
    }

    /// A random label or annotation, and a random node selector, of a pod template.
    fn marks(&mut self, api: &ApiServer) -> Value {
        let part = self.dice.pick(&["labels", "annotations"]);
        let marks = json!({part: self.key_and_value(api)});
        let tiers = [json!("reserved"), json!("spot"), Value::Null, self.value(api)];
        json!({"metadata": marks, "spec": {"nodeSelector": {"tier": tiers[self.dice.below(tiers.len())]}}})
    }

    /// A random change of a JobSet's spec. The failure policy is added or removed, but never changed.
    fn change_of_set(&mut self, api: &ApiServer, key: &ObjectKey, suspended: bool) -> Option<Value> {
        let spec = &api.get(key)?["spec"];
        let (mut jobs, has_policy) = (spec["replicatedJobs"].clone(), spec["failurePolicy"].is_object());
        match self.dice.below(6) {
            0 if has_policy => return Some(json!({"spec": {"failurePolicy": null}})),
            0 => return Some(json!({"spec": {"failurePolicy": {"maxRestarts": self.dice.below(3)}}})),
            _ if !suspended => return Some(json!({"metadata": {"annotations": {"example.com/x": self.value(api)}}})),
            1 => jobs[0]["replicas"] = json!(1 + self.dice.below(3)),
            2 => jobs[0]["template"]["spec"]["parallelism"] = json!(1 + self.dice.below(3)),
            3 => merge(&mut jobs[0]["template"]["spec"]["template"], &self.marks(api)),
            4 => merge(&mut jobs[0]["template"]["metadata"], &json!({"labels": self.key_and_value(api)})),
            _ => {
                let cpu = (1 + self.dice.below(3)).to_string();
                jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
                    json!(cpu);
            }
        }
        Some(json!({"spec": {"replicatedJobs": jobs}}))
    }

    fn change_of_training(&mut self, api: &ApiServer) -> Value {
        match self.dice.below(4) {
            0 => json!({"spec": {"resources": {"maxReplicas": 1 + self.dice.below(4)}}}),
            1 => json!({"spec": {"schedulingConfig": {"queue": self.dice.pick(&["lq", "other"])}}}),
            2 => json!({"spec": {"template": {"metadata": {"labels": self.key_and_value(api)}}}}),
            _ => {
                let cpu = (1 + self.dice.below(2)).to_string();
                json!({"spec": {"resources": {"replicaResources": {"cpu": cpu}}}})
            }
        }
    }

    /// Whether every job needs a queue, even if the job names no queue.
    #[must_use]
    pub const fn all_managed(&self) -> bool {
        self.all_managed
    }
}
