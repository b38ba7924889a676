//! Metric series of deleted queues and cohorts: without their removal, each scrape would show the last values of the series for ever.

use std::collections::BTreeSet;

use berth_cache::View;
use berth_cache::names::Name;

use crate::measure::{Labels, Measure};

/// The labels whose value is the name of a ClusterQueue.
const CLUSTER_QUEUE_LABELS: [&str; 5] =
    ["cluster_queue", "preempting_cluster_queue", "queue", "preemptor_queue", "victim_queue"];

/// Names of ClusterQueues, LocalQueues and cohorts that may have disappeared since the metrics were last drained. The names in `Gone` are dropped with each
/// drain of the metrics, so that they do not accumulate with every deletion.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// Names of removed ClusterQueues.
    pub(crate) cluster_queues: BTreeSet<String>,
    /// Namespaces and names of removed LocalQueues.
    pub(crate) local_queues: BTreeSet<Name>,
    /// Names of cohorts that lost their Cohort object, a ClusterQueue or a child cohort. A cohort that any object still names keeps its series.
    pub(crate) cohorts: BTreeSet<String>,
}

impl Gone {
    /// Puts the removals of metric series before the other metric changes. Metric changes under the name of a queue or cohort that has disappeared are dropped,
    /// because nothing would ever remove their series again.
    pub(crate) fn before(self, view: &View, happened: Vec<Measure>) -> Vec<Measure> {
        let cohorts = without_anybody(view, self.cohorts);
        let mut measures: Vec<Measure> = Vec::new();
        let mut forget = |labels: Labels| measures.push(Measure::Forget { labels });
        for name in self.cluster_queues {
            CLUSTER_QUEUE_LABELS.iter().for_each(|label| forget(vec![(label, name.clone())]));
        }
        for (namespace, name) in self.local_queues {
            forget(vec![("name", name), ("namespace", namespace)]);
        }
        cohorts.iter().for_each(|name| forget(vec![("cohort", name.clone())]));
        measures.extend(happened.into_iter().filter(|measure| is_of_somebody(view, measure, &cohorts)));
        measures
    }
}

/// The cohorts that have no Cohort object and that no object names.
fn without_anybody(view: &View, mut cohorts: BTreeSet<String>) -> BTreeSet<String> {
    if cohorts.is_empty() {
        return cohorts;
    }
    let queues = view.cluster_queues().values().filter_map(|queue| queue.spec.cohort_name.as_deref());
    let children = view.cohorts().values().filter_map(|cohort| cohort.spec.parent_name.as_deref());
    for name in queues.chain(children).chain(view.cohorts().keys().map(String::as_str)) {
        cohorts.remove(name);
    }
    cohorts
}

/// Whether all objects exist that a metric change names.
fn is_of_somebody(view: &View, measure: &Measure, gone_cohorts: &BTreeSet<String>) -> bool {
    let (Measure::Count { labels, .. } | Measure::Observe { labels, .. }) = measure else { return true };
    let value = |wanted: &str| labels.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value);
    let queue_stands = |(key, value): &(&str, String)| {
        !CLUSTER_QUEUE_LABELS.contains(key) || value.is_empty() || view.cluster_queues().contains_key(value)
    };
    let local_queue = value("namespace").zip(value("name")).map(|(namespace, name)| (namespace.clone(), name.clone()));
    labels.iter().all(queue_stands)
        && local_queue.is_none_or(|name| view.local_queues().contains_key(&name))
        && value("cohort").is_none_or(|name| !gone_cohorts.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_of_deleted_queue_are_dropped_with_its_series() {
        let of = |queue: &str| vec![("cluster_queue", queue.to_owned())];
        let count = |queue: &str| Measure::Count { name: "kueue_admitted_workloads", labels: of(queue), by: 1 };
        let mut view = View::default();
        view.put_cluster_queue("stays", Box::default());
        let gone = Gone { cluster_queues: BTreeSet::from(["gone".to_owned()]), ..Gone::default() };
        let measures = gone.before(&view, vec![count("gone"), count("stays")]);
        let forgotten = |measure: &&Measure| matches!(measure, Measure::Forget { .. });
        assert_eq!(measures.iter().filter(forgotten).count(), CLUSTER_QUEUE_LABELS.len());
        let left: Vec<&Measure> = measures.iter().filter(|measure| !forgotten(measure)).collect();
        assert!(matches!(left[..], [Measure::Count { labels, .. }] if *labels == of("stays")), "{left:?}");
    }
}
