//! The simulated job controller: running Jobs have active pods, suspended Jobs have none.

use berth_control::write::{Kind, ObjectKey, PodsOf};
use serde_json::{Value, json};

use super::Cluster;
use crate::api_server::is_deleting;

/// Whether the number of a Job's workers may change.
pub(super) fn is_elastic(job: &Value) -> bool {
    let notes = &job["metadata"]["annotations"];
    notes["berth.dev/elastic-workers"].is_string() || notes["berth.dev/told-workers"].is_string()
}

/// The number of indexes in a list of the form `0,2-4`.
fn indexes(list: &Value) -> i64 {
    let list = list.as_str().unwrap_or_default().split(',').filter(|part| !part.is_empty());
    let each = list.map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        last.parse::<i64>().unwrap() - first.parse::<i64>().unwrap() + 1
    });
    each.sum()
}

impl Cluster {
    /// Completes a Job: all of its pods succeed.
    pub fn complete(&mut self, name: &str) {
        let key = Self::key(Kind::JOB, "team", name);
        let mut job = self.objects()[&key].clone();
        job["status"]["active"] = json!(0);
        job["status"]["ready"] = json!(0);
        job["status"]["succeeded"] = job["spec"]["parallelism"].clone();
        job["status"]["conditions"] = json!([{
            "type": "Complete", "status": "True", "message": "Job finished successfully",
            "lastTransitionTime": self.now().to_string(), "lastProbeTime": self.now().to_string(),
        }]);
        self.store(&key, job);
    }

    /// Lets a Job fail: the Job's pods fail and are not retried.
    pub fn fail(&mut self, name: &str) {
        let at = self.now().to_string();
        let end = json!({"type": "Failed", "status": "True", "lastTransitionTime": at, "lastProbeTime": at});
        let status = json!({"active": 0, "ready": 0, "failed": 1, "conditions": [end]});
        self.edit(Kind::JOB, "team", name, &json!({"status": status}));
    }

    /// Number of the active pods that a pod query finds, in clusters that simulate pods of Jobs.
    pub(super) fn active_of(&self, pods: &PodsOf) -> i64 {
        if !self.jobs_are_resized {
            return 0;
        }
        let jobs = self.objects().iter().filter(|(key, _)| key.kind == Kind::JOB).map(|(_, job)| job);
        let mine = jobs.filter(|job| match &pods.jobs {
            Some(known) => job["metadata"]["uid"].as_str().is_some_and(|uid| known.contains(uid)),
            None => job["metadata"]["uid"] == pods.uid,
        });
        mine.filter_map(|job| job["status"]["active"].as_i64()).sum()
    }

    /// Runs the job controller once: running Jobs get active pods, and suspended Jobs lose their pods.
    pub(super) fn job_controller(&mut self) -> bool {
        if self.controller_sleeps {
            return false;
        }
        let keys: Vec<ObjectKey> = self.objects().keys().filter(|key| key.kind == Kind::JOB).cloned().collect();
        let mut moved = false;
        for key in keys {
            let old = self.objects()[&key].clone();
            if is_deleting(&old) {
                // The job controller neither starts nor stops a Job that is being deleted.
                continue;
            }
            let mut new = old.clone();
            if !new["status"].is_object() {
                new["status"] = json!({});
            }
            let over = new["status"]["conditions"].as_array().is_some_and(|list| {
                list.iter().any(|condition| ["Complete", "Failed"].contains(&condition["type"].as_str().unwrap_or("")))
            });
            let suspended = new["spec"]["suspend"] == json!(true);
            let parallelism = new["spec"]["parallelism"].as_i64().unwrap_or(1);
            // The job controller creates only as many pods as still have to complete.
            let ended = |field: &str| new["status"][field].as_i64().unwrap_or(0);
            let indexes = |field: &str| indexes(&new["status"][field]);
            let ended = ended("succeeded").max(indexes("completedIndexes") + indexes("failedIndexes"));
            let left = new["spec"]["completions"].as_i64().map_or(parallelism, |all| (all - ended).max(0));
            let parallelism = parallelism.min(left);
            if !over && !suspended && new["status"]["startTime"].is_null() {
                new["status"]["startTime"] = json!(self.now().to_string());
                new["status"]["active"] = json!(parallelism);
            }
            if !over && !suspended && is_elastic(&new) {
                // The number of active pods of an elastic Job follows the Job's parallelism.
                new["status"]["active"] = json!(parallelism);
                let ready = new["status"]["ready"].as_i64().unwrap_or(0);
                new["status"]["ready"] = json!(ready.min(parallelism));
            }
            if self.jobs_are_resized && !over && !suspended {
                let left = new["spec"]["completions"].as_i64().unwrap_or(parallelism)
                    - new["status"]["succeeded"].as_i64().unwrap_or(0);
                new["status"]["active"] = json!(parallelism.min(left.max(0)));
            }
            let active = new["status"]["active"].as_i64().unwrap_or(0);
            let lacks = self.lacks_nodes(&new);
            if active > 0 && !self.pods_stay_unready {
                let elastic = is_elastic(&new);
                let fit = self.nodes.filter(|_| elastic).unwrap_or(active);
                new["status"]["ready"] = json!(if lacks { 0 } else { active.min(fit) });
            }
            if suspended && new["status"]["active"].as_i64().unwrap_or(0) > 0 {
                new["status"]["active"] = json!(0);
                new["status"]["ready"] = json!(0);
            }
            if !over && (suspended || new["status"]["conditions"].is_array()) {
                let status = if suspended { "True" } else { "False" };
                new["status"]["conditions"] = json!([{"type": "Suspended", "status": status}]);
            }
            if new != old && (new["status"] != json!({}) || !old["status"].is_null()) {
                moved = true;
                self.store(&key, new);
            }
        }
        moved
    }
}
