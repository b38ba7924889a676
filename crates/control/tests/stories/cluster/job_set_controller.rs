//! The controller of JobSets, as it does things in version 0.12: the Jobs of an attempt are made, started, stopped and counted, and a failure
//! makes them all anew.

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::{Cluster, merge};

const ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";

fn ended(job: &Value) -> Option<bool> {
    let conditions = job["status"]["conditions"].as_array()?;
    let end = |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
    if end("Complete") { Some(true) } else { end("Failed").then_some(false) }
}

impl Cluster {
    /// One look at each JobSet.
    pub(super) fn job_set_controller(&mut self) -> bool {
        if !self.job_sets_run || self.controller_sleeps {
            return false;
        }
        let sets: Vec<ObjectKey> = self.objects.keys().filter(|key| key.kind == Kind::JOB_SET).cloned().collect();
        sets.into_iter().fold(false, |moved, key| self.look_at_set(&key) | moved)
    }

    fn look_at_set(&mut self, key: &ObjectKey) -> bool {
        let set = self.objects[key].clone();
        if set["metadata"]["deletionTimestamp"].is_string() {
            return false;
        }
        let uid = &set["metadata"]["uid"];
        let jobs: Vec<ObjectKey> = self
            .objects
            .iter()
            .filter(|(key, job)| key.kind == Kind::JOB && job["metadata"]["ownerReferences"][0]["uid"] == *uid)
            .map(|(key, _)| key.clone())
            .collect();
        let over = set["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|one| ["Completed", "Failed"].contains(&one["type"].as_str().unwrap_or("")))
        });
        if over {
            let stays = |key: &&ObjectKey| ended(&self.objects[*key]).is_none() && !self.goes(key);
            let left: Vec<&ObjectKey> = jobs.iter().filter(stays).collect();
            left.iter().for_each(|key| self.delete(key));
            return !left.is_empty();
        }
        let restarts = set["status"]["restarts"].as_i64().unwrap_or(0);
        let is_of = |job: &Value| job["metadata"]["labels"][ATTEMPT] == json!(restarts.to_string());
        let (current, older): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|key| is_of(&self.objects[key]));
        let older: Vec<ObjectKey> = older.into_iter().filter(|key| !self.goes(key)).collect();
        if !older.is_empty() {
            older.iter().for_each(|key| self.delete(key));
            return true;
        }
        self.count_jobs(key, &set, &current) || self.run_jobs(key, &set, &current)
    }

    /// Whether it is being deleted already, and a user's finalizer keeps it.
    fn goes(&self, job: &ObjectKey) -> bool {
        self.objects[job]["metadata"]["deletionTimestamp"].is_string()
    }

    /// Writes the status of the JobSet, if it has changed.
    fn count_jobs(&mut self, key: &ObjectKey, set: &Value, jobs: &[ObjectKey]) -> bool {
        let wanted = set["spec"]["replicatedJobs"].as_array().cloned().unwrap_or_default();
        let replicas = |entry: &Value| entry["replicas"].as_u64().unwrap_or(1);
        let mut rows = Vec::new();
        for entry in &wanted {
            let prefix = format!("{}-{}-", key.name, entry["name"].as_str().unwrap());
            let own = jobs.iter().filter(|job| job.name.starts_with(&prefix)).map(|job| &self.objects[job]);
            let own: Vec<&Value> = own.collect();
            let count = |which: &dyn Fn(&&&Value) -> bool| own.iter().filter(which).count();
            let active = |job: &&&Value| ended(job).is_none() && job["status"]["active"].as_i64().unwrap_or(0) > 0;
            let ready = |job: &&&Value| ended(job).is_none() && job["status"]["ready"].as_i64().unwrap_or(0) > 0;
            rows.push(json!({"name": entry["name"], "active": count(&active), "ready": count(&ready),
                "succeeded": count(&|job| ended(job) == Some(true)), "failed": count(&|job| ended(job) == Some(false))}));
        }
        let all = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
        let stopped = set["spec"]["suspend"] == json!(true)
            && jobs
                .iter()
                .all(|job| self.objects[job]["spec"]["suspend"] == json!(true) || ended(&self.objects[job]).is_some());
        let condition = |kind: &str, status: bool| {
            json!([{"type": kind, "status": if status { "True" } else { "False" }, "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let restarts = set["status"]["restarts"].as_i64().unwrap_or(0);
        let most = set["spec"]["failurePolicy"]["maxRestarts"].as_i64().unwrap_or(0);
        let mut status = json!({"replicatedJobsStatus": rows.clone(), "conditions": condition("Suspended", stopped)});
        if all("failed") > 0 && restarts < most {
            // In one write with the counts of the attempt that has failed.
            merge(&mut status, &json!({"restarts": restarts + 1, "restartsCountTowardsMax": restarts + 1}));
        } else if all("failed") > 0 {
            status["conditions"] = condition("Failed", true);
        } else if all("succeeded") == wanted.iter().map(replicas).sum::<u64>() {
            status["conditions"] = condition("Completed", true);
        }
        let mut new = set.clone();
        merge(&mut new["status"], &status);
        if new == *set {
            return false;
        }
        self.store(key, new);
        true
    }

    /// Stops or starts its Jobs, and makes those that lack.
    fn run_jobs(&mut self, key: &ObjectKey, set: &Value, jobs: &[ObjectKey]) -> bool {
        let suspend = set["spec"]["suspend"] == json!(true);
        let mut moved = false;
        for entry in set["spec"]["replicatedJobs"].as_array().into_iter().flatten() {
            for index in 0..entry["replicas"].as_u64().unwrap_or(1) {
                let name = format!("{}-{}-{index}", key.name, entry["name"].as_str().unwrap());
                let job = Self::key(Kind::JOB, "team", &name);
                if !self.objects.contains_key(&job) {
                    self.make_job(&job, set, entry, suspend);
                    moved = true;
                }
            }
        }
        for job in jobs.iter().filter(|job| ended(&self.objects[*job]).is_none()).cloned().collect::<Vec<_>>() {
            if (self.objects[&job]["spec"]["suspend"] == json!(true)) != suspend {
                let role = job.name[key.name.len() + 1..].rsplit_once('-').map_or("", |(role, _)| role);
                let entry =
                    set["spec"]["replicatedJobs"].as_array().unwrap().iter().find(|entry| entry["name"] == role);
                let pods = entry.map(|entry| entry["template"]["spec"]["template"].clone()).filter(|_| !suspend);
                let mut change = json!({"spec": {"suspend": suspend}});
                if let Some(pods) = pods {
                    change["spec"]["template"] = pods;
                    change["status"] = json!({"startTime": null});
                }
                self.edit(Kind::JOB, "team", &job.name, &change);
                moved = true;
            }
        }
        moved
    }

    fn make_job(&mut self, job: &ObjectKey, set: &Value, entry: &Value, suspend: bool) {
        let mut made = json!({"metadata": entry["template"]["metadata"], "spec": entry["template"]["spec"]});
        let attempt = set["status"]["restarts"].as_i64().unwrap_or(0).to_string();
        let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": set["metadata"]["name"],
            "uid": set["metadata"]["uid"], "controller": true});
        merge(
            &mut made,
            &json!({"metadata": {"namespace": "team", "name": job.name, "ownerReferences": [owner],
            "labels": {ATTEMPT: attempt}}, "spec": {"suspend": suspend}}),
        );
        self.put(Kind::JOB, made);
    }
}
