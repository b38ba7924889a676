//! A digest of the view, its indexes and the engine's accounting. The digest of control's kept state is compared with a digest that is made from fresh lists
//! (R2 in `docs/invariants.md`).
//!
//! The digest leaves out state that depends on history, and not only on the objects: parked Workloads, back-offs, writes under way, and observations of
//! capacity.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::conditions::types;
use berth_cache::{Name, View, WorkloadView};
use berth_engine::ChargedState;
use berth_reconcile::state::Quota;
use berth_reconcile::write::{Kind, ObjectKey};
use serde_json::{Value, json};

/// The digests of the objects of one kind, by name.
type Objects = BTreeMap<String, Value>;

/// The conditions of a Workload that matter for decisions.
const DECIDE: [&str; 5] = [types::QUOTA_RESERVED, types::ADMITTED, types::EVICTED, types::REQUEUED, types::FINISHED];

/// The path of an object: Name of an object in a digest: `namespace/name`, or the name without a namespace for a cluster-wide object.
fn path(name: &Name) -> String {
    if name.0.is_empty() { name.1.clone() } else { format!("{}/{}", name.0, name.1) }
}

fn place(key: &ObjectKey) -> Name {
    (key.namespace.clone(), key.name.clone())
}

fn names<'a>(workloads: impl Iterator<Item = &'a WorkloadView>) -> Vec<String> {
    let mut names: Vec<String> = workloads.map(|workload| path(&workload.key())).collect();
    names.sort_unstable();
    names
}

/// The state that a digest shows.
pub(super) struct Digest<'a> {
    pub(super) view: &'a View,
    pub(super) quota: &'a Quota,
}

