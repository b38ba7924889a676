//! Construction of a role's pod from the role's template: resources, accelerator type, topology affinity and shared memory. A field that the role's template
//! and the TrainingJob's own fields both set must have equal values.

use berth_api::berth::{ReplicaResources, TrainingJob};
use berth_api::labels;
use berth_api::validation::FieldError;
use berth_quantity::parse_quantity;
use k8s_openapi::api::core::v1::{
    Affinity, Container, EmptyDirVolumeSource, PodAffinity, PodAffinityTerm, PodSpec, PodTemplateSpec, Volume,
    VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use std::collections::BTreeMap;

use super::role::{Accelerators, LAUNCHER};
use crate::admission::Place;

const SHARED_MEMORY_PATH: &str = "/dev/shm";
const SHARED_MEMORY_VOLUME: &str = "berth-shared-memory";
/// Weight of the preferred topology affinity: the largest possible weight.
const WEIGHT: i32 = 100;

/// The pod template of a role, with the fields of the TrainingJob.
pub(super) fn compose(
    job: &TrainingJob,
    role: &str,
    (template, path): (&PodTemplateSpec, &str),
    resources: Option<&ReplicaResources>,
    accelerators: &Accelerators,
) -> Result<PodTemplateSpec, Vec<FieldError>> {
    let mut composed = template.clone();
    let spec = composed.spec.get_or_insert_default();
    let annotations = template.metadata.clone().map(without_empty);
    let mut errors = Place { path: format!("{path}.metadata"), metadata: annotations.as_ref(), count: None }.rules();
    let Some((main, _)) = spec.containers.split_first_mut() else {
        let message = "must have a container; the first one runs the training";
        return Err(vec![FieldError::new(format!("{path}.spec.containers"), "", message)]);
    };
    if let Some(resources) = resources {
        errors.extend(put_resources(main, resources, accelerators, path));
    }
    errors.extend(put_shared_memory(job, spec, path));
    match spec.restart_policy.as_deref() {
        None | Some("" | "Never") => spec.restart_policy = Some("Never".to_owned()),
        Some(other) => errors.push(FieldError::new(
            format!("{path}.spec.restartPolicy"),
            other,
            "must be Never or absent: pods are started again up to spec.backoffLimit",
        )),
    }
    if let Some(name) = &job.spec.scheduling_config.scheduler_name {
        let given = spec.scheduler_name.get_or_insert_with(|| name.clone());
        if given != name {
            errors.push(FieldError::new(
                format!("{path}.spec.schedulerName"),
                given.clone(),
                format!("must be {name:?} as spec.schedulingConfig.schedulerName, or absent"),
            ));
        }
    }
    if role != LAUNCHER {
        errors.extend(put_accelerator(job, spec, accelerators, path));
    }
    put_place(job, spec);
    if errors.is_empty() { Ok(composed) } else { Err(errors) }
}

/// Template metadata without empty annotations. A stored TrainingJob with an empty annotation continues without it, and the webhook refuses a new TrainingJob
/// with an empty topology annotation.
fn without_empty(mut metadata: ObjectMeta) -> ObjectMeta {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|_, value| !value.is_empty());
    }
    metadata
}

fn put_resources(
    main: &mut Container,
    wanted: &ReplicaResources,
    accelerators: &Accelerators,
    path: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let gpus = wanted.gpu.filter(|count| *count > 0).map(|count| Quantity(count.to_string()));
    let resources = main.resources.get_or_insert_default();
    let mut put = |list: &str, into: &mut Option<BTreeMap<String, Quantity>>, name: &str, amount: &Quantity| {
        let given = into.get_or_insert_default().entry(name.to_owned()).or_insert_with(|| amount.clone());
        if !is_same(given, amount) {
            errors.push(FieldError::new(
                format!("{path}.spec.containers[0].resources.{list}[{name}]"),
                given.0.clone(),
                format!("must be {} as in replicaResources, or absent", amount.0),
            ));
        }
    };
    for (name, amount) in [("cpu", &wanted.cpu), ("memory", &wanted.memory), (accelerators.resource.as_str(), &gpus)] {
        let Some(amount) = amount else { continue };
        put("requests", &mut resources.requests, name, amount);
        if name == accelerators.resource {
            // Extended resources cannot be overcommitted, so the API server requires equal requests and limits.
            put("limits", &mut resources.limits, name, amount);
        }
    }
    errors
}

/// Whether two quantities are equal amounts, in any notation.
fn is_same(one: &Quantity, other: &Quantity) -> bool {
    let amounts = (parse_quantity(&one.0), parse_quantity(&other.0));
    one == other || matches!(amounts, (Ok(one), Ok(other)) if one == other)
}

fn put_shared_memory(job: &TrainingJob, spec: &mut PodSpec, path: &str) -> Option<FieldError> {
    let size = job.spec.shared_memory.as_ref()?;
    let (main, _) = spec.containers.split_first_mut()?;
    let mounts = main.volume_mounts.get_or_insert_default();
    if mounts.iter().any(|mount| mount.mount_path.trim_end_matches('/') == SHARED_MEMORY_PATH) {
        let message = "the first container of the template mounts /dev/shm already; leave one of them out";
        return Some(FieldError::new("spec.sharedMemory", size.0.clone(), format!("{path}: {message}")));
    }
    mounts.push(VolumeMount {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        mount_path: SHARED_MEMORY_PATH.to_owned(),
        ..VolumeMount::default()
    });
    spec.volumes.get_or_insert_default().push(Volume {
        name: SHARED_MEMORY_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: Some(size.clone()) }),
        ..Volume::default()
    });
    None
}

fn put_accelerator(
    job: &TrainingJob,
    spec: &mut PodSpec,
    accelerators: &Accelerators,
    path: &str,
) -> Option<FieldError> {
    let wanted = job.spec.resources.gpu_type.as_ref()?;
    let selector = spec.node_selector.get_or_insert_default();
    let given = selector.entry(accelerators.type_label.clone()).or_insert_with(|| wanted.clone());
    (given != wanted).then(|| {
        FieldError::new(
            "spec.resources.gpuType",
            wanted.clone(),
            format!("{path}.spec.nodeSelector wants {}={given}; leave one of them out", accelerators.type_label),
        )
    })
}

/// Adds a pod affinity for all pods of the job in one topology domain: required for a gang, else preferred.
fn put_place(job: &TrainingJob, spec: &mut PodSpec) {
    let Some(key) = &job.spec.resources.topology_constraint else { return };
    let name = job.metadata.name.clone().unwrap_or_default();
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(labels::TRAINING_JOB.to_owned(), name)])),
            match_expressions: None,
        }),
        topology_key: key.clone(),
        ..PodAffinityTerm::default()
    };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let place: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
    if job.spec.scheduling_config.gang_scheduling.unwrap_or(true) {
        place.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
    } else {
        let term = WeightedPodAffinityTerm { weight: WEIGHT, pod_affinity_term: term };
        place.preferred_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
    }
}
