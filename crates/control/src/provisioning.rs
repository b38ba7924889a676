//! ProvisioningRequests in the view: those that were made for Workloads, their PodTemplates and configurations, and the objects that a change of them
//! concerns. Decisions are in `provisioning/check.rs`.

pub(crate) mod check;

use std::collections::{BTreeMap, BTreeSet};

use berth_api as api;
use berth_api::autoscaling::ProvisioningRequest;
use berth_api::conditions::types;
use berth_api::labels;
use berth_jobs::{controller, version_of};
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, cluster_key, key};
use crate::queues::checks::Check;
use crate::write::{Kind, ObjectKey};

/// The complete pod sets of a Workload: kept while it has quota and waits for its checks.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its pod sets, as JSON.
    pub(crate) pod_sets: Box<str>,
    /// Parameters that its annotations set.
    pub(crate) parameters: BTreeMap<String, String>,
}

impl Asked {
    /// The capacity that may have to be asked for, for a Workload; `None` when there is none.
    pub(crate) fn of(
        annotations: &BTreeMap<String, String>,
        pod_sets: &[api::PodSet],
        status: Option<&api::WorkloadStatus>,
    ) -> Option<Box<Self>> {
        let status = status.filter(|status| status.admission.is_some() && !status.admission_checks.is_empty())?;
        let over = [types::ADMITTED, types::FINISHED]
            .iter()
            .any(|kind| crate::workload::status::is_true(&status.conditions, kind));
        let pod_sets = (!over).then(|| serde_json::to_string(pod_sets).unwrap_or_default().into())?;
        Some(Box::new(Self { pod_sets, parameters: berth_jobs::provisioning_parameters(annotations) }))
    }
}

/// A PodTemplate of a request.
#[derive(Clone, Debug)]
pub(crate) struct TemplateView {
    pub(crate) metadata: ObjectMeta,
}

impl TemplateView {
    /// Uid of the Workload or the request that it belongs to.
    pub(crate) fn owner(&self) -> &str {
        controller(&self.metadata).map(|owner| owner.uid.as_str()).unwrap_or_default()
    }

    /// Name of the Workload for which it was made.
    fn workload(&self) -> Option<&str> {
        let named = self.metadata.annotations.as_ref().and_then(|all| all.get(labels::WORKLOAD));
        let owner = controller(&self.metadata).filter(|owner| owner.kind == Kind::Workload.name());
        named.map(String::as_str).or_else(|| owner.map(|owner| owner.name.as_str()))
    }
}

/// Uid and version of an object.
fn identity(metadata: &ObjectMeta) -> (String, u64) {
    (metadata.uid.clone().unwrap_or_default(), version_of(metadata))
}

/// All ProvisioningRequests, with their templates and configurations.
#[derive(Debug, Default)]
pub(crate) struct ProvisioningBook {
    /// True where the cluster serves ProvisioningRequests; `None` while that is not known.
    pub(crate) served: Option<bool>,
    pub(crate) configs: BTreeMap<String, Box<api::ProvisioningRequestConfig>>,
    pub(crate) requests: BTreeMap<Name, Box<ProvisioningRequest>>,
    pub(crate) templates: BTreeMap<Name, TemplateView>,
    /// Names of requests by the uid of their Workload.
    owned: BTreeMap<String, BTreeSet<Name>>,
}

impl ProvisioningBook {
    /// The requests that were made for a Workload.
    pub(crate) fn of_workload(&self, uid: &str) -> impl Iterator<Item = &Name> {
        self.owned.get(uid).into_iter().flatten()
    }

    fn put(&mut self, name: Name, object: Box<ProvisioningRequest>) {
        self.drop(&name);
        if let Some(owner) = controller(&object.metadata) {
            self.owned.entry(owner.uid.clone()).or_default().insert(name.clone());
        }
        self.requests.insert(name, object);
    }

    fn drop(&mut self, name: &Name) -> Option<Box<ProvisioningRequest>> {
        let old = self.requests.remove(name)?;
        if let Some(owner) = controller(&old.metadata)
            && let Some(names) = self.owned.get_mut(&owner.uid)
        {
            names.remove(name);
            if names.is_empty() {
                self.owned.remove(&owner.uid);
            }
        }
        Some(old)
    }

    /// The configuration of a check, or why there is none.
    pub(crate) fn config(&self, check: &Check) -> Result<&api::ProvisioningRequestConfigSpec, String> {
        const KIND: &str = "ProvisioningRequestConfig";
        let Some(parameters) = &check.parameters else {
            return Err(format!("spec.parameters is missing: name a {KIND} of {}", api::GROUP));
        };
        if parameters.api_group != api::GROUP || parameters.kind != KIND {
            let given = format!("{}.{}", parameters.kind, parameters.api_group);
            return Err(format!("spec.parameters names a {given}, and only a {KIND}.{} is allowed", api::GROUP));
        }
        let found = self.configs.get(&parameters.name);
        found.map(|config| &config.spec).ok_or_else(|| format!("{KIND} {:?} does not exist", parameters.name))
    }
}

