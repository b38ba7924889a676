//! Namespaces as they are seen: their labels say whether jobs in them are managed, and in one that is being deleted nothing starts any more.

use berth_engine::model as engine;
use k8s_openapi::api::core::v1::Namespace;

use crate::core::{Control, key};
use crate::view::{Name, WorkloadView};
use crate::write::Kind;

impl Control {
    pub(super) fn put_namespace(&mut self, name: &str, object: Option<Namespace>) {
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
        }
        if ends {
            let here = self.view.workloads.values().filter(|workload| workload.namespace == name);
            let mut here: Vec<Name> = here.map(WorkloadView::key).collect();
            here.sort_unstable();
            for workload in here {
                self.mirror(&workload);
                self.touch(key(Kind::Workload, &workload));
            }
        }
    }

    /// Whether a namespace is being deleted: nothing new can come there, so that nothing is started or waited for, and what runs is stopped.
    pub(crate) fn is_ending(&self, namespace: &str) -> bool {
        self.view.ending.contains(namespace)
    }
}
