//! Construction of the Workload of a TrainingJob.

use berth_api::berth::{API_VERSION, GROUP, TrainingJob};
use berth_api::validation::FieldError;
use berth_api::{Workload, labels};
use std::collections::BTreeSet;

use super::elastic::Past;
use super::facts::training_facts;
use super::role::{Accelerators, WORKER};
use super::roles::training_pod_sets;
use crate::build::{OwnerKind, Priority, workload_of};
use crate::metadata::annotation;
use crate::names::uid_suffix;

/// The Workload to create for a TrainingJob. `copied` has the keys of the labels that the Workload copies from the TrainingJob.
///
/// # Errors
/// The pod sets cannot be made; see `training_pod_sets`.
pub fn training_workload(
    job: &TrainingJob,
    accelerators: &Accelerators,
    priority: Priority,
    copied: &BTreeSet<String>,
) -> Result<Workload, Vec<FieldError>> {
    let sets = training_pod_sets(job, accelerators)?;
    let kind = OwnerKind { group: GROUP, api_version: API_VERSION, kind: "TrainingJob" };
    let mut workload = workload_of(&job.metadata, kind, sets, priority, copied);
    workload.spec.queue_name = Some(training_facts(job).queue);
    let own = own_annotations(job).into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    workload.metadata.annotations.get_or_insert_default().extend(own);
    Ok(workload)
}

/// The replacement slice of the slice `older` (name and uid) with this number of workers. The parameter `first` is the name of the TrainingJob's first workload
/// slice, and `past` has the times that the replacement slice takes over from the old slice. The name of the replacement slice follows from the old slice's
/// name, so that a repeated scale-up creates only one Workload.
#[must_use]
pub fn slice_workload(
    mut workload: Workload,
    (older, older_uid): (&str, &str),
    first: &str,
    past: Past,
    workers: i32,
) -> Option<Workload> {
    let set = workload.spec.pod_sets.iter_mut().find(|set| set.effective_name() == WORKER)?;
    set.count = Some(workers);
    let full_name = workload.name().to_owned();
    let (base, _) = full_name.rsplit_once('-')?;
    workload.metadata.name = Some(format!("{base}-{}", uid_suffix(&format!("{older_uid}\n{workers}"))));
    let key = format!("{}/{older}", workload.namespace());
    workload.metadata.annotations.get_or_insert_default().extend([
        (labels::WORKLOAD_SLICE_NAME.to_owned(), first.to_owned()),
        (labels::WORKLOAD_SLICE_REPLACEMENT_FOR.to_owned(), key),
        (labels::BEFORE_GROWTH.to_owned(), past.text()),
    ]);
    Some(workload)
}

/// Annotations of a Workload with settings of its TrainingJob; `None` for a setting without a value. The capacity tiers are from the TrainingJob's spec, or
/// else from the annotation by which jobs of other kinds name their tiers.
#[must_use]
pub fn own_annotations(job: &TrainingJob) -> [(&'static str, Option<String>); 2] {
    let tiers = (!job.spec.capacity_tiers.is_empty()).then(|| job.spec.capacity_tiers.join(","));
    let tiers = tiers.or_else(|| annotation(&job.metadata, labels::CAPACITY_TIERS).map(str::to_owned));
    let preempts = job.spec.scheduling_config.preemption_policy.clone();
    [(labels::CAPACITY_TIERS, tiers), (labels::PREEMPTION_POLICY, preempts)]
}
