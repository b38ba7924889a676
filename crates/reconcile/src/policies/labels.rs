//! Labels that policies read: the tiers of a job that names none itself, its priority class, and the runner of AxLearn's bastion that looks after it.

use std::collections::BTreeSet;

use berth_api as api;
use berth_api::conditions::own_reasons;
use berth_api::{BASTION_JOB_VERSION, BASTION_TIER};
use berth_cache::WorkloadView;
use berth_cache::deltas;
use berth_cache::policy_rules::{Rules, fields};
use berth_cache::priorities::{MissingClass, NamedClasses, WORKLOAD_CLASS, Wanted};
use berth_cache::tier_rules::TiersFor;
use berth_engine::model as engine;
use berth_jobs::{JobState, Priority};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::Context;
use crate::write::{Kind, ObjectKey};

/// Reason of the event about a label whose value has no class.
const UNKNOWN_VALUE: &str = own_reasons::PRIORITY_LABEL_UNKNOWN;
/// Reason of the event about a class that does not exist.
pub(crate) const NO_CLASS: &str = own_reasons::WORKLOAD_PRIORITY_CLASS_NOT_FOUND;
/// Reason of the event about a job that AxLearn's runner may delete.
const RUNNER: &str = "BastionRunner";
/// Text about the priority class that applies if a label has no effect.
const ELSE: &str = "the label kueue.x-k8s.io/priority-class holds, else the priorityClassName of the pods";

/// The reason and the text of an event.
type EventText = (&'static str, String);

/// The first value of a label in a Workload that is to be created: the pod templates of the Workload come first, in their order, and the Workload itself comes
/// last.
fn label_of<'a>(made: &'a api::Workload, key: &str) -> Option<&'a str> {
    let of = |metadata: &'a ObjectMeta| metadata.labels.as_ref()?.get(key).map(String::as_str);
    let of_pods = made.spec.pod_sets.iter().find_map(|set| of(set.template.metadata.as_ref()?));
    of_pods.or_else(|| of(&made.metadata))
}

