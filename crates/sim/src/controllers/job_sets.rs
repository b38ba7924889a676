//! A simulation of the JobSet controller of version 0.12: the controller creates, starts, stops and counts the Jobs of an attempt, and creates all Jobs again
//! after a failure. The controller finds a JobSet's Jobs by the uid of their controlling owner and by labels, not by names. An owned Job without the number of
//! an attempt makes each reconciliation of the JobSet end with an error, and so does a Job of another owner under a name that the JobSet needs.

use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, is_deleting, merge};

/// The label with the number of the attempt for which a Job was created.
pub const ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// The label with the name of the replicated job: the controller starts only Jobs that have this label.
pub const PART: &str = "jobset.sigs.k8s.io/replicatedjob-name";

fn ended(job: &Value) -> Option<bool> {
    let conditions = job["status"]["conditions"].as_array()?;
    let end = |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
    if end("Complete") { Some(true) } else { end("Failed").then_some(false) }
}

fn is_suspended(object: &Value) -> bool {
    object["spec"]["suspend"] == json!(true)
}

/// The replicated jobs of a JobSet.
fn entries(set: &Value) -> &[Value] {
    set["spec"]["replicatedJobs"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn replicas(entry: &Value) -> u64 {
    entry["replicas"].as_u64().unwrap_or(1)
}

/// The JobSet controller, with the API server that it writes to.
#[derive(Debug)]
pub struct JobSetController<'a>(pub &'a mut ApiServer);

impl JobSetController<'_> {
    /// Runs the JobSet controller once for each JobSet that may have something to do; true if the controller wrote.
    pub fn look(&mut self) -> bool {
        let sets = self.0.take_touched_job_sets();
        sets.into_iter().fold(false, |moved, key| self.look_at_set(&key) | moved)
    }

    fn look_at_set(&mut self, key: &ObjectKey) -> bool {
        let set = self.0.objects()[key].clone();
        if is_deleting(&set) {
            return false;
        }
        let uid = &set["metadata"]["uid"];
        let is_of = |job: &Value| {
            let owners = job["metadata"]["ownerReferences"].as_array();
            let mut controllers = owners.into_iter().flatten().filter(|owner| owner["controller"] == json!(true));
            controllers.next().is_some_and(|owner| owner["uid"] == *uid && owner["kind"] == "JobSet")
        };
        let mut jobs = self.0.owned_by(uid);
        jobs.retain(|key| key.kind == Kind::JOB && is_of(&self.0.objects()[key]));
        let attempt =
            |key: &ObjectKey| self.0.objects()[key]["metadata"]["labels"][ATTEMPT].as_str()?.parse::<i64>().ok();
        let Some(attempts) = jobs.iter().map(attempt).collect::<Option<Vec<i64>>>() else { return false };
        let restarts = set["status"]["restarts"].as_i64().unwrap_or(0);
        let (current, older): (Vec<_>, Vec<_>) =
            jobs.into_iter().zip(attempts).partition(|(_, attempt)| *attempt >= restarts);
        let [current, older] = [current, older].map(|jobs| jobs.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
        let over = set["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|one| ["Completed", "Failed"].contains(&one["type"].as_str().unwrap_or("")))
        });
        if over {
            let stays = |key: &&ObjectKey| ended(&self.0.objects()[*key]).is_none() && !self.goes(key);
            let left: Vec<&ObjectKey> = current.iter().filter(stays).collect();
            left.iter().for_each(|key| self.0.delete_owned_first(key));
            return !left.is_empty();
        }
        let goes: Vec<&ObjectKey> = older.iter().filter(|key| !self.goes(key)).collect();
        if !goes.is_empty() {
            goes.iter().for_each(|key| self.0.delete_owned_first(key));
            return true;
        }
        let owned: Vec<&ObjectKey> = current.iter().chain(&older).collect();
        let (made, name_is_taken) = self.make_jobs(key, &set, &owned);
        if made {
            return true;
        }
        self.count_jobs(key, &set, &current, name_is_taken) || (!name_is_taken && self.run_jobs(&set, &current))
    }

    /// Whether a Job is being deleted already, and is kept by a user's finalizer.
    fn goes(&self, job: &ObjectKey) -> bool {
        is_deleting(&self.0.objects()[job])
    }

    /// Writes the status of the JobSet, if the status has changed. After an error in this reconciliation, only the end and the restarts of the JobSet are
    /// written.
    fn count_jobs(&mut self, key: &ObjectKey, set: &Value, jobs: &[ObjectKey], name_is_taken: bool) -> bool {
        let mut rows = Vec::new();
        for entry in entries(set) {
            let own = jobs.iter().map(|job| &self.0.objects()[job]);
            let own: Vec<&Value> = own.filter(|job| job["metadata"]["labels"][PART] == entry["name"]).collect();
            let count = |which: &dyn Fn(&&&Value) -> bool| own.iter().filter(which).count();
            let active = |job: &&&Value| ended(job).is_none() && job["status"]["active"].as_i64().unwrap_or(0) > 0;
            let ready = |job: &&&Value| ended(job).is_none() && job["status"]["ready"].as_i64().unwrap_or(0) > 0;
            rows.push(json!({"name": entry["name"], "active": count(&active), "ready": count(&ready),
                "succeeded": count(&|job| ended(job) == Some(true)), "failed": count(&|job| ended(job) == Some(false))}));
        }
        let of_end = |success: bool| {
            let count = jobs.iter().filter(|job| ended(&self.0.objects()[*job]) == Some(success)).count();
            u64::try_from(count).unwrap()
        };
        let suspended =
            jobs.iter().all(|job| is_suspended(&self.0.objects()[job]) || ended(&self.0.objects()[job]).is_some());
        let condition = |kind: &str, status: bool| {
            json!([{"type": kind, "status": if status { "True" } else { "False" }, "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let restarts = set["status"]["restarts"].as_i64().unwrap_or(0);
        let most = set["spec"]["failurePolicy"]["maxRestarts"].as_i64().unwrap_or(0);
        let conditions = condition("Suspended", is_suspended(set) && suspended);
        let mut status = json!({"replicatedJobsStatus": rows, "conditions": conditions});
        if of_end(false) > 0 && restarts < most {
            // The number of restarts is written together with the counts of the attempt that has failed.
            merge(&mut status, &json!({"restarts": restarts + 1, "restartsCountTowardsMax": restarts + 1}));
        } else if of_end(false) > 0 {
            status["conditions"] = condition("Failed", true);
        } else if of_end(true) > 0 && of_end(true) >= entries(set).iter().map(replicas).sum::<u64>() {
            status["conditions"] = condition("Completed", true);
        } else if name_is_taken {
            return false;
        }
        let mut new = set.clone();
        merge(&mut new["status"], &status);
        if new == *set {
            return false;
        }
        self.0.store(key, new);
        true
    }

    /// Creates the missing Jobs of a JobSet. The first bool is true if a Job was created, the second if the name of a Job is taken.
    fn make_jobs(&mut self, key: &ObjectKey, set: &Value, owned: &[&ObjectKey]) -> (bool, bool) {
        if owned.iter().any(|job| ended(&self.0.objects()[*job]) == Some(false)) {
            // The JobSet controller handles a failure before it creates a Job.
            return (false, false);
        }
        let (mut made, mut name_is_taken) = (false, false);
        for entry in entries(set) {
            for index in 0..replicas(entry) {
                let name = format!("{}-{}-{index}", key.name, entry["name"].as_str().unwrap());
                let job = ApiServer::key(Kind::JOB, &key.namespace, &name);
                if owned.contains(&&job) {
                    continue;
                }
                if self.0.objects().contains_key(&job) {
                    name_is_taken = true;
                } else {
                    self.make_job(&job, set, entry);
                    made = true;
                }
            }
        }
        (made, name_is_taken)
    }

    /// Stops or starts the Jobs of a JobSet.
    fn run_jobs(&mut self, set: &Value, jobs: &[ObjectKey]) -> bool {
        let suspend = is_suspended(set);
        let moves = |job: &&ObjectKey| {
            ended(&self.0.objects()[*job]).is_none() && is_suspended(&self.0.objects()[*job]) != suspend
        };
        let mut moved = false;
        for job in jobs.iter().filter(moves).cloned().collect::<Vec<_>>() {
            let mut change = json!({"spec": {"suspend": suspend}});
            if !suspend {
                let part = &self.0.objects()[&job]["metadata"]["labels"][PART];
                // The JobSet controller does not start a Job that belongs to no replicated job.
                let Some(entry) = entries(set).iter().find(|entry| entry["name"] == *part) else { continue };
                let pods = &entry["template"]["spec"]["template"];
                for field in ["labels", "annotations"] {
                    change["spec"]["template"]["metadata"][field] = pods["metadata"][field].clone();
                }
                for field in ["nodeSelector", "tolerations"] {
                    change["spec"]["template"]["spec"][field] = pods["spec"][field].clone();
                }
                change = without_nulls(change);
                change["status"] = json!({"startTime": null});
            }
            self.0.edit(&job, &change);
            moved = true;
        }
        moved
    }

    fn make_job(&mut self, job: &ObjectKey, set: &Value, entry: &Value) {
        let mut made = json!({"metadata": entry["template"]["metadata"], "spec": entry["template"]["spec"]});
        let attempt = set["status"]["restarts"].as_i64().unwrap_or(0).to_string();
        let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": set["metadata"]["name"],
            "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
        merge(
            &mut made,
            &json!({"metadata": {"namespace": job.namespace, "name": job.name, "ownerReferences": [owner],
            "labels": {ATTEMPT: attempt, PART: entry["name"]}}, "spec": {"suspend": is_suspended(set)}}),
        );
        self.0.put(Kind::JOB, made);
    }
}

/// Removes the null values from a patch, so that the patch deletes no field.
fn without_nulls(patch: Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(field, value)| (field, without_nulls(value))).collect())
        }
        other => other,
    }
}
