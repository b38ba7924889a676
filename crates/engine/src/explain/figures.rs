//! Queries of the world: readiness of queues, figures of queues, reasons of workloads, and changed objects.

use std::sync::Arc;

use crate::model::{CellUsage, FlavorResource, Millis, PendingReason, QueueFigures, Readiness, StopPolicy, Verdict};
use crate::quota::balance::{amount, in_usage, left};
use crate::world::ids::{FlavorId, LocalQueueId, QueueId, ResourceId, WorkloadId};
use crate::world::store::{Phase, Place, Workload};
use crate::world::{Changed, World};

const TERMINATING: &str = "Can't admit new workloads; clusterQueue is terminating";
const NO_LOCAL_QUEUE: &str = "no LocalQueue is named: a job names one in the label kueue.x-k8s.io/queue-name";
const UNEVALUATED: &str = "Workload is pending evaluation in the scheduling queue";

impl World {
    fn find_queue(&self, name: &str) -> Option<QueueId> {
        self.store.queue_ids.get(name).copied().filter(|id| self.store.queues[*id].spec.is_some())
    }

    pub(crate) fn find_local_queue(&self, namespace: &str, name: &str) -> Option<LocalQueueId> {
        let id = self.store.local_queue_names.get(&(namespace.to_owned(), name.to_owned()))?;
        self.store.local_queues[id].spec.is_some().then_some(id)
    }

    /// The condition `Active` of a ClusterQueue; `None` if no ClusterQueue has this name. Cost of `readiness`: the number of the ClusterQueue's flavors and the
    /// depth of its cohort tree; below a cycle of cohorts, also the square of the number of cohorts on the way into and around the cycle.
    #[must_use]
    pub fn readiness(&self, cluster_queue: &str) -> Option<Readiness> {
        self.readiness_of(self.find_queue(cluster_queue)?)
    }

