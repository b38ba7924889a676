//! QueuePolicies that come, go and change.

use std::collections::BTreeMap;

use berth_api::berth::QueuePolicy;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::observe::quota_rules::QuotaRules;
use crate::policies::NO_CLASS;
use crate::write::{Kind, ObjectKey};

impl QuotaRules<'_> {
    pub(crate) fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>, now: Timestamp) {
        self.reports.schedule.mark(Kind::QueuePolicy, "", name, now);
        let Some(claimed) = self.view.put_policy(name, object) else { return };
        // A job without a Workload may wait for a class that a label stands for.
        self.touch_those_without_class();
        for queue in claimed {
            let labels = self.view.cluster_queues.get(&queue).and_then(|object| object.metadata.labels.clone());
            if self.claim(&queue, labels.as_ref(), now) {
                self.tell_queue_again(&queue);
            }
        }
    }

    /// Passes stock-outs, and their ends, on to the engine. The statuses of policies show them.
    pub(crate) fn pass_on_stock(&mut self, news: Vec<engine::Delta>, now: Timestamp) {
        for policy in self.view.policies.keys().filter(|_| !news.is_empty()) {
            self.reports.schedule.mark(Kind::QueuePolicy, "", policy, now);
        }
        for delta in news {
            self.quota.apply(delta);
        }
    }

    /// Marks the jobs whose users were told of a priority class that does not exist.
    fn touch_those_without_class(&mut self) {
        let told = self.reports.told.iter().filter(|(_, events)| events.contains_key(NO_CLASS));
        for object in told.map(|(object, _)| object.clone()).collect::<Vec<ObjectKey>>() {
            self.work.touch(object);
        }
    }

    /// Finds the rules that a ClusterQueue follows; true if they have changed.
    pub(crate) fn claim(&mut self, queue: &str, labels: Option<&BTreeMap<String, String>>, now: Timestamp) -> bool {
        let Some(policies) = self.view.claim(queue, labels) else { return false };
        for policy in policies {
            self.reports.schedule.mark(Kind::QueuePolicy, "", &policy, now);
        }
        true
    }

    /// Passes a ClusterQueue to the engine again, and with it everything that depends on its policy.
    fn tell_queue_again(&mut self, queue: &str) {
        let Some(object) = self.view.cluster_queues.get(queue) else { return };
        self.quota.apply(engine::Delta::ClusterQueue(self.view.queue_spec(self.settings, object)));
        self.work.follow_policy(self.view, queue);
    }

    /// A flavor has come to another tier: a workload gets tiers for a label only where its queue offers one of them.
    pub(crate) fn offer_changed(&mut self, flavor: &str) {
        let governed = self.view.claims.iter().filter(|(_, claim)| claim.reads_labels()).map(|(queue, _)| queue);
        for queue in governed.filter(|queue| self.view.flavors_of(queue).any(|name| name == flavor)) {
            self.work.follow_policy(self.view, queue);
        }
    }
}
