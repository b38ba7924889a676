//! External events of a simulation: writes of users, of a tenant and of administrators, ends of pods, and faults of processes and their connections.

use berth_control::settings::Settings;
use berth_control::write::{Kind, ObjectKey};
use serde_json::{Value, json};

use super::Simulation;
use super::message::Message;
use super::streams::WATCHED;
use crate::api_server::{ApiServer, ORPHAN, USER, is_deleting};
use crate::controllers::has_ended;
use crate::dice::Dice;
use crate::manifests::{cluster_queue, flavor, job, job_set, local_queue, pod, training_job};
use crate::review;
use crate::tenant::{Deed, Propagation};

/// Settings of control in a simulation run.
pub(super) fn settings(dice: &mut Dice) -> Settings {
    let mut settings = Settings { manage_jobs_without_queue_name: dice.below(3) == 0, ..Settings::default() };
    settings.job_kinds.insert(Kind::Pod);
    settings
}

impl Simulation {
    /// Creates the flavors and two queues, in a cohort or without, before the first external event.
    pub(super) fn set_up(&mut self) {
        self.api.write_as(USER);
        self.api.put(Kind::ResourceFlavor, flavor("default", json!({"tier": "reserved"})));
        let has_spot = self.dice.coin();
        self.api.put(Kind::ResourceFlavor, flavor("spot", json!({"tier": "spot"})));
        for (name, local) in [("first", "lq"), ("second", "other")] {
            let cohort = self.dice.coin().then_some("pool");
            let (quota, spot) = ((2 + self.dice.below(5)).to_string(), self.dice.below(4).to_string());
            let mut flavors = vec![("default", quota.as_str())];
            if has_spot {
                flavors.push(("spot", spot.as_str()));
            }
            let mut queue = cluster_queue(name, cohort, &flavors);
            let within = self.dice.pick(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]);
            let reclaim = self.dice.pick(&["Never", "LowerPriority", "Any"]);
            queue["spec"]["preemption"] = json!({"withinClusterQueue": within, "reclaimWithinCohort": reclaim});
            queue["spec"]["queueingStrategy"] = json!(self.dice.pick(&["BestEffortFIFO", "StrictFIFO"]));
            self.api.put(Kind::ClusterQueue, queue);
            self.api.put(Kind::LocalQueue, local_queue(local, name));
        }
    }

    /// Performs the next external event.
    pub(super) fn event(&mut self) {
        self.events += 1;
        self.events_left = self.events_left.saturating_sub(1);
        self.misfortune();
        self.api.write_as(USER);
        let done = match self.dice.below(20) {
            0..=5 => self.user_creates(),
            6..=9 => self.pods_end(),
            10 | 11 => self.user_deletes(),
            12..=15 => self.tenant_writes(),
            16 | 17 => self.administrator_edits(),
            _ => self.workload_changes(),
        };
        self.trace
            .note(self.now_ms, format_args!("event {}: {}", self.events, done.unwrap_or_else(|| "nothing".to_owned())));
        if self.events_left > 0 {
            let pause = match self.dice.below(10) {
                0 => self.dice.millis(10_000, 60_000),
                1..=4 => self.dice.millis(0, 300),
                _ => self.dice.millis(300, 6_000),
            };
            self.messages.add(self.now_ms + pause, Message::Event);
        }
    }

    fn pick(&mut self, is_it: impl Fn(&ObjectKey, &Value) -> bool) -> Option<ObjectKey> {
        let keys: Vec<&ObjectKey> =
            self.api.objects().iter().filter(|(key, object)| is_it(key, object)).map(|(key, _)| key).collect();
        (!keys.is_empty()).then(|| keys[self.dice.below(keys.len())].clone())
    }

    /// Lets a replica or its connection fail, with a probability.
    fn misfortune(&mut self) {
        let faults = self.drawn.processes;
        let replica = self.dice.below(self.replicas.len());
        if self.dice.per_mille(faults.crashes) && self.replicas[replica].control.is_some() {
            let down = self.dice.millis(100, 30_000);
            self.note_fault(format_args!("replica {replica} ends"), down);
            self.replicas[replica].end();
            self.messages.add(self.now_ms + down, Message::Start(replica));
        }
        if self.dice.per_mille(faults.pauses) {
            let pause = self.dice.millis(100, 40_000);
            self.note_fault(format_args!("replica {replica} pauses for {pause} ms"), pause);
            self.replicas[replica].paused_until = self.now_ms + pause;
        }
        if self.dice.per_mille(faults.cuts) {
            let cut = self.dice.millis(100, 40_000);
            self.note_fault(format_args!("replica {replica} is cut off for {cut} ms"), cut);
            self.replicas[replica].cut_until = self.now_ms + cut;
        }
        if self.dice.per_mille(faults.relists) {
            let stream = self.dice.below(WATCHED.len());
            self.note_fault(format_args!("replica {replica} lists {:?} again", WATCHED[stream]), 1_000);
            let process = self.replicas[replica].identity();
            self.ask_list(process, stream);
        }
    }

    fn user_creates(&mut self) -> Option<String> {
        let number = self.events;
        let queue = self.dice.pick(&["lq", "lq", "other"]);
        let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
        if self.dice.below(4) == 0 {
            labels["kueue.x-k8s.io/priority-class"] = json!("high");
        }
        let (kind, object) = match self.dice.below(8) {
            0 => {
                let mut set = job_set();
                set["metadata"] = json!({"namespace": "team", "name": format!("us{number}"), "labels": labels});
                set["spec"]["suspend"] = json!(self.dice.below(4) > 0);
                set["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = json!(1);
                set["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] = json!(1);
                (Kind::JOB_SET, set)
            }
            1 => (
                Kind::TrainingJob,
                training_job(&format!("ut{number}"), &json!({"schedulingConfig": {"queue": queue}})),
            ),
            2 => (Kind::Pod, pod(&format!("up{number}"), "1")),
            _ => {
                let cpu = (1 + self.dice.below(3)).to_string();
                let mut made = job(&format!("uj{number}"), queue, &cpu, self.dice.below(4) > 0);
                made["metadata"]["labels"] = labels;
                let parallelism = 1 + self.dice.below(3);
                made["spec"]["parallelism"] = json!(parallelism);
                made["spec"]["completions"] = json!(parallelism + self.dice.below(3));
                made["spec"]["backoffLimit"] = json!(self.dice.below(3));
                if self.dice.below(5) == 0 {
                    made["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
                }
                (Kind::JOB, made)
            }
        };
        let done = format!("a user creates {kind:?} {}", object["metadata"]["name"]);
        self.api.put(kind, object);
        Some(done)
    }

    /// Ends a running pod, or all running pods of its Job.
    fn pods_end(&mut self) -> Option<String> {
        let runs = |key: &ObjectKey, pod: &Value| {
            matches!(key.kind, Kind::JobPod | Kind::Pod) && pod["status"]["phase"] == "Running" && !is_deleting(pod)
        };
        let first = self.pick(runs)?;
        let phase = if self.dice.below(4) == 0 { "Failed" } else { "Succeeded" };
        let owner = self.api.get(&first)?["metadata"]["ownerReferences"][0]["uid"].clone();
        let all = self.dice.coin() && owner.is_string();
        let is_meant = |key: &ObjectKey, pod: &Value| {
            *key == first || (all && runs(key, pod) && pod["metadata"]["ownerReferences"][0]["uid"] == owner)
        };
        let objects = self.api.objects().iter().filter(|(key, pod)| is_meant(key, pod) && !has_ended(pod));
        let pods: Vec<ObjectKey> = objects.map(|(key, _)| key.clone()).collect();
        self.api.write_as(super::CONTROLLERS);
        for pod in &pods {
            self.api.edit(pod, &json!({"status": {"phase": phase}}));
        }
        Some(format!("{} pods like {} end: {phase}", pods.len(), first.name))
    }

    fn user_deletes(&mut self) -> Option<String> {
        let kinds = [Kind::JOB, Kind::JOB, Kind::JOB_SET, Kind::TrainingJob, Kind::Pod];
        let kind = self.dice.pick(&kinds);
        let key = self.pick(|key, _| key.kind == kind)?;
        let ways = [Propagation::Background, Propagation::Background, Propagation::Foreground];
        let way = self.dice.pick(&ways);
        self.delete(&key, way);
        Some(format!("a user deletes {key}, {way:?}"))
    }

    /// Deletes an object; `way` says how its owned objects are deleted.
    pub(super) fn delete(&mut self, key: &ObjectKey, way: Propagation) {
        match way {
            Propagation::Background => self.api.delete(key),
            Propagation::Foreground => self.api.delete_owned_first(key),
            Propagation::Orphan => self.api.begin_deletion(key, ORPHAN),
        }
    }

    fn tenant_writes(&mut self) -> Option<String> {
        let deed = self.tenant.next(&self.api)?;
        if let Deed::Edit(key, patch) = &deed
            && review::refuses(&self.api, key, patch)
        {
            return Some(format!("the review refuses the tenant's edit of {key}: {patch}"));
        }
        let done = match &deed {
            Deed::Create(kind, object) => format!("the tenant creates {kind:?} {}", object["metadata"]),
            Deed::Edit(key, patch) => format!("the tenant edits {key}: {patch}"),
            Deed::Delete(key, way) => format!("the tenant deletes {key}, {way:?}"),
        };
        match deed {
            Deed::Create(kind, object) => self.api.put(kind, object),
            Deed::Edit(key, patch) => {
                self.api.edit(&key, &patch);
                self.touched.insert(key);
            }
            Deed::Delete(key, way) => self.delete(&key, way),
        }
        Some(done)
    }

    fn administrator_edits(&mut self) -> Option<String> {
        let name = self.dice.pick(&["first", "second"]);
        let key = ApiServer::key(Kind::ClusterQueue, "", name);
        let mut groups = self.api.get(&key)?["spec"]["resourceGroups"].clone();
        let patch = match self.dice.below(5) {
            0..=2 => {
                groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(self.dice.below(8).to_string());
                json!({"spec": {"resourceGroups": groups}})
            }
            3 => json!({"spec": {"stopPolicy": self.dice.pick(&["None", "Hold", "HoldAndDrain"])}}),
            _ => json!({"spec": {"stopPolicy": "None"}}),
        };
        self.api.edit(&key, &patch);
        Some(format!("an administrator edits {name}: {patch}"))
    }

    /// Activates, deactivates or deletes a Workload.
    fn workload_changes(&mut self) -> Option<String> {
        let key = self.pick(|key, _| key.kind == Kind::Workload)?;
        if self.dice.below(4) == 0 {
            self.api.delete(&key);
            return Some(format!("a user deletes {key}"));
        }
        let active = self.dice.coin();
        self.api.edit(&key, &json!({"spec": {"active": active}}));
        Some(format!("a user sets {key} active: {active}"))
    }
}
