//! The admission check that requests capacity from an autoscaler: its PodTemplates, its ProvisioningRequest, and the effect of the answer.
//!
//! A ProvisioningRequest belongs to one attempt of one Workload with one reservation. A decision about a Workload creates the PodTemplates and then the
//! ProvisioningRequest, and copies the autoscaler's answer into the state of the Workload's admission check. The ProvisioningRequest becomes the owner of the
//! PodTemplates, and is deleted when no Workload needs it.

use std::fmt;

use berth_api as api;
use berth_api::autoscaling::{API_VERSION, ProvisioningRequest};
use berth_api::conditions::{check_states, event_reasons, own_reasons, reasons, types};
use berth_api::json::to_value;
use berth_api::labels;
use berth_cache::admission_checks::Check;
use berth_cache::provisioning_index::{AskedCapacity, TemplateView};
use berth_cache::{Name, WorkloadView};
use berth_jobs::{
    Identity, LimitSummary, ObjectApply, ObjectPatch, PlacementError, Provisioning, RequestedPods, controller,
    version_of,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};

use crate::capacity::tier_assignments;
use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::job::placement::placements;
use crate::workload::status::{MESSAGE_LIMIT, cut, seconds, set_in, since};
use crate::workload::{notice, status_write};
use crate::write::{Body, EventType, Kind, ObjectKey, Purpose, Write, key};

/// The field manager of the check's controller in Kueue; `REPORTER` is the reporter of its events.
const MANAGER: &str = labels::PROVISIONING_REQUEST_CONTROLLER;
const REPORTER: &str = "kueue-provisioning-request-controller";
/// The pause in seconds before a Workload is tried again whose pods cannot be described at present.
const RETRY_SECONDS: i32 = 60;

/// The number of the attempt for which a check requests capacity, beginning at 1.
fn attempt_of(state: &api::AdmissionCheckState) -> i32 {
    state.retry_count.unwrap_or_default().saturating_add(1)
}

/// The name of the ProvisioningRequest that a check of a Workload has made, or has to make.
fn request_of(workload: &WorkloadView, state: &api::AdmissionCheckState) -> String {
    let named = |update: &api::PodSetUpdate| update.annotations.get(labels::CONSUME_PROVISIONING_REQUEST).cloned();
    let consumed = state.pod_set_updates.iter().find_map(named);
    consumed.unwrap_or_else(|| berth_jobs::provisioning_request_name(&workload.name, &state.name, attempt_of(state)))
}

/// The reason why the pods of a Workload cannot be described for an autoscaler.
enum AskError {
    /// The kept pod sets of the Workload cannot be read.
    Unreadable(serde_json::Error),
    /// The pods cannot be placed on the flavors of the admission.
    Placement(PlacementError),
}