    pub(crate) fn readiness_of(&self, id: QueueId) -> Option<Readiness> {
        let queue = &self.store.queues[id];
        let spec = queue.spec.as_ref()?;
        if let Some(text) = &spec.inactive {
            let reason = if text == TERMINATING { "Terminating" } else { "Unknown" };
            return Some(Readiness { reason, message: text.clone(), active: false });
        }
        let mut problems: Vec<(&'static str, String)> = Vec::new();
        if spec.stop != StopPolicy::None {
            problems.push(("Stopped", "is stopped".to_owned()));
        }
        let flavors: Vec<_> = queue.groups.iter().flat_map(|group| &group.flavors).copied().collect();
        let missing: Vec<&str> = flavors
            .iter()
            .filter(|flavor| !self.store.flavors.contains_key(flavor))
            .map(|flavor| self.store.flavor(*flavor))
            .collect();
        if !missing.is_empty() {
            problems.push(("FlavorNotFound", format!("references missing ResourceFlavor(s): {}", missing.join(","))));
        }
        problems.extend(spec.problems.iter().map(|problem| (problem.reason, problem.text.clone())));
        for flavor in flavors.iter().filter_map(|flavor| self.store.flavors.get(flavor)) {
            if let Some(topology) = &flavor.topology {
                problems.push((
                    "TopologyNotFound",
                    format!(
                        "there is no Topology {topology:?} for TAS flavor {:?}, because topologyName is not supported yet",
                        flavor.name
                    ),
                ));
            }
        }
        if self.tree.is_below_cycle(queue.node) {
            let cycle = spec.cohort.as_deref().and_then(|cohort| self.cycle_above(cohort));
            let named = cycle.map(|cycle| format!(" ({})", cycle.join(" -> "))).unwrap_or_default();
            problems.push(("Unknown", format!("is below a cycle of cohorts{named}")));
        }
        let texts: Vec<&str> = problems.iter().map(|(_, text)| text.as_str()).collect();
        Some(match problems.first() {
            None => Readiness { reason: "Ready", message: "Can admit new workloads".to_owned(), active: true },
            Some((reason, _)) => Readiness {
                reason,
                message: format!("Can't admit new workloads: {}.", texts.join(", ")),
                active: false,
            },
        })
    }

    /// The condition `Active` of a LocalQueue; `None` if no LocalQueue has this name. Cost: constant.
    #[must_use]
    pub fn local_queue_readiness(&self, namespace: &str, name: &str) -> Option<Readiness> {
        let local_queue = &self.store.local_queues[self.find_local_queue(namespace, name)?];
        let queue = local_queue.queue.map(|queue| &self.store.queues[queue]).filter(|queue| queue.spec.is_some());
        let is_stopped = local_queue.spec.as_ref().is_some_and(|spec| spec.stop != StopPolicy::None);
        let (reason, message, active) = match queue {
            _ if is_stopped => ("Stopped", "LocalQueue is stopped", false),
            None => ("ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue", false),
            Some(queue) if !queue.active => {
                ("ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue", false)
            }
            Some(_) => ("Ready", "Can submit new workloads to localQueue", true),
        };
        Some(Readiness { reason, message: message.to_owned(), active })
    }

    /// Whether a workload waits for quota of an active queue. Cost of `quota_is_wanted`: the number of all ClusterQueues.
    #[must_use]
    pub fn quota_is_wanted(&self) -> bool {
        self.store.queues.ids().any(|id| {
            let queue = &self.store.queues[id];
            queue.active && queue.pending.total > 0
        })
    }

    /// Figures for the status of a ClusterQueue. Cost of `figures`: the number of the ClusterQueue's classes of equals and cells, and of its flavors for each
    /// cell in use.
    #[must_use]
    pub fn figures(&self, cluster_queue: &str) -> Option<QueueFigures> {
        let queue = &self.store.queues[self.find_queue(cluster_queue)?];
        let pending_active = queue.pending.active();
        let has_parent = self.tree.nodes[queue.node].parent.is_some();
        let reservation = self.cells(cluster_queue, |cell| {
            let cell = self.tree.cell(queue.node, cell);
            let borrowed = if has_parent { left(cell.nominal, cell.usage).saturating_neg().max(0) } else { 0 };
            let beyond = in_usage(&self.tree.nodes[queue.node].beyond, cell.key);
            (cell.usage.saturating_add(beyond), borrowed)
        });
        Some(QueueFigures {
            pending_active,
            pending_inadmissible: queue.pending.total.saturating_sub(pending_active),
            reserving: u32::try_from(queue.held.len()).unwrap_or(u32::MAX),
            reservation,
        })
    }

    /// Figures for the status of a LocalQueue. Only quota of the LocalQueue's current ClusterQueue counts. Cost of `local_queue_figures`: the number of the
    /// LocalQueue's pending workloads and of the cells of its ClusterQueue, and of the ClusterQueue's flavors for each cell in use.
    #[must_use]
    pub fn local_queue_figures(&self, namespace: &str, name: &str) -> Option<QueueFigures> {
        let local_queue = &self.store.local_queues[self.find_local_queue(namespace, name)?];
        let queue = local_queue.queue.map(|queue| &self.store.queues[queue]).filter(|queue| queue.spec.is_some());
        let totals = queue.and_then(|_| local_queue.own_totals());
        let is_active = |id: &&WorkloadId| {
            self.store.workload(**id).is_some_and(|workload| match workload.phase {
                Phase::Pending(Place::Class) => queue.is_some_and(|queue| queue.pending.is_active(workload.class)),
                _ => false,
            })
        };
        let active = local_queue.pending.iter().filter(is_active).count();
        let is_listed = |id: &&WorkloadId| self.store.workload(**id).is_some_and(Workload::is_listed);
        let pending = local_queue.pending.iter().filter(is_listed).count();
        let used = |cell: crate::world::ids::CellId| totals.map_or(0, |totals| in_usage(&totals.usage, cell));
        let reservation = queue.map_or_else(Vec::new, |queue| self.cells(&queue.name, |cell| (used(cell), 0)));
        Some(QueueFigures {
            pending_active: u32::try_from(active).unwrap_or(u32::MAX),
            pending_inadmissible: u32::try_from(pending.saturating_sub(active)).unwrap_or(u32::MAX),
            reserving: totals.map_or(0, |totals| totals.reserving),
            reservation,
        })
    }

    /// The flavors and resources of a queue in the order of its spec, followed by cells without quota in which workloads still hold usage, because the status
    /// has to account for all usage.
    fn cells(
        &self,
        cluster_queue: &str,
        usage: impl Fn(crate::world::ids::CellId) -> (crate::quota::balance::Units, crate::quota::balance::Units),
    ) -> Vec<CellUsage> {
        let Some(queue) = self.find_queue(cluster_queue).map(|id| &self.store.queues[id]) else { return Vec::new() };
        let mut cells = Vec::new();
        let mut put = |flavor: &str, resource: &str, (total, borrowed)| {
            let (flavor, resource) = (flavor.to_owned(), resource.to_owned());
            cells.push(CellUsage { flavor, resource, total: amount(total), borrowed: amount(borrowed) });
        };
        for group in &queue.groups {
            let mut covered: Vec<_> = group.covered.iter().map(|id| (self.store.resource(*id), *id)).collect();
            covered.sort_unstable();
            for flavor in group.flavors.iter().copied() {
                for (name, resource) in covered.iter().copied() {
                    let used = self.store.find_cell(flavor, resource).map_or((0, 0), &usage);
                    put(self.store.flavor(flavor), name, used);
                }
            }
        }
        let has = |(flavor, resource): &(FlavorId, ResourceId)| {
            let mut groups = queue.groups.iter();
            groups.any(|group| group.flavors.contains(flavor) && group.covered.contains(resource))
        };
        let node = &self.tree.nodes[queue.node];
        let mut used: Vec<_> = node.cells.iter().filter(|cell| cell.usage > 0).map(|cell| cell.key).collect();
        used.extend(node.beyond.iter().map(|(cell, _)| *cell));
        used.sort_unstable();
        used.dedup();
        let lost = used.into_iter().filter(|cell| !has(self.store.cells.key(*cell))).map(|cell| {
            let (flavor, resource) = *self.store.cells.key(cell);
            (self.store.flavor(flavor), self.store.resource(resource), cell)
        });
        let mut lost: Vec<_> = lost.map(|(flavor, resource, cell)| (flavor, resource, usage(cell))).collect();
        lost.retain(|(_, _, (total, _))| *total > 0);
        lost.sort_unstable();
        for (flavor, resource, used) in lost {
            put(flavor, resource, used);
        }
        cells
    }

    /// Whether a ClusterQueue names the flavor or a workload holds quota in the flavor. Cost of `flavor_in_use`: the number of all ClusterQueues, with their
    /// flavors and cells.
    #[must_use]
    pub fn flavor_in_use(&self, flavor: &str) -> bool {
        let Some(id) = self.store.flavor_names.get(&flavor.to_owned()) else { return false };
        self.store.queues.iter().any(|(_, queue)| {
            let uses =
                |(cell, value): &(crate::world::ids::CellId, i128)| *value > 0 && self.store.cells.key(*cell).0 == id;
            queue.groups.iter().any(|group| group.flavors.contains(&id))
                || self.tree.nodes[queue.node].cells.iter().any(|cell| uses(&(cell.key, cell.usage)))
        })
    }

    /// Usage beyond the quota of a ClusterQueue, sorted by flavor and resource. Cost of `beyond`: the number of cells with usage beyond quota.
    #[must_use]
    pub fn beyond(&self, cluster_queue: &str) -> Vec<(FlavorResource, crate::model::Amount)> {
        let node = self.store.queue_ids.get(cluster_queue).map(|id| self.store.queues[*id].node);
        let cells = node.into_iter().flat_map(|node| &self.tree.nodes[node].beyond);
        let mut rows: Vec<_> = cells.map(|(cell, value)| (self.store.named(*cell), amount(*value))).collect();
        rows.sort();
        rows
    }

    /// Whether a ClusterQueue uses more of a flavor and resource than it may, including usage beyond quota. Cost of `is_overdrawn`: the depth of the cohort
    /// tree.
    #[must_use]
    pub fn is_overdrawn(&self, cluster_queue: &str, at: &FlavorResource) -> bool {
        let node = self.store.queue_ids.get(cluster_queue).map(|id| self.store.queues[*id].node);
        let cell = self.store.cell_called(&at.flavor, &at.resource);
        node.zip(cell).is_none_or(|(node, cell)| self.tree.raw_available(node, cell) < 0)
    }

    /// Whether a workload holds quota, by its state or by a planned admission. Cost: constant.
    #[must_use]
    pub fn holds_quota(&self, uid: &str) -> bool {
        let workload = self.store.by_uid.get(uid).and_then(|id| self.store.workload(*id));
        workload.is_some_and(|workload| workload.held().is_some())
    }

    /// Whether workloads hold quota of a ClusterQueue. Cost: constant.
    #[must_use]
    pub fn cluster_queue_in_use(&self, name: &str) -> bool {
        self.store.queue_ids.get(name).is_some_and(|id| !self.store.queues[*id].held.is_empty())
    }

    /// Whether a cohort is on a cycle of parents or below one. Cost of `cohort_cycle`: the number of cohorts above the cohort; for a cohort on a cycle or below
    /// one, the number of all Cohort objects.
    #[must_use]
    pub fn cohort_cycle(&self, cohort: &str) -> bool {
        self.is_cyclic(cohort)
    }

    /// The ClusterQueue that a LocalQueue names. Cost: constant.
    #[must_use]
    pub fn cluster_queue_of(&self, namespace: &str, local_queue: &str) -> Option<&str> {
        let id = self.find_local_queue(namespace, local_queue)?;
        self.store.local_queues[id].spec.as_ref().map(|spec| spec.cluster_queue.as_str())
    }

    /// Amount that a ClusterQueue may still use of a flavor and resource, and the amount that it could use if no quota were in use. Cost of `availability`: the
    /// depth of the cohort tree.
    #[must_use]
    pub fn availability(
        &self,
        cluster_queue: &str,
        flavor: &str,
        resource: &str,
    ) -> Option<(crate::model::Amount, crate::model::Amount)> {
        let queue = &self.store.queues[self.find_queue(cluster_queue)?];
        let flavor = self.store.flavor_names.get(&flavor.to_owned())?;
        let cell = self.store.find_cell(flavor, self.store.resources.get(&resource.to_owned())?)?;
        Some((amount(self.tree.available(queue.node, cell)), amount(self.tree.potential(queue.node, cell))))
    }

    /// Usage and subtree quota of a ClusterQueue (if `is_queue`) or Cohort, for each configured or used cell, sorted by flavor and resource. Cost of
    /// `snapshot`: the number of the ClusterQueue's or Cohort's cells.
    #[must_use]
    pub fn snapshot(
        &self,
        name: &str,
        is_queue: bool,
    ) -> Vec<(String, String, crate::model::Amount, crate::model::Amount)> {
        let node = if is_queue {
            self.store.queue_ids.get(name).map(|id| self.store.queues[*id].node)
        } else {
            self.tree.find_cohort(name)
        };
        let mut rows: Vec<_> = node
            .into_iter()
            .flat_map(|node| &self.tree.nodes[node].cells)
            .map(|cell| {
                let (flavor, resource) = *self.store.cells.key(cell.key);
                let names = (self.store.flavor(flavor).to_owned(), self.store.resource(resource).to_owned());
                (names.0, names.1, amount(cell.usage), amount(cell.subtree))
            })
            .collect();
        rows.sort();
        rows
    }

    /// Reason why a workload is pending; `None` if the workload is unknown or holds quota. Cost of `explain`: constant; for a workload of an inactive
    /// ClusterQueue, as for [`World::readiness`].
    #[must_use]
    pub fn explain(&self, uid: &str, now: Millis) -> Option<Verdict> {
        let id = self.store.by_uid.get(uid).copied()?;
        let workload = self.store.workload(id)?;
        let Phase::Pending(place) = workload.phase else { return None };
        let last = || workload.verdict.as_ref().map(|(reason, message)| (*reason, Arc::clone(message)));
        let fresh = || (PendingReason::PendingEvaluation, Arc::from(UNEVALUATED));
        let (reason, message) = match place {
            Place::Until(time) if time > now => last().unwrap_or_else(fresh),
            _ => self.lasting_verdict(id).or_else(last).unwrap_or_else(fresh),
        };
        Some(Verdict { uid: Arc::clone(&workload.uid), reason, message, leading: true })
    }

    /// The reason why a workload is pending, as far as the place where the workload waits gives the reason, without a check of quota.
    pub(crate) fn lasting_verdict(&self, id: WorkloadId) -> Option<(PendingReason, Arc<str>)> {
        let workload = self.store.workload(id)?;
        let Phase::Pending(place) = workload.phase else { return None };
        let (_, name) = self.store.local_queue_names.key(workload.local_queue);
        let local_queue = &self.store.local_queues[workload.local_queue];
        let Some(spec) = &local_queue.spec else {
            let text = match name.as_str() {
                "" => NO_LOCAL_QUEUE.to_owned(),
                name => format!("LocalQueue {name} doesn't exist"),
            };
            return Some((PendingReason::Misconfigured, text.into()));
        };
        let queue = local_queue.queue.map(|queue| &self.store.queues[queue]).filter(|queue| queue.spec.is_some());
        let Some(queue) = queue else {
            let text = match spec.cluster_queue.as_str() {
                "" => format!("LocalQueue {name} names no ClusterQueue"),
                cluster_queue => format!("ClusterQueue {cluster_queue} doesn't exist"),
            };
            return Some((PendingReason::Misconfigured, text.into()));
        };
        if spec.stop != StopPolicy::None {
            return Some((PendingReason::Suspended, format!("LocalQueue {name} is inactive").into()));
        }
        if !queue.active {
            // A stopped queue needs no further explanation; for any other inactive queue, the message about its readiness names the fault.
            let words =
                local_queue.queue.and_then(|id| self.readiness_of(id)).filter(|found| found.reason != "Stopped");
            let words = words.map(|found| format!(": {}", found.message)).unwrap_or_default();
            return Some((PendingReason::Suspended, format!("ClusterQueue {} is inactive{words}", queue.name).into()));
        }
        let class = queue.pending.classes.get(&workload.class)?;
        let known = workload.verdict.as_ref().map(|(reason, _)| *reason);
        let reason = class.parked.filter(|reason| place == Place::Class && known != Some(*reason))?;
        Some((reason, Arc::clone(class.why.as_ref().unwrap_or(&self.store.bypassed))))
    }

    /// Objects whose figures or readiness have changed since the last call of `take_changed`. Cost of `take_changed`: the number of changed objects.
    pub fn take_changed(&mut self) -> Changed {
        let cluster_queues = self.changed_queues.take();
        let local_queues = self.changed_local_queues.take();
        let cohorts = self.changed_cohorts.take();
        Changed {
            cluster_queues: cluster_queues.into_iter().map(|id| Arc::clone(&self.store.queues[id].name)).collect(),
            local_queues: local_queues.into_iter().map(|id| self.store.local_queue_names.key(id).clone()).collect(),
            cohorts: cohorts.into_iter().map(|id| self.tree.nodes[id].name.clone()).collect(),
        }
    }

    /// Error messages about queues whose count of pending workloads is wrong.
    fn miscounted(&self) -> Vec<String> {
        let is_counted = |id: &&WorkloadId| {
            let workload = self.store.workload(**id);
            workload.is_some_and(|w| w.is_listed() && !matches!(w.phase, Phase::Pending(Place::Nowhere)))
        };
        let faults = self.store.queues.iter().filter_map(|(_, queue)| {
            let local_queues = queue.local_queues.iter().map(|id| &self.store.local_queues[*id]);
            let pending: usize = local_queues.map(|local| local.pending.iter().filter(is_counted).count()).sum();
            let known = queue.pending.total;
            (u32::try_from(pending) != Ok(known))
                .then(|| format!("queue {}: {pending} are pending, but {known} are counted", queue.name))
        });
        faults.collect()
    }

    /// Recomputes the amounts that a world keeps incrementally and checks the laws of its accounting; returns the faults.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut faults = self.store.mischarged();
        faults.extend(self.miscounted());
        faults.extend(self.store.misled());
        for (id, queue) in self.store.queues.iter() {
            let mut usage = crate::quota::balance::Usage::new();
            for id in queue.held.iter() {
                let Some(workload) = self.store.workload(id) else { continue };
                let Some(held) = workload.held() else { continue };
                if !queue.held.has(&workload.rank(id, held), held.evicted) {
                    faults.push(format!("queue {}: {} stands at the wrong place", queue.name, workload.uid));
                }
                for (cell, value) in &held.usage {
                    crate::quota::balance::accumulate(&mut usage, *cell, *value);
                }
            }
            for cell in &self.tree.nodes[queue.node].cells {
                let recomputed = in_usage(&usage, cell.key);
                if cell.usage != recomputed {
                    faults.push(format!("queue {}: usage {} but workloads hold {recomputed}", queue.name, cell.usage));
                }
            }
            let beyond = self.store.beyond_of(id);
            if beyond != self.tree.nodes[queue.node].beyond {
                faults.push(format!(
                    "queue {}: its carriers run {beyond:?} beyond quota, which is not charged",
                    queue.name
                ));
            }
            for (cell, value) in usage {
                if self.tree.cell(queue.node, cell).usage != value {
                    faults.push(format!("queue {}: held usage {value} is not booked", queue.name));
                }
            }
        }
        for (_, node) in self.tree.nodes.iter().filter(|(_, node)| !node.is_queue) {
            for cell in &node.cells {
                let cells = || node.children.iter().map(|child| self.tree.cell(*child, cell.key));
                let usage: i128 = cells().map(|child| child.used_in_parent()).sum();
                let subtree = cells().fold(cell.nominal, |sum, child| crate::quota::balance::plus(sum, child.lent()));
                if cell.usage != usage || cell.subtree != subtree {
                    faults.push(format!(
                        "cohort {}: usage {} of {} but its children make {usage} of {subtree}",
                        node.name, cell.usage, cell.subtree
                    ));
                }
            }
        }
        faults
    }

    /// Faults of ClusterQueues that use more of a cell than the quota allows: more than nominal quota plus borrowing limit, or the root of the cohort tree uses
    /// more than it has. The list of faults is empty unless quota was cut or reservations came from outside of the engine. Cost of `over_quota`: the number of
    /// cells of all ClusterQueues, and the depth of the cohort tree for each cell in use.
    #[must_use]
    pub fn over_quota(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (_, queue) in self.store.queues.iter() {
            for cell in &self.tree.nodes[queue.node].cells {
                // Usage beyond quota is no reserved quota, so it does not count here.
                let beyond = in_usage(&self.tree.nodes[queue.node].beyond, cell.key);
                if cell.usage > 0 && self.tree.raw_available(queue.node, cell.key).saturating_add(beyond) < 0 {
                    let (flavor, resource) = *self.store.cells.key(cell.key);
                    faults.push(format!(
                        "queue {}: {} of flavor {} is overused",
                        queue.name,
                        self.store.resource(resource),
                        self.store.flavor(flavor)
                    ));
                }
            }
        }
        faults
    }
}
