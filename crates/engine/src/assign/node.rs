//! The flavors that a pod is given for the resources of several groups have to be of one node: where two of them have different values for a
//! node label, or one forbids a label of the other, no node could take the pod (`docs/departures/0057-flavors-of-one-node.md`).
//!
//! Groups have their turn one after the other. A flavor that does not go with those of the groups before is passed over; where that
//! leaves a group without a fit, the choices before it are tried anew, the last one first (backtracking).

use crate::assign::assignment::Choice;
use crate::assign::matching::selects_forbidden;
use crate::assign::member::Member;
use crate::assign::mode::Mode;
use crate::assign::scan::{Found, Scan};
use crate::explain::why::Why;
use crate::model::FlavorSpec;
use crate::world::ids::FlavorId;
use crate::world::store::Store;

/// Combinations that are tried for a pod set at most. Each costs what one does where no labels differ.
const MOST: usize = 32;

/// How a scan for one resource group ended.
struct Step {
    /// Place of the group's turn.
    at: usize,
    /// The flavor that was chosen.
    flavor: Option<FlavorId>,
    standing: Standing,
    is_narrowed: bool,
}

/// How well the pods are served, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// No flavor serves the pods.
    Without,
    /// A fit needs preemption, and there are no candidates.
    Waiting,
    /// A fit needs preemption, and there are candidates.
    Preempting,
    /// The flavor fits.
    Fitting,
}

impl Standing {
    fn of(found: &Found) -> Self {
        let of_choice = |choice: &Choice| match choice.mode {
            Mode::Fit => Self::Fitting,
            _ if choice.hopeless => Self::Waiting,
            _ => Self::Preempting,
        };
        found.choices.iter().map(of_choice).min().unwrap_or(Self::Without)
    }
}

/// The combinations of flavors that were tried for one pod set.
#[derive(Default)]
pub(super) struct Tries {
    /// Choices that are not to be made again with what comes before them: place of the turn, and flavor.
    barred: Vec<(usize, FlavorId)>,
    steps: Vec<Step>,
    made: usize,
}

impl Tries {
    /// The flavors that were tried in a turn with the same choices before it.
    pub(super) fn barred(&self, at: usize) -> Vec<FlavorId> {
        self.barred.iter().filter(|(turn, _)| *turn == at).map(|(_, flavor)| *flavor).collect()
    }

    /// The turn of a group has ended.
    pub(super) fn note(&mut self, at: usize, found: &Found) {
        let flavor = found.choices.first().map(|choice| choice.flavor);
        self.steps.push(Step { at, flavor, standing: Standing::of(found), is_narrowed: found.is_narrowed });
    }

    /// How well the pods are served by the combination that was tried last.
    pub(super) fn standing(&self) -> Standing {
        self.steps.iter().map(|step| step.standing).min().unwrap_or(Standing::Fitting)
    }

    /// Goes on to the next combination; tells whether there is one that may serve the pods better.
    pub(super) fn advance(&mut self) -> bool {
        self.made = self.made.saturating_add(1);
        let steps = std::mem::take(&mut self.steps);
        let is_short = |step: &Step| step.is_narrowed && step.standing < Standing::Fitting;
        let Some(short) = steps.iter().rposition(is_short).filter(|_| self.made < MOST) else { return false };
        let before = steps.iter().take(short).rev();
        let Some((at, flavor)) = before.filter_map(|step| Some((step.at, step.flavor?))).next() else { return false };
        self.barred.retain(|(turn, _)| *turn <= at);
        self.barred.push((at, flavor));
        true
    }
}

impl Scan<'_> {
    /// Why a flavor can not be of one node with those that the pods are given for other resources.
    pub(super) fn of_another_node(&self, flavor: FlavorId) -> Option<Why> {
        if !self.request.one_node {
            return None;
        }
        let spec = self.store.flavors.get(&flavor)?;
        // The choice for a resource that this group covers as well gives way to the choice of this group.
        let stays = |choice: &&Choice| !self.group.covered.contains(&choice.resource);
        let others = self.beside.iter().filter(stays);
        let mut others = others.filter(|choice| choice.flavor != flavor && self.are_of_one_pod(choice));
        others.find_map(|choice| {
            let other = self.store.flavors.get(&choice.flavor)?;
            let differs = difference(spec, other)?;
            let (name, given) = (self.store.flavor(flavor), self.store.flavor(choice.flavor));
            let resource = self.store.resource(choice.resource);
            let text =
                format!("flavor {name} does not go with flavor {given}, which the pods get for {resource}: {differs}");
            Some(Why::Mismatch(text.into_boxed_str()))
        })
    }

    /// A flavor that was tried before with what the pods are given of the groups before this one.
    pub(super) fn tried_before(store: &Store, flavor: FlavorId) -> Why {
        let name = store.flavor(flavor);
        Why::Mismatch(format!("flavor {name} does not go with a flavor of another resource group that fits").into())
    }

    /// Whether some pod asks both for what was chosen and for something of this group.
    fn are_of_one_pod(&self, choice: &Choice) -> bool {
        let asks = |member: &Member<'_>, resource| member.requests.iter().any(|(asked, _)| *asked == resource);
        let both = |member: &&Member<'_>| {
            asks(member, choice.resource) && self.group.covered.iter().any(|resource| asks(member, *resource))
        };
        self.members.iter().any(|member| both(&member))
    }
}

/// Difference between the nodes of two flavors by which no node belongs to both; `None` if there is none.
fn difference(one: &FlavorSpec, other: &FlavorSpec) -> Option<String> {
    let differs = one.node_labels.iter().find_map(|(key, value)| {
        let theirs = other.node_labels.get(key).filter(|theirs| *theirs != value)?;
        Some(format!("nodes of the one have {key}={value}, of the other {key}={theirs}"))
    });
    let forbids = |a: &FlavorSpec, b: &FlavorSpec| {
        let (key, value) = selects_forbidden(&a.forbidden, &b.node_labels)?;
        Some(format!("nodes of flavor {} have {key}={value}, which flavor {} forbids", b.name, a.name))
    };
    differs.or_else(|| forbids(one, other)).or_else(|| forbids(other, one))
}
