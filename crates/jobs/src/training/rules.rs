//! Faults of a TrainingJob. The schema refuses most faults, but a stored TrainingJob may be older than the schema. The webhook and control both check
//! TrainingJobs by the functions of `rules.rs`.

use berth_api::berth::{MAX_TRAINING_JOB_NAME, ReplicaResources, TrainingJob, duration_seconds};
use berth_api::conditions::types;
use berth_api::validation::{FieldError, subdomain};
use berth_api::{berth, labels};
use berth_quantity::parse_quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeSet;

use super::facts::training_facts;
use super::rendezvous::{Party, too_many_workers};
use super::role::{Accelerators, CHIEF, LAUNCHER, Role, WORKER, worker_bounds};
use super::roles::{role_names, roles};
use super::workload::training_workload;
use crate::admission::{Place, elastic_rule, label_path, metadata_rules, time_rule};
use crate::build::Priority;
use crate::metadata::{label, queue_name, workload_priority_class};
use crate::names::uid_suffix;
use crate::size::size_rule;

const JOB_TYPES: [&str; 6] = ["PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"];
const PREEMPTION_POLICIES: [&str; 3] = ["Never", "PreemptLower", "PreemptAlways"];
const TIERS: [&str; 3] = ["reserved", "on-demand", "spot"];
const MOST_RESTARTS: i32 = 100;
const MOST_CHECKPOINTS: i32 = 1_000;

/// All faults of a TrainingJob: field, value, and allowed values.
#[must_use]
pub fn invalid_training_job(job: &TrainingJob, accelerators: &Accelerators) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(name(job));
    errors.extend(one_of("spec.jobType", &job.spec.job_type, &JOB_TYPES));
    counts(job, &mut errors);
    amounts(job, &mut errors);
    scheduling(job, &mut errors);
    role_list(job, &mut errors);
    if job.spec.mpi.is_some() && job.spec.job_type != "MPIJob" {
        errors.push(FieldError::new(
            "spec.mpi",
            "",
            format!("only an MPIJob may have it, not a {}", job.spec.job_type),
        ));
    }
    let mpi = job.spec.mpi.clone().unwrap_or_default();
    if mpi.ssh_auth_secret.is_some() != mpi.ssh_auth_mount_path.is_some() {
        let given = mpi.ssh_auth_secret.or(mpi.ssh_auth_mount_path).unwrap_or_default();
        errors.push(FieldError::new("spec.mpi", given, "sshAuthSecret and sshAuthMountPath go together"));
    }
    errors.extend(job.metadata.annotations.as_ref().map(super::saved::faults).unwrap_or_default());
    match roles(job, accelerators) {
        Err(more) => errors.extend(more),
        Ok(roles) => errors.extend(hosts(job, &roles, accelerators)),
    }
    if errors.is_empty() {
        let workload = || training_workload(job, accelerators, Priority::default(), &BTreeSet::new()).ok();
        errors.extend(size_rule(&job.spec, role_names(job).len(), workload));
    }
    errors
}

/// Fault of a number of workers whose host list would be too long.
fn hosts(job: &TrainingJob, roles: &[Role], accelerators: &Accelerators) -> Option<FieldError> {
    let service = format!("{}-{}", job.name(), uid_suffix(job.uid()));
    let mut party = Party::new(job, &service, roles, accelerators);
    let wrong = too_many_workers(&mut party, roles)?;
    let (_, workers) = worker_bounds(job);
    let elastic = job.spec.elastic_config.as_ref().filter(|elastic| elastic.enabled == Some(true));
    let field = match elastic.and_then(|elastic| elastic.max_workers) {
        Some(_) => "spec.elasticConfig.maxWorkers",
        None => "spec.resources.maxReplicas",
    };
    Some(FieldError::new(field, workers.to_string(), wrong))
}

