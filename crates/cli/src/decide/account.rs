//! The engine's account of a Workload, as `berth decide` shows it: in full as YAML, and in short as text.

use berth_control::offline::Offline;
use berth_engine::{Account as Full, Amount, CellAccount, Millis, Unblock};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Largest number of quota holders that the YAML output names.
const NAMED: usize = 20;
/// Largest number of quota holders that the text output names.
const MOST_HOLDERS: usize = 3;

/// The engine's account of a Workload that waits or holds quota, by flavor and resource.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    /// Number of Workloads of the same ClusterQueue that are tried before this Workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<String>,
    /// Assignment mode (`Fit`, `Preempt` or `NoFit`) that the Workload would have now by quota alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Event that must happen before the engine tries to admit the Workload; the names are those of `Cell::unblock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<&'static str>,
    /// The Workload that `obstacle` is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    /// The preemptor for which the Workload was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    evicted_for: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flavors: Vec<Cell>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cell {
    pod_set: String,
    flavor: String,
    resource: String,
    /// Number of pods that this entry covers, if the entry does not cover all pods of the pod set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<i64>,
    /// Number of all pods of the pod set, if the entry does not cover all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    all_pods: Option<i64>,
    asked: String,
    /// Amount that earlier pod sets of the Workload take from this flavor and resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier: Option<String>,
    free: String,
    /// Usage of the flavor and resource beyond the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    debt: Option<String>,
    unused: String,
    borrowable: String,
    maximum: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mismatch: Option<String>,
    /// Event that would help the Workload, as docs/decide.md lists events: for example `Release`, or `Nothing` if no event is needed.
    unblock: &'static str,
    /// Amount that holders have to release, or by which the quota has to be raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    holders: Vec<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more_holders: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    workload: String,
    cluster_queue: String,
    amount: String,
    priority: i64,
    right: &'static str,
}

/// The account of a Workload. The parameter `names` has the names of Workloads by uid, and `before` is the preemptor for which this Workload was evicted before
/// `berth decide` ran.
pub(super) fn of(
    offline: &mut Offline,
    uid: &str,
    names: &BTreeMap<String, String>,
    before: Option<String>,
) -> Option<Account> {
    let now = Millis(offline.now().as_millisecond());
    let full = offline.control().world().account(uid, now)?;
    let Full { ahead, not_before, mode, obstacle, evicted_for, cells, .. } = full;
    let name = |uid: &String| names.get(uid).unwrap_or(uid).clone();
    let head = obstacle
        .as_ref()
        .and_then(|obstacle| if let Unblock::HeadGoes(uid) = obstacle { Some(name(uid)) } else { None });
    let time = |at: Millis| Timestamp::from_millisecond(at.0).ok().map(|time| time.to_string());
    Some(Account {
        ahead,
        not_before: not_before.and_then(time),
        mode: mode.map(|mode| format!("{mode:?}")),
        obstacle: obstacle.map(|unblock| named(&unblock).0),
        head,
        evicted_for: evicted_for.or(before).as_ref().map(name),
        flavors: cells.into_iter().map(|cell| shown(cell, names)).collect(),
    })
}

/// Text of a quota limit, or of the free amount within a quota limit.
fn limit(resource: &str, amount: Amount) -> String {
    if amount.is_unlimited() { "unlimited".to_owned() } else { berth_quantity::format(resource, amount) }
}

/// The name of the event that would help the Workload, and the amount that has to be released or raised.
const fn named(unblock: &Unblock) -> (&'static str, Option<Amount>) {
    match unblock {
        Unblock::Nothing => ("Nothing", None),
        Unblock::Release(amount) => ("Release", Some(*amount)),
        Unblock::RaiseQuota(amount) => ("RaiseQuota", Some(*amount)),
        Unblock::ChangeRequirements => ("ChangeRequirements", None),
        Unblock::EvictedLeave => ("EvictedLeave", None),
        Unblock::PodsStop => ("PodsStop", None),
        Unblock::HeadGoes(_) => ("HeadGoes", None),
        Unblock::RoomIsKept => ("RoomIsKept", None),
        Unblock::Restock => ("Restock", None),
        Unblock::QueueResumes => ("QueueResumes", None),
        Unblock::BackOffEnds(_) => ("BackOffEnds", None),
        Unblock::HoldEnds => ("HoldEnds", None),
        Unblock::CheckReady => ("CheckReady", None),
        Unblock::NamespaceMatches => ("NamespaceMatches", None),
        Unblock::LimitAllows => ("LimitAllows", None),
    }
}

