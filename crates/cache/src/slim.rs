//! Workloads in slim form: the form is made when a Workload is observed, and its requests are computed again when the LimitRanges or RuntimeClasses change that
//! they depend on.

use berth_api as api;
use berth_api::json::to_value;
use berth_engine::Departure;
use berth_jobs::training::{Past, Scale, TrainingEnd};
use berth_jobs::{LimitSummary, RequestRules};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::deltas;
use crate::object::Kind;
use crate::provisioning_index::AskedCapacity;
use crate::settings::Settings;
use crate::shape::{RequestContext, Shapes};
use crate::{Member, Name, Owner, Rare, TierRequest, View, WorkloadPhase, WorkloadView};

/// The kind `Pod`, by which those owners of a group's Workload are found that are pods.
const POD: &str = "Pod";

impl WorkloadView {
    /// The assignments of the Workload's pod sets, if the Workload has quota.
    pub fn given(&self) -> impl Iterator<Item = &api::PodSetAssignment> {
        self.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments)
    }

    /// The flavors of the assignments, in the order of pod sets and resources.
    pub fn given_flavors(&self) -> impl Iterator<Item = &String> {
        self.given().flat_map(|set| set.flavors.values())
    }
}

/// The slim form of a Workload that was observed.
pub fn slim(settings: &Settings, view: &View, shapes: &mut Shapes, object: api::Workload) -> WorkloadView {
    // Functions that need the complete object are called before the object is taken apart.
    let priority = berth_jobs::effective_priority(&object, settings.priority_boost);
    let gates = || berth_jobs::unsupported_gates(&object).filter(|_| !settings.preemption_gates);
    let held_back = || {
        berth_jobs::unsupported_workload(&object).or_else(gates).or_else(|| {
            let faults = api::validation::validate_beside_pod_sets(&object);
            (!faults.is_empty()).then(|| api::validation::summary(&faults))
        })
    };
    // Kueue ignores the fields of feature gates that are off. Berth reports a field of a disabled gate to the user, who wrote the field for a reason.
    let unsupported = if settings.refuse_invalid { held_back() } else { None };
    let misfits = if settings.refuse_invalid { api::validation::misfit(&object) } else { Vec::new() };
    let api::Workload { metadata, spec, status } = object;
    let generation = metadata.generation.unwrap_or_default();
    let group = group_of(&metadata);
    let owner = if group.is_some() { group_owner(&metadata) } else { owner_of(&metadata) };
    let others = metadata.owner_references.iter().flatten().filter(|owner| group.is_some() && owner.kind != POD);
    let owners = others.map(to_value).collect();
    let uid = metadata.uid.unwrap_or_default();
    let name = (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
    // Two states of a Workload with the same generation have the same spec.
    let known = view.workloads().get(&name);
    let known =
        known.filter(|known| known.uid == uid && known.generation == generation && generation > 0 && !known.unreadable);
    let (shape, reshaped) = match known {
        Some(known) => (known.shape.clone(), known.reshaped),
        None => {
            let around = request_context(view, settings, &name.0);
            (shapes.of(&name.0, &spec.pod_sets, &around), 0)
        }
    };
    let annotations = metadata.annotations.unwrap_or_default();
    let allowed = annotations.get(api::labels::WORKLOAD_ALLOWED_RESOURCE_FLAVORS);
    let allowed = allowed.map(|text| text.split(',').map(|name| name.trim().to_owned()).collect());
    let gates = annotations.get(api::labels::ADMISSION_GATED_BY).filter(|_| settings.admission_gates).cloned();
    let preemption_gates = spec.preemption_gates.into_iter().map(|gate| gate.name);
    let preemption_gates = preemption_gates.filter(|_| settings.preemption_gates).collect();
    let mut finalizers = metadata.finalizers.unwrap_or_default();
    let all = finalizers.len();
    finalizers.retain(|name| name != api::labels::RESOURCE_IN_USE_FINALIZER);
    let guarded = finalizers.len() < all;
    let rare = Rare {
        finalizers,
        owners,
        gated_by: gates.unwrap_or_default(),
        preemption_gates,
        allowed_flavors: allowed.filter(|_| settings.allowed_flavors),
        slice: annotations.get(api::labels::WORKLOAD_SLICE_NAME).cloned(),
        past: annotations.get(api::labels::BEFORE_GROWTH).and_then(|text| Past::parse(text)),
        scale: annotations.get(api::labels::LAST_SCALE).and_then(|text| Scale::parse(text)),
        end: annotations.get(api::labels::TRAINING_END).and_then(|text| TrainingEnd::parse(text)),
        suspended_with_job: annotations.contains_key(api::labels::SUSPENDED_WITH_JOB),
        again: Vec::new(),
        unsupported,
        misfit: (!misfits.is_empty()).then(|| api::validation::summary(&misfits)),
    };
    let (namespace, name) = name;
    let asked = AskedCapacity::of(&annotations, &spec.pod_sets, status.as_ref());
    let (active, status) = (spec.active.unwrap_or(true), status.unwrap_or_default());
    let mut labels = metadata.labels.unwrap_or_default();
    let job_uid = labels.remove(api::labels::JOB_UID);
    WorkloadView {
        uid,
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation,
        created: metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        deleting: metadata.deletion_timestamp.is_some(),
        guarded,
        owner: owner.map(Box::new),
        group,
        job_uid,
        labels: (!labels.is_empty()).then(|| Box::new(labels)),
        queue: spec.queue_name.unwrap_or_default(),
        tiers: annotations.get(api::labels::CAPACITY_TIERS).map(|text| Box::new(TierRequest::of(text))),
        preempts: deltas::preempts(annotations.get(api::labels::PREEMPTION_POLICY).map(String::as_str)),
        active,
        phase: WorkloadPhase::of(active, &status),
        priority: priority.effective,
        own_priority: priority.base,
        priority_class: spec.priority_class_ref.map(Box::new),
        replaces: annotations
            .get(api::labels::WORKLOAD_SLICE_REPLACEMENT_FOR)
            .and_then(|key| key.split_once('/'))
            .map(|(namespace, name)| Box::new((namespace.to_owned(), name.to_owned()))),
        takes_class_value: false,
        max_execution_seconds: spec.maximum_execution_time_seconds,
        unreadable: annotations.contains_key(api::labels::UNREADABLE),
        asked,
        shape,
        reshaped,
        rare: rare.kept(),
        status,
        namespace,
        name,
    }
}

/// Computes the requests of pending workloads again after LimitRanges or RuntimeClasses changed. The engine still charges a Workload that holds quota with the
/// quota of its admission. The result of `reshape` has the names of the Workloads whose requests were computed again.
pub fn reshape(settings: &Settings, view: &mut View, shapes: &mut Shapes, namespace: Option<&str>) -> Vec<Name> {
    let mut concerned = Vec::new();
    let seen = &*view;
    let renewed = shapes.renew(namespace, |place| request_context(seen, settings, place));
    for (old, new) in renewed {
        concerned.extend(view.reshape_workloads(&old, &new));
    }
    concerned
}

/// The rules of the configuration by which requests are counted.
pub fn request_rules(settings: &Settings) -> RequestRules {
    RequestRules {
        exclude_prefixes: settings.exclude_resource_prefixes.clone(),
        transformations: settings.transformations.clone(),
        to_the_letter: !settings.engine.profile.has(Departure::RequestsAsTheApiServer),
    }
}

/// The facts on which the requests of pods in a namespace depend.
pub fn request_context<'a>(view: &'a View, settings: &Settings, namespace: &str) -> RequestContext<'a> {
    RequestContext {
        limits: LimitSummary::of(view.limits_of(namespace)),
        overheads: view.overheads(),
        rules: request_rules(settings),
        strict: settings.refuse_invalid,
        compares_templates: !settings.engine.profile.has(Departure::EqualByWhatDecides),
    }
}