/// Faults of labels and annotations that every job, or a job's pods, may have. A stored TrainingJob with a faulty label or annotation continues as if it did
/// not have it, as any job does.
#[must_use]
pub fn invalid_training_job_metadata(job: &TrainingJob) -> Vec<FieldError> {
    // The queue that the TrainingJob's spec names is checked by `invalid_training_job`, so no queue is passed to `metadata_rules`.
    let mut errors = metadata_rules(&job.metadata, None);
    errors.extend(time_rule(&job.metadata));
    errors.extend(elastic_rule(&job.metadata, super::KIND));
    errors.extend(empty_places(job));
    errors
}

/// Faults of empty topology annotations in the TrainingJob's templates.
fn empty_places(job: &TrainingJob) -> Vec<FieldError> {
    let roles = job.spec.roles.iter().enumerate();
    let own =
        roles.filter_map(|(index, role)| Some((format!("spec.roles[{index}].template"), role.template.as_ref()?)));
    let all = std::iter::once(("spec.template".to_owned(), &job.spec.template)).chain(own);
    all.flat_map(|(path, template)| {
        Place { path: format!("{path}.metadata"), metadata: template.metadata.as_ref(), count: None }.empty()
    })
    .collect()
}

/// Faults of a change of a TrainingJob that the user may not make. The queue and the maximum execution time of an admitted TrainingJob must stay, as for an
/// unsuspended Job in Kueue. A change that also suspends the TrainingJob may change the queue and the maximum execution time.
#[must_use]
pub fn invalid_training_job_change(old: &TrainingJob, new: &TrainingJob) -> Vec<FieldError> {
    let conditions = old.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let admitted = conditions.iter().any(|condition| condition.type_ == types::ADMITTED && condition.status == "True");
    if !admitted || new.spec.suspend == Some(true) {
        return Vec::new();
    }
    let by_label = old.spec.scheduling_config.queue == new.spec.scheduling_config.queue;
    let field = if by_label { label_path(labels::QUEUE_NAME) } else { "spec.schedulingConfig.queue".to_owned() };
    let time = |job: &TrainingJob| label(&job.metadata, labels::MAX_EXEC_TIME_SECONDS).unwrap_or_default().to_owned();
    let stays = [
        (field, training_facts(old).queue, training_facts(new).queue),
        (label_path(labels::MAX_EXEC_TIME_SECONDS), time(old), time(new)),
    ];
    let changed = stays.into_iter().filter(|(_, was, is)| was != is);
    let refusals = changed.map(|(field, was, is)| {
        let message = format!("must stay {was:?} while the job is admitted; set spec.suspend to true to change it");
        FieldError::new(field, is, message)
    });
    refusals.collect()
}

fn name(job: &TrainingJob) -> Option<FieldError> {
    let name = job.name();
    let bad = |message: String| Some(FieldError::new("metadata.name", name, message));
    if name.len() > MAX_TRAINING_JOB_NAME {
        return bad(format!("must be no more than {MAX_TRAINING_JOB_NAME} characters, so that host names of pods fit"));
    }
    // The name of a TrainingJob may be empty here, because an object with `generateName` has no name yet when it is reviewed.
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.bytes().next().is_none_or(|first| first.is_ascii_lowercase());
    if !begins || name.ends_with('-') || !name.bytes().all(plain) {
        return bad("must begin with a lower case letter and consist of lower case letters, digits and '-'".to_owned());
    }
    None
}

fn one_of(field: &str, value: &str, allowed: &[&str]) -> Option<FieldError> {
    (!allowed.contains(&value))
        .then(|| FieldError::new(field, value, format!("supported values: {}", allowed.join(", "))))
}