impl Control {
    /// Notes whether the cluster serves ProvisioningRequests.
    pub(crate) fn put_served(&mut self, served: bool) {
        if self.view.provisioning.served.replace(served) != Some(served) {
            self.touch_provisioning(None);
        }
    }

    pub(crate) fn put_provisioning_config(&mut self, name: &str, object: Option<Box<api::ProvisioningRequestConfig>>) {
        match object {
            Some(object) => self.view.provisioning.configs.insert(name.to_owned(), object),
            None => self.view.provisioning.configs.remove(name),
        };
        self.touch_provisioning(Some(name));
    }

    pub(crate) fn put_request(&mut self, name: Name, object: Option<Box<ProvisioningRequest>>) {
        let object_key = key(Kind::ProvisioningRequest, &name);
        let Some(object) = object else {
            self.touch_related(&object_key);
            self.flights.vanished(&object_key);
            self.view.provisioning.drop(&name);
            return;
        };
        let old = self.view.provisioning.requests.get(&name).map(|old| identity(&old.metadata));
        let new = identity(&object.metadata);
        if self.is_news(&object_key, old, &new) {
            self.view.provisioning.put(name, object);
            self.flights.seen(&object_key, new.1);
            self.touch_related(&object_key);
        }
    }

    pub(crate) fn put_template(&mut self, name: Name, object: Option<Box<PodTemplate>>) {
        let object_key = key(Kind::PodTemplate, &name);
        let Some(object) = object else {
            self.touch_related(&object_key);
            self.flights.vanished(&object_key);
            self.view.provisioning.templates.remove(&name);
            return;
        };
        let old = self.view.provisioning.templates.get(&name).map(|old| identity(&old.metadata));
        let new = identity(&object.metadata);
        if self.is_news(&object_key, old, &new) {
            self.view.provisioning.templates.insert(name, TemplateView { metadata: object.metadata });
            self.flights.seen(&object_key, new.1);
            self.touch_related(&object_key);
        }
    }

    /// Whether a state of an object is not older than the one that is known. Another object of that name ends the wait for the first one.
    fn is_news(&mut self, object: &ObjectKey, old: Option<(String, u64)>, new: &(String, u64)) -> bool {
        let Some((uid, version)) = old else { return true };
        if uid != new.0 {
            self.flights.vanished(object);
        }
        uid != new.0 || version <= new.1
    }

    /// Marks the checks that ask autoscalers, those with one configuration or all, and the workloads that wait for them.
    pub(crate) fn touch_provisioning(&mut self, config: Option<&str>) {
        let concerned = |check: &Check| {
            let named = check.parameters.as_ref().map(|parameters| parameters.name.as_str());
            check.asks_autoscaler() && (config.is_none() || named == config)
        };
        let checks = self.view.checks.iter().filter(|(_, check)| concerned(check));
        let names: Vec<String> = checks.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.touch_check(&name);
        }
    }

    /// Marks a check and the workloads that wait for it.
    pub(crate) fn touch_check(&mut self, check: &str) {
        self.touch(cluster_key(Kind::AdmissionCheck, check));
        let waits = |workload: &&WorkloadView| {
            workload.asked.is_some() && workload.status.admission_checks.iter().any(|state| state.name == check)
        };
        let waiting: BTreeSet<Name> = self.view.workloads.values().filter(waits).map(WorkloadView::key).collect();
        for workload in waiting {
            self.touch(key(Kind::Workload, &workload));
        }
    }

    /// Marks the requests of a workload.
    pub(crate) fn touch_requests_of(&mut self, workload: &Name) {
        let Some(workload) = self.view.workloads.get(workload) else { return };
        let requests = self.view.provisioning.of_workload(&workload.uid);
        self.work.extend(requests.map(|name| key(Kind::ProvisioningRequest, name)));
    }
}

impl Context<'_> {
    /// Objects that a change of a request or a template concerns.
    pub(crate) fn concerned_by(&self, object: &ObjectKey) -> Vec<ObjectKey> {
        let name = (object.namespace.clone(), object.name.clone());
        let book = &self.view.provisioning;
        let in_place = |kind: Kind, name: &str| key(kind, &(object.namespace.clone(), name.to_owned()));
        if object.kind == Kind::ProvisioningRequest {
            let owner = book.requests.get(&name).and_then(|request| controller(&request.metadata));
            return owner.map(|owner| in_place(Kind::Workload, &owner.name)).into_iter().collect();
        }
        let Some(template) = book.templates.get(&name) else { return Vec::new() };
        let request = controller(&template.metadata).filter(|owner| owner.kind == Kind::ProvisioningRequest.name());
        let request = request.map(|owner| in_place(Kind::ProvisioningRequest, &owner.name));
        let workload = template.workload().map(|name| in_place(Kind::Workload, name));
        // The template does not belong to a request yet, but a request may wait to take it over.
        let uid = workload.as_ref().and_then(|workload| self.uid_of(workload)).unwrap_or_default();
        let requests = book.of_workload(&uid).map(|name| key(Kind::ProvisioningRequest, name));
        request.into_iter().chain(workload).chain(requests).collect()
    }
}
