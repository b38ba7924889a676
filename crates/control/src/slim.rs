//! Workloads in slim form: made when they are seen, and made again when what surrounds them changes.

use std::sync::Arc;

use berth_api as api;
use berth_jobs::{LimitSummary, RequestRules};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::core::{Control, key};
use crate::settings::Settings;
use crate::shape::Surroundings;
use crate::view::{Name, Owner, View, WorkloadView};
use crate::write::Kind;

impl Control {
    pub(crate) fn slim(&mut self, object: &api::Workload) -> WorkloadView {
        let metadata = &object.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        let uid = metadata.uid.clone().unwrap_or_default();
        let generation = metadata.generation.unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        let spec = &object.spec;
        // The spec of a generation is the spec that was seen with it.
        let known = self.view.workloads.get(&(namespace.clone(), name.clone()));
        let known = known
            .filter(|known| known.uid == uid && known.generation == generation && generation > 0 && !known.unreadable);
        let (shape, reshaped) = match known {
            Some(known) => (known.shape.clone(), known.reshaped),
            None => {
                let around = surroundings(&self.view, &self.settings, &namespace);
                (self.shapes.of(&namespace, &spec.pod_sets, &around), 0)
            }
        };
        let allowed = annotations.and_then(|all| all.get(api::labels::WORKLOAD_ALLOWED_RESOURCE_FLAVORS));
        let allowed = allowed.map(|text| text.split(',').map(|name| name.trim().to_owned()).collect());
        WorkloadView {
            uid,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation,
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            owner: owner_of(metadata),
            job_uid: metadata.labels.as_ref().and_then(|labels| labels.get("kueue.x-k8s.io/job-uid")).cloned(),
            gated_by: annotations
                .and_then(|all| all.get("kueue.x-k8s.io/admission-gated-by"))
                .cloned()
                .unwrap_or_default(),
            queue: spec.queue_name.clone().unwrap_or_default(),
            allowed_flavors: allowed.filter(|_| self.settings.allowed_flavors),
            active: spec.active.unwrap_or(true),
            // Beyond 32 bits only the order of equals at the very ends would differ.
            priority: clamp(berth_jobs::effective_priority(object, self.settings.priority_boost).effective),
            priority_class: spec.priority_class_ref.clone(),
            max_execution_seconds: spec.maximum_execution_time_seconds,
            preemption_gated: !spec.preemption_gates.is_empty(),
            unsupported: berth_jobs::unsupported_workload(object).or_else(|| {
                let faults = api::validation::validate_beside_pod_sets(object);
                (self.settings.refuse_invalid && !faults.is_empty()).then(|| api::validation::summary(&faults))
            }),
            unreadable: annotations.is_some_and(|all| all.contains_key(api::labels::UNREADABLE)),
            shape,
            reshaped,
            status: object.status.clone().unwrap_or_default(),
            namespace,
            name,
        }
    }

    /// LimitRanges or RuntimeClasses changed: what pending workloads ask for is computed again. Those that hold quota keep
    /// what they were given.
    pub(crate) fn reshape(&mut self, namespace: Option<&str>) {
        let (view, settings) = (&self.view, &self.settings);
        let renewed = self.shapes.renew(namespace, |place| surroundings(view, settings, place));
        for (old, new) in renewed {
            let concerned = self.view.workloads.iter_mut().filter(|(_, workload)| Arc::ptr_eq(&workload.shape, &old));
            let names: Vec<Name> = concerned
                .map(|(name, workload)| {
                    workload.shape = new.clone();
                    workload.reshaped = workload.reshaped.wrapping_add(1);
                    name.clone()
                })
                .collect();
            for name in names {
                self.mirror(&name);
                self.touch(key(Kind::Workload, &name));
            }
        }
    }
}

/// What the requests of pods in a namespace depend on.
fn surroundings<'a>(view: &'a View, settings: &Settings, namespace: &str) -> Surroundings<'a> {
    let rules = RequestRules {
        exclude_prefixes: settings.exclude_resource_prefixes.clone(),
        transformations: settings.transformations.clone(),
    };
    Surroundings {
        limits: LimitSummary::of(view.limits_of(namespace)),
        overheads: &view.overheads,
        rules,
        strict: settings.refuse_invalid,
    }
}

fn owner_of(metadata: &ObjectMeta) -> Option<Owner> {
    metadata.owner_references.iter().flatten().find(|reference| reference.controller == Some(true)).map(|reference| {
        Owner { kind: reference.kind.clone(), name: reference.name.clone(), uid: reference.uid.clone() }
    })
}

fn clamp(priority: i64) -> i32 {
    i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX })
}
