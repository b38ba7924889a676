//! What happens to a Job: it gets one Workload, runs while that is admitted, stops when it is evicted, and its end is the
//! Workload's end. One write per call; the order of the steps is Kueue's (kueue.md 5.2). How a job stops is in `stop`.

mod stop;

use std::collections::BTreeMap;

use berth_api as api;
use berth_jobs::{AdmittedAs, BatchJob, JobKind, Placement, Priority, Standing, TemplateParts};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::workload::{has_finalizer, object_write, remove_finalizer, status_write};
use crate::core::{Control, key};
use crate::deltas;
use crate::flight::{Decision, Draft};
use crate::job_view::JobView;
use crate::status::find;
use crate::view::{Name, WorkloadView};
use crate::write::{EventType, Kind, Notice, Purpose, Request, Subresource};

const REPORTER: &str = "batch/job-kueue-controller";

/// Why no Workload can be made of a job.
enum Unbuilt {
    /// A priority class that does not exist.
    NoClass(String),
    /// What the job says is contradictory.
    Invalid(String),
}

/// A job with what is decided about it.
struct Case<'a> {
    control: &'a Control,
    name: &'a Name,
    view: &'a JobView,
    job: &'a Job,
    now: Timestamp,
}

/// Decides about one Job.
pub(crate) fn decide(control: &Control, name: &Name, now: Timestamp) -> Decision {
    let Some(view) = control.view.jobs.get(name) else { return Decision::Done };
    let case = Case { control, name, view, job: &view.job, now };
    if view.job.metadata.deletion_timestamp.is_some() || !case.managed() {
        return Decision::Done;
    }
    let owned = control.view.workloads_of(&view.uid);
    if owned.iter().any(|workload| control.flights.busy(&key(Kind::Workload, &workload.key()))) {
        // A decision on a state that is about to change would be made twice.
        return Decision::Done;
    }
    if owned.iter().any(|workload| workload.unreadable) {
        // Whether it may run cannot be told: it goes on as it is.
        return Decision::Done;
    }
    match berth_jobs::prebuilt_workload_name(&view.job.metadata) {
        Some(prebuilt) => case.prebuilt(prebuilt),
        None => case.ordinary(&owned),
    }
}

