//! Reasons why a flavor is not a plain fit. The reasons are kept as values, and put into Kueue's words only for a message.

use crate::cycle::issued::Issued;
use crate::model::{PendingReason, Tier};
use crate::quota::balance::{INF, Units, amount};
use crate::world::ids::{FlavorId, ResourceId};
use crate::world::store::Store;

/// A reason why a flavor is not a plain fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The request exceeds the quota that the queue could have if nothing were in use; the amounts are the usage of earlier pod sets, the request and that
    /// quota.
    Exceeds(FlavorId, ResourceId, [Units; 3]),
    /// The request exceeds the free quota of the flavor by this amount.
    Lacks(FlavorId, ResourceId, Units),
    /// No resource group of the queue covers the resource.
    Uncovered(ResourceId),
    /// A repeated assignment may use only another flavor for the resource.
    Unpinned(FlavorId, ResourceId),
    /// The flavor is in no resource group that has the resource.
    NotProvided(FlavorId, ResourceId),
    /// The flavor is out of stock; the text says the end and the cause of the stock-out.
    OutOfStock(FlavorId, Box<str>),
    /// The workload would hold more of a tier than its queue may; the amounts are held already, requested and allowed.
    TierShare(FlavorId, ResourceId, [Units; 3]),
    /// The pods can not run on the flavor.
    Mismatch(Box<str>),
    /// The scheduling fields of the pods are invalid.
    Illegal(Box<str>),
}

/// Severity of a reason against a flavor.
pub(crate) const fn severity(reason: Option<PendingReason>) -> u8 {
    match reason {
        Some(PendingReason::NoMatchingFlavor) => 4,
        Some(PendingReason::ExceedsMaxQuota) => 3,
        Some(PendingReason::WaitingForQuota | PendingReason::OutOfStock) => 2,
        Some(PendingReason::TopologyPlacementFailed) => 1,
        _ => 0,
    }
}

/// The more severe of two reasons; the first reason if both are equally severe.
pub(crate) fn more_severe(a: Option<PendingReason>, b: Option<PendingReason>) -> Option<PendingReason> {
    if severity(a) >= severity(b) { a } else { b }
}

/// Text of an amount that is requested, held or lacking; the text is always a number, even if the amount is above [`INF`].
fn number(store: &Store, resource: ResourceId, value: Units) -> String {
    berth_quantity::format(store.resource(resource), amount(value))
}

/// Text of a limit; an amount of at least [`INF`] is unlimited.
fn limit(store: &Store, resource: ResourceId, value: Units) -> String {
    if value >= INF { "<unlimited>".to_owned() } else { number(store, resource, value) }
}

impl Why {
    pub(crate) fn text(&self, store: &Store) -> String {
        match self {
            Self::Exceeds(flavor, resource, amounts) => {
                let [assumed, value, maximum] = *amounts;
                let [assumed, value] = [assumed, value].map(|amount| number(store, *resource, amount));
                let maximum = limit(store, *resource, maximum);
                format!(
                    "insufficient quota for {} in flavor {}, previously considered podsets requests ({assumed}) + current podset request ({value}) > maximum capacity ({maximum})",
                    store.resource(*resource),
                    store.flavor(*flavor),
                )
            }
            Self::Lacks(flavor, resource, more) => format!(
                "insufficient unused quota for {} in flavor {}, {} more needed",
                store.resource(*resource),
                store.flavor(*flavor),
                number(store, *resource, *more),
            ),
            Self::Uncovered(resource) => {
                format!("resource {} unavailable in ClusterQueue", store.resource(*resource))
            }
            Self::Unpinned(flavor, resource) => format!(
                "skipping flavor {} as it is not found in the nomination mapping for resource {}",
                store.flavor(*flavor),
                store.resource(*resource),
            ),
            Self::NotProvided(flavor, resource) => {
                format!("flavor {} does not provide resource {}", store.flavor(*flavor), store.resource(*resource))
            }
            Self::OutOfStock(flavor, text) => format!("flavor {} {text}", store.flavor(*flavor)),
            Self::TierShare(flavor, resource, amounts) => {
                let [held, value, most] = *amounts;
                let [held, value] = [held, value].map(|amount| number(store, *resource, amount));
                let most = limit(store, *resource, most);
                let tier = store.flavors.get(flavor).and_then(|spec| spec.tier);
                format!(
                    "flavor {}: {value} of {} beside {held} that the queue holds of {} capacity is more than its share of {most}",
                    store.flavor(*flavor),
                    store.resource(*resource),
                    tier.map_or("no", Tier::as_str),
                )
            }
            Self::Mismatch(text) | Self::Illegal(text) => text.to_string(),
        }
    }

    /// Whether only quota or capacity is missing, while the flavor matches the pods.
    pub(crate) const fn is_of_quota(&self) -> bool {
        matches!(self, Self::Exceeds(..) | Self::Lacks(..) | Self::OutOfStock(..) | Self::TierShare(..))
    }

    /// The fault in the pods' scheduling fields, if this fault is the reason why the flavor does not fit.
    pub(crate) fn fault(&self) -> Option<&str> {
        if let Self::Illegal(fault) = self { Some(fault) } else { None }
    }
}

/// Texts of the reasons against flavors in alphabetical order.
pub(crate) fn texts(store: &Store, reasons: &[Why]) -> Vec<String> {
    let mut texts: Vec<String> = reasons.iter().map(|why| why.text(store)).collect();
    texts.sort_unstable();
    texts
}

/// Texts of the reasons against flavors in alphabetical order, each text once.
pub(crate) fn distinct_texts(store: &Store, reasons: &[Why]) -> Vec<String> {
    let mut texts = texts(store, reasons);
    texts.dedup();
    texts
}

/// Message to a head that was not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Plainly(&'static str),
    AtLength(String),
    /// The reasons of each pod set (by index) that is no plain fit, and the preemptions that the workload issued.
    Unfit(Vec<(usize, Vec<Why>)>, Issued),
}

/// Reason code and message of a verdict.
pub(crate) type Finding = (PendingReason, Message);

impl Message {
    /// The message as text; `name` gives the names of pod sets.
    pub(crate) fn text<'s>(&self, store: &Store, name: impl Fn(usize) -> &'s str) -> String {
        match self {
            Self::Plainly(text) => (*text).to_owned(),
            Self::AtLength(text) => text.clone(),
            Self::Unfit(pod_sets, issued) => {
                issued.message(unfit(store, pod_sets.iter().map(|(at, reasons)| (name(*at), reasons.as_slice()))))
            }
        }
    }
}

/// Text of the reasons why pod sets got no flavors.
pub(crate) fn unfit<'s>(store: &Store, pod_sets: impl Iterator<Item = (&'s str, &'s [Why])>) -> String {
    let mut all = String::new();
    for (name, reasons) in pod_sets.filter(|(_, reasons)| !reasons.is_empty()) {
        if let Some(fault) = reasons.iter().find_map(Why::fault) {
            return format!("failed to assign flavors to pod set {name}: {fault}");
        }
        if !all.is_empty() {
            all.push_str("; ");
        }
        all.push_str("couldn't assign flavors to pod set ");
        all.push_str(name);
        all.push_str(": ");
        all.push_str(&texts(store, reasons).join(", "));
    }
    all
}
