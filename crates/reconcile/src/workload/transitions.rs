//! Metrics of a change of a Workload, which are Kueue's counters and histograms. Only the leader counts changes of Workloads in metrics, so that a sum over
//! replicas counts nothing twice.

use berth_api::conditions::{reasons, types};
use berth_cache::pods::group_of;
use berth_cache::slices::is_replaced;
use berth_cache::timeline::Timeline;
use berth_cache::{Name, View, WorkloadView};
use berth_jobs::pods::PodState;
use jiff::Timestamp;

use crate::context::Context;
use crate::measure::{Labels, Measure};
use crate::workload::evictions::{evictions, queued_since};
use crate::workload::status::{find_true, since};
use crate::write::{Kind, ObjectKey};

/// Collects the metrics of one change of a Workload.
struct Tally<'a> {
    new: &'a WorkloadView,
    cluster_queue: String,
    local: bool,
    now: Timestamp,
    timeline: &'a Timeline,
    out: Vec<Measure>,
}

impl Tally<'_> {
    fn labels(&self, more: &[(&'static str, &str)], class: bool) -> Labels {
        let mut labels = vec![("cluster_queue", self.cluster_queue.clone())];
        self.finish(&mut labels, more, class);
        labels
    }

    fn local_labels(&self, more: &[(&'static str, &str)], class: bool) -> Labels {
        let mut labels = vec![("name", self.new.queue.clone()), ("namespace", self.new.namespace.clone())];
        self.finish(&mut labels, more, class);
        labels
    }

    fn finish(&self, labels: &mut Labels, more: &[(&'static str, &str)], class: bool) {
        labels.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
        if class {
            let name = self.new.priority_class.as_ref().map(|class| class.name.clone()).unwrap_or_default();
            labels.push(("priority_class", name));
        }
    }

    fn count(&mut self, name: &'static str, local: Option<&'static str>, more: &[(&'static str, &str)], class: bool) {
        self.out.push(Measure::Count { name, labels: self.labels(more, class), by: 1 });
        if let Some(name) = local.filter(|_| self.local) {
            self.out.push(Measure::Count { name, labels: self.local_labels(more, class), by: 1 });
        }
    }

    fn observe(&mut self, name: &'static str, local: Option<&'static str>, since: Timestamp) {
        self.observe_millis(name, local, self.timeline.millis_between(since, self.now));
    }

    fn observe_millis(&mut self, name: &'static str, local: Option<&'static str>, millis: i64) {
        self.out.push(Measure::Observe { name, labels: self.labels(&[], true), millis });
        if let Some(name) = local.filter(|_| self.local) {
            self.out.push(Measure::Observe { name, labels: self.local_labels(&[], true), millis });
        }
    }
}

/// The metrics of a Workload's change from `old` to `new`, observed at `now`. `local` switches the metrics of LocalQueues on.
pub fn measures(
    old: &WorkloadView,
    new: &WorkloadView,
    local: bool,
    (now, timeline): (Timestamp, &Timeline),
) -> Vec<Measure> {
    let queue_of = |workload: &WorkloadView| {
        workload.status.admission.as_ref().and_then(|admission| admission.cluster_queue.clone())
    };
    let Some(cluster_queue) = queue_of(new).or_else(|| queue_of(old)) else { return Vec::new() };
    let mut tally = Tally { new, cluster_queue, local, now, timeline, out: Vec::new() };
    let became = |kind: &str| new.is(kind) && !old.is(kind);
    if became(types::QUOTA_RESERVED) {
        tally.count("kueue_quota_reserved_workloads", Some("kueue_local_queue_quota_reserved_workloads"), &[], true);
        tally.observe(
            "kueue_quota_reserved_wait_time_seconds",
            Some("kueue_local_queue_quota_reserved_wait_time_seconds"),
            queued_since(new),
        );
    }
    if became(types::ADMITTED) {
        tally.count("kueue_admitted_workloads", Some("kueue_local_queue_admitted_workloads"), &[], true);
        tally.observe(
            "kueue_admission_wait_time_seconds",
            Some("kueue_local_queue_admission_wait_time_seconds"),
            queued_since(new),
        );
        let reserved =
            since(&new.status.conditions, types::QUOTA_RESERVED, "True").filter(|_| !became(types::QUOTA_RESERVED));
        tally.observe(
            "kueue_admission_checks_wait_time_seconds",
            Some("kueue_local_queue_admission_checks_wait_time_seconds"),
            reserved.unwrap_or(now),
        );
    }
    // Pods that recover were counted in the metrics when they started.
    let started =
        find_true(&new.status.conditions, types::PODS_READY).is_some_and(|ready| ready.reason != reasons::RECOVERED);
    if became(types::PODS_READY) && started {
        tally.observe(
            "kueue_ready_wait_time_seconds",
            Some("kueue_local_queue_ready_wait_time_seconds"),
            queued_since(new),
        );
        if let Some(admitted) = since(&new.status.conditions, types::ADMITTED, "True") {
            tally.observe(
                "kueue_admitted_until_ready_wait_time_seconds",
                Some("kueue_local_queue_admitted_until_ready_wait_time_seconds"),
                admitted,
            );
        }
    }
    evicted(&mut tally, old, new);
    if old.reserved()
        && !new.reserved()
        && let Some(condition) = find_true(&new.status.conditions, types::EVICTED)
    {
        let labels = vec![("cluster_queue", tally.cluster_queue.clone()), ("reason", condition.reason.clone())];
        let millis = timeline.millis_between(condition.last_transition_time.0, now);
        tally.out.push(Measure::Observe { name: "kueue_workload_eviction_latency_seconds", labels, millis });
    }
    if became(types::FINISHED) {
        tally.count("kueue_finished_workloads", Some("kueue_local_queue_finished_workloads"), &[], true);
        let past = i64::from(new.status.accumulated_past_execution_time_seconds.unwrap_or_default());
        // The last slice of a scaled job has the execution time of all slices.
        let ended = since(&new.status.conditions, types::ADMITTED, "True").filter(|_| !is_replaced(new));
        if let Some(admitted) = ended {
            let running = timeline.millis_between(admitted, now);
            tally.observe_millis(
                "kueue_execution_time_seconds",
                Some("kueue_local_queue_execution_time_seconds"),
                past.saturating_mul(1000).saturating_add(running),
            );
        }
    }
    tally.out
}

fn evicted(tally: &mut Tally<'_>, old: &WorkloadView, new: &WorkloadView) {
    if !new.is(types::EVICTED) || old.is(types::EVICTED) {
        return;
    }
    for (reason, cause, count) in evictions(new) {
        let before = evictions(old).find(|(r, c, _)| *r == reason && *c == cause).map_or(0, |(_, _, count)| count);
        if count <= before {
            continue;
        }
        let labels = [("reason", reason), ("underlying_cause", cause)];
        tally.count("kueue_evicted_workloads", Some("kueue_local_queue_evicted_workloads"), &labels, true);
        if let Some(ready) = since(&old.status.conditions, types::PODS_READY, "True") {
            let millis = tally.timeline.millis_between(ready, tally.now);
            let labels = tally.labels(&labels, false);
            tally.out.push(Measure::Observe { name: "kueue_pods_ready_to_evicted_time_seconds", labels, millis });
        }
        if before == 0 {
            tally.count("kueue_evicted_workloads_once", None, &labels, true);
        }
    }
}

/// The metric of the time until a job got its Workload. A job whose spec has been changed since its creation is left out, because the change may have caused
/// the wait.
pub fn creation(ctx: &Context<'_>, job: &ObjectKey, now: Timestamp) -> Option<Measure> {
    let name = (job.namespace.clone(), job.name.clone());
    let (created, generation) = match job.kind {
        Kind::Pod => ctx.view.pods().get(&name).map(|pod| (pod.created.saturating_mul(1000), 1)),
        Kind::TrainingJob => ctx.view.training().get(&name).map(|view| (view.created, view.generation)),
        _ => ctx.view.jobs().get(job).map(|state| (state.created, state.generation)),
    }?;
    if created == 0 || generation > 1 || !ctx.settings.creation_latency_metric {
        return None;
    }
    let labels = vec![("job_kind", job.kind.name().to_owned())];
    let millis = now.as_millisecond().saturating_sub(created).max(0);
    Some(Measure::Observe { name: "kueue_workload_creation_latency_seconds", labels, millis })
}

/// The metric of a pod whose scheduling gate was just removed.
pub(crate) fn ungated(view: &View, name: &Name, old: &PodState, now: Timestamp) -> Option<Measure> {
    let group = group_of(&name.0, old);
    let workload = match &group {
        Some(group) => view.workloads().get(group),
        None => view.workloads_of(&old.uid).first().copied(),
    }?;
    let queue = workload.status.admission.as_ref()?.cluster_queue.clone()?;
    let admitted = since(&workload.status.conditions, types::ADMITTED, "True")?;
    let labels = vec![
        ("name", berth_api::labels::ADMISSION_GATE.to_owned()),
        ("cluster_queue", queue),
        ("is_group", group.is_some().to_string()),
    ];
    let millis = view.timeline().millis_between(admitted, now);
    Some(Measure::Observe { name: "kueue_pod_scheduling_gate_removal_seconds", labels, millis })
}

#[cfg(test)]
mod tests;
