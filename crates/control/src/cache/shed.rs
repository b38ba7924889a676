//! Parts of jobs that are not kept. Most jobs of a cluster are over, or not managed here, and the object itself is nearly all the memory that such a
//! job costs.

use berth_api::conditions::types;
use berth_jobs::JobState;

use crate::cache::View;
use crate::context::Context;
use crate::write::{Kind, ObjectKey};

impl Context<'_> {
    /// Whether a job of that kind is managed as far as it depends on itself.
    pub(crate) fn manages_job(&self, kind: Kind, job: &JobState) -> bool {
        let settings = &self.settings;
        settings.job_kinds.contains(&kind) && (job.queue_name.is_some() || settings.manage_jobs_without_queue_name)
    }

    /// Whether nothing is decided about a job of that kind, whatever else is seen. Only a change of the job itself makes it a managed one, and the
    /// watch reports that with all of the job. A started job may hold quota still, and is needed completely to be stopped.
    pub(crate) fn passes_over(&self, kind: Kind, job: &JobState) -> bool {
        !self.manages_job(kind, job) && above(job).is_none() && !job.placed && !job.stopping
    }
}

impl View {
    /// Lets go of the template of a job that is over, and can neither start nor change again: its Workload knows it, or it has none.
    pub(crate) fn shed_job(&mut self, key: &ObjectKey) {
        let workloads = &self.workloads;
        self.jobs.shed_where(key, |job| {
            let knows = workloads.owned_by(&job.uid).any(|workload| workload.is(types::FINISHED));
            // A job that names a Workload is stopped where that is missing, and the Jobs of a TrainingJob are compared with its quota.
            let alone = workloads.owned_by(&job.uid).next().is_none()
                && job.prebuilt_workload.is_none()
                && above(job) != Some(Kind::TrainingJob);
            job.finished.is_some() && (knows || alone)
        });
    }
}

/// Whether two states of a job request quota through the same Workload, as far as it depends on the job itself.
pub(crate) fn asks_alike(old: &JobState, new: &JobState) -> bool {
    let asks = |job: &JobState| job.queue_name.is_some();
    asks(old) == asks(new) && old.owner == new.owner && old.prebuilt_workload == new.prebuilt_workload
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
    use crate::controller::Control;
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
    fn unmanaged_job_without_managing_owner_is_not_kept_in_full() {
        let no_queue = json!({});
        assert!(!kept(&mut control(), &no_queue, &json!({})));
        assert!(!kept(&mut control(), &owned_by("batch/v1", "CronJob"), &json!({})));
        // The owner that decides for the job may be seen later.
        assert!(kept(&mut control(), &owned_by("jobset.x-k8s.io/v1alpha2", "JobSet"), &json!({})));
        assert!(kept(&mut control(), &owned_by("berth.dev/v1alpha1", "TrainingJob"), &json!({})));
        let settings = Settings { manage_jobs_without_queue_name: true, ..Settings::default() };
        assert!(kept(&mut Control::new(settings), &no_queue, &json!({})));
    }

    /// The job may hold quota, and then it is stopped when that has to go to another one.
    #[test]
    fn started_job_that_leaves_its_queue_is_kept_in_full() {
        let started = |labels: &Value, version: &str| {
            let mut metadata =
                json!({"name": "a", "namespace": "team", "uid": "a-1", "labels": labels, "generation": 2});
            metadata["resourceVersion"] = json!(version);
            let template = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
            let job = json!({"metadata": metadata, "spec": {"suspend": false, "template": template}});
            JobType::JOB.decode(&job.to_string()).unwrap()
        };
        let mut control = control();
        for (labels, version) in [(json!({"kueue.x-k8s.io/queue-name": "lq"}), "7"), (json!({}), "8")] {
            let job = started(&labels, version);
            control.observe(Observation::Job(JobType::JOB, Change::Apply(job.into())), jiff::Timestamp::UNIX_EPOCH);
            let key = ObjectKey { kind: Kind::JOB, namespace: "team".into(), name: "a".into() };
            assert!(control.view.jobs.get(&key).unwrap().whole().is_some(), "{labels}");
        }
    }

    #[test]
    fn unqueued_job_that_enters_a_queue_is_kept_in_full() {
        let mut control = control();
        assert!(!kept(&mut control, &json!({}), &json!({})));
        // Labels leave the generation as it is.
        let queued = json!({"resourceVersion": "8", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        assert!(kept(&mut control, &queued, &json!({})));
        assert!(!kept(&mut control, &json!({"resourceVersion": "9"}), &json!({})), "it has left the queue");
    }

    #[test]
    fn finished_job_without_workload_is_not_kept_in_full() {
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
