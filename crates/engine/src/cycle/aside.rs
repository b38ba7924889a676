//! A head that loses quota only because the quota is reserved for other heads stands aside for the rest of a plan
//! (`docs/departures/0012-losers-stand-aside.md`).
//!
//! A head may fit and still lose in each cycle: to quota that is kept for a preemptor whose victims are leaving, or to the quota that the head of a strict
//! queue keeps. Kueue tries a head that loses to reserved quota again and again, and never tries a workload behind the head.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::report::Report;
use crate::options::profile::Departure;
use crate::world::World;
use crate::world::ids::{ClassId, NodeId, QueueId};

/// The classes of equals that are passed over for the rest of a plan, by root of the cohort tree.
#[derive(Default)]
pub(crate) struct Aside {
    by_root: BTreeMap<NodeId, BTreeSet<(QueueId, ClassId)>>,
    /// Roots of cohort trees in which something has changed since a class of equals was passed over there.
    moved: BTreeSet<NodeId>,
}

impl Aside {
    /// Records that something changed in a cohort tree: the classes of equals that were passed over there are tried once more before the plan ends.
    pub(crate) fn note_move(&mut self, root: NodeId) {
        if self.by_root.contains_key(&root) {
            self.moved.insert(root);
        }
    }
}

impl World {
    /// Lets the workloads behind heads that are held up be tried, in a cohort tree in which nothing changes any more. A whole class of equals is passed over,
    /// because equal workloads lose alike. Returns true if a class of equals is passed over from now on, so that the workloads behind it are tried. The cost of
    /// `send_aside` is the number of heads of the cohort tree.
    pub(crate) fn send_aside(&mut self, root: NodeId, report: &Report, aside: &mut Aside) -> bool {
        if !self.options.profile.has(Departure::LosersStandAside) {
            return false;
        }
        let mut sent = false;
        for (queue, id) in report.held_up.get(&root).into_iter().flatten() {
            let Some(class) = self.store.workload(*id).map(|workload| workload.class) else { continue };
            if self.store.queues[*queue].pending.pass_over(class) {
                aside.by_root.entry(root).or_default().insert((*queue, class));
                sent = true;
            }
        }
        sent
    }

    /// Lets the classes of equals that were passed over in a cohort tree be tried again if something has changed since; returns true if there are any.
    pub(crate) fn call_back(&mut self, root: NodeId, aside: &mut Aside) -> bool {
        let classes = if aside.moved.remove(&root) { aside.by_root.remove(&root) } else { None };
        let classes = classes.unwrap_or_default();
        for (queue, class) in &classes {
            self.store.queues[*queue].pending.wake_class(*class);
        }
        !classes.is_empty()
    }

    /// Ends the plan: the classes of equals that were passed over are tried again in the next plan.
    pub(crate) fn call_all_back(&mut self, aside: Aside) {
        for (queue, class) in aside.by_root.into_values().flatten() {
            self.store.queues[queue].pending.wake_class(class);
        }
    }
}
