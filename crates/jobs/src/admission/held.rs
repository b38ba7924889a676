//! Fields of a job that must stay while the job may hold quota, for every client.
//!
//! The stored job alone shows that: a job that Berth started has the marks of its start until it is restored. Reserved quota that is not used
//! yet leaves no mark. A change in that time is allowed, and control gives the quota back.

use super::facts::{Facts, KeptSuspend};
use super::paths::{prebuilt_path, queue_path};
use crate::kind::JobKind;
use crate::metadata::{annotation, controller, is_elastic, is_stopping, prebuilt_workload_name};
use crate::template::TemplateParts;
use berth_api::labels;
use berth_api::validation::FieldError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether Berth has started a job, or lets it run, and has not brought it back yet: quota may be held for it.
pub(crate) fn is_held<K: JobKind>(job: &K::Object) -> bool {
    let runs = !K::has_suspend(job) || K::is_placed(job) || is_stopping(K::metadata(job));
    runs && K::queue_name(job).is_some() && K::finished(job).is_none()
}

/// Faults of a change of a job that is held: these fields decide about its controller and its quota.
pub(crate) fn held_rules<K: JobKind>(old: &K::Object, new: &K::Object, leaving: bool) -> Vec<FieldError> {
    if !is_held::<K>(old) {
        return Vec::new();
    }
    let (before, after) = (K::metadata(old), K::metadata(new));
    // Without a suspension in this write, other rules keep queue and Workload already.
    let asked = leaving || K::is_suspended(new);
    // The path of a removed value is that in the old object.
    let with = |is: Option<&str>| if is.is_some() { after } else { before };
    let mut errors = Vec::new();
    let (was, is) = (K::queue_name(old), K::queue_name(new));
    // A job that is suspended in the same write is stopped, and moved; one that is being deleted does not come back.
    if asked && was != is && (leaving || is.is_none()) {
        errors.push(FieldError::new(queue_path(with(is)), is.unwrap_or_default(), UNTIL_STOPPED));
    }
    let prebuilt = prebuilt_workload_name(after);
    // An elastic job goes on with another Workload while it runs, as in Kueue.
    if asked && prebuilt_workload_name(before) != prebuilt && (leaving || !is_elastic(before)) {
        errors.push(FieldError::new(prebuilt_path(with(prebuilt)), prebuilt.unwrap_or_default(), UNTIL_STOPPED));
    }
    errors.extend(controller_change(before, after));
    if !leaving {
        errors.extend(template_changes::<K>(old, new));
    }
    errors
}

/// Faults of a change of the parts of a template that a start changes. While a job stops, these are the parts of its start, and the end of the stop
/// replaces them by the ones that the Workload has stored: a change would be lost. A write that starts the job is judged by other rules.
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

/// A controller may let go of a job, but none may come or take the place of another one.
fn controller_change(before: &ObjectMeta, after: &ObjectMeta) -> Option<FieldError> {
    let uid = |metadata| controller(metadata).map(|owner| owner.uid.as_str());
    let is = uid(after)?;
    let message = "a controller may be removed, but none may be added or changed until the job has stopped";
    (uid(before) != Some(is)).then(|| FieldError::new("metadata.ownerReferences", "", message))
}

/// The value of `spec.suspend` that Berth keeps in a change by another client. `None` if the field did not change, or if the user may set
/// it: the job is not managed, has ended, or is started and stopped by its owner. A job that runs and grows is stopped, and waits for quota of
/// its new size.
#[must_use]
pub fn kept_suspend<K: JobKind>(old: &K::Object, new: &K::Object, facts: Facts) -> Option<KeptSuspend> {
    let queue = K::queue_name(old);
    let managed = facts.managed_namespace && !facts.unmanaged_kind && !facts.governed;
    if !managed || !(queue.is_some() || facts.without_queue_name) || K::finished(old).is_some() {
        return None;
    }
    let (before, after) = (K::metadata(old), K::metadata(new));
    let (was, is) = (K::has_suspend(old), K::has_suspend(new));
    // A write that moves the job elsewhere is judged as it is.
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
    // Another rule refuses a write that adds a controller.
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

/// Whether a pod set has more pods than before.
fn grows<K: JobKind>(old: &K::Object, new: &K::Object) -> bool {
    let (Ok(before), Ok(after)) = (K::pod_sets(old), K::pod_sets(new)) else { return false };
    after.iter().any(|set| {
        let was = before.iter().find(|was| was.effective_name() == set.effective_name());
        was.is_none_or(|was| was.effective_count() < set.effective_count())
    })
}