impl Case<'_> {
    fn managed(&self) -> bool {
        let Some(labels) = self.control.view.namespaces.get(&self.name.0) else { return false };
        if !deltas::matches(&self.control.settings.managed_namespaces, labels) {
            return false;
        }
        berth_jobs::queue_name(&self.job.metadata).is_some() || self.control.settings.manage_jobs_without_queue_name
    }

    fn notice(&self, event_type: EventType, reason: &str, message: String) -> Notice {
        Notice {
            key: key(Kind::Job, self.name),
            uid: self.view.uid.clone(),
            event_type,
            reason: reason.to_owned(),
            message,
            reporter: REPORTER,
        }
    }

    /// A write to the job; the body carries uid and resourceVersion.
    fn write(&self, purpose: Purpose, subresource: Subresource, body: Value, notices: Vec<Notice>) -> Decision {
        Decision::write(Draft {
            purpose,
            key: key(Kind::Job, self.name),
            request: Request::Merge { manager: "kueue", subresource, body },
            based_on: self.view.version(),
            notices,
        })
    }

    /// Suspended in the spec, whatever is left in the template.
    fn suspended(&self) -> bool {
        self.job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
    }

    /// The template carries what a start has put there.
    fn placed(&self) -> bool {
        self.job.spec.as_ref().is_some_and(|spec| TemplateParts::of(&spec.template, 0).is_placed())
    }

    fn suspend(&self, why: &str) -> Decision {
        let notice = self.notice(EventType::Normal, "Stopped", why.to_owned());
        let body = if self.placed() { BatchJob::stop_patch(self.job) } else { BatchJob::suspend_patch(self.job) };
        self.write(Purpose::SuspendJob, Subresource::None, body, vec![notice])
    }

    fn prebuilt(&self, name: &str) -> Decision {
        let found = self.control.view.workloads.get(&(self.name.0.clone(), name.to_owned()));
        let Some(workload) = found else {
            return if self.suspended() {
                Decision::Done
            } else {
                self.suspend("Missing Workload; unable to restore pod templates")
            };
        };
        match &workload.owner {
            Some(owner) if owner.uid == self.view.uid => self.with_workload(workload),
            Some(_) => Decision::Done,
            None => self.adopt(workload),
        }
    }

    fn adopt(&self, workload: &WorkloadView) -> Decision {
        let body = json!({"metadata": {
            "labels": {"kueue.x-k8s.io/job-uid": self.view.uid},
            "ownerReferences": [{
                "apiVersion": BatchJob::API_VERSION, "kind": BatchJob::KIND, "name": self.name.1, "uid": self.view.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        }});
        Decision::write(object_write(workload, Purpose::AdoptWorkload, body))
    }

    fn ordinary(&self, owned: &[&WorkloadView]) -> Decision {
        let live: Vec<&WorkloadView> = owned.iter().copied().filter(|workload| !workload.deleting).collect();
        let same = live.iter().copied().find(|workload| self.same(workload));
        let surplus = live
            .iter()
            .copied()
            .find(|workload| same.is_none_or(|same| same.uid != workload.uid) && !workload.is("Finished"));
        match (same, surplus) {
            (Some(_), Some(surplus)) => self.delete(surplus),
            (Some(workload), None) => self.with_workload(workload),
            (None, Some(other)) => self.without_match(other),
            (None, None) => self.without_workload(owned),
        }
    }

    /// Whether a Workload still says what the job asks for.
    fn same(&self, workload: &WorkloadView) -> bool {
        // A job that is over can no longer change, and its template may have been let go (`View::shed_job`).
        if workload.is("Finished") || BatchJob::finished(self.job).is_some() {
            return true;
        }
        if workload.max_execution_seconds != berth_jobs::max_execution_seconds(&self.job.metadata) {
            return false;
        }
        // What cannot be read now keeps the Workload it has.
        let Some(digests) = self.view.asked() else { return true };
        if self.suspended() && !workload.reserved() && !workload.is("Evicted") && !self.placed() {
            // Nothing of ours is in the template: what differs is the user's edit.
            return berth_jobs::pod_sets_identical(&digests, &workload.shape.digests);
        }
        let counts: Option<BTreeMap<String, i32>> = workload.status.admission.as_ref().map(|admission| {
            let sets = admission.pod_set_assignments.iter();
            sets.map(|set| (set.effective_name().to_owned(), set.count.unwrap_or_default())).collect()
        });
        let standing = Standing {
            admitted_counts: counts.as_ref(),
            admitted: workload.is("Admitted"),
            suspended: self.suspended(),
        };
        berth_jobs::pod_sets_equivalent(&digests, &workload.shape.digests, standing)
    }

    fn delete(&self, workload: &WorkloadView) -> Decision {
        let message = format!("Deleted not matching Workload: {}/{}", workload.namespace, workload.name);
        Decision::write(Draft {
            purpose: Purpose::DeleteWorkload,
            key: key(Kind::Workload, &workload.key()),
            request: Request::Delete { uid: workload.uid.clone() },
            based_on: 0,
            notices: vec![self.notice(EventType::Normal, "DeletedWorkload", message)],
        })
    }

    fn without_match(&self, other: &WorkloadView) -> Decision {
        if !self.suspended() {
            return self.suspend("No matching Workload; restoring pod templates according to existent Workload");
        }
        if other.reserved() {
            return self.delete(other);
        }
        let Ok(fresh) = self.build() else { return Decision::Done };
        let Ok(spec) = serde_json::to_value(&fresh.spec) else { return Decision::Done };
        let mut draft = object_write(
            other,
            Purpose::UpdateWorkload,
            json!({"spec": {
                "podSets": spec.get("podSets"),
                "queueName": spec.get("queueName"),
                "priority": spec.get("priority"),
                "priorityClassRef": spec.get("priorityClassRef"),
                "maximumExecutionTimeSeconds": spec.get("maximumExecutionTimeSeconds"),
            }}),
        );
        let message = format!("Updated not matching Workload for suspended job: {}/{}", other.namespace, other.name);
        draft.notices.push(self.notice(EventType::Normal, "UpdatedWorkload", message));
        Decision::write(draft)
    }

    fn without_workload(&self, owned: &[&WorkloadView]) -> Decision {
        if let Some(leaving) = owned.iter().find(|workload| workload.deleting) {
            return self.leaving(leaving);
        }
        if BatchJob::finished(self.job).is_some() {
            return Decision::Done;
        }
        if !self.suspended() {
            return self.suspend("Missing Workload; unable to restore pod templates");
        }
        if self.control.flights.creations_full() {
            return Decision::WaitForCreations;
        }
        let workload = match self.build() {
            Ok(workload) => workload,
            // The class, the namespace's limits or the job itself must change first; that brings us back.
            Err(problem) => return Decision::Tell(self.complaint(&problem)),
        };
        let name = workload.metadata.name.clone().unwrap_or_default();
        let Ok(mut body) = serde_json::to_value(&workload) else { return Decision::Done };
        if let Some(map) = body.as_object_mut() {
            map.insert("apiVersion".into(), "kueue.x-k8s.io/v1beta2".into());
            map.insert("kind".into(), "Workload".into());
            map.remove("status");
        }
        let object = key(Kind::Workload, &(self.name.0.clone(), name.clone()));
        let message = format!("Created Workload: {}/{name}", self.name.0);
        Decision::write(Draft {
            purpose: Purpose::CreateWorkload,
            key: object,
            request: Request::Create(body),
            based_on: 0,
            notices: vec![self.notice(EventType::Normal, "CreatedWorkload", message)],
        })
    }

    /// The Workload is being deleted: the job stops, then the Workload may go.
    fn leaving(&self, workload: &WorkloadView) -> Decision {
        let finished = BatchJob::finished(self.job).is_some();
        if !self.suspended() && !finished {
            return self.suspend("Workload is deleted");
        }
        if !finished && let Some(decision) = self.unrest(workload).or_else(|| self.restore(workload)) {
            return decision;
        }
        if has_finalizer(workload) && (finished || !BatchJob::is_active(self.job)) {
            return Decision::write(remove_finalizer(workload));
        }
        Decision::Done
    }

    fn with_workload(&self, workload: &WorkloadView) -> Decision {
        if workload.is("Finished") {
            let done = has_finalizer(workload) && BatchJob::finished(self.job).is_some()
                || workload.deleting && has_finalizer(workload);
            if done {
                return Decision::write(remove_finalizer(workload));
            }
            if BatchJob::finished(self.job).is_none() && !self.suspended() {
                return self.suspend("Workload is finished");
            }
            return Decision::Done;
        }
        if workload.deleting {
            return self.leaving(workload);
        }
        if let Some(end) = BatchJob::finished(self.job) {
            return self.finish(workload, end.success, &end.message);
        }
        if let Some(decision) = self.reclaimable(workload) {
            return decision;
        }
        if workload.is("Evicted") {
            return self.stop(workload);
        }
        if self.suspended() { self.waiting(workload) } else { self.running(workload) }
    }

    fn finish(&self, workload: &WorkloadView, success: bool, message: &str) -> Decision {
        let reason = if success { "Succeeded" } else { "Failed" };
        let mut draft = status_write(workload, Purpose::FinishWorkload, self.now, |edit| edit.finish(reason, message));
        let text = format!("Workload '{}/{}' is declared finished", workload.namespace, workload.name);
        draft.notices.push(self.notice(EventType::Normal, "FinishedWorkload", text));
        Decision::write(draft)
    }

    fn reclaimable(&self, workload: &WorkloadView) -> Option<Decision> {
        if !workload.reserved() || self.suspended() {
            return None;
        }
        let wanted = BatchJob::reclaimable_pods(self.job);
        let old = &workload.status.reclaimable_pods;
        let grown = wanted.iter().any(|pods| {
            let before = old.iter().find(|old| old.name == pods.name).map_or(0, |old| old.count);
            pods.count > before
        });
        if !grown {
            return None;
        }
        let mut metadata = workload.identity().metadata();
        if let Some(map) = metadata.as_object_mut() {
            map.remove("resourceVersion");
        }
        Some(Decision::write(Draft {
            purpose: Purpose::SetReclaimable,
            key: key(Kind::Workload, &workload.key()),
            request: Request::Apply {
                manager: "kueue-reclaimable-pods",
                subresource: Subresource::Status,
                body: json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                    "metadata": metadata, "status": {"reclaimablePods": wanted},
                }),
            },
            based_on: workload.version(),
            notices: Vec::new(),
        }))
    }

    /// Suspended and not evicted: start it when it is admitted.
    fn waiting(&self, workload: &WorkloadView) -> Decision {
        if !(workload.is("Admitted") && workload.reserved()) {
            return self.restore(workload).unwrap_or_else(|| self.follow_queue(workload));
        }
        if !BatchJob::is_suspended(self.job) {
            // A stop is under way: it is brought to its end first.
            return self.restore(workload).unwrap_or(Decision::Done);
        }
        if !BatchJob::may_change_template(self.job) {
            return self.unlock();
        }
        let Some(admission) = &workload.status.admission else { return Decision::Done };
        let queue = admission.cluster_queue.clone().unwrap_or_default();
        let about = AdmittedAs { workload: &workload.name, cluster_queue: &queue, local_queue: &workload.queue };
        let flavor = |name: &str| self.control.view.flavors.get(name).map(Box::as_ref);
        let placements: Result<Vec<Placement>, _> = admission
            .pod_set_assignments
            .iter()
            .map(|set| {
                let spec = workload.shape.pod_sets.iter().find(|spec| spec.name == set.effective_name());
                let count = spec.and_then(|spec| i32::try_from(spec.count).ok()).unwrap_or_default();
                Placement::of(set, count, about, &workload.status.admission_checks, flavor)
            })
            .collect();
        match placements.and_then(|placements| BatchJob::start_patch(self.job, &placements)) {
            Ok(body) => {
                let notice = self.notice(EventType::Normal, "Started", format!("Admitted by clusterQueue {queue}"));
                self.write(Purpose::StartJob, Subresource::None, body, vec![notice])
            }
            Err(error) => Decision::write(status_write(workload, Purpose::FinishWorkload, self.now, |edit| {
                edit.finish("FailedToStart", &error.to_string());
            })),
        }
    }

    /// A pending Workload follows its job to another queue and other capacity tiers; any Workload follows the priority of its job's class.
    fn follow_queue(&self, workload: &WorkloadView) -> Decision {
        let queue = berth_jobs::queue_name(&self.job.metadata).unwrap_or_default();
        let priority = self.priority();
        let same_priority = priority
            .as_ref()
            .is_ok_and(|priority| workload.priority == priority.value && workload.priority_class == priority.class);
        let same_queue = workload.queue == queue || workload.reserved();
        let tiers = self.new_tiers(workload);
        if same_queue && tiers.is_none() && (same_priority || priority.is_err()) {
            return Decision::Done;
        }
        let mut spec = if same_queue { json!({}) } else { json!({"queueName": queue}) };
        if let (Ok(priority), Some(map)) = (priority, spec.as_object_mut()) {
            map.insert("priority".into(), priority.value.into());
            map.insert("priorityClassRef".into(), serde_json::to_value(priority.class).unwrap_or_default());
        }
        let mut body = json!({"spec": spec});
        if let (Some(tiers), Some(map)) = (tiers, body.as_object_mut()) {
            map.insert("metadata".into(), json!({"annotations": {(api::labels::CAPACITY_TIERS): tiers}}));
        }
        Decision::write(object_write(workload, Purpose::UpdateWorkload, body))
    }

    /// The capacity tiers that the job names, where a pending Workload says something else: null to take them away.
    fn new_tiers(&self, workload: &WorkloadView) -> Option<Value> {
        let named = self.job.metadata.annotations.as_ref().and_then(|all| all.get(api::labels::CAPACITY_TIERS));
        let known = workload.tiers.as_ref().map(|wish| &wish.text);
        let follows = named.is_some() || berth_jobs::prebuilt_workload_name(&self.job.metadata).is_none();
        (follows && !workload.reserved() && named != known).then(|| named.map_or(Value::Null, |text| json!(text)))
    }

    fn running(&self, workload: &WorkloadView) -> Decision {
        if !(workload.is("Admitted") && workload.reserved()) {
            return self.suspend("Not admitted by cluster queue");
        }
        if let Decision::Write(draft) = self.follow_queue(workload) {
            return Decision::Write(draft);
        }
        let Some(_) = &self.control.settings.wait_for_pods_ready else { return Decision::Done };
        let ready = BatchJob::pods_ready(self.job);
        let old = find(&workload.status.conditions, "PodsReady");
        let was = old.is_some_and(|condition| condition.status == "True");
        let started = old.is_some_and(|condition| {
            condition.status == "True" || condition.reason == "WaitForRecovery" || condition.reason == "Recovered"
        });
        let (status, reason, message) = match (ready, was, started) {
            (true, false, false) => (true, "Started", "All pods reached readiness and the workload is running"),
            (true, false, true) => (true, "Recovered", "All pods reached readiness and the workload is running"),
            (false, true, _) => (false, "WaitForRecovery", "At least one pod has failed, waiting for recovery"),
            _ => return Decision::Done,
        };
        Decision::write(status_write(workload, Purpose::SetPodsReady, self.now, |edit| {
            edit.set("PodsReady", status, reason, message);
        }))
    }

    /// Priority value and class of the job, or the name of a class that does not exist yet.
    fn priority(&self) -> Result<Priority, String> {
        let view = &self.control.view;
        if let Some(class) = berth_jobs::workload_priority_class(&self.job.metadata) {
            let value = view.workload_priorities.get(class).copied().ok_or_else(|| class.to_owned())?;
            return Ok(Priority::of_workload_class(class, value));
        }
        if let Some(class) = BatchJob::pod_priority_class(self.job) {
            let (value, _) = view.priorities.get(class).copied().ok_or_else(|| class.to_owned())?;
            return Ok(Priority::of_pod_class(class, value));
        }
        let default = view.priorities.iter().find(|(_, (_, default))| *default);
        Ok(default.map_or_else(Priority::default, |(class, (value, _))| Priority::of_pod_class(class, *value)))
    }

    /// The event about a job of which no Workload can be made.
    fn complaint(&self, problem: &Unbuilt) -> Notice {
        match problem {
            Unbuilt::NoClass(class) => self.notice(
                EventType::Warning,
                "WorkloadPriorityClassNotFound",
                format!("priority class {class:?} of the job does not exist; create it or change the job"),
            ),
            Unbuilt::Invalid(text) => self.notice(EventType::Warning, "ErrWorkloadCompose", text.clone()),
        }
    }

    fn build(&self) -> Result<api::Workload, Unbuilt> {
        let priority = self.priority().map_err(Unbuilt::NoClass)?;
        let job = self.view.whole();
        let sets = BatchJob::pod_sets(&job).map_err(Unbuilt::Invalid)?;
        let copied = &self.control.settings.label_keys_to_copy;
        Ok(berth_jobs::build_workload::<BatchJob>(&job, sets, priority, copied))
    }
}
