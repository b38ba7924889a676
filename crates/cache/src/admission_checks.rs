//! Admission checks: the checks that a ClusterQueue may use, and the checks that apply to a Workload.

use std::collections::{BTreeMap, BTreeSet};

use berth_api as api;
use berth_api::conditions::{check_states, reasons, types};
use berth_api::labels::PROVISIONING_REQUEST_CONTROLLER as PROVISIONING;
use berth_engine::model::Problem;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Value of `spec.controllerName` in MultiKueue's AdmissionChecks, which a ClusterQueue may not combine freely with other AdmissionChecks.
const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";

/// An AdmissionCheck, reduced to the fields that control needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// `spec.controllerName`: the controller that answers the check.
    pub controller: String,
    /// True if the condition `Active` of the check is true; a ClusterQueue that names an inactive check is inactive.
    pub active: bool,
    /// `spec.parameters`: the object with the parameters of the check. `None` if the AdmissionCheck names no object with parameters.
    pub parameters: Option<api::AdmissionCheckParametersReference>,
    /// The conditions in the AdmissionCheck's status; empty if the AdmissionCheck has no status yet.
    pub conditions: Vec<Condition>,
    /// The uid of the check; empty if no API server has stored the check, as for checks that `berth decide` reads from files.
    pub uid: String,
    /// The resourceVersion of the check; empty if no API server has stored the check.
    pub resource_version: String,
    /// The generation of the check, for the condition that Berth writes; 0 if the check has none.
    pub generation: i64,
    /// All finalizers of the check, of Berth and of other clients.
    pub finalizers: Vec<String>,
    /// True if the check is being deleted; its finalizer is removed when no ClusterQueue names the check any more.
    pub deleting: bool,
}

