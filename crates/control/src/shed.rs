//! What is not kept of jobs. Most of those that a cluster has are over, or nobody's business here, and the object itself is nearly all
//! that one of them costs.

use berth_api::conditions::types;
use berth_jobs::JobState;

use crate::core::Control;
use crate::view::View;
use crate::write::{Kind, ObjectKey};

impl Control {
    /// Whether a job of that kind is managed as far as it depends on itself.
    pub(crate) fn manages_job(&self, kind: Kind, job: &JobState) -> bool {
        let settings = &self.settings;
        settings.job_kinds.contains(&kind) && (job.queue_name.is_some() || settings.manage_jobs_without_queue_name)
    }

    /// Whether nothing is decided about a job of that kind, whatever else is seen: what makes it one of ours is a change of itself, and is
    /// told with all of it.
    pub(crate) fn passes_over(&self, kind: Kind, job: &JobState) -> bool {
        !self.manages_job(kind, job) && above(job).is_none()
    }
}

impl View {
    /// Lets go of the template of a job that is over, and can neither start nor change again: its Workload knows it, or it has none.
    pub(crate) fn shed_job(&mut self, key: &ObjectKey) {
        let workloads = &self.workloads;
        self.jobs.shed_where(key, |job| {
            let knows = workloads.owned_by(&job.uid).any(|workload| workload.is(types::FINISHED));
            // One that names a Workload is stopped where that is missing, and the Jobs of a TrainingJob are compared with its quota.
            let alone = workloads.owned_by(&job.uid).next().is_none()
                && job.prebuilt_workload.is_none()
                && above(job) != Some(Kind::TrainingJob);
            job.finished.is_some() && (knows || alone)
        });
    }
}

/// The kind of the owner that may decide for a job.
fn above(job: &JobState) -> Option<Kind> {
    Kind::of_whole(&job.owner.as_ref()?.kind)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;
    use crate::event::{Change, JobType, Observation};
    use crate::settings::Settings;

    fn control() -> Control {
        Control::new(Settings::default())
    }

    /// Shows a Job with that metadata and status, and says whether all of it was kept.
    fn kept(control: &mut Control, metadata: &Value, status: &Value) -> bool {
        let mut all = json!({"name": "a", "namespace": "team", "uid": "a-1", "resourceVersion": "7", "generation": 1});
        all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"metadata": all, "spec": {"suspend": true, "template": template}, "status": status});
        let job = JobType::JOB.decode(&job.to_string()).unwrap();
        control.observe(Observation::Job(JobType::JOB, Change::Apply(job.into())), jiff::Timestamp::UNIX_EPOCH);
        let key = ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "a".into() };
        let known = control.view.jobs.get(&key).unwrap();
        assert_eq!(known.whole().is_some(), known.asked().is_some(), "what it asks for goes with it");
        known.whole().is_some()
    }

    fn owned_by(api_version: &str, kind: &str) -> Value {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o-1", "controller": true});
        json!({"ownerReferences": [owner]})
    }

    #[test]
    fn of_a_job_that_nobody_manages_the_fields_are_kept_alone() {
        let no_queue = json!({});
        assert!(!kept(&mut control(), &no_queue, &json!({})));
        assert!(!kept(&mut control(), &owned_by("batch/v1", "CronJob"), &json!({})));
        // What decides for it may be seen later.
        assert!(kept(&mut control(), &owned_by("jobset.x-k8s.io/v1alpha2", "JobSet"), &json!({})));
        assert!(kept(&mut control(), &owned_by("berth.dev/v1alpha1", "TrainingJob"), &json!({})));
        let settings = Settings { manage_jobs_without_queue_name: true, ..Settings::default() };
        assert!(kept(&mut Control::new(settings), &no_queue, &json!({})));
    }

    #[test]
    fn a_job_that_comes_to_a_queue_is_there_with_all_it_asks_for() {
        let mut control = control();
        assert!(!kept(&mut control, &json!({}), &json!({})));
        // Labels leave the generation as it is.
        let queued = json!({"resourceVersion": "8", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        assert!(kept(&mut control, &queued, &json!({})));
        assert!(!kept(&mut control, &json!({"resourceVersion": "9"}), &json!({})), "it has left the queue");
    }

    #[test]
    fn a_job_that_is_over_is_let_go_without_a_workload_too() {
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        let queued = json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        assert!(kept(&mut control(), &queued, &json!({})));
        assert!(!kept(&mut control(), &queued, &complete));
        assert!(!kept(&mut control(), &owned_by("jobset.x-k8s.io/v1alpha2", "JobSet"), &complete));
        assert!(kept(&mut control(), &owned_by("berth.dev/v1alpha1", "TrainingJob"), &complete));
        let mut prebuilt = queued;
        prebuilt["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("w");
        assert!(kept(&mut control(), &prebuilt, &complete), "it is suspended as long as its Workload is missing");
    }
}