impl Context<'_> {
    /// The capacity tiers that the QueuePolicy of a Workload's ClusterQueue gives the Workload because of a label; `None` if no label of the Workload gives
    /// tiers. If one of `pod_sets`, the pod sets in the engine's type, selects a kind of capacity itself, the label has no effect on the tiers.
    pub(crate) fn tiers_by_label(
        &self,
        workload: &WorkloadView,
        pod_sets: &[engine::PodSetSpec],
    ) -> Option<Vec<engine::Tier>> {
        let rules = self.rules_for(workload)?.tiers.as_ref()?;
        if rules.default_for.is_empty() || pod_sets.iter().any(engine::PodSetSpec::asks_for_capacity) {
            return None;
        }
        let offered = self.tiers_offered(self.queue_of(workload)?);
        let fits = |entry: &&TiersFor| {
            let is_meant = |value: &str| entry.values.iter().any(|known| known == value);
            workload.label_values(&entry.label).any(is_meant) && entry.tiers.iter().any(|tier| offered.contains(tier))
        };
        rules.default_for.iter().find(fits).map(|entry| entry.tiers.clone())
    }

    /// The tiers of the flavors of a ClusterQueue.
    fn tiers_offered(&self, cluster_queue: &str) -> BTreeSet<engine::Tier> {
        let flavors = self.flavors_of(cluster_queue);
        flavors.filter_map(|flavor| self.capacity_tier_of(flavor)).map(deltas::tier).collect()
    }

    /// The priority class that a label gives: its priority, or the reason why the label has no effect; `None` if the label is absent, or no policy reads it.
    /// `known` is the class that the Workload already has, by name and value: the Workload keeps this class when the class is deleted.
    fn class_by_label<'b>(
        &self,
        rules: &Rules,
        known: Option<(&str, i32)>,
        value: impl FnOnce(&str) -> Option<&'b str>,
    ) -> Option<Result<Priority, EventText>> {
        let classes = rules.classes.as_ref()?;
        let value = value(&classes.label)?;
        let (policy, label) = (rules.source(fields::CLASSES), &classes.label);
        let Some(name) = classes.names.get(value) else {
            let listed: Vec<&str> = classes.names.keys().map(String::as_str).collect();
            let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
            let text = format!(
                "label {label}: {value:?} has no class in spec.priorityFromLabel.classes of QueuePolicy {policy}, \
                 which has {listed}; {ELSE}"
            );
            return Some(Err((UNKNOWN_VALUE, text)));
        };
        let kept = known.filter(|(known, _)| known == name).map(|(_, value)| value);
        let Some(number) = self.view.workload_priorities().get(name).copied().or(kept) else {
            let text = format!(
                "label {label}: {value:?} stands for WorkloadPriorityClass {name:?} in QueuePolicy {policy}, \
                 which does not exist; create it or change spec.priorityFromLabel; until then {ELSE}"
            );
            return Some(Err((NO_CLASS, text)));
        };
        Some(Ok(Priority::of_workload_class(name, number)))
    }

    /// The priority that a policy gives an existing Workload because of a label.
    fn class_of(&self, workload: &WorkloadView) -> Option<Result<Priority, EventText>> {
        let rules = self.rules_for(workload)?;
        let known = workload.priority_class.as_ref().filter(|class| class.kind == WORKLOAD_CLASS);
        let known = known.map(|class| (class.name.as_str(), workload.own_priority));
        self.class_by_label(rules, known, |label| workload.label_values(label).next())
    }

    /// The priority that a Workload should have if its job names the given classes; the error names a class that does not exist yet.
    pub(crate) fn wanted_priority(
        &self,
        workload: &WorkloadView,
        (of_workloads, of_pods): NamedClasses<'_>,
    ) -> Result<Wanted, MissingClass> {
        if let Some(Ok(priority)) = self.class_of(workload) {
            return Ok(Wanted { priority, by_label: true });
        }
        let priority = self.view.priority(of_workloads, of_pods)?;
        Ok(Wanted { priority, by_label: false })
    }

    /// Sets the priority of a Workload that is to be created for a job; the error names a class that does not exist yet.
    pub(crate) fn with_priority(
        &self,
        mut made: api::Workload,
        (of_workloads, of_pods): NamedClasses<'_>,
    ) -> Result<api::Workload, MissingClass> {
        let local = (made.namespace().to_owned(), made.spec.queue_name.clone().unwrap_or_default());
        let queue = self.view.behind(&local).filter(|_| !self.view.claims().is_empty());
        let by_label = queue.and_then(|queue| {
            let rules = self.rules_of(queue)?;
            self.class_by_label(rules, None, |label| label_of(&made, label))
        });
        let priority = match by_label {
            Some(Ok(priority)) => priority,
            Some(Err(_)) | None => self.view.priority(of_workloads, of_pods)?,
        };
        made.spec.priority = Some(priority.value);
        made.spec.priority_class_ref = priority.class;
        Ok(made)
    }

    /// An event about the policy of a job, or about the classes that the job names, if the event was not sent yet. `object` is the object for which a decision
    /// is made.
    pub(crate) fn unsent_event(
        &self,
        object: &ObjectKey,
        workload: &WorkloadView,
        classes: NamedClasses<'_>,
    ) -> Option<EventText> {
        let of_policy = || {
            let all = [self.passed_over(workload), self.watched(workload)];
            all.into_iter().flatten().find(|event| self.is_unsent(object, event))
        };
        let by_policy = if self.view.claims().is_empty() { None } else { of_policy() };
        by_policy.or_else(|| self.unsent_class_event(object, workload, classes))
    }

    /// Whether an event was not yet sent about an object, or was followed by another event of the same reason.
    pub(crate) fn is_unsent(&self, object: &ObjectKey, (reason, text): &EventText) -> bool {
        self.reports.last_event(object, reason) != Some(text.as_str())
    }

    /// An event about a class that a job names and that does not exist: the Workload of the job keeps its present priority. No event is sent about a class that
    /// was deleted in the meantime.
    fn unsent_class_event(
        &self,
        object: &ObjectKey,
        workload: &WorkloadView,
        (of_workloads, of_pods): NamedClasses<'_>,
    ) -> Option<EventText> {
        if self.view.job_of(workload).is_some_and(|job| job.prebuilt_workload.is_some()) {
            return None;
        }
        // Only one event is sent for each reason.
        let by_label = self.class_of(workload);
        if by_label.is_some_and(|class| class.err().is_none_or(|(reason, _)| reason == NO_CLASS)) {
            return None;
        }
        let class = self.view.priority(of_workloads, of_pods).err()?;
        let known = workload.priority_class.as_ref().is_some_and(|known| known.name == class.0);
        Some(no_class(&class, "the job")).filter(|event| !known && self.is_unsent(object, event))
    }

    /// The reason why the label that a policy reads gives a Workload no priority. A prebuilt Workload has a priority of its own, and gets no reason.
    fn passed_over(&self, workload: &WorkloadView) -> Option<EventText> {
        let prebuilt = self.view.job_of(workload).is_some_and(|job| job.prebuilt_workload.is_some());
        self.class_of(workload).filter(|_| !prebuilt)?.err()
    }

    /// A warning about a JobSet whose selectors are overridden while a runner of AxLearn's bastion supervises the JobSet. AxLearn's bastion runner reads the
    /// tier from the node selectors, and makes the JobSet anew when the tier differs from the tier that it expects. AxLearn's bastion runner does not change a
    /// JobSet of tier `disabled`.
    fn watched(&self, workload: &WorkloadView) -> Option<EventText> {
        let is_job_set = workload.owner.as_ref().is_some_and(|owner| owner.kind == Kind::JOB_SET.name());
        if !is_job_set || !self.overrides_selectors(workload) {
            return None;
        }
        let policy = self.rules_for(workload)?.source(fields::TIERS);
        let labels = runner_labels(workload, self.view.job_of(workload));
        let (label, value) = labels.first().filter(|_| labels.iter().all(|(_, value)| *value != "disabled"))?;
        let text = format!(
            "label {label}: {value:?}: a bastion runner that looks after this JobSet may delete it and create it again \
             when its tier changes, because QueuePolicy {policy} has spec.capacityTiers.selectors: Override; \
             launch it with BASTION_TIER=disabled, or send it to a queue with Respect"
        );
        Some((RUNNER, text))
    }
}

/// The event about a class that does not exist; `whoever` is the text about the field that names the class.
pub(crate) fn no_class(MissingClass(class): &MissingClass, whoever: &str) -> EventText {
    (NO_CLASS, format!("priority class {class:?} does not exist; create it or change {whoever}"))
}

/// The labels of a bastion's runner, on the pods of a job or on the job itself.
fn runner_labels<'a>(workload: &'a WorkloadView, job: Option<&'a JobState>) -> Vec<(&'static str, &'a str)> {
    let mut found = Vec::new();
    for key in [BASTION_TIER, BASTION_JOB_VERSION] {
        found.extend(workload.label_values(key).map(|value| (key, value)));
    }
    found.extend(job.into_iter().flat_map(|job| job.runner_labels.iter()).map(|(key, value)| (*key, &**value)));
    found
}

#[cfg(test)]
mod tests;
