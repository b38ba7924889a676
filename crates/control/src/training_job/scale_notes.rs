//! Notes about the workers that one Workload is to give up, or has given up.

use berth_engine::model as engine;
use jiff::Timestamp;

/// A request to an elastic job to give up workers.
#[derive(Clone, Debug)]
pub(crate) struct GiveUp {
    /// Number of workers that stay.
    pub(crate) keeps: i32,
    /// The eviction that the engine wants, with its preemptor.
    pub(crate) eviction: engine::Eviction,
}

/// Notes about the number of workers of one Workload.
#[derive(Debug, Default)]
pub(crate) struct ScaleNotes {
    gives_up: Option<Box<GiveUp>>,
    /// Number of workers with which the Workload was seen to have no pods beyond, and the time of that.
    shrunk: Option<Box<(i32, Timestamp)>>,
}

impl ScaleNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.gives_up.is_none() && self.shrunk.is_none()
    }

    /// The workers that the Workload is to give up for a preemptor.
    pub(crate) fn gives_up(&self) -> Option<&GiveUp> {
        self.gives_up.as_deref()
    }

    pub(crate) fn ask_for_workers(&mut self, asked: GiveUp) {
        self.gives_up = Some(Box::new(asked));
    }

    /// The Workload is to give up no workers any more, or has given them up.
    pub(crate) fn end_request(&mut self) {
        self.gives_up = None;
    }

    /// Whether no pods were seen beyond those of so many workers.
    pub(crate) fn has_shrunk_to(&self, workers: i32) -> bool {
        self.shrunk.as_ref().is_some_and(|shrunk| shrunk.0 == workers)
    }

    /// Time at which no pods were seen beyond those of the workers that stay.
    pub(crate) fn shrunk_at(&self) -> Option<Timestamp> {
        self.shrunk.as_ref().map(|shrunk| shrunk.1)
    }

    /// No pods are left beyond those of so many workers.
    pub(crate) fn note_shrunk(&mut self, workers: i32, now: Timestamp) {
        self.shrunk = Some(Box::new((workers, now)));
    }

    /// The Workload has no quota: the pods that it had say nothing of those to come.
    pub(crate) fn forget_shrunk(&mut self) {
        self.shrunk = None;
    }
}
