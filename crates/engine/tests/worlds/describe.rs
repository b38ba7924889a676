//! Descriptions of worlds in few lines, for the message of a failure.

use berth_engine::*;

use super::Objects;

fn quotas(groups: &[ResourceGroup]) -> String {
    let one = |amount: Option<Amount>| amount.map_or("-".to_owned(), |amount| amount.get().to_string());
    let flavors = groups.iter().flat_map(|group| group.flavors.iter().map(move |flavor| (&group.covered, flavor)));
    let text = flavors.map(|(covered, flavor)| {
        let cells = covered.iter().zip(&flavor.quotas).map(|(resource, quota)| {
            let (nominal, borrow, lend) = (quota.nominal, quota.borrowing_limit, quota.lending_limit);
            format!("{resource}:{},{},{}", nominal.get(), one(borrow), one(lend))
        });
        format!("{}={}", flavor.flavor, cells.collect::<Vec<_>>().join("/"))
    });
    text.collect::<Vec<_>>().join(" ")
}

fn pod_set(set: &PodSetSpec) -> String {
    let asked: Vec<String> = set.requests.iter().map(|(name, amount)| format!("{name}:{}", amount.get())).collect();
    let least = set.min_count.map_or(String::new(), |least| format!(" at least {least}"));
    let on: String = set.node_selector.values().map(|pool| format!(" on {pool}")).collect();
    format!("{} x{}{least} {}{on}", set.name, set.count, asked.join("/"))
}

fn given(set: &PodSetAssignment) -> String {
    let cells = set.flavors.iter().map(|(resource, flavor)| {
        let amount = set.usage.get(resource).map_or(0, |amount| amount.get());
        format!("{flavor}/{resource}:{amount}")
    });
    format!("x{} {}", set.count, cells.collect::<Vec<_>>().join(" "))
}

impl Objects {
    /// A description of the world in few lines.
    pub(crate) fn describe(&self) -> String {
        let (sharing, partial) = (&self.options.fair_sharing, self.options.partial_admission);
        let mut text = format!("{sharing:?}, partial admission {partial}\n");
        if self.options.gates != Gates::default() {
            text.push_str(&format!("{:?}\n", self.options.gates));
        }
        if let Some(by_usage) = &self.options.admission_fair_sharing {
            text.push_str(&format!("{by_usage:?}\n"));
        }
        for cohort in &self.cohorts {
            let (name, parent, weight) = (&cohort.name, &cohort.parent, cohort.weight);
            text.push_str(&format!("cohort {name} {parent:?} {weight} {}\n", quotas(&cohort.groups)));
        }
        for queue in &self.queues {
            let (name, cohort, weight) = (&queue.name, &queue.cohort, queue.weight);
            let (rules, scan) = (queue.preemption, queue.fungibility);
            text.push_str(&format!(
                "queue {name} {cohort:?} {weight} {:?} stop {:?} {}\n  {rules:?}\n  {scan:?}\n",
                queue.strategy,
                queue.stop,
                quotas(&queue.groups)
            ));
        }
        for queue in self.queues.iter().filter(|queue| queue.usage_based) {
            text.push_str(&format!("queue {} is ordered by usage\n", queue.name));
        }
        for LocalQueueSpec { name, cluster_queue, weight, .. } in &self.local_queues {
            text.push_str(&format!("local queue {name} of {cluster_queue} {weight}\n"));
        }
        for (name, figures) in &self.ledgers {
            text.push_str(&format!("{name} used {figures:?}\n"));
        }
        for spec in &self.workloads {
            let asked: Vec<String> = spec.pod_sets.iter().map(pod_set).collect();
            let state = match &spec.state {
                WorkloadState::Reserved(held) => {
                    let sets: Vec<String> = held.pod_sets.iter().map(given).collect();
                    let saved = held.saved.map_or(String::new(), |saved| format!(" saved {}", saved.0));
                    format!("holds [{}] at {}{saved} evicted {}", sets.join("; "), held.at.0, held.evicted)
                }
                WorkloadState::Pending { .. } => "pending".to_owned(),
            };
            let (uid, queue, priority, since) = (&spec.uid, &spec.local_queue, spec.priority, spec.queued_at.0);
            let (points, preempts) = (spec.points_per_hour, spec.preempts);
            text.push_str(&format!(
                "{uid} {queue} prio {priority}+{points} since {since} {preempts:?} asks [{}] {state}\n",
                asked.join("; ")
            ));
        }
        text
    }
}
