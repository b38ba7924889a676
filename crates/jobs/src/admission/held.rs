//! Fields of a job that no client may change while the job may hold quota.
//!
//! The stored job alone shows whether the job may hold quota: a job that Berth started has the marks of its start until Berth restores the job. A quota
//! reservation under which the job has not been started yet leaves no mark on the job. A change of these fields before the start of the job is allowed, and
//! control then releases the job's quota.

use super::facts::{Facts, KeptSuspend};
use super::paths::{prebuilt_path, queue_path};
use crate::kind::JobKind;
use crate::metadata::{annotation, controller, is_elastic, is_stopping, prebuilt_workload_name};
use crate::template::TemplateParts;
use berth_api::labels;
use berth_api::validation::FieldError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether Berth has started the job, or lets it run, and has not restored the job yet, so that the job may hold quota.
pub(crate) fn is_held<K: JobKind>(job: &K::Object) -> bool {
    let runs = !K::has_suspend(job) || K::is_placed(job) || is_stopping(K::metadata(job));
    runs && K::queue_name(job).is_some() && K::finished(job).is_none()
}

/// Faults of a change to the fields that decide about the controller and the quota of a started job.
pub(crate) fn held_rules<K: JobKind>(old: &K::Object, new: &K::Object, leaving: bool) -> Vec<FieldError> {
    if !is_held::<K>(old) {
        return Vec::new();
    }
    let (before, after) = (K::metadata(old), K::metadata(new));
    // If the write does not suspend the job, `metadata_change_rules` refuses a change of the job's queue or prebuilt Workload.
    let asked = leaving || K::is_suspended(new);
    // The error about a removed queue name or prebuilt Workload has the path of the removed value in the old object.
    let with = |is: Option<&str>| if is.is_some() { after } else { before };
    let mut errors = Vec::new();
    let (was, is) = (K::queue_name(old), K::queue_name(new));
    // A write that suspends a job may move the job to another queue. A job that is being deleted must keep its queue.
    if asked && was != is && (leaving || is.is_none()) {
        errors.push(FieldError::new(queue_path(with(is)), is.unwrap_or_default(), UNTIL_STOPPED));
    }
    let prebuilt = prebuilt_workload_name(after);
    // A running elastic job may name another prebuilt Workload, as in Kueue.
    if asked && prebuilt_workload_name(before) != prebuilt && (leaving || !is_elastic(before)) {
        errors.push(FieldError::new(prebuilt_path(with(prebuilt)), prebuilt.unwrap_or_default(), UNTIL_STOPPED));
    }
    errors.extend(controller_change(before, after));
    if !leaving {
        errors.extend(template_changes::<K>(old, new));
    }
    errors
}

/// Faults of a change to the parts of a template that a start writes. While a job stops, the template still has the parts from its start, and the end of the
/// stop replaces these parts by the parts stored in the Workload, so a change would be lost. A write that starts the job, so that `spec.suspend` becomes false,
/// is not checked by `template_changes`.
fn template_changes<K: JobKind>(old: &K::Object, new: &K::Object) -> Vec<FieldError> {
    let stops = is_stopping(K::metadata(old)) && K::has_suspend(old) && K::has_suspend(new);
    let sets = |job: &K::Object| if stops { K::pod_sets(job).unwrap_or_default() } else { Vec::new() };
    let pairs = sets(old).into_iter().zip(sets(new)).enumerate();
    let faults = pairs.flat_map(|(index, (was, is))| {
        let [was, is] = [was, is].map(|set| TemplateParts::of_pod_set(&set).to_value());
        let differs = |field: &&&str| was.pointer(field) != is.pointer(field);
        let fault =
            |field: &str| FieldError::new(K::template_path(index) + &field.replace('/', "."), "", UNTIL_RESTORED);
        TemplateParts::FIELDS.iter().filter(differs).map(|field| fault(field)).collect::<Vec<_>>()
    });
    faults.collect()
}

