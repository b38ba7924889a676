//! Gauges, computed from the books when somebody asks for them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::core::Control;
use crate::measure::{Figures, Gauge};

impl Control {
    /// The gauges of all queues, and the figures of control's own health.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut gauges = Vec::new();
        let mut gauge = |name, labels, value: i64| gauges.push(Gauge { name, labels, value });
        for name in self.view.cluster_queues.keys() {
            let Some(figures) = self.world.figures(name) else { continue };
            let queue = || ("cluster_queue", name.clone());
            let status = |text: &str| vec![queue(), ("status", text.to_owned())];
            gauge("kueue_pending_workloads", status("active"), i64::from(figures.pending_active));
            gauge("kueue_pending_workloads", status("inadmissible"), i64::from(figures.pending_inadmissible));
            gauge("kueue_reserving_active_workloads", vec![queue()], i64::from(figures.reserving));
            let admitted = self.view.reserving.get(name).into_iter().flatten();
            let admitted = admitted
                .filter_map(|name| self.view.workloads.get(name))
                .filter(|workload| workload.is("Admitted"))
                .count();
            gauge("kueue_admitted_active_workloads", vec![queue()], i64::try_from(admitted).unwrap_or(i64::MAX));
            let active = self.world.readiness(name).is_some_and(|readiness| readiness.active);
            let terminating =
                self.view.cluster_queues.get(name).is_some_and(|queue| queue.metadata.deletion_timestamp.is_some());
            for (text, holds) in
                [("active", active), ("pending", !active && !terminating), ("terminating", terminating)]
            {
                gauge("kueue_cluster_queue_status", status(text), i64::from(holds));
            }
        }
        for (namespace, name) in self.view.local_queues.keys() {
            let Some(figures) = self.world.local_queue_figures(namespace, name) else { continue };
            let queue = || vec![("name", name.clone()), ("namespace", namespace.clone())];
            let status = |text: &str| {
                let mut labels = queue();
                labels.push(("status", text.to_owned()));
                labels
            };
            let parked = i64::from(figures.pending_inadmissible);
            gauge("kueue_local_queue_pending_workloads", status("active"), i64::from(figures.pending_active));
            gauge("kueue_local_queue_pending_workloads", status("inadmissible"), parked);
            gauge("kueue_local_queue_reserving_active_workloads", queue(), i64::from(figures.reserving));
        }
        gauge("berth_sweep_found", Vec::new(), i64::try_from(self.sweep_found).unwrap_or(i64::MAX));
        gauge("berth_unacknowledged_admissions", Vec::new(), i64::try_from(self.planned.len()).unwrap_or(i64::MAX));
        Figures { gauges }
    }

    /// A digest of the view and the books, for comparison with one made from a fresh list (invariant R2).
    #[must_use]
    pub fn recompute(&self) -> Value {
        let mut queues = BTreeMap::new();
        for name in self.view.cluster_queues.keys() {
            let Some(figures) = self.world.figures(name) else { continue };
            let usage: BTreeMap<String, i64> = figures
                .reservation
                .iter()
                .map(|cell| (format!("{}/{}", cell.flavor, cell.resource), cell.total.get()))
                .collect();
            let pending = figures.pending_active.saturating_add(figures.pending_inadmissible);
            queues.insert(name.clone(), json!({"reserving": figures.reserving, "pending": pending, "usage": usage}));
        }
        json!({
            "clusterQueues": queues,
            "workloads": self.view.workloads.len(),
            "jobs": self.view.jobs.len(),
            "problems": berth_engine::check(&self.world),
        })
    }
}
