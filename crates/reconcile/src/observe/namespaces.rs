//! Namespaces as the watch shows them. Jobs and pods are affected when a namespace becomes managed or unmanaged, or is being deleted.

use std::collections::BTreeSet;

use berth_cache::names::Name;
use berth_cache::{View, WorkloadView};
use berth_engine::model as engine;
use k8s_openapi::api::core::v1::Namespace;

use crate::observe::quota_rules::QuotaRules;
use crate::write::{Kind, key};

/// The namespace that every cluster has at all times; its uid is random and belongs to one cluster only.
const OF_CLUSTER: &str = "kube-system";

impl QuotaRules<'_> {
    /// Handles a namespace that was observed or removed; true if the namespace has become managed or unmanaged, or has begun or stopped being deleted.
    pub(crate) fn put_namespace(&mut self, name: &str, object: Option<Namespace>) -> bool {
        let state = |view: &View| (view.manages(self.settings, name), view.is_ending(name));
        let before = state(self.view);
        self.take_namespace(name, object);
        (self.view.manages(self.settings, name), self.view.is_ending(name)) != before
    }

    fn take_namespace(&mut self, name: &str, object: Option<Namespace>) {
        let Some(Namespace { metadata, .. }) = object else {
            self.quota.apply(engine::Delta::RemoveNamespace(name.to_owned()));
            self.view.remove_namespace(name);
            return;
        };
        if let Some(uid) = metadata.uid.filter(|uid| name == OF_CLUSTER && !uid.is_empty()) {
            // The uid of `kube-system` orders equal Workloads of two namespaces, so that a user who does not know the uid cannot choose the order.
            self.quota.apply(engine::Delta::TieSalt(uid));
        }
        let labels = metadata.labels.unwrap_or_default();
        self.quota.apply(engine::Delta::Namespace(name.to_owned(), labels.clone()));
        if self.view.put_namespace(name, labels, metadata.deletion_timestamp.is_some()) {
            self.work.touch_jobs_of(self.view, name);
            // A ClusterQueue may now accept jobs of the namespace, or accept them no longer.
            self.quota.overruns_mut().charge_again();
        }
    }

    /// Marks for a decision the Workloads of namespaces that have become managed or unmanaged, or are being deleted, because the engine may now try them, or
    /// may not. To mark the Workloads costs one pass over all Workloads for all changed namespaces of an observation.
    pub(crate) fn turn_workloads_of(&mut self, namespaces: &BTreeSet<String>) {
        if namespaces.is_empty() {
            return;
        }
        let open = self.view.workloads().values().filter(|workload| !workload.is_finished());
        let there = open.filter(|workload| namespaces.contains(&workload.namespace));
        let mut names: Vec<Name> = there.map(WorkloadView::key).collect();
        names.sort_unstable();
        for name in names {
            if self.view.workloads().get(&name).is_some_and(|workload| !workload.reserved()) {
                self.work.mirror(name.clone());
            }
            self.work.touch(key(Kind::Workload, &name));
        }
    }
}