impl Check {
    /// The reduced form of an observed AdmissionCheck.
    pub fn of(object: &api::AdmissionCheck) -> Self {
        let conditions = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        Self {
            controller: object.spec.controller_name.clone(),
            active: berth_api::conditions::is_true(&conditions, types::ACTIVE),
            parameters: object.spec.parameters.clone(),
            conditions,
            uid: object.uid().to_owned(),
            resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            finalizers: object.metadata.finalizers.clone().unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The resourceVersion as a number, for comparison with other states of the check; 0 if it is not a number.
    pub fn version(&self) -> u64 {
        berth_jobs::version_number(&self.resource_version)
    }

    /// Whether Berth itself answers the check, by a request to an autoscaler.
    pub fn asks_autoscaler(&self) -> bool {
        self.controller == PROVISIONING
    }

    /// Whether two states of a check have the same effect on ClusterQueues.
    pub fn serves_as(&self, other: &Self) -> bool {
        (&self.controller, self.active) == (&other.controller, other.active)
    }
}

/// The time from which a Workload that its checks sent back may be tried again: the latest time of the checks in state Retry.
pub fn retry_at(states: &[api::AdmissionCheckState]) -> Option<Timestamp> {
    states
        .iter()
        .filter(|check| check.state == check_states::RETRY)
        .filter_map(|check| {
            let after = SignedDuration::from_secs(i64::from(check.requeue_after_seconds.unwrap_or_default().max(0)));
            check.last_transition_time.0.checked_add(after).ok()
        })
        .max()
}

fn rules(queue: &api::ClusterQueueSpec) -> &[api::AdmissionCheckStrategyRule] {
    queue.admission_checks_strategy.as_ref().map(|strategy| strategy.admission_checks.as_slice()).unwrap_or_default()
}

/// The flavors to which a check applies; an empty set means all flavors.
fn on_flavors(rule: &api::AdmissionCheckStrategyRule) -> BTreeSet<&str> {
    rule.on_flavors.iter().map(String::as_str).collect()
}

/// The flavors of a ClusterQueue.
fn flavors(queue: &api::ClusterQueueSpec) -> BTreeSet<&str> {
    queue.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

/// Whether one of the checks requires that its Workload is tried later, or not at all.
pub fn have_failed(states: &[api::AdmissionCheckState]) -> bool {
    states.iter().any(|check| [check_states::RETRY, check_states::REJECTED].contains(&check.state.as_str()))
}

/// The checks of a ClusterQueue with the flavors to which they apply; an empty set means all flavors.
pub fn of_queue(queue: &api::ClusterQueueSpec) -> Vec<(String, BTreeSet<String>)> {
    rules(queue).iter().map(|rule| (rule.name.clone(), rule.on_flavors.iter().cloned().collect())).collect()
}

/// Whether a ClusterQueue names a check.
pub fn names(queue: &api::ClusterQueueSpec, check: &str) -> bool {
    rules(queue).iter().any(|rule| rule.name == check)
}

/// The faults of a ClusterQueue's checks, in the order in which Kueue lists the faults.
pub(crate) fn problems(queue: &api::ClusterQueueSpec, known: &BTreeMap<String, Check>) -> Vec<Problem> {
    let rules = rules(queue);
    let list = |wanted: &dyn Fn(&api::AdmissionCheckStrategyRule) -> bool| {
        let mut names: Vec<&str> = rules.iter().filter(|rule| wanted(rule)).map(|rule| rule.name.as_str()).collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| (names.len(), names.join(",")))
    };
    let by = |rule: &api::AdmissionCheckStrategyRule, controller: &str| {
        known.get(&rule.name).is_some_and(|check| check.controller == controller)
    };
    let missing = list(&|rule| !known.contains_key(&rule.name));
    let inactive = list(&|rule| known.get(&rule.name).is_some_and(|check| !check.active));
    let multi = list(&|rule| by(rule, MULTI_KUEUE));
    let all = flavors(queue);
    let is_partial = |rule: &api::AdmissionCheckStrategyRule| !rule.on_flavors.is_empty() && on_flavors(rule) != all;
    let per_flavor = list(&|rule| by(rule, MULTI_KUEUE) && is_partial(rule));
    let provisioning = list(&|rule| by(rule, PROVISIONING));
    let mut found = Vec::new();
    let mut add = |reason: &'static str, text: String| found.push(Problem { reason, text });
    if let Some((_, names)) = missing {
        add(reasons::ADMISSION_CHECK_NOT_FOUND, format!("references missing AdmissionCheck(s): {names}"));
    }
    if let Some((_, names)) = inactive {
        add(reasons::ADMISSION_CHECK_INACTIVE, format!("references inactive AdmissionCheck(s): {names}"));
    }
    if let Some((_, names)) = multi.as_ref().filter(|(count, _)| *count > 1) {
        let text = format!("Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {names}");
        add(reasons::MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS, text);
    }
    if let Some((_, names)) = per_flavor {
        let text = format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {names}");
        add(reasons::MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR, text);
    }
    if let (Some((_, multi)), Some((_, provisioning))) = (&multi, &provisioning) {
        let text = "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together";
        add(reasons::MULTIKUEUE_WITH_PROVISIONING_REQUEST, format!("{text}, found: {multi}, {provisioning}"));
    }
    found
}

/// Names of the checks that apply to a Workload with the given admission. To an admission with flavors, the checks of these flavors and the checks without
/// named flavors apply, even if a flavor was removed from the queue since. To an admission without flavors, no check applies. To a Workload without an
/// admission, the checks apply that are for every flavor of the queue.
pub fn concerning(queue: &api::ClusterQueueSpec, admission: Option<&api::Admission>) -> Vec<String> {
    let given: Option<BTreeSet<&str>> = admission.map(|admission| {
        admission.pod_set_assignments.iter().flat_map(|set| set.flavors.values()).map(String::as_str).collect()
    });
    let all = flavors(queue);
    let concerns = |rule: &&api::AdmissionCheckStrategyRule| {
        let named = on_flavors(rule);
        let of_all = named.is_empty();
        given.as_ref().map_or_else(
            || of_all || all.is_subset(&named),
            |given| if of_all { !given.is_empty() } else { !given.is_disjoint(&named) },
        )
    };
    rules(queue).iter().filter(concerns).map(|rule| rule.name.clone()).collect()
}

#[cfg(test)]
mod tests;
