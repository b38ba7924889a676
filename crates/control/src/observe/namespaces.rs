//! Namespaces as they are seen, and what follows where one comes under management or leaves it.

use std::collections::{BTreeMap, BTreeSet};

use berth_engine::model as engine;
use k8s_openapi::api::core::v1::Namespace;

use super::known;
use crate::core::{Control, key};
use crate::event::Change;
use crate::view::{Name, WorkloadView};
use crate::write::Kind;

impl Control {
    pub(super) fn observe_namespaces(&mut self, change: Change<Box<Namespace>>) {
        let known = known(&change, self.view.namespaces.keys().cloned());
        let mut turned = BTreeSet::new();
        self.each(change, known, |me, name, object| {
            let managed = me.manages(&name.1);
            me.put_namespace(&name.1, object.map(|object| object.metadata.labels.unwrap_or_default()));
            if me.manages(&name.1) != managed {
                turned.insert(name.1);
            }
        });
        self.turn_workloads_of(&turned);
    }

    fn put_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        match labels {
            Some(labels) => {
                self.engine(engine::Delta::Namespace(name.to_owned(), labels.clone()));
                if self.view.namespaces.insert(name.to_owned(), labels.clone()).as_ref() != Some(&labels) {
                    self.touch_jobs_of(name);
                }
            }
            None => {
                self.engine(engine::Delta::RemoveNamespace(name.to_owned()));
                self.view.namespaces.remove(name);
            }
        }
    }

    /// These namespaces are managed now, or not any more: whether their workloads may be tried depends on it. Costs all workloads, once for
    /// all namespaces that an observation turns.
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
