//! Namespaces as they are seen, and the effects where one comes under management or leaves it, or is being deleted: nothing starts there any more.

use std::collections::BTreeSet;

use berth_engine::model as engine;
use k8s_openapi::api::core::v1::Namespace;

use super::known;
use crate::cache::{Name, WorkloadView};
use crate::context::Context;
use crate::controller::{Control, key};
use crate::event::Change;
use crate::write::Kind;

impl Control {
    pub(super) fn observe_namespaces(&mut self, change: Change<Box<Namespace>>) {
        let known = known(&change, self.view.namespaces.keys().cloned());
        let mut turned = BTreeSet::new();
        let state = |me: &Self, name: &str| (me.context().manages(name), me.context().is_ending(name));
        self.each(change, known, |me, name, object| {
            let before = state(me, &name.1);
            me.put_namespace(&name.1, object.map(|object| *object));
            if state(me, &name.1) != before {
                turned.insert(name.1);
            }
        });
        self.turn_workloads_of(&turned);
    }

    fn put_namespace(&mut self, name: &str, object: Option<Namespace>) {
        let Some(Namespace { metadata, .. }) = object else {
            self.engine(engine::Delta::RemoveNamespace(name.to_owned()));
            self.view.namespaces.remove(name);
            self.view.ending.remove(name);
            return;
        };
        let labels = metadata.labels.unwrap_or_default();
        self.engine(engine::Delta::Namespace(name.to_owned(), labels.clone()));
        let ends = metadata.deletion_timestamp.is_some() && self.view.ending.insert(name.to_owned());
        if metadata.deletion_timestamp.is_none() {
            self.view.ending.remove(name);
        }
        if self.view.namespaces.insert(name.to_owned(), labels.clone()).as_ref() != Some(&labels) || ends {
            self.touch_jobs_of(name);
            // A ClusterQueue may take jobs of the namespace now, or none any more.
            self.charge_overruns_again();
        }
    }

    /// Handles namespaces that are managed now, or not any more, or are being deleted: their workloads may be tried, or not, by that. Costs all
    /// workloads, once for all namespaces that an observation turns.
    fn turn_workloads_of(&mut self, namespaces: &BTreeSet<String>) {
        if namespaces.is_empty() {
            return;
        }
        let open = self.view.workloads.values().filter(|workload| !workload.is(berth_api::conditions::types::FINISHED));
        let there = open.filter(|workload| namespaces.contains(&workload.namespace));
        let mut names: Vec<Name> = there.map(WorkloadView::key).collect();
        names.sort_unstable();
        for name in names {
            if self.view.workloads.get(&name).is_some_and(|workload| !workload.reserved()) {
                self.mirror(&name);
            }
            self.touch(key(Kind::Workload, &name));
        }
    }
}

impl Context<'_> {
    /// Whether a namespace is being deleted. No object can be created there, so that control starts no job, waits for none, and stops running ones.
    pub(crate) fn is_ending(&self, namespace: &str) -> bool {
        self.view.ending.contains(namespace)
    }
}
