//! Tasks that were not done: their effect on plans and on the next try, and what users get to know about them.

use jiff::Timestamp;

use crate::cache::View;
use crate::measure::Measure;
use crate::notes::Notes;
use crate::state::flight::{Flight, Flights};
use crate::state::work_queue::WorkQueue;
use crate::state::{Quota, Reports};
use crate::write::{ObjectKey, Purpose};

/// Owners of the state that a failed task changes.
pub(crate) struct Failures<'a> {
    pub(crate) view: &'a View,
    pub(crate) notes: &'a mut Notes,
    pub(crate) flights: &'a mut Flights,
    pub(crate) work: &'a mut WorkQueue,
    pub(crate) quota: &'a mut Quota,
    pub(crate) reports: &'a mut Reports,
}

impl Failures<'_> {
    /// Another writer has changed the object meanwhile, or it is there already.
    pub(crate) fn conflict(&mut self, object: &ObjectKey, flight: &Flight, now: Timestamp) {
        let until = self.flights.failed(object, now, 0);
        self.work.add_at(object.clone(), until);
        // Our own earlier write of unknown outcome may be in the way: the quota of a reservation stays charged until the newer version is seen.
        if flight.based_on > 0 && self.view.seen_version(object) <= flight.based_on {
            let until = self.flights.suspect(object.clone(), flight.based_on, now);
            self.work.add_at(object.clone(), until);
        } else if flight.purpose == Purpose::ReserveQuota {
            self.notes.drop_plan(self.view, object);
        }
    }

    /// A creation found an object of that name.
    pub(crate) fn name_taken(&mut self, object: &ObjectKey, flight: &Flight, now: Timestamp) {
        self.flights.strays.landed(object);
        self.conflict(object, flight, now);
        self.note_name_taken(object, flight, now);
    }

    /// The object is not there.
    pub(crate) fn gone(&mut self, object: ObjectKey, flight: &Flight, now: Timestamp) {
        self.flights.succeeded(&object, &flight.origin);
        self.notes.drop_plan(self.view, &object);
        let until = self.flights.failed(&object, now, 0);
        self.work.add_at(object, until);
    }

    /// The task is to be tried again after that many milliseconds.
    pub(crate) fn busy(&mut self, object: ObjectKey, flight: &Flight, after: u64, now: Timestamp) {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let until = match flight.spares_its_object {
            true => self.flights.pause(&object, now, after),
            false => self.flights.failed(&object, now, after),
        };
        self.work.add_at(object, until);
    }

    /// Nothing shows the outcome of the task.
    pub(crate) fn lost(&mut self, object: &ObjectKey, flight: &Flight, text: &str, now: Timestamp) {
        self.flights.doubt(self.view, object, flight, now);
        self.note_unanswered(object, flight.purpose, text);
        let until = self.flights.failed(object, now, 0);
        self.work.add_at(object.clone(), until);
    }

    /// The term was over, or too little of the lease was left.
    pub(crate) fn not_sent(&mut self, object: ObjectKey, now: Timestamp) {
        self.drop_settled_plan(&object);
        let until = self.flights.failed(&object, now, 500);
        self.work.add_at(object, until);
    }

    /// The API server refuses the task for good: the user gets an event, and the task is tried again all the same.
    pub(crate) fn refused(&mut self, object: ObjectKey, flight: &Flight, text: &str, now: Timestamp) {
        self.reports.measures.push(Measure::Count {
            name: "berth_writes_refused",
            labels: vec![("kind", object.kind.name().to_owned())],
            by: 1,
        });
        self.drop_settled_plan(&object);
        if let Some(uid) = self.view.uid_of(&object).filter(|_| flight.purpose == Purpose::Evict)
            && self.notes.workloads.of(&uid).plan().eviction().is_some()
        {
            // The next plan reports at the preemptor that the eviction of its victim was refused.
            self.quota.plan_again();
            self.notes.workloads.change(&uid, |notes| notes.plan_mut().refuse_eviction());
        }
        if flight.purpose == Purpose::ReserveQuota {
            let until = self.flights.refused_reservation(&object, now);
            self.work.add_at(object.clone(), until);
        }
        let until = self.flights.failed(&object, now, 5_000);
        let absent = flight.purpose.makes_anew();
        if absent {
            self.flights.refused(&flight.origin, &object, text);
        }
        let absent = absent || flight.purpose == Purpose::CreateWorkload;
        self.reports.refused(self.view, if absent { &flight.origin } else { &object }, absent, text);
        self.reports.tell_job_of(self.view, &object, "refused a change by Berth", text);
        self.work.add_at(object, until);
    }

    /// The API server says again and again that the object exists, and the watch does not show it: the object belongs to another client. The watch
    /// would show an object of Berth, whose creation was answered late, by now.
    fn note_name_taken(&mut self, object: &ObjectKey, flight: &Flight, now: Timestamp) {
        let asks = matches!(flight.purpose, Purpose::PreparePodTemplate | Purpose::RequestCapacity);
        if asks && self.flights.keeps_failing(object, now) {
            self.flights.refused(&flight.origin, object, "exists and is somebody else's: delete it");
            self.work.touch(flight.origin.clone());
        }
    }

    /// No answer shows the outcome of a write. Where that goes on with a planned admission, no other workload waits for it any longer, and its user
    /// gets an event.
    fn note_unanswered(&mut self, object: &ObjectKey, purpose: Purpose, text: &str) {
        let Some(uid) = self.view.uid_of(object).filter(|_| purpose == Purpose::ReserveQuota) else { return };
        if self.quota.plans.unanswered(&mut self.notes.workloads, &uid) {
            self.quota.plan_again();
            let what = "does not say whether it has made a change by Berth";
            self.reports.tell_of_write(self.view, object, false, what, text);
            self.reports.tell_job_of(self.view, object, what, text);
        }
    }

    /// Drops a planned admission that will not be written, unless an earlier try may still be applied: its reservation stays charged until that is known.
    fn drop_settled_plan(&mut self, object: &ObjectKey) {
        if !self.flights.strays.may_land(object) {
            self.notes.drop_plan(self.view, object);
        }
    }
}