impl AskError {
    /// Whether the obstacle to describing the Workload's pods for an autoscaler may pass, because a flavor is missing. If the pods cannot be described for a
    /// cause other than a missing flavor, the Workload could never start with its admission.
    fn passes(&self) -> bool {
        matches!(self, Self::Placement(error) if error.passes())
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => fmt::Display::fmt(error, f),
            Self::Placement(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// An admission check of a Workload, with the facts for a decision.
struct CheckCase<'a> {
    ctx: &'a Context<'a>,
    workload: &'a WorkloadView,
    state: &'a api::AdmissionCheckState,
    /// The name of the ProvisioningRequest.
    name: Name,
    now: Timestamp,
}

/// The next step of a Workload with quota in its requests to autoscalers.
pub(crate) fn decide(ctx: &Context<'_>, workload: &WorkloadView, now: Timestamp) -> Option<Decision> {
    // No decision is made before it is known whether the cluster serves ProvisioningRequests.
    ctx.view.provisioning().served.filter(|_| !ctx.is_unlisted(Kind::ProvisioningRequest))?;
    workload.status.admission_checks.iter().find_map(|state| {
        let check = ctx.view.checks().get(&state.name).filter(|check| check.asks_autoscaler())?;
        let name = (workload.namespace.clone(), request_of(workload, state));
        CheckCase { ctx, workload, state, name, now }.step(check)
    })
}

impl CheckCase<'_> {
    fn step(&self, check: &Check) -> Option<Decision> {
        let index = self.ctx.view.provisioning();
        let request = index.requests.get(&self.name).map(Box::as_ref);
        let request = request.filter(|request| is_of(&request.metadata, &self.workload.uid));
        if self.state.state == check_states::READY {
            // The autoscaler may take provided capacity back.
            return self.lost(request?, check);
        }
        if self.state.state != check_states::PENDING || self.workload.is(types::ADMITTED) {
            return None;
        }
        let config = match index.config(check) {
            Ok(config) if index.served == Some(true) => config,
            _ => return self.with_state(check_states::PENDING, "the check is not active"),
        };
        let asked = self.workload.asked.as_deref()?;
        let pods = match self.pods(asked, config) {
            Ok(pods) => pods,
            Err(error) if error.passes() => return self.with_state(check_states::RETRY, &error.to_string()),
            Err(error) => return self.with_state(check_states::REJECTED, &error.to_string()),
        };
        if pods.is_empty() {
            return Some(self.answer(check_states::READY, "the provisioning request is not needed", |_| {}));
        }
        let spec = berth_jobs::provisioning_request_spec(&self.name.1, &pods, config, &asked.parameters);
        let Some(request) = request else {
            let missing = pods.iter().zip(&spec.pod_sets).find_map(|(pods, set)| {
                self.template(pods, (self.workload.namespace.clone(), set.pod_template_ref.name.clone()))
            });
            let next = missing.unwrap_or_else(|| self.ask(&spec));
            return Some(self.in_the_way(&next).unwrap_or(next));
        };
        if request.metadata.deletion_timestamp.is_some() {
            // The name becomes free when the old ProvisioningRequest is gone.
            return None;
        }
        let same_class = request.spec.provisioning_class_name == spec.provisioning_class_name;
        if !(same_class && request.spec.parameters == spec.parameters && self.is_current(&request.metadata)) {
            return Some(withdraw(&self.name, &request.metadata));
        }
        match berth_jobs::provisioning_state(request) {
            Provisioning::Provisioned(words) => {
                let sets = self.workload.shape.pod_sets.iter().map(|set| set.name.as_str());
                let updates = berth_jobs::provisioned_updates(request, sets, Some(config));
                Some(self.answer(check_states::READY, words, |state| state.pod_set_updates = updates))
            }
            Provisioning::Accepted(Some(words)) => self.with_state(check_states::PENDING, words),
            // The message of the check from before the ProvisioningRequest does not apply any more.
            Provisioning::Accepted(None) | Provisioning::Unanswered => self.with_state(check_states::PENDING, ""),
            _ => self.lost(request, check),
        }
    }

    /// Handles a ProvisioningRequest that has failed, or whose capacity is gone.
    fn lost(&self, request: &ProvisioningRequest, check: &Check) -> Option<Decision> {
        let admitted = self.workload.is(types::ADMITTED);
        match berth_jobs::provisioning_state(request) {
            Provisioning::CapacityRevoked(words) => self.with_state(check_states::REJECTED, words),
            Provisioning::BookingExpired(words) if !admitted => Some(self.again("booking expired", words, check)),
            Provisioning::Failed(words) if !admitted => Some(self.again("failure", words, check)),
            _ => None,
        }
    }

    /// Decides on another attempt, or rejects the check after the last attempt.
    fn again(&self, after: &str, words: &str, check: &Check) -> Decision {
        let config = self.ctx.view.provisioning().config(check).ok();
        let strategy = config.and_then(|config| config.retry_strategy.as_ref());
        // If the tiers are tried one after the other, the capacity fallback sets the time of the next try, and never gives up, because the next tier may be
        // free now.
        let rules = self.ctx.tier_rules(self.workload);
        let falls_back = rules.is_some_and(|rules| rules.signals.provisioning_failed)
            && !tier_assignments(self.ctx, self.workload).is_empty();
        let delay = if falls_back { Some(0) } else { berth_jobs::retry_after(strategy, attempt_of(self.state)) };
        let Some(delay) = delay else {
            return self.answer(check_states::REJECTED, words, |_| {});
        };
        let message = format!("Retrying after {after}: {words}");
        self.answer(check_states::RETRY, &message, |state| state.requeue_after_seconds = Some(delay))
    }

    fn pods(
        &self,
        asked: &AskedCapacity,
        config: &api::ProvisioningRequestConfigSpec,
    ) -> Result<Vec<RequestedPods>, AskError> {
        let sets: Vec<api::PodSet> = serde_json::from_str(&asked.pod_sets).map_err(AskError::Unreadable)?;
        let places = placements(self.ctx, self.workload).map_err(AskError::Placement)?;
        let limits = LimitSummary::of(self.ctx.view.limits_of(&self.workload.namespace));
        berth_jobs::requested_pods(&sets, &places, &limits, config).map_err(AskError::Placement)
    }

    /// The time of the Workload's reservation for which its ProvisioningRequest and PodTemplates are created.
    fn reserved_at(&self) -> String {
        let at = since(&self.workload.status.conditions, types::QUOTA_RESERVED, "True").unwrap_or(self.now);
        seconds(at).to_string()
    }

    /// Whether a ProvisioningRequest or PodTemplate was created for the Workload's present reservation. ProvisioningRequests and PodTemplates that Kueue
    /// created do not record their reservation, and count as current.
    fn is_current(&self, metadata: &ObjectMeta) -> bool {
        let reserved_at_noted = metadata.annotations.as_ref().and_then(|all| all.get(labels::RESERVED_AT));
        reserved_at_noted.is_none_or(|reserved_at_noted| *reserved_at_noted == self.reserved_at())
    }

    /// The next step for the PodTemplate of a pod set; `None` if the PodTemplate is ready.
    fn template(&self, pods: &RequestedPods, name: Name) -> Option<Decision> {
        let Some(template) = self.ctx.view.provisioning().templates.get(&name) else {
            let draft = self.make(Purpose::PreparePodTemplate, Kind::PodTemplate, &name, "template", &pods.template);
            return Some(Decision::write(draft));
        };
        if template.metadata.deletion_timestamp.is_some() {
            // The name becomes free when the old PodTemplate is gone.
            return Some(Decision::Done);
        }
        // A PodTemplate of an earlier reservation may have the node selectors of that reservation.
        let good = template.owner() == self.workload.uid && self.is_current(&template.metadata);
        (!good).then(|| delete(Purpose::WithdrawPodTemplate, Kind::PodTemplate, &name, &template.metadata))
    }

    /// Reports in the state of the Workload's admission check that an object cannot be made, because an object of another client has the name. Berth tries
    /// again to create the ProvisioningRequest or PodTemplate even if an object of another client has the name.
    fn in_the_way(&self, next: &Decision) -> Option<Decision> {
        let Decision::Write(draft) = next else { return None };
        let refusal = self.ctx.in_flight.refusal(&self.workload.object_key());
        let (object, words) = refusal.filter(|(object, _)| *object == draft.key)?;
        self.with_state(check_states::PENDING, &format!("{object} {words}"))
    }

    fn ask(&self, spec: &api::autoscaling::ProvisioningRequestSpec) -> Decision {
        let spec = to_value(spec);
        let mut draft = self.make(Purpose::RequestCapacity, Kind::ProvisioningRequest, &self.name, "spec", &spec);
        let message = format!("Created ProvisioningRequest: {:?}", self.name.1);
        draft.notices.push(notice(
            self.workload,
            EventType::Normal,
            event_reasons::PROVISIONING_REQUEST_CREATED,
            message,
            REPORTER,
        ));
        Decision::write(draft)
    }

    /// Creates an object that the Workload owns.
    fn make(&self, purpose: Purpose, kind: Kind, name: &Name, field: &str, value: &Value) -> Draft {
        let api_version = if kind == Kind::PodTemplate { "v1" } else { API_VERSION };
        let body = json!({
            "apiVersion": api_version, "kind": kind.name(),
            "metadata": {
                "namespace": name.0, "name": name.1,
                "labels": {(labels::MANAGED): "true"},
                "annotations": {(labels::WORKLOAD): self.workload.name, (labels::RESERVED_AT): self.reserved_at()},
                "ownerReferences": [{
                    "apiVersion": api::API_VERSION, "kind": Kind::Workload.name(), "name": self.workload.name,
                    "uid": self.workload.uid, "controller": true, "blockOwnerDeletion": true,
                }],
            },
            (field): value,
        });
        Draft::of_any_version(purpose, key(kind, name), Write::Create(Body::of_new(body)))
    }

    /// Sets state and message of the check, unless the check has them already.
    fn with_state(&self, state: &str, words: &str) -> Option<Decision> {
        let known = self.state.state == state && self.state.message == cut(words, MESSAGE_LIMIT);
        let later = |entry: &mut api::AdmissionCheckState| {
            if entry.state == check_states::RETRY {
                entry.requeue_after_seconds = Some(RETRY_SECONDS);
            }
        };
        (!known).then(|| self.answer(state, words, later))
    }

    fn answer(&self, state: &str, words: &str, change: impl FnOnce(&mut api::AdmissionCheckState)) -> Decision {
        let name = &self.state.name;
        let mut draft = status_write(self.workload, Purpose::AnswerCheck, self.now, |edit| {
            let now = Time(seconds(edit.now));
            let Some(entry) = edit.status.admission_checks.iter_mut().find(|entry| entry.name == *name) else { return };
            if entry.state != state {
                entry.last_transition_time = now;
                entry.requeue_after_seconds = None;
                entry.pod_set_updates.clear();
            }
            entry.state = state.to_owned();
            entry.message = cut(words, MESSAGE_LIMIT);
            change(entry);
        });
        let before = &self.state.state;
        if before != state {
            let mut message = format!("Admission check {name} updated state from {before} to {state}");
            if !words.is_empty() {
                message.push_str(&format!(" with message: {words}"));
            }
            draft.notices.push(notice(
                self.workload,
                EventType::Normal,
                event_reasons::ADMISSION_CHECK_UPDATED,
                message,
                REPORTER,
            ));
        }
        Decision::write(draft)
    }
}

fn is_of(metadata: &ObjectMeta, workload: &str) -> bool {
    controller(metadata).is_some_and(|owner| owner.uid == workload)
}

fn delete(purpose: Purpose, kind: Kind, name: &Name, metadata: &ObjectMeta) -> Decision {
    Decision::write(Draft::delete(purpose, key(kind, name), metadata.uid.as_deref().unwrap_or_default()))
}

fn withdraw(name: &Name, metadata: &ObjectMeta) -> Decision {
    delete(Purpose::WithdrawRequest, Kind::ProvisioningRequest, name, metadata)
}

/// Decides about a ProvisioningRequest: the request becomes the owner of its PodTemplates, and is deleted when its Workload no longer needs it.
pub(crate) fn request(ctx: &Context<'_>, name: &Name) -> Decision {
    let index = ctx.view.provisioning();
    let Some(request) = index.requests.get(name).filter(|request| request.metadata.deletion_timestamp.is_none()) else {
        return Decision::Done;
    };
    let owner = controller(&request.metadata).map(|owner| owner.uid.as_str()).unwrap_or_default();
    // The garbage collector deletes a ProvisioningRequest whose Workload is gone.
    let Some(workload) = ctx.view.workloads().by_uid(owner) else { return Decision::Done };
    if !is_needed(ctx, workload, &name.1) {
        return withdraw(name, &request.metadata);
    }
    for set in &request.spec.pod_sets {
        let place = (name.0.clone(), set.pod_template_ref.name.clone());
        if let Some(template) = index.templates.get(&place).filter(|template| template.owner() == owner) {
            return take_over(request, &place, template);
        }
    }
    Decision::Done
}

fn is_needed(ctx: &Context<'_>, workload: &WorkloadView, request: &str) -> bool {
    if workload.is_finished() {
        return false;
    }
    let leaving = !workload.phase.keeps_quota() || !workload.active;
    if leaving && ctx.settings.cleanup_provisioning_requests {
        return false;
    }
    workload.status.admission_checks.iter().any(|state| request_of(workload, state) == request)
}

/// Makes a ProvisioningRequest the owner of a PodTemplate, so that the PodTemplate is deleted with the request, and not only with the Workload.
fn take_over(request: &ProvisioningRequest, name: &Name, template: &TemplateView) -> Decision {
    let metadata = &template.metadata;
    let owner = json!({
        "apiVersion": API_VERSION, "kind": Kind::ProvisioningRequest.name(), "name": request.name(),
        "uid": request.uid(), "controller": true, "blockOwnerDeletion": true,
    });
    let patch = ObjectPatch::of(metadata).owner_references(vec![owner]);
    let object = key(Kind::PodTemplate, name);
    Decision::write(Draft::merge(Purpose::PreparePodTemplate, object, patch, version_of(metadata)))
}

/// Decides about the condition `Active` of an admission check.
pub(crate) fn check(ctx: &Context<'_>, object: &ObjectKey, now: Timestamp) -> Decision {
    let index = ctx.view.provisioning();
    let found = ctx.view.checks().get(&object.name).filter(|check| check.asks_autoscaler());
    let seen = index.served.filter(|_| !ctx.is_unlisted(Kind::ProvisioningRequest));
    let (Some(check), Some(served)) = (found, seen) else { return Decision::Done };
    let problem = index.config(check).err().map(|error| error.to_string());
    let (active, reason, message) = match (served, &problem) {
        (true, None) => (true, reasons::ACTIVE, "The admission check is active"),
        (true, Some(problem)) => (false, reasons::BAD_PARAMETERS_REF, problem.as_str()),
        (false, _) => (
            false,
            own_reasons::NOT_SERVED,
            "the cluster does not serve ProvisioningRequests of autoscaling.x-k8s.io/v1",
        ),
    };
    let users = crate::queues::naming_check(ctx, &object.name);
    let waits = check.deleting && !users.is_empty();
    let message = match waits {
        true => format!("{message}; its deletion waits for {}", crate::queues::listed(&users)),
        false => message.to_owned(),
    };
    let message = message.as_str();
    let mut conditions = check.conditions.clone();
    if !set_in(&mut conditions, types::ACTIVE, (active, reason, message), check.generation, now) {
        return Decision::Done;
    }
    let identity =
        Identity { namespace: "", name: &object.name, uid: &check.uid, resource_version: &check.resource_version };
    let ours: Vec<_> = conditions.into_iter().filter(|condition| condition.type_ == types::ACTIVE).collect();
    let kind = (api::API_VERSION, Kind::AdmissionCheck.name());
    let body = ObjectApply::of_version(kind, &identity).status(json!({"conditions": ours}));
    Decision::write(Draft::apply_status(Purpose::ActivateCheck, object.clone(), (MANAGER, body), check.version()))
}

#[cfg(test)]
mod tests;
