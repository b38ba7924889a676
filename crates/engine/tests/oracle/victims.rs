//! The oracle's preemption by Kueue's documented rules.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use berth_engine::*;

use super::accounting::{Accounting, Amounts, Fr, Holder, Node};
use super::share::Part;

/// The preemptor with its request and the cells that lack quota.
pub(crate) struct Plea<'a> {
    pub(crate) queue: &'a str,
    pub(crate) priority: i64,
    pub(crate) queued_at: Millis,
    pub(crate) needs: Vec<Fr>,
    pub(crate) usage: Amounts,
    /// True if, among equal workloads, the last one in the queue is tried first as a victim. In the worlds of the oracle all workloads are of one namespace and
    /// second, and have their UIDs as names.
    pub(crate) equals_by_lot: bool,
}

/// Victims with reasons, in no particular order; empty if no set of victims is allowed.
pub(crate) type Victims = Vec<(String, &'static str)>;

pub(crate) fn lawful(policy: PreemptionPolicy, plea: &Plea<'_>, holder: &Holder) -> bool {
    if holder.not_preemptible {
        return false;
    }
    match policy {
        PreemptionPolicy::Never | PreemptionPolicy::Unset => false,
        PreemptionPolicy::LowerPriority => holder.priority < plea.priority,
        PreemptionPolicy::LowerOrNewerEqualPriority => {
            holder.priority < plea.priority || (holder.priority == plea.priority && holder.queued_at > plea.queued_at)
        }
        PreemptionPolicy::Any => true,
    }
}

fn uses(holder: &Holder, needs: &[Fr]) -> bool {
    needs.iter().any(|fr| holder.usage.contains_key(fr))
}

/// Sorts candidates for preemption in the order in which they are tried. LocalQueue usage comes before priority, but only between candidates of one queue: the
/// candidates of each queue are sorted first, and then the best of the first candidates of all queues is taken each time (`0006-order-of-victims-by-usage.md`).
fn in_order(plea: &Plea<'_>, list: &mut [Holder]) {
    let last_word = |h: &Holder| match plea.equals_by_lot {
        true => Ok(Reverse(h.uid.clone())),
        false => Err(h.uid.clone()),
    };
    let key = |h: &Holder| (!h.evicted, h.queue == plea.queue, h.priority, -h.at.0, last_word(h));
    list.sort_by_key(key);
    if list.iter().all(|holder| holder.used.is_none()) {
        return;
    }
    let mut lines: BTreeMap<String, Vec<Holder>> = BTreeMap::new();
    for holder in list.iter() {
        lines.entry(holder.queue.clone()).or_default().push(holder.clone());
    }
    for line in lines.values_mut() {
        // Candidates for preemption with equal LocalQueue usage keep their order.
        let used = |h: &Holder| h.used.unwrap_or(0.0);
        line.sort_by(|a, b| b.evicted.cmp(&a.evicted).then(used(b).total_cmp(&used(a))));
    }
    for place in list.iter_mut() {
        let firsts = lines.iter().filter_map(|(queue, line)| Some((key(line.first()?), queue.clone())));
        let (_, queue) = firsts.min().unwrap();
        *place = lines.get_mut(&queue).unwrap().remove(0);
    }
}

/// Whether a node is over the quota of its subtree in a cell that lacks quota.
pub(crate) fn over(accounting: &Accounting, node: &Node, needs: &[Fr]) -> bool {
    needs.iter().any(|fr| accounting.exceeds(node, fr, 0))
}

pub(crate) fn has_room(accounting: &Accounting, plea: &Plea<'_>, borrow: bool) -> bool {
    let node = Node::Queue(plea.queue.to_owned());
    accounting.fits(plea.queue, &plea.usage)
        && (borrow || plea.usage.iter().all(|(fr, v)| !accounting.exceeds(&node, fr, *v)))
}

/// The lowest cohort above the two queues.
pub(crate) fn common(accounting: &Accounting, queue: &str, other: &str) -> Option<Node> {
    let line = accounting.line(&Node::Queue(other.to_owned()));
    accounting.line(&Node::Queue(queue.to_owned())).into_iter().find(|node| line.contains(node))
}

/// Whether the preemptor is closer to the quota of a cohort than other holders below it: the request fits the quota of the preemptor's queue, or of a cohort
/// between this queue and the common cohort.
fn has_advantage(accounting: &Accounting, plea: &Plea<'_>, common: &Node) -> bool {
    let mut remaining = plea.usage.clone();
    for node in accounting.line(&Node::Queue(plea.queue.to_owned())) {
        if node == *common {
            break;
        }
        if remaining.iter().all(|(fr, value)| !accounting.exceeds(&node, fr, *value)) {
            return true;
        }
        for (fr, value) in &mut remaining {
            *value = (*value - accounting.local_available(&node, fr)).max(0);
        }
    }
    false
}

/// The reason for a victim under classical preemption, and whether the right to preempt ends where the preemptor would borrow.
pub(crate) fn right(accounting: &Accounting, plea: &Plea<'_>, holder: &Holder) -> (&'static str, bool) {
    if holder.queue == plea.queue {
        return ("InClusterQueue", false);
    }
    let policy = accounting.queues[plea.queue].preemption;
    if common(accounting, plea.queue, &holder.queue).is_some_and(|common| has_advantage(accounting, plea, &common)) {
        return ("InCohortReclamation", false);
    }
    let above = policy.max_priority_threshold.is_some_and(|bound| holder.priority > i64::from(bound));
    if policy.borrow_within_cohort && holder.priority < plea.priority && !above {
        ("InCohortReclaimWhileBorrowing", false)
    } else {
        ("InCohortReclamation", true)
    }
}

/// Whether the victims can leave in some order in which each victim of another queue leaves while its queue is over its quota, and so are all cohorts between
/// this queue and the lowest common cohort.
pub(crate) fn can_leave_in_turn(accounting: &Accounting, plea: &Plea<'_>, victims: &[Holder]) -> bool {
    let may_leave = |now: &Accounting, holder: &Holder| {
        let shared = common(accounting, plea.queue, &holder.queue);
        let node = Node::Queue(holder.queue.clone());
        let mut below = now.line(&node).into_iter().take_while(|node| Some(node) != shared.as_ref());
        holder.queue == plea.queue || below.all(|node| over(now, &node, &plea.needs))
    };
    // For each set of victims that have left, as a bit set: true if the set can be reached.
    let mut reached = vec![false; 1 << victims.len()];
    reached[0] = true;
    for away in 0..reached.len() {
        if !reached[away] {
            continue;
        }
        let is_away = |index: &usize| away & (1 << index) != 0;
        let gone: Vec<String> = (0..victims.len()).filter(is_away).map(|index| victims[index].uid.clone()).collect();
        let now = accounting.without(&gone);
        for index in (0..victims.len()).filter(|index| !is_away(index)) {
            reached[away | (1 << index)] |= may_leave(&now, &victims[index]);
        }
    }
    reached.last() == Some(&true)
}

fn give_back(accounting: &Accounting, plea: &Plea<'_>, mut taken: Victims, borrow: bool) -> Victims {
    for index in (0..taken.len() - 1).rev() {
        let mut fewer = taken.clone();
        fewer.swap_remove(index);
        let gone: Vec<String> = fewer.iter().map(|(uid, _)| uid.clone()).collect();
        if has_room(&accounting.without(&gone), plea, borrow) {
            taken = fewer;
        }
    }
    taken
}

/// A candidate with its right: reason, whether it may be preempted only without borrowing, and the lowest common cohort.
type Candidate = (Holder, &'static str, bool, Option<Node>);

pub(crate) fn classical(accounting: &Accounting, plea: &Plea<'_>) -> Victims {
    let policy = accounting.queues[plea.queue].preemption;
    let own = Node::Queue(plea.queue.to_owned());
    let of_queue = |queue: &str, policy| -> Vec<Holder> {
        let active = accounting.is_active(queue);
        let fits = |h: &&Holder| active && h.queue == queue && uses(h, &plea.needs) && lawful(policy, plea, h);
        accounting.holders.iter().filter(fits).cloned().collect()
    };
    let mut mine = of_queue(plea.queue, policy.within_cluster_queue);
    let mut hierarchical: Vec<(Holder, Node)> = Vec::new();
    let mut by_priority: Vec<(Holder, Node)> = Vec::new();
    let mut remaining = plea.usage.clone();
    let mut advantage = true;
    for (fr, value) in &mut remaining {
        advantage &= !accounting.exceeds(&own, fr, *value);
        *value = (*value - accounting.local_available(&own, fr)).max(0);
    }
    let line = accounting.line(&own);
    for pair in line.windows(2) {
        let mut stack = vec![pair[1].clone()];
        while let Some(node) = stack.pop() {
            for child in accounting.children(&node) {
                if child == pair[0] || !over(accounting, &child, &plea.needs) {
                    continue;
                }
                match &child {
                    Node::Queue(name) => {
                        let found = of_queue(name, policy.reclaim_within_cohort);
                        let list = if advantage { &mut hierarchical } else { &mut by_priority };
                        list.extend(found.into_iter().map(|holder| (holder, pair[1].clone())));
                    }
                    Node::Cohort(_) => stack.push(child),
                }
            }
        }
        let mut fits = true;
        for (fr, value) in &mut remaining {
            fits &= !accounting.exceeds(&pair[1], fr, *value);
            *value = (*value - accounting.local_available(&pair[1], fr)).max(0);
        }
        advantage |= fits;
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (list, is_hierarchical) in [(&hierarchical, true), (&by_priority, false)] {
        let commons: BTreeMap<String, Node> = list.iter().map(|(h, common)| (h.uid.clone(), common.clone())).collect();
        let mut holders: Vec<Holder> = list.iter().map(|(h, _)| h.clone()).collect();
        in_order(plea, &mut holders);
        for holder in holders {
            let above = policy.max_priority_threshold.is_some_and(|bound| holder.priority > i64::from(bound));
            let without =
                !is_hierarchical && (!policy.borrow_within_cohort || holder.priority >= plea.priority || above);
            let reason =
                if is_hierarchical || without { "InCohortReclamation" } else { "InCohortReclaimWhileBorrowing" };
            let common = commons.get(&holder.uid).cloned();
            candidates.push((holder, reason, without, common));
        }
    }
    in_order(plea, &mut mine);
    candidates.extend(mine.into_iter().map(|holder| (holder, "InClusterQueue", false, None)));
    candidates.sort_by_key(|(holder, ..)| !holder.evicted);
    let others = !hierarchical.is_empty() || !by_priority.is_empty();
    let strictly_under = plea.needs.iter().all(|fr| accounting.usage(&own, fr) < accounting.nominal(&own, fr));
    let attempts: &[bool] = if !others || (!policy.borrow_within_cohort && !strictly_under) {
        &[true]
    } else if !policy.borrow_within_cohort && hierarchical.is_empty() {
        &[false, true]
    } else {
        &[true, false]
    };
    for borrow in attempts {
        let mut taken: Victims = Vec::new();
        for (holder, reason, only_without, common) in &candidates {
            let gone: Vec<String> = taken.iter().map(|(uid, _)| uid.clone()).collect();
            let now = accounting.without(&gone);
            if holder.queue != plea.queue {
                let node = Node::Queue(holder.queue.clone());
                let between = accounting.line(&node).into_iter().take_while(|n| Some(n) != common.as_ref());
                if (*borrow && *only_without) || between.into_iter().any(|n| !over(&now, &n, &plea.needs)) {
                    continue;
                }
            }
            taken.push((holder.uid.clone(), reason));
            let gone: Vec<String> = taken.iter().map(|(uid, _)| uid.clone()).collect();
            if has_room(&accounting.without(&gone), plea, *borrow) {
                return give_back(accounting, plea, taken, *borrow);
            }
        }
    }
    Vec::new()
}

struct Turn<'a> {
    accounting: &'a Accounting,
    lists: BTreeMap<String, Vec<Holder>>,
    own: Node,
    plea: &'a Plea<'a>,
}

impl Turn<'_> {
    /// The queue of the next victim: the search goes down the branches with the highest share that still have candidates.
    fn next(&self, now: &Accounting, pruned: &mut Vec<Node>) -> Option<String> {
        let line = now.line(&self.own);
        let root = line.last().unwrap().clone();
        if root == self.own {
            return self.lists.get(self.plea.queue).filter(|l| !l.is_empty()).map(|_| self.plea.queue.to_owned());
        }
        loop {
            if pruned.contains(&root) {
                return None;
            }
            let mut at = root.clone();
            loop {
                let mut queue: Option<(Part, Holder, String)> = None;
                let mut below: Option<(Part, Node)> = None;
                for child in now.children(&at) {
                    if pruned.contains(&child) {
                        continue;
                    }
                    let share = now.share(&child);
                    match &child {
                        Node::Queue(name) => {
                            let first = self.lists.get(name).and_then(|list| list.first()).cloned();
                            let Some(first) = first.filter(|_| share.borrowing || child == self.own) else {
                                pruned.push(child);
                                continue;
                            };
                            let wins = queue.as_ref().is_none_or(|(best, holder, _)| {
                                let mut pair = [holder.clone(), first.clone()];
                                in_order(self.plea, &mut pair);
                                let order = share.compare(best);
                                order.is_gt() || (order.is_eq() && pair[0].uid == first.uid)
                            });
                            if wins {
                                queue = Some((share, first, name.clone()));
                            }
                        }
                        Node::Cohort(_) if !share.borrowing && !line.contains(&child) => pruned.push(child),
                        Node::Cohort(_) => {
                            if below.as_ref().is_none_or(|(best, _)| share.compare(best).is_ge()) {
                                below = Some((share, child));
                            }
                        }
                    }
                }
                match (queue, below) {
                    (None, None) => {
                        pruned.push(at);
                        break;
                    }
                    (Some((own, _, name)), Some((share, _))) if share.compare(&own).is_lt() => return Some(name),
                    (_, Some((_, child))) => at = child,
                    (Some((.., name)), None) => return Some(name),
                }
            }
        }
    }
}

pub(crate) fn fair(accounting: &Accounting, plea: &Plea<'_>, strategies: &[ShareStrategy], gates: &Gates) -> Victims {
    let both = [ShareStrategy::LessThanOrEqualToFinalShare, ShareStrategy::LessThanInitialShare];
    let strategies = if strategies.is_empty() { &both[..] } else { strategies };
    let policy = accounting.queues[plea.queue].preemption;
    let own = Node::Queue(plea.queue.to_owned());
    let root = accounting.line(&own).last().cloned();
    let mut candidates: Vec<Holder> = Vec::new();
    for holder in accounting.holders.iter().filter(|h| accounting.is_active(&h.queue) && uses(h, &plea.needs)) {
        let node = Node::Queue(holder.queue.clone());
        let may = if node == own {
            lawful(policy.within_cluster_queue, plea, holder)
        } else {
            accounting.line(&node).last() == root.as_ref()
                && over(accounting, &node, &plea.needs)
                && lawful(policy.reclaim_within_cohort, plea, holder)
        };
        if may {
            candidates.push(holder.clone());
        }
    }
    in_order(plea, &mut candidates);
    let mut with_plea = accounting.clone();
    with_plea.charge(plea.queue, plea.usage.clone());
    let entitled = gates.fair_preempt_within_nominal && !over(&with_plea, &own, &plea.needs);
    let mut taken: Victims = Vec::new();
    let mut skipped: Vec<Holder> = Vec::new();
    for (pass, strategy) in strategies.iter().enumerate().take(2) {
        let list = if pass == 0 { candidates.clone() } else { std::mem::take(&mut skipped) };
        let mut list = list;
        in_order(plea, &mut list);
        let mut turn = Turn { accounting, lists: BTreeMap::new(), own: own.clone(), plea };
        for holder in list {
            turn.lists.entry(holder.queue.clone()).or_default().push(holder);
        }
        let mut pruned = Vec::new();
        loop {
            let gone = |taken: &Victims| -> Vec<String> { taken.iter().map(|(uid, _)| uid.clone()).collect() };
            let now = with_plea.without(&gone(&taken));
            let Some(name) = turn.next(&now, &mut pruned) else { break };
            let node = Node::Queue(name.clone());
            let done = |taken: &Victims| has_room(&turn.accounting.without(&gone(taken)), plea, true);
            let (mut ours, mut theirs) = (now.line(&own), now.line(&node));
            while ours.last() == theirs.last() && ours.len() > 1 && theirs.len() > 1 {
                ours.pop();
                theirs.pop();
            }
            let (ours, theirs) = (ours.last().unwrap().clone(), theirs.last().unwrap().clone());
            let (new, old) = (now.share(&ours), now.share(&theirs));
            if pass == 1 {
                let first = turn.lists.remove(&name).and_then(|list| list.first().cloned());
                if let Some(first) = first.filter(|_| new.compare(&old).is_lt()) {
                    taken.push((first.uid, "InCohortFairSharing"));
                    if done(&taken) {
                        return give_back(accounting, plea, taken, true);
                    }
                }
                continue;
            }
            if node == own || entitled {
                let first = turn.lists.get_mut(&name).unwrap().remove(0);
                taken.push((first.uid, if node == own { "InClusterQueue" } else { "InCohortReclamation" }));
                if done(&taken) {
                    return give_back(accounting, plea, taken, true);
                }
                continue;
            }
            while let Some(first) = turn.lists.get(&name).and_then(|list| list.first()).cloned() {
                turn.lists.get_mut(&name).unwrap().remove(0);
                let after = now.without(std::slice::from_ref(&first.uid)).share(&theirs);
                let passes = match strategy {
                    _ if new.is_boundless() && !old.is_boundless() => false,
                    ShareStrategy::LessThanOrEqualToFinalShare => new.compare(&after).is_le(),
                    ShareStrategy::LessThanInitialShare => new.compare(&old).is_lt(),
                };
                if !passes {
                    skipped.push(first);
                    continue;
                }
                taken.push((first.uid, "InCohortFairSharing"));
                if done(&taken) {
                    return give_back(accounting, plea, taken, true);
                }
                break;
            }
        }
    }
    Vec::new()
}
