//! The pod group of a StatefulSet: its Workload is made from the StatefulSet and stays when the StatefulSet is updated. If the StatefulSet has zero replicas,
//! the Workload holds no quota and waits.

use std::collections::BTreeSet;

use berth_api::conditions::{event_reasons, reasons, types};
use berth_cache::WorkloadView;
use berth_jobs::Priority;
use berth_jobs::pods::{STATEFUL_SET_REPORTER, SetState, stateful_set_workload};
use serde_json::Value;

use super::PodGroupCase;
use crate::decision::Decision;
use crate::policies::{NamedClasses, no_class};
use crate::workload::columns::Annotations;
use crate::workload::follow::{DesiredFields, follow};
use crate::workload::names::{create, has_its_name};
use crate::workload::status::find;
use crate::workload::{ON_HOLD, status_write};
use crate::write::{EventType, Kind, Notice, Purpose, key};

impl PodGroupCase<'_> {
    /// Creates the Workload of a StatefulSet that has none, if the StatefulSet is to get one.
    pub(super) fn compose_set(&self, (name, set): (&str, &SetState)) -> Decision {
        if !self.wants_workload(set) {
            return Decision::Done;
        }
        if self.ctx.in_flight.creations_full() {
            return Decision::WaitForCreations;
        }
        let notice = |event_type, reason: &str, message| self.notice_at_set((name, set), event_type, reason, message);
        let Some(object) = set.decode() else { return Decision::Done };
        let copied = &self.ctx.settings.label_keys_to_copy;
        let made = match stateful_set_workload(&object, set.replicas, Priority::default(), copied) {
            Ok(made) => made,
            Err(error) => {
                let text = error.to_string();
                return Decision::event(notice(EventType::Warning, event_reasons::ERR_WORKLOAD_COMPOSE, text));
            }
        };
        match self.ctx.with_priority(made, classes_of_set(set)) {
            Ok(workload) => create(self.ctx, &key(Kind::PodGroup, self.name), &workload, |message| {
                notice(EventType::Normal, event_reasons::CREATED_WORKLOAD, message)
            }),
            Err(class) => {
                let (reason, text) = no_class(&class, "the StatefulSet");
                Decision::event(notice(EventType::Warning, reason, text))
            }
        }
    }

    /// Whether a StatefulSet without a Workload is to get one.
    fn wants_workload(&self, set: &SetState) -> bool {
        let asks = set.queue_name.is_some() || self.ctx.settings.manage_jobs_without_queue_name;
        asks && !set.deleting && set.replicas > 0
    }

    /// Decides about a StatefulSet if a Workload of another object has the name that the StatefulSet's Workload is to have.
    pub(super) fn set_name_taken(&self, set: (&str, &SetState), other: &WorkloadView) -> Decision {
        if !self.wants_workload(set.1) {
            return Decision::Done;
        }
        has_its_name(self.ctx, &key(Kind::PodGroup, self.name), other, |reason, text| {
            self.notice_at_set(set, EventType::Warning, reason, text)
        })
    }

    /// An event at the StatefulSet.
    fn notice_at_set(
        &self,
        (name, set): (&str, &SetState),
        event_type: EventType,
        reason: &str,
        message: String,
    ) -> Notice {
        Notice {
            key: key(Kind::StatefulSet, &self.pod_name(name)),
            uid: set.uid.to_string(),
            event_type,
            reason: reason.to_owned(),
            message,
            reporter: STATEFUL_SET_REPORTER,
        }
    }

    /// An event at the StatefulSet about a fault of its priority, sent once. The pods of a StatefulSet keep the priority classes of their creation, so only
    /// the classes of the StatefulSet count.
    pub(super) fn report_to_set(&self, workload: &WorkloadView, set: (&str, &SetState)) -> Option<Decision> {
        let unsent_event = self.ctx.unsent_event(&key(Kind::PodGroup, self.name), workload, classes_of_set(set.1));
        unsent_event.map(|(reason, text)| Decision::event(self.notice_at_set(set, EventType::Warning, reason, text)))
    }

    /// The pod sets of the StatefulSet for its present number of replicas.
    fn pod_sets(&self, set: &SetState) -> Option<(Value, Annotations)> {
        let made = stateful_set_workload(&set.decode()?, set.replicas, Priority::default(), &BTreeSet::new());
        Some(self.ctx.other_pod_sets(&self.name.0, &made.ok()?.spec.pod_sets))
    }

    /// The fields that a Workload takes over from its StatefulSet; the pod sets change only if there are replicas.
    pub(super) fn desired_of_set<'s>(&self, workload: &WorkloadView, set: &'s SetState) -> DesiredFields<'s> {
        let resized = !workload.reserved() && set.replicas > 0 && is_rescaled(workload, set);
        DesiredFields {
            pod_sets: Some(set).filter(|_| resized).and_then(|set| self.pod_sets(set)),
            queue: set.queue_name.as_deref(),
            priority: self.ctx.wanted_priority(workload, classes_of_set(set)).ok(),
            gated_by: set.admission_gates.as_deref(),
            tiers: set.capacity_tiers.as_deref(),
            limit: None,
            preempts: None,
            prebuilt: false,
        }
    }

    /// The write by which a Workload follows the number of replicas of its StatefulSet; `None` if the Workload agrees with the StatefulSet.
    pub(super) fn scaled(&self, workload: &WorkloadView, (_, set): (&str, &SetState)) -> Option<Decision> {
        let condition = find(&workload.status.conditions, types::QUOTA_RESERVED).filter(|c| c.status == "False");
        let on_hold = condition.is_some_and(|condition| condition.reason == ON_HOLD);
        if set.replicas <= 0 {
            let running = self.tally().running > 0 || (workload.reserved() && self.may_be_starting());
            if on_hold || running || (!workload.active && !workload.reserved()) {
                return Some(Decision::Done);
            }
            if !workload.active {
                // An inactive Workload is evicted, and the eviction gives its quota back.
                return None;
            }
            let message = "StatefulSet scaled to zero; workload on hold";
            return Some(Decision::write(status_write(workload, Purpose::ReleaseQuota, self.now, |edit| {
                edit.take_back(ON_HOLD, message);
            })));
        }
        let rescaled = is_rescaled(workload, set);
        let runs = || self.tally().running > 0 || self.may_be_starting();
        if rescaled && workload.phase.keeps_quota() && !runs() {
            // The StatefulSet was scaled to zero and back before its quota was given to other Workloads.
            let message = format!("StatefulSet scaled to {} replicas; waiting for quota for them", set.replicas);
            return Some(Decision::write(status_write(workload, Purpose::ReleaseQuota, self.now, |edit| {
                edit.take_back(reasons::PENDING_EVALUATION, &message);
            })));
        }
        let followed = Some(workload).filter(|workload| !workload.reserved());
        if let Some(decision) = followed.and_then(|workload| follow(workload, self.desired_of_set(workload, set))) {
            return Some(decision);
        }
        // A Workload whose size still differs from the StatefulSet could not be changed, and must not be admitted with the old size.
        (on_hold && !rescaled).then(|| {
            let message = "Workload no longer on hold; waiting for quota reservation";
            Decision::write(status_write(workload, Purpose::Requeue, self.now, |edit| {
                edit.pending(reasons::PENDING_EVALUATION, message);
            }))
        })
    }
}

/// The priority classes that a StatefulSet names.
fn classes_of_set(set: &SetState) -> NamedClasses<'_> {
    (set.workload_priority_class.as_deref(), set.pod_priority_class.as_deref())
}

/// Whether the Workload of a StatefulSet is for another number of replicas.
fn is_rescaled(workload: &WorkloadView, set: &SetState) -> bool {
    workload.sizes().map(|(_, count)| count).fold(0, i32::saturating_add) != set.replicas
}

#[cfg(test)]
mod tests;