fn counts(job: &TrainingJob, errors: &mut Vec<FieldError>) {
    let resources = &job.spec.resources;
    let elastic = job.spec.elastic_config.clone().unwrap_or_default();
    let policy = elastic.scale_policy.clone().unwrap_or_default();
    for (field, given) in [
        ("spec.resources.minReplicas", resources.min_replicas),
        ("spec.resources.maxReplicas", resources.max_replicas),
        ("spec.elasticConfig.minWorkers", elastic.min_workers),
        ("spec.elasticConfig.maxWorkers", elastic.max_workers),
        ("spec.elasticConfig.scalePolicy.scaleUpStep", policy.scale_up_step),
        ("spec.elasticConfig.scalePolicy.scaleDownStep", policy.scale_down_step),
    ] {
        if let Some(given) = given.filter(|given| *given < 1) {
            errors.push(FieldError::new(field, given.to_string(), "must be 1 or more"));
        }
    }
    let most = resources.max_replicas.or(resources.min_replicas).unwrap_or(1);
    let least = resources.min_replicas.unwrap_or(most);
    if least > most {
        let message = format!("must not be greater than maxReplicas, which is {most}");
        errors.push(FieldError::new("spec.resources.minReplicas", least.to_string(), message));
    }
    let (fewest, wanted) = worker_bounds(job);
    if elastic.enabled == Some(true) {
        let between = format!("must be from resources.minReplicas, {least}, to resources.maxReplicas, {most}");
        for (field, given) in [("minWorkers", fewest), ("maxWorkers", wanted)] {
            if !(least..=most).contains(&given) {
                errors.push(FieldError::new(format!("spec.elasticConfig.{field}"), given.to_string(), between.clone()));
            }
        }
        if fewest > wanted {
            let message = format!("must not be greater than maxWorkers, which is {wanted}");
            errors.push(FieldError::new("spec.elasticConfig.minWorkers", fewest.to_string(), message));
        }
    }
    if let Some(limit) = job.spec.backoff_limit.filter(|limit| !(0..=MOST_RESTARTS).contains(limit)) {
        let message = format!("must be from 0 to {MOST_RESTARTS}");
        errors.push(FieldError::new("spec.backoffLimit", limit.to_string(), message));
    }
}

fn amounts(job: &TrainingJob, errors: &mut Vec<FieldError>) {
    let mut check = |path: &str, resources: &Option<ReplicaResources>| {
        let Some(resources) = resources else { return };
        if let Some(gpu) = resources.gpu.filter(|gpu| *gpu < 0) {
            errors.push(FieldError::new(format!("{path}.gpu"), gpu.to_string(), "must be 0 or more"));
        }
        for (field, amount) in [("cpu", &resources.cpu), ("memory", &resources.memory)] {
            errors.extend(amount.as_ref().and_then(|amount| quantity(format!("{path}.{field}"), amount, 0)));
        }
    };
    check("spec.resources.replicaResources", &job.spec.resources.replica_resources);
    for (index, role) in job.spec.roles.iter().enumerate() {
        check(&format!("spec.roles[{index}].replicaResources"), &role.replica_resources);
    }
    let shared = job.spec.shared_memory.as_ref();
    errors.extend(shared.and_then(|size| quantity("spec.sharedMemory".to_owned(), size, 1)));
}

fn quantity(field: String, given: &Quantity, least: i128) -> Option<FieldError> {
    match parse_quantity(&given.0) {
        Ok(amount) if amount.0 >= least => None,
        Ok(_) if least > 0 => Some(FieldError::new(field, given.0.clone(), "must be greater than 0")),
        Ok(_) => Some(FieldError::new(field, given.0.clone(), "must be 0 or more")),
        Err(_) => Some(FieldError::new(field, given.0.clone(), "must be an amount such as 500m, 8 or 64Gi")),
    }
}

