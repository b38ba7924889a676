//! Heads that lose to what is only booked stand aside for the rest of a plan (`docs/decisions/losers-stand-aside.md`).
//!
//! A head may fit and still lose each cycle: to what a preemptor claims whose victims are leaving, or to what the head of a strict queue
//! keeps. Kueue tries it again and again, with nobody behind it ever tried.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::Report;
use crate::world::World;
use crate::world::ids::{ClassId, NodeId, QueueId};

/// Who stands aside in a plan.
#[derive(Default)]
pub(crate) struct Aside {
    by_root: BTreeMap<NodeId, BTreeSet<(QueueId, ClassId)>>,
    /// Roots where something has moved since somebody there stood aside.
    moved: BTreeSet<NodeId>,
}

impl Aside {
    /// Something moved in a tree: who stands aside there is to be tried once more before the plan ends.
    pub(crate) fn note_move(&mut self, root: NodeId) {
        if self.by_root.contains_key(&root) {
            self.moved.insert(root);
        }
    }
}

impl World {
    /// In a tree in which nothing moves any more, lets those have their turn who stand behind heads that are held up. Equals lose alike, so a
    /// class goes as one. Tells whether there was one. Costs the heads of the tree.
    pub(crate) fn send_aside(&mut self, root: NodeId, report: &Report, aside: &mut Aside) -> bool {
        if !self.options.departures.stand_aside {
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

    /// Lets those of a tree who stand aside be tried again if something has moved since; tells whether there was anybody.
    pub(crate) fn call_back(&mut self, root: NodeId, aside: &mut Aside) -> bool {
        let classes = if aside.moved.remove(&root) { aside.by_root.remove(&root) } else { None };
        let classes = classes.unwrap_or_default();
        for (queue, class) in &classes {
            self.store.queues[*queue].pending.wake_class(*class);
        }
        !classes.is_empty()
    }

    /// The plan is over: the next one begins with those who stood aside.
    pub(crate) fn call_all_back(&mut self, aside: Aside) {
        for (queue, class) in aside.by_root.into_values().flatten() {
            self.store.queues[queue].pending.wake_class(class);
        }
    }
}
