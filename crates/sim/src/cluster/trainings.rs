//! TrainingJobs and their Workloads in the form in which stories read them.

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::{Cluster, is};

impl Cluster {
    /// A TrainingJob of namespace `team`, which must exist.
    pub fn training(&self, name: &str) -> &Value {
        &self.objects()[&Self::key(Kind::TrainingJob, "team", name)]
    }

    /// The phase in the status of a TrainingJob.
    pub fn phase(&self, name: &str) -> &str {
        self.training(name)["status"]["phase"].as_str().unwrap_or("")
    }

    /// A condition of a TrainingJob; null if the condition is absent.
    pub fn training_condition(&self, name: &str, kind: &str) -> Value {
        let list = self.training(name)["status"]["conditions"].as_array().cloned().unwrap_or_default();
        list.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    }

    /// The first Workload of a TrainingJob.
    pub fn workload_of_training(&self, name: &str) -> Option<Value> {
        let uid = &self.objects().get(&Self::key(Kind::TrainingJob, "team", name))?["metadata"]["uid"];
        let mut all = self.objects().iter().filter(|(key, _)| key.kind == Kind::Workload).map(|(_, object)| object);
        all.find(|object| &object["metadata"]["ownerReferences"][0]["uid"] == uid).cloned()
    }

    /// The key of the first Workload of a TrainingJob.
    pub fn workload_key(&self, training: &str) -> ObjectKey {
        let workload = self.workload_of_training(training).unwrap();
        Self::key(Kind::Workload, "team", workload["metadata"]["name"].as_str().unwrap())
    }

    /// Whether a Job of a name exists.
    pub fn has_job(&self, name: &str) -> bool {
        self.objects().contains_key(&Self::key(Kind::JOB, "team", name))
    }

    /// The Workload that stands for a TrainingJob.
    pub fn workload_object(&self, name: &str) -> &Value {
        let slices = self.slices(name);
        let [(slice, ..)] = slices.as_slice() else { panic!("one slice, not {slices:?}") };
        &self.objects()[&Self::key(Kind::Workload, "team", slice)]
    }

    /// Number of evictions of a TrainingJob for a reason.
    pub fn evictions_of(&self, name: &str, reason: &str) -> i64 {
        let all = self.workload_object(name)["status"]["schedulingStats"]["evictions"].as_array();
        let found = all.into_iter().flatten().find(|entry| entry["reason"] == json!(reason));
        found.map_or(0, |entry| entry["count"].as_i64().unwrap())
    }

    /// The capacity tier in the status of a TrainingJob.
    pub fn tier_of(&self, name: &str) -> &str {
        self.training(name)["status"]["capacityTier"].as_str().unwrap_or("")
    }

    /// Number of workers for which the Job of a TrainingJob creates pods; 0 if there is no Job.
    pub fn workers(&self, name: &str) -> i64 {
        let key = Self::key(Kind::JOB, "team", &format!("{name}-worker"));
        self.objects().get(&key).map_or(0, |job| job["spec"]["completions"].as_i64().unwrap())
    }

    /// Unfinished Workloads of a TrainingJob: name, number of reserved cpus, and the name of the Workload that each replaces.
    pub fn slices(&self, name: &str) -> Vec<(String, i64, Option<String>)> {
        let uid = &self.training(name)["metadata"]["uid"];
        let owned = self.objects().iter().filter(|(key, object)| {
            key.kind == Kind::Workload && &object["metadata"]["ownerReferences"][0]["uid"] == uid
        });
        owned
            .filter(|(_, object)| !is(object, "Finished"))
            .map(|(key, object)| {
                let replaces = &object["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"];
                let replaces = replaces.as_str().map(|key| key.rsplit_once('/').unwrap().1.to_owned());
                (key.name.clone(), reserved(object), replaces)
            })
            .collect()
    }
}

/// Number of cpus that a Workload holds.
pub fn reserved(object: &Value) -> i64 {
    if !is(object, "QuotaReserved") {
        return 0;
    }
    let set = &object["status"]["admission"]["podSetAssignments"][0];
    let given = set["count"].as_i64().unwrap_or(1);
    let left = object["spec"]["podSets"][0]["count"].as_i64().unwrap_or(1).min(given);
    let cpus: i64 = set["resourceUsage"]["cpu"].as_str().map_or(0, |text| text.parse().unwrap());
    cpus / given * left
}