fn shown(cell: CellAccount, names: &BTreeMap<String, String>) -> Cell {
    let text = |amount| berth_quantity::format(&cell.resource, amount);
    let limit = |amount| limit(&cell.resource, amount);
    let (unblock, lacking) = named(&cell.unblock);
    let (pods, all_pods) = Some((cell.pods, cell.all_pods)).filter(|(pods, all)| pods < all).unzip();
    let holders = cell.holders.iter().take(NAMED).map(|holder| Holder {
        workload: names.get(&holder.uid).unwrap_or(&holder.uid).clone(),
        cluster_queue: holder.cluster_queue.clone(),
        amount: text(holder.amount),
        priority: holder.priority,
        right: holder.right.text(),
    });
    Cell {
        holders: holders.collect(),
        more_holders: cell.holders.len().checked_sub(NAMED).filter(|more| *more > 0),
        pods,
        all_pods,
        asked: text(cell.asked),
        earlier: Some(cell.earlier).filter(|earlier| *earlier != Amount::ZERO).map(text),
        free: limit(cell.free),
        debt: Some(cell.debt).filter(|debt| *debt != Amount::ZERO).map(text),
        unused: limit(cell.unused),
        borrowable: limit(cell.borrowable),
        maximum: limit(cell.maximum),
        unblock,
        lacking: lacking.map(text),
        mismatch: cell.mismatch,
        pod_set: cell.pod_set,
        flavor: cell.flavor,
        resource: cell.resource,
    }
}

impl Account {
    /// One line of text per flavor and resource. A Workload that holds quota has lines only for the flavors in `held` (by pod set, then resource).
    pub(super) fn lines(&self, held: &BTreeMap<String, BTreeMap<String, String>>, out: &mut String) {
        let has = |cell: &Cell| held.get(&cell.pod_set).and_then(|set| set.get(&cell.resource)) == Some(&cell.flavor);
        for cell in self.flavors.iter().filter(|cell| held.is_empty() || has(cell)) {
            let (name, resource, flavor) = (&cell.pod_set, &cell.resource, &cell.flavor);
            let (free, unused, borrowable) = (&cell.free, &cell.unused, &cell.borrowable);
            let verb = if held.is_empty() { "asks" } else { "has" };
            let pods = cell.pods.zip(cell.all_pods).map(|(pods, all)| format!(" for {pods} of {all} pods"));
            let earlier = cell.earlier.as_ref().map(|earlier| format!(" on top of {earlier} of earlier pod sets"));
            let _ = write!(
                out,
                "    {name}: {verb} {} {resource}{} in flavor {flavor}{}, {free} free ({unused} own, {borrowable} to borrow) of {}",
                cell.asked,
                pods.unwrap_or_default(),
                earlier.unwrap_or_default(),
                cell.maximum
            );
            if held.is_empty() {
                out.push_str(&cell.help());
                out.push_str(&cell.held_by());
            }
            out.push('\n');
        }
        if self.obstacle == Some("PodsStop") {
            let preemptor = self.evicted_for.as_ref().map(|name| format!(" to make room for {name}"));
            let _ = writeln!(out, "    its pods have to stop{}", preemptor.unwrap_or_default());
        } else if let Some(preemptor) = &self.evicted_for {
            let _ = writeln!(out, "    was evicted to make room for {preemptor}");
        }
        if let Some(head) = &self.head {
            let _ = writeln!(out, "    {head} goes first in its queue, and lets nobody pass");
        }
        if let Some(ahead) = self.ahead.filter(|ahead| *ahead > 0) {
            let _ = writeln!(out, "    {ahead} before it in its queue");
        }
    }
}

impl Cell {
    fn help(&self) -> String {
        let lacking = self.lacking.as_deref().unwrap_or_default();
        match (self.unblock, &self.mismatch) {
            ("Release", _) => format!("; {lacking} more must be released"),
            ("RaiseQuota", _) => format!("; never fits unless quota is raised by {lacking}"),
            ("EvictedLeave", _) => "; evicted workloads must leave".to_owned(),
            (_, Some(mismatch)) => format!("; {mismatch}"),
            ("QueueResumes", _) => "; would fit, but its queue admits nothing".to_owned(),
            ("BackOffEnds", _) => "; would fit, but its back-off is not over".to_owned(),
            ("HoldEnds", _) => "; would fit, but the workload is held back".to_owned(),
            ("HeadGoes", _) => "; would fit, but the first of its queue does not".to_owned(),
            ("RoomIsKept", _) => "; would fit, but the room is kept for others".to_owned(),
            ("CheckReady", _) => "; would fit, but an admission check has failed".to_owned(),
            ("NamespaceMatches", _) => "; would fit, but its namespace is not selected".to_owned(),
            ("LimitAllows", _) => "; would fit, but a limit is reached".to_owned(),
            ("ChangeRequirements", _) => "; would fit, but the workload has to change".to_owned(),
            _ => "; fits".to_owned(),
        }
    }

    fn held_by(&self) -> String {
        if !matches!(self.unblock, "Release" | "RaiseQuota" | "EvictedLeave") || self.holders.is_empty() {
            return String::new();
        }
        let one = |holder: &Holder| format!("{} ({}, {})", holder.workload, holder.amount, holder.right);
        let named: Vec<String> = self.holders.iter().take(MOST_HOLDERS).map(one).collect();
        let rest = (self.holders.len() + self.more_holders.unwrap_or(0)).saturating_sub(MOST_HOLDERS);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        format!("; held by {}{more}", named.join(", "))
    }
}
