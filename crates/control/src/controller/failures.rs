//! The effects of failed tasks: on plans, on the next try of a task, and the events that users get about failed tasks.

use berth_cache::View;
use berth_reconcile::measure::Measure;
use berth_reconcile::notes::Notes;
use berth_reconcile::state::in_flight::{InFlightWrite, InFlightWrites};
use berth_reconcile::state::work_queue::WorkQueue;
use berth_reconcile::state::{Quota, Reports};
use berth_reconcile::write::{ObjectKey, Purpose};
use jiff::Timestamp;

/// The owners of the state that a failed task changes.
pub(crate) struct Failures<'a> {
    /// The observed objects.
    pub(crate) view: &'a View,
    /// Notes of control about objects.
    pub(crate) notes: &'a mut Notes,
    /// Writes under way.
    pub(crate) in_flight: &'a mut InFlightWrites,
    /// The objects to decide about.
    pub(crate) work: &'a mut WorkQueue,
    /// The engine's world and plans.
    pub(crate) quota: &'a mut Quota,
    /// Reports to users and operators.
    pub(crate) reports: &'a mut Reports,
}

impl Failures<'_> {
    /// Takes the outcome of a write that the API server refused with a conflict: another client has changed the object, or the object to create exists already.
    pub(crate) fn conflict(&mut self, object: &ObjectKey, write: &InFlightWrite, now: Timestamp) {
        let until = self.in_flight.failed(object, now, 0);
        self.work.add_at(object.clone(), until);
        // An earlier write of this process whose outcome is unknown may have caused the conflict, so the quota of a reservation stays charged until the newer
        // version is observed.
        if write.based_on > 0 && self.view.seen_version(object) <= write.based_on {
            let until = self.in_flight.suspect(object.clone(), write.based_on, now);
            self.work.add_at(object.clone(), until);
        } else if write.purpose == Purpose::ReserveQuota {
            self.notes.drop_plan(self.view, object);
        }
    }

    /// Takes the outcome of a creation that failed because an object with the name exists.
    pub(crate) fn name_taken(&mut self, object: &ObjectKey, write: &InFlightWrite, now: Timestamp) {
        self.in_flight.note_exists(object);
        self.conflict(object, write, now);
        self.note_name_taken(object, write, now);
    }

    /// Takes the outcome of a task whose object does not exist.
    pub(crate) fn gone(&mut self, object: ObjectKey, write: &InFlightWrite, now: Timestamp) {
        self.in_flight.succeeded(&object, &write.origin);
        self.notes.drop_plan(self.view, &object);
        let until = self.in_flight.failed(&object, now, 0);
        self.work.add_at(object, until);
    }

    /// Takes the outcome of a task that is to be tried again after `after` milliseconds.
    pub(crate) fn busy(&mut self, object: ObjectKey, write: &InFlightWrite, after: u64, now: Timestamp) {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let until = match write.spares_its_object {
            true => self.in_flight.pause(&object, now, after),
            false => self.in_flight.failed(&object, now, after),
        };
        self.work.add_at(object, until);
    }

    /// Takes the outcome of a task whose answer was lost, so that the result of the task is unknown.
    pub(crate) fn lost(&mut self, object: &ObjectKey, write: &InFlightWrite, text: &str, now: Timestamp) {
        self.in_flight.note_unresolved(self.view, object, write, now);
        self.note_unanswered(object, write.purpose, text);
        let until = self.in_flight.failed(object, now, 0);
        self.work.add_at(object.clone(), until);
    }

    /// Takes a task that was not sent, because the term was over or too little time of the lease was left.
    pub(crate) fn not_sent(&mut self, object: ObjectKey, now: Timestamp) {
        self.drop_settled_plan(&object);
        let until = self.in_flight.failed(&object, now, 500);
        self.work.add_at(object, until);
    }

    /// Takes a final refusal by the API server: the user gets an event, and the task is tried again with a delay.
    pub(crate) fn refused(&mut self, object: ObjectKey, write: &InFlightWrite, text: &str, now: Timestamp) {
        self.reports.add_measure(Measure::Count {
            name: "berth_writes_refused",
            labels: vec![("kind", object.kind.name().to_owned())],
            by: 1,
        });
        self.drop_settled_plan(&object);
        if let Some(uid) = self.view.uid_of(&object).filter(|_| write.purpose == Purpose::Evict)
            && self.notes.workloads().of(&uid).plan().eviction().is_some()
        {
            // The next plan reports to the preemptor that the eviction of its victim was refused.
            self.quota.plan_again();
            self.notes.workloads_mut().change(&uid, |notes| notes.plan_mut().refuse_eviction());
        }
        if write.purpose == Purpose::ReserveQuota {
            let until = self.in_flight.refused_reservation(&object, now);
            self.work.add_at(object.clone(), until);
        }
        let until = self.in_flight.failed(&object, now, 5_000);
        let absent = write.purpose.makes_anew();
        if absent {
            self.in_flight.refused(&write.origin, &object, text);
        }
        let absent = absent || write.purpose == Purpose::CreateWorkload;
        self.reports.refused(self.view, if absent { &write.origin } else { &object }, absent, text);
        self.reports.report_to_job_of(self.view, &object, "refused a change by Berth", text);
        self.work.add_at(object, until);
    }

    /// Notes that the name of an object to create is taken by another client. If another client owns the name, the API server answers repeatedly that the
    /// object exists, and the watch does not show the object. An object of Berth, created by a write whose answer came late, would have been observed by now.
    fn note_name_taken(&mut self, object: &ObjectKey, write: &InFlightWrite, now: Timestamp) {
        let asks = matches!(write.purpose, Purpose::PreparePodTemplate | Purpose::RequestCapacity);
        if asks && self.in_flight.keeps_failing(object, now) {
            self.in_flight.refused(&write.origin, object, "exists and is somebody else's: delete it");
            self.work.touch(write.origin.clone());
        }
    }

    /// Notes an unanswered write. If an unanswered write was to reserve quota, the planned admission may be set aside: other Workloads then do not wait for
    /// the admission, and the user gets an event.
    fn note_unanswered(&mut self, object: &ObjectKey, purpose: Purpose, text: &str) {
        let Some(uid) = self.view.uid_of(object).filter(|_| purpose == Purpose::ReserveQuota) else { return };
        if self.quota.plans().unanswered(self.notes.workloads_mut(), &uid) {
            self.quota.plan_again();
            let what = "does not say whether it has made a change by Berth";
            self.reports.report_write(self.view, object, false, what, text);
            self.reports.report_to_job_of(self.view, object, what, text);
        }
    }

    /// Drops a planned admission that will not be written. If an earlier try to write the admission may still be applied, the planned admission is kept, and
    /// its quota stays charged until the outcome is known.
    fn drop_settled_plan(&mut self, object: &ObjectKey) {
        if !self.in_flight.unresolved().may_apply(object) {
            self.notes.drop_plan(self.view, object);
        }
    }
}
