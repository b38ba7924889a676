//! A job as control remembers it: what is asked of it again and again at hand, the rest of its template packed.

use std::borrow::Cow;
use std::sync::Arc;

use berth_jobs::{BatchJob, JobKind, PodSetDigest};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

/// A job with the key facts at hand.
#[derive(Clone, Debug)]
pub(crate) struct JobView {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The job; of its pods only what a start changes and a stop restores. See [`JobView::whole`].
    pub(crate) job: Box<Job>,
    /// The field that decides whether or where it may run and that Berth does not act on.
    pub(crate) unsupported: Option<String>,
    /// Its pods' spec as JSON, a tenth of what it takes unpacked: it is read once, when a Workload is made of it.
    pod_spec: Option<Arc<str>>,
    /// What it asks for, as it compares with a Workload: kept where that is asked for often, as it costs a walk over the
    /// template. The inner `None` is a job that cannot be read.
    asked: Option<Option<Vec<PodSetDigest>>>,
}

impl JobView {
    /// A job as it was seen, in place of its older state. What nothing reads is let go.
    pub(crate) fn new(mut job: Box<Job>, older: Option<&Self>) -> Self {
        if let Some(spec) = &mut job.spec {
            spec.selector = None;
        }
        // The pod sets follow from the spec, which a generation fixes, and from annotations.
        let same = |older: &&Self| {
            let (old, new) = (&older.job.metadata, &job.metadata);
            let settled = new.generation.is_some_and(|generation| generation > 0);
            settled && old.generation == new.generation && old.uid == new.uid && old.annotations == new.annotations
        };
        let older = older.filter(same);
        let queued = berth_jobs::queue_name(&job.metadata).is_some();
        let known = older.and_then(|older| older.asked.clone());
        Self {
            asked: known.or_else(|| queued.then(|| asked(&job))),
            unsupported: BatchJob::unsupported(&job),
            uid: job.metadata.uid.clone().unwrap_or_default(),
            resource_version: job.metadata.resource_version.clone().unwrap_or_default(),
            pod_spec: pack(&mut job, older.and_then(|older| older.pod_spec.clone())),
            job,
        }
    }

    /// The job with all that its template says.
    pub(crate) fn whole(&self) -> Job {
        let mut job = self.job.as_ref().clone();
        let spec = self.pod_spec.as_deref().and_then(|packed| serde_json::from_str(packed).ok());
        if let (Some(job_spec), Some(spec)) = (&mut job.spec, spec) {
            job_spec.template.spec = Some(spec);
        }
        job
    }

    /// Lets go of the template.
    pub(crate) fn shed(&mut self) {
        self.pod_spec = None;
        if let Some(spec) = &mut self.job.spec {
            spec.template = PodTemplateSpec::default();
        }
    }

    /// What the job asks for, `None` when that cannot be read.
    pub(crate) fn asked(&self) -> Option<Cow<'_, [PodSetDigest]>> {
        match &self.asked {
            Some(known) => known.as_deref().map(Cow::Borrowed),
            None => asked(&self.whole()).map(Cow::Owned),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

fn asked(job: &Job) -> Option<Vec<PodSetDigest>> {
    Some(BatchJob::pod_sets(job).ok()?.iter().map(PodSetDigest::of).collect())
}

/// Takes the pods' spec out of a job but for what `TemplateParts` reads and the priority class; packs it unless that was done.
fn pack(job: &mut Job, known: Option<Arc<str>>) -> Option<Arc<str>> {
    let slot = job.spec.as_mut()?.template.spec.as_mut()?;
    let packed = match known {
        Some(known) => known,
        None => serde_json::to_string(slot).ok()?.into(),
    };
    let spec = std::mem::take(slot);
    *slot = PodSpec {
        node_selector: spec.node_selector,
        tolerations: spec.tolerations,
        affinity: spec.affinity,
        scheduling_gates: spec.scheduling_gates,
        priority_class_name: spec.priority_class_name,
        ..PodSpec::default()
    };
    Some(packed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use serde_json::json;

    fn job(generation: i64, image: &str) -> Box<Job> {
        Box::new(
            serde_json::from_value(json!({
                "metadata": {"name": "j", "namespace": "n", "uid": "u", "generation": generation,
                    "labels": {"kueue.x-k8s.io/queue-name": "q"}},
                "spec": {"parallelism": 2, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                    "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}}],
                    "nodeSelector": {"zone": "a"}, "priorityClassName": "high", "restartPolicy": "Never",
                    "tolerations": [{"key": "spot", "operator": "Exists"}], "schedulingGates": [{"name": "g"}],
                    "affinity": {"nodeAffinity": {}}}}},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn what_is_packed_comes_back() {
        let first = JobView::new(job(1, "one"), None);
        assert_eq!(first.whole(), *job(1, "one"));
        assert!(first.job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers.is_empty());
        let parts = |job: &Job| berth_jobs::TemplateParts::of(&job.spec.as_ref().unwrap().template, 2);
        assert_eq!(parts(&first.job), parts(&job(1, "one")), "a start and a stop read the packed job");
        assert_eq!(BatchJob::pod_priority_class(&first.job), Some("high"));
        // The same generation keeps what was packed, another one packs anew.
        let second = JobView::new(job(1, "one"), Some(&first));
        assert!(Arc::ptr_eq(first.pod_spec.as_ref().unwrap(), second.pod_spec.as_ref().unwrap()));
        let third = JobView::new(job(2, "two"), Some(&second));
        assert_eq!(third.whole(), *job(2, "two"));
    }
}
