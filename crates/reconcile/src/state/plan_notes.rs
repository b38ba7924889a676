//! The planned admission and the planned eviction of one Workload.

use berth_engine::model::{Admission, Eviction};

/// Number of unanswered writes in a row after which a planned admission is set aside.
const SEVERAL: u32 = 3;

/// The engine's plans for one Workload that are not written yet.
#[derive(Debug, Default)]
pub struct PlanNotes {
    admission: Option<Box<PlannedAdmission>>,
    eviction: Option<Box<Eviction>>,
    /// True if the API server refused the eviction.
    is_eviction_refused: bool,
}

#[derive(Debug)]
struct PlannedAdmission {
    admission: Admission,
    /// Set while the last write of the admission has ended without an answer.
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    /// Number of unanswered writes of the admission in a row.
    times: u32,
    /// Number of writes that the API server had made when the first of the unanswered writes ended.
    since: u64,
    is_aside: bool,
}

impl Failing {
    /// Sets the planned admission aside after several unanswered writes, if the API server has made other writes since the first of them; true if the admission
    /// was set aside now. While the API server makes no writes at all, no plan is set aside, because no other Workload could be admitted.
    fn set_aside(&mut self, made: u64) -> bool {
        let due = !self.is_aside && self.times >= SEVERAL && made > self.since;
        self.is_aside |= due;
        due
    }
}

impl PlanNotes {
    /// Whether the Workload has no planned admission and no planned eviction, and no note that the API server refused an eviction.
    pub fn is_empty(&self) -> bool {
        self.admission.is_none() && self.eviction.is_none() && !self.is_eviction_refused
    }

    /// The planned admission, whose quota the engine has charged.
    pub fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref().map(|planned| &planned.admission)
    }

    /// Whether the last write of the planned admission ended without an answer.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing().is_some()
    }

    /// Whether the planned admission is set aside, so that other plans do not wait for its acknowledgement.
    pub(crate) fn is_aside(&self) -> bool {
        self.failing().is_some_and(|failing| failing.is_aside)
    }

    fn failing(&self) -> Option<&Failing> {
        self.admission.as_ref()?.failing.as_ref()
    }

    /// Plans an admission in place of an older one.
    pub(crate) fn admit(&mut self, admission: Admission) {
        self.admission = Some(Box::new(PlannedAdmission { admission, failing: None }));
    }

    /// Drops the planned admission; true if there was one.
    pub fn drop_admission(&mut self) -> bool {
        self.admission.take().is_some()
    }

    /// Notes an unanswered write of the planned admission; `made` is the number of writes that the API server has made. The result is true if the unanswered
    /// write sets the admission aside.
    pub fn note_unanswered(&mut self, made: u64) -> bool {
        let Some(planned) = &mut self.admission else { return false };
        let failing = planned.failing.get_or_insert(Failing { times: 0, since: made, is_aside: false });
        failing.times = failing.times.saturating_add(1);
        failing.set_aside(made)
    }

    /// Handles the number of writes that the API server has made; true if the planned admission is set aside because of this number.
    pub(crate) fn note_made(&mut self, made: u64) -> bool {
        let failing = self.admission.as_mut().and_then(|planned| planned.failing.as_mut());
        failing.is_some_and(|failing| failing.set_aside(made))
    }

    /// The planned eviction, which is still to be written.
    pub fn eviction(&self) -> Option<&Eviction> {
        self.eviction.as_deref()
    }

    /// Plans an eviction in place of an older one.
    pub(crate) fn evict(&mut self, eviction: Eviction) {
        self.eviction = Some(Box::new(eviction));
    }

    /// Drops the planned eviction; the note that the API server refused the eviction stays.
    pub(crate) fn spare(&mut self) {
        self.eviction = None;
    }

    /// Drops the planned eviction and the note that the API server refused the eviction.
    pub fn evicts_no_longer(&mut self) {
        self.eviction = None;
        self.is_eviction_refused = false;
    }

    /// Whether the API server refused the eviction.
    pub(crate) fn is_eviction_refused(&self) -> bool {
        self.is_eviction_refused
    }

    /// Notes that the API server refused the eviction.
    pub fn refuse_eviction(&mut self) {
        self.is_eviction_refused = true;
    }
}