fn scheduling(job: &TrainingJob, errors: &mut Vec<FieldError>) {
    let config = &job.spec.scheduling_config;
    let metadata = &job.metadata;
    for (field, given, key, label) in [
        ("queue", &config.queue, labels::QUEUE_NAME, queue_name(metadata)),
        ("priority", &config.priority, labels::PRIORITY_CLASS, workload_priority_class(metadata)),
    ] {
        let field = format!("spec.schedulingConfig.{field}");
        match (given, label) {
            (Some(given), Some(label)) if given != label => {
                let message = format!("the label {key} says {label:?}; leave one of them out or let them agree");
                errors.push(FieldError::new(field, given.clone(), message));
            }
            (None, None) if key == labels::QUEUE_NAME => {
                let message = format!("must name a LocalQueue of the namespace, or the label {key} must");
                errors.push(FieldError::new(field, "", message));
            }
            (Some(given), _) => {
                errors.extend(subdomain(given).map(|wrong| FieldError::new(field, given.clone(), wrong)));
            }
            _ => {}
        }
    }
    let policy = job.spec.elastic_config.as_ref().and_then(|elastic| elastic.scale_policy.clone()).unwrap_or_default();
    let checkpoint = job.spec.checkpoint.clone().unwrap_or_default();
    for (field, text) in [
        ("spec.schedulingConfig.maxWaitTime", &config.max_wait_time),
        ("spec.schedulingConfig.schedulingTimeout", &config.scheduling_timeout),
        ("spec.elasticConfig.scalePolicy.scaleUpCooldown", &policy.scale_up_cooldown),
        ("spec.elasticConfig.scalePolicy.scaleDownCooldown", &policy.scale_down_cooldown),
        ("spec.checkpoint.interval", &checkpoint.interval),
    ] {
        if let Some(text) = text.as_ref().filter(|text| duration_seconds(text).is_none_or(|seconds| seconds < 1)) {
            errors.push(FieldError::new(
                field,
                text.clone(),
                "must be a time such as 90s, 10m or 1h30m, longer than 0",
            ));
        }
    }
    if let Some(store) = &checkpoint.store {
        errors.extend(subdomain(store).map(|wrong| FieldError::new("spec.checkpoint.store", store.clone(), wrong)));
    }
    if let Some(most) = checkpoint.max_checkpoints.filter(|most| !(1..=MOST_CHECKPOINTS).contains(most)) {
        let message = format!("must be from 1 to {MOST_CHECKPOINTS}");
        errors.push(FieldError::new("spec.checkpoint.maxCheckpoints", most.to_string(), message));
    }
    let preemption = config.preemption_policy.as_deref();
    errors.extend(
        preemption.and_then(|policy| one_of("spec.schedulingConfig.preemptionPolicy", policy, &PREEMPTION_POLICIES)),
    );
    let mut seen = BTreeSet::new();
    for (index, tier) in job.spec.capacity_tiers.iter().enumerate() {
        let field = format!("spec.capacityTiers[{index}]");
        errors.extend(one_of(&field, tier, &TIERS));
        if !seen.insert(tier) {
            errors.push(FieldError::new(field, tier.clone(), "must be unique"));
        }
    }
}

/// Names of the roles other than workers that a framework may have.
fn allowed_roles(job_type: &str) -> &'static [&'static str] {
    match job_type {
        "TFJob" => &[CHIEF, "ps", "evaluator"],
        "MPIJob" => &[LAUNCHER],
        _ => &[],
    }
}

fn role_list(job: &berth::TrainingJob, errors: &mut Vec<FieldError>) {
    let allowed = allowed_roles(&job.spec.job_type);
    let mut seen = BTreeSet::new();
    for (index, role) in job.spec.roles.iter().enumerate() {
        let field = format!("spec.roles[{index}].name");
        if !allowed.contains(&role.name.as_str()) {
            let message = match allowed {
                [] => format!("a {} has no roles beside its {WORKER}s", job.spec.job_type),
                names => format!("supported values: {}", names.join(", ")),
            };
            errors.push(FieldError::new(field, role.name.clone(), message));
        } else if !seen.insert(&role.name) {
            errors.push(FieldError::new(field, role.name.clone(), "must be unique"));
        }
        let replicas = role.replicas.unwrap_or(1);
        let single = [LAUNCHER, CHIEF].contains(&role.name.as_str());
        if replicas < 1 || (single && replicas != 1) {
            let message = if single { "must be 1" } else { "must be 1 or more" };
            errors.push(FieldError::new(format!("spec.roles[{index}].replicas"), replicas.to_string(), message));
        }
    }
}
