//! QueuePolicies as the watch shows them.

use std::collections::BTreeMap;

use berth_api::berth::QueuePolicy;
use berth_engine::model as engine;
use jiff::Timestamp;

use crate::observe::quota_rules::QuotaRules;
use crate::policies::NO_CLASS;
use crate::write::Kind;

impl QuotaRules<'_> {
    /// Handles a QueuePolicy that was observed or removed.
    pub fn put_policy(&mut self, name: &str, object: Option<Box<QueuePolicy>>, now: Timestamp) {
        self.reports.schedule_mut().mark(Kind::QueuePolicy, "", name, now);
        let Some(claimed) = self.view.put_policy(name, object) else { return };
        // A job without a Workload may wait for a priority class that the QueuePolicy gives by a label.
        self.touch_those_without_class();
        for queue in claimed {
            let labels = self.view.cluster_queues().get(&queue).and_then(|object| object.metadata.labels.clone());
            if self.claim(&queue, labels.as_ref(), now) {
                self.report_queue_again(&queue);
            }
        }
    }

    /// Passes the beginnings and ends of stock-outs to the engine. The statuses of all QueuePolicies are marked, because they show the stock-outs.
    pub fn pass_on_stock(&mut self, news: Vec<engine::Delta>, now: Timestamp) {
        for policy in self.view.policies().keys().filter(|_| !news.is_empty()) {
            self.reports.schedule_mut().mark(Kind::QueuePolicy, "", policy, now);
        }
        for delta in news {
            self.quota.apply(delta);
        }
    }

    /// Marks for a decision the jobs whose users got an event about a priority class that does not exist.
    fn touch_those_without_class(&mut self) {
        for object in self.reports.objects_with_event(NO_CLASS) {
            self.work.touch(object.clone());
        }
    }

    /// Finds the QueuePolicy rules that a ClusterQueue follows; true if the rules have changed.
    pub(crate) fn claim(&mut self, queue: &str, labels: Option<&BTreeMap<String, String>>, now: Timestamp) -> bool {
        let Some(policies) = self.view.claim(queue, labels) else { return false };
        for policy in policies {
            self.reports.schedule_mut().mark(Kind::QueuePolicy, "", &policy, now);
        }
        true
    }

    /// Passes a ClusterQueue to the engine again, with all Workloads that depend on its QueuePolicy.
    fn report_queue_again(&mut self, queue: &str) {
        let Some(object) = self.view.cluster_queues().get(queue) else { return };
        self.quota.apply(engine::Delta::ClusterQueue(self.view.queue_spec(self.settings, object)));
        self.work.follow_policy(self.view, queue);
    }

    /// Handles a change of a flavor's capacity tier. A label gives a Workload capacity tiers only if its ClusterQueue offers one of these tiers, so the
    /// Workloads of the affected queues are passed to the engine again.
    pub(crate) fn offer_changed(&mut self, flavor: &str) {
        let governed = self.view.claims().iter().filter(|(_, claim)| claim.reads_labels()).map(|(queue, _)| queue);
        for queue in governed.filter(|queue| self.view.flavors_of(queue).any(|name| name == flavor)) {
            self.work.follow_policy(self.view, queue);
        }
    }
}
