//! Objects in the form in which the engine gets them, for queries by callers of the crate `control`.

use std::collections::BTreeSet;

use berth_cache::admission_checks::concerning;
use berth_cache::deltas;
use berth_engine::model as engine;

use crate::context::Context;

impl Context<'_> {
    /// A ClusterQueue in the form in which the engine gets it; `None` if no such ClusterQueue exists.
    pub fn cluster_queue_spec(&self, name: &str) -> Option<engine::ClusterQueueSpec> {
        let object = self.view.cluster_queues().get(name)?;
        Some(self.queue_spec(object))
    }

    /// A LocalQueue in the form in which the engine gets it; without a LocalQueue object, the form has only the name.
    pub fn local_queue_spec(&self, namespace: &str, name: &str) -> engine::LocalQueueSpec {
        let key = (namespace.to_owned(), name.to_owned());
        let named = || {
            let mut object = berth_api::LocalQueue::default();
            object.metadata.namespace = Some(key.0.clone());
            object.metadata.name = Some(key.1.clone());
            object
        };
        let known = self.view.local_queues().get(&key);
        known.map_or_else(|| deltas::local_queue(&named()), |object| deltas::local_queue(object))
    }

    /// A Cohort in the form in which the engine gets it; without a Cohort object, the form has only the name.
    pub fn cohort_spec(&self, name: &str) -> engine::CohortSpec {
        let named = || {
            let mut object = berth_api::Cohort::default();
            object.metadata.name = Some(name.to_owned());
            object
        };
        self.view.cohorts().get(name).map_or_else(|| deltas::cohort(&named()), |object| deltas::cohort(object))
    }

    /// The cohorts that exist by an object of their own, or because one of the given ClusterQueues or another Cohort names them. Cohorts below a cycle of
    /// Cohorts are left out.
    pub fn cohorts_above(&self, cluster_queues: &[String]) -> BTreeSet<String> {
        let named =
            cluster_queues.iter().filter_map(|name| self.view.cluster_queues().get(name)?.spec.cohort_name.clone());
        let parents = self.view.cohorts().values().filter_map(|cohort| cohort.spec.parent_name.clone());
        let all = named.chain(parents).chain(self.view.cohorts().keys().cloned());
        all.filter(|name| !name.is_empty() && !self.quota.world().cohort_cycle(name)).collect()
    }

    /// Names of the admission checks that apply to a Workload in a ClusterQueue; `None` if either is unknown.
    pub fn checks_of(&self, namespace: &str, name: &str, cluster_queue: &str) -> Option<Vec<String>> {
        let workload = self.view.workloads().get(&(namespace.to_owned(), name.to_owned()))?;
        let queue = self.view.cluster_queues().get(cluster_queue)?;
        Some(concerning(&queue.spec, workload.status.admission.as_ref()))
    }
}