fn owner_of(metadata: &ObjectMeta) -> Option<Owner> {
    berth_jobs::controller(metadata).map(|reference| Owner {
        kind: berth_jobs::kind_in_group(&reference.kind, &reference.api_version).into(),
        name: reference.name.clone(),
        uid: reference.uid.clone(),
    })
}

/// The pods that own the Workload of a group.
fn group_of(metadata: &ObjectMeta) -> Option<Box<[Member]>> {
    let marked = metadata.annotations.as_ref()?.get(api::labels::IS_GROUP_WORKLOAD)? == "true";
    let pods = metadata.owner_references.iter().flatten().filter(|owner| owner.kind == POD);
    let members = pods.map(|owner| Member { name: owner.name.as_str().into(), uid: owner.uid.as_str().into() });
    marked.then(|| {
        let mut members: Box<[Member]> = members.collect();
        members.sort_unstable_by(|one, other| one.uid.cmp(&other.uid));
        members
    })
}

/// The pod group that owns the Workload with the group's name; the group is no object, so that its name stands for its uid.
fn group_owner(metadata: &ObjectMeta) -> Option<Owner> {
    let (namespace, name) = (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.clone()?);
    Some(Owner { kind: Kind::PodGroup.name().to_owned(), uid: crate::pods::group_uid(namespace, &name), name })
}