const UNTIL_RESTORED: &str =
    "must stay until the job has stopped: the values of its last start are removed from its template first";

const UNTIL_STOPPED: &str = "must stay until the job has stopped: its quota is counted by it";

/// Fault of a change of a job's controller: a controller may be removed, but must not be added or replaced.
fn controller_change(before: &ObjectMeta, after: &ObjectMeta) -> Option<FieldError> {
    let uid = |metadata| controller(metadata).map(|owner| owner.uid.as_str());
    let is = uid(after)?;
    let message = "a controller may be removed, but none may be added or changed until the job has stopped";
    (uid(before) != Some(is)).then(|| FieldError::new("metadata.ownerReferences", "", message))
}

/// The value of `spec.suspend` that Berth keeps in an update by another client. `None` if the update has a `spec.suspend` that Berth accepts: the field does
/// not change, the update moves the job to another queue or Workload, or the job is not managed, has ended, or is started and stopped by its owner. An update
/// that adds pods to a running job, which is not elastic, stops the job, and the job waits for quota for its new size.
#[must_use]
pub fn kept_suspend<K: JobKind>(old: &K::Object, new: &K::Object, facts: Facts) -> Option<KeptSuspend> {
    let queue = K::queue_name(old);
    let managed = facts.managed_namespace && !facts.unmanaged_kind && !facts.governed;
    if !managed || !(queue.is_some() || facts.without_queue_name) || K::finished(old).is_some() {
        return None;
    }
    let (before, after) = (K::metadata(old), K::metadata(new));
    let (was, is) = (K::has_suspend(old), K::has_suspend(new));
    // An update that moves the job to another queue or prebuilt Workload may change `spec.suspend`.
    let moves = queue != K::queue_name(new) || prebuilt_workload_name(before) != prebuilt_workload_name(after);
    if was {
        return (!is && !moves).then(|| KeptSuspend { suspend: true, stopping: false, warning: waits_on::<K>(queue) });
    }
    if moves || !K::is_placed(old) {
        return None;
    }
    if !is_elastic(before) && grows::<K>(old, new) {
        let warning = format!(
            "this {} would have more pods than it was admitted with: it is stopped, and waits for its new size",
            K::KIND
        );
        return Some(KeptSuspend { suspend: true, stopping: true, warning });
    }
    // An update that adds or replaces the job's controller is refused by `held_rules`, so its `spec.suspend` is not changed.
    let adopted = controller_change(before, after).is_some();
    (is && !adopted).then(|| KeptSuspend { suspend: false, stopping: false, warning: runs_on::<K>(old) })
}

fn waits_on<K: JobKind>(queue: Option<&str>) -> String {
    let waits = match queue {
        Some(queue) => format!("waits in queue {queue:?}, and Berth starts it when it has quota"),
        None => "names no queue, and Berth starts it when it names one and has quota".to_owned(),
    };
    format!("spec.suspend stays true: this {} {waits}", K::KIND)
}

fn runs_on<K: JobKind>(job: &K::Object) -> String {
    let namespace = K::metadata(job).namespace.as_deref().unwrap_or_default();
    let sets = K::pod_sets(job).unwrap_or_default();
    let workload = sets.iter().find_map(|set| annotation(set.template.metadata.as_ref()?, labels::WORKLOAD));
    let workload = workload.unwrap_or("NAME");
    format!(
        "spec.suspend stays false: this {} runs by Workload {workload:?}. To stop it: kubectl -n {namespace} patch workload {workload} \
         --type=merge -p '{{\"spec\":{{\"active\":false}}}}'",
        K::KIND
    )
}

/// Whether a pod set of the job has more pods than before.
fn grows<K: JobKind>(old: &K::Object, new: &K::Object) -> bool {
    let (Ok(before), Ok(after)) = (K::pod_sets(old), K::pod_sets(new)) else { return false };
    after.iter().any(|set| {
        let was = before.iter().find(|was| was.effective_name() == set.effective_name());
        was.is_none_or(|was| was.effective_count() < set.effective_count())
    })
}