impl Digest<'_> {
    /// A digest of the view, its indexes and the engine's accounting: the digest has `objects` by kind and name, and the `problems` that the engine finds in
    /// its own accounting. The cost of the digest grows with the number of all observed objects.
    pub(super) fn recompute(&self) -> Value {
        let mut objects = self.jobs_and_pods();
        objects.insert("ClusterQueue", self.cluster_queue_digests());
        objects.insert("Cohort", self.cohort_digests());
        objects.insert("LocalQueue", self.local_queue_digests());
        let workloads: BTreeSet<Name> = self.view.workloads().keys().collect();
        let workloads = workloads.iter().filter_map(|name| self.view.workloads().get(name));
        objects.insert("Workload", workloads.map(|one| (path(&one.key()), self.workload_digest(one))).collect());
        objects.extend(self.others());
        json!({"objects": objects, "problems": berth_engine::check(self.quota.world())})
    }

    /// The quota that queues and cohorts hold, the number of Workloads, and the `problems` of the engine's accounting. The digest of held quota costs much less
    /// than [`Self::recompute`], whose digest has an entry for each job, pod and Workload.
    pub(super) fn held(&self) -> Value {
        json!({
            "ClusterQueue": self.cluster_queue_digests(),
            "Cohort": self.cohort_digests(),
            "workloads": self.view.workloads().values().count(),
            "problems": berth_engine::check(self.quota.world()),
        })
    }

    /// Usage and quota of a queue or cohort by flavor and resource; a pair of flavor and resource without usage and quota is left out.
    fn cells(&self, name: &str, is_queue: bool) -> BTreeMap<String, String> {
        let rows = self.quota.world().snapshot(name, is_queue).into_iter();
        let rows = rows.filter(|(_, _, used, quota)| used.get() != 0 || quota.get() != 0);
        rows.map(|(flavor, resource, used, quota)| {
            (format!("{flavor}/{resource}"), format!("{} of {}", used.get(), quota.get()))
        })
        .collect()
    }

    fn cluster_queue_digests(&self) -> Objects {
        let queues = self.view.cluster_queues().iter().map(|(name, object)| {
            let figures = self.quota.world().figures(name);
            let pending = |figures: &berth_engine::model::QueueFigures| {
                figures.pending_active.saturating_add(figures.pending_inadmissible)
            };
            let digest = json!({
                "resourceVersion": object.metadata.resource_version,
                "ready": self.quota.world().readiness(name).map(|readiness| readiness.reason),
                "reserving": figures.as_ref().map(|figures| figures.reserving),
                "pending": figures.as_ref().map(pending),
                "usage": self.cells(name, true),
                "holders": names(self.view.workloads().reserving(name)),
            });
            (name.clone(), digest)
        });
        queues.collect()
    }

    /// The digests of all cohorts, with or without a Cohort object.
    fn cohort_digests(&self) -> Objects {
        let named = self.view.cluster_queues().values().filter_map(|queue| queue.spec.cohort_name.clone());
        let parents = self.view.cohorts().values().filter_map(|cohort| cohort.spec.parent_name.clone());
        let all: BTreeSet<String> = self.view.cohorts().keys().cloned().chain(named).chain(parents).collect();
        let cohorts = all.into_iter().filter(|name| !name.is_empty()).map(|name| {
            let object = self.view.cohorts().get(&name);
            let digest = json!({
                "resourceVersion": object.and_then(|cohort| cohort.metadata.resource_version.clone()),
                "cycle": self.quota.world().cohort_cycle(&name),
                "usage": self.cells(&name, false),
            });
            (name, digest)
        });
        cohorts.collect()
    }

    fn local_queue_digests(&self) -> Objects {
        let queues = self.view.local_queues().iter().map(|(name, object)| {
            let figures = self.quota.world().local_queue_figures(&name.0, &name.1);
            let cells = figures.iter().flat_map(|figures| &figures.reservation).filter(|cell| cell.total.get() != 0);
            let usage: BTreeMap<String, i64> =
                cells.map(|cell| (format!("{}/{}", cell.flavor, cell.resource), cell.total.get())).collect();
            let waiting = self.quota.world().waiting(&name.0, &name.1).into_iter();
            let mut waiting: Vec<String> = waiting
                .map(|uid| self.view.workloads().name_of(uid).map_or_else(|| uid.to_owned(), |name| path(&name)))
                .collect();
            waiting.sort_unstable();
            let readiness = self.quota.world().local_queue_readiness(&name.0, &name.1);
            let digest = json!({
                "resourceVersion": object.metadata.resource_version,
                "ready": readiness.map(|readiness| readiness.reason),
                "reserving": figures.as_ref().map(|figures| figures.reserving),
                "usage": usage,
                "waiting": waiting,
                "holders": names(self.view.workloads().holding(name)),
                "members": names(self.view.workloads().members(name)),
            });
            (path(name), digest)
        });
        queues.collect()
    }

    fn workload_digest(&self, workload: &WorkloadView) -> Value {
        let charged = match self.quota.world().charged_state(&workload.uid) {
            None => "none".to_owned(),
            Some(ChargedState::Waiting) => "waits".to_owned(),
            Some(ChargedState::Holding { cluster_queue, usage }) => {
                let cells = usage.iter().map(|(flavor, resource, used)| format!("{flavor}/{resource}={}", used.get()));
                format!("holds {} of {cluster_queue}", cells.collect::<Vec<_>>().join(" "))
            }
        };
        let conditions: Vec<&str> = DECIDE.into_iter().filter(|kind| workload.is(kind)).collect();
        // The digest leaves out the pod sets of an unreadable Workload, because its last readable pod sets depend on the time of observation.
        let readable = workload.shape.pod_sets.iter().filter(|_| !workload.unreadable);
        let asks = readable.map(|set| {
            let requests = set.requests.iter().map(|(resource, one)| format!("{resource}={}", one.get()));
            format!("{}: {} x {}", set.name, set.count, requests.collect::<Vec<_>>().join(" "))
        });
        json!({
            "uid": workload.uid,
            "resourceVersion": workload.resource_version,
            "owner": workload.owner.as_ref().map(|owner| &owner.uid),
            "queue": workload.queue,
            "active": workload.active,
            "priority": workload.priority,
            "conditions": conditions,
            "clusterQueue": workload.holds(),
            "asks": asks.collect::<Vec<_>>(),
            "books": charged,
        })
    }

    /// The digests of jobs of all kinds, TrainingJobs, pods and pod groups.
    fn jobs_and_pods(&self) -> BTreeMap<&'static str, Objects> {
        let mut objects: BTreeMap<&'static str, Objects> = BTreeMap::new();
        for (key, job) in self.view.jobs().iter() {
            let digest = json!({
                "uid": job.uid,
                "resourceVersion": job.version,
                "queue": job.queue_name,
                "suspended": job.suspended,
                "active": job.active,
                "placed": job.placed,
                "succeeded": job.finished.as_ref().map(|finish| finish.success),
            });
            objects.entry(key.kind.name()).or_default().insert(path(&place(key)), digest);
        }
        for (name, job) in self.view.training().iter() {
            let digest = json!({"uid": job.uid, "resourceVersion": job.resource_version, "roles": job.roles});
            objects.entry(Kind::TrainingJob.name()).or_default().insert(path(name), digest);
        }
        // The digest leaves out pods without the label of managed pods, because a fresh list does not show which of these pods Berth is to label.
        for name in self.view.pods().marked(true) {
            let Some(pod) = self.view.pods().get(name) else { continue };
            let digest = json!({
                "uid": pod.uid,
                "resourceVersion": pod.version,
                "gated": pod.gated,
                "held": pod.held,
                "phase": format!("{:?}", pod.phase),
                "group": pod.group.as_ref().map(|group| &group.name),
            });
            objects.entry(Kind::Pod.name()).or_default().insert(path(name), digest);
        }
        for key in self.view.pod_keys(None).filter(|key| key.kind == Kind::PodGroup) {
            let digest = self.group_digest(&place(&key));
            objects.entry(Kind::PodGroup.name()).or_default().insert(path(&place(&key)), digest);
        }
        objects
    }

    fn group_digest(&self, name: &Name) -> Value {
        let members: Vec<&str> = self.view.pods().members(name).map(|(pod, _)| pod).collect();
        let tally = self.view.pods().group(name).map(|group| {
            let tally = &group.tally;
            let roles: BTreeSet<&str> = self.view.pods().members(name).map(|(_, pod)| pod.role()).collect();
            let roles = roles.into_iter().map(|role| (role, format!("{:?}", tally.role(role))));
            json!({
                "pods": tally.pods,
                "running": tally.running,
                "unfinished": tally.unfinished,
                "unretriable": tally.unretriable,
                "serving": tally.serving,
                "roles": roles.collect::<BTreeMap<_, _>>(),
            })
        });
        json!({"members": members, "tally": tally, "set": self.view.sets().of_group(name).map(|(set, _)| set)})
    }

    /// The digests of other objects that matter for Workloads: flavors, checks, LimitRanges, namespaces and priority classes.
    fn others(&self) -> BTreeMap<&'static str, Objects> {
        let view = &self.view;
        let version = |version: &Option<String>| json!({"resourceVersion": version});
        let flavors = view.flavors().iter();
        let flavors = flavors.map(|(name, flavor)| (name.clone(), version(&flavor.metadata.resource_version)));
        let checks = view.checks().iter();
        let checks = checks.map(|(name, check)| {
            (name.clone(), json!({"resourceVersion": check.resource_version, "active": check.active}))
        });
        let limits = view.limit_ranges().iter();
        let limits = limits.map(|(name, limit)| (path(name), version(&limit.metadata.resource_version)));
        let ends = |name: &str| view.is_ending(name);
        let namespaces = view.namespaces().iter();
        let namespaces =
            namespaces.map(|(name, labels)| (name.clone(), json!({"labels": labels, "ending": ends(name)})));
        let classes = view.priorities().iter().map(|(name, class)| (name.clone(), json!({"value": class.0})));
        let own = view.workload_priorities().iter().map(|(name, value)| (name.clone(), json!({"value": value})));
        BTreeMap::from([
            (Kind::AdmissionCheck.name(), checks.collect()),
            ("LimitRange", limits.collect()),
            ("Namespace", namespaces.collect()),
            ("PriorityClass", classes.collect()),
            ("ResourceFlavor", flavors.collect()),
            ("WorkloadPriorityClass", own.collect()),
        ])
    }
}
