//! The flavors that a pod is given for resources of several resource groups have to be of one node. If two flavors have different values for a node label, or
//! one flavor forbids a label of the other flavor, no node could take the pod (`docs/departures/0057-flavors-of-one-node.md`).
//!
//! The resource groups of a pod set get their flavors one group after the other. A flavor that cannot be of one node with the flavors of earlier groups is
//! skipped. If a group then has no fit, the choices of earlier groups are tried anew, the latest choice first (backtracking).

use crate::assign::assignment::Choice;
use crate::assign::matching::selects_forbidden;
use crate::assign::member::Member;
use crate::assign::mode::Mode;
use crate::assign::scan::{Found, Scan};
use crate::explain::why::Why;
use crate::model::FlavorSpec;
use crate::options::profile::Departure;
use crate::world::ids::FlavorId;
use crate::world::store::Store;

/// Largest number of combinations of flavors that are tried for a pod set. The cost of each combination is the cost of assigning flavors to the pod set once.
const MOST: usize = 32;

/// The result of the scan for one resource group.
struct Step {
    /// Position of the resource group in the order in which the resource groups of a pod set are assigned.
    at: usize,
    /// The flavor that the scan chose for the resource group; `None` if no flavor fits.
    flavor: Option<FlavorId>,
    fitness: Fitness,
    is_narrowed: bool,
}

/// How well a combination of flavors serves the pods, the worst variant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fitness {
    /// No flavor serves the pods.
    Without,
    /// The flavor fits only with preemption, and there are no candidates.
    Waiting,
    /// The flavor fits only with preemption, and there are candidates.
    Preempting,
    /// The flavor fits.
    Fitting,
}

impl Fitness {
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
    /// Choices of flavors that are not to be made again after the same earlier choices: position in the order of assignment, and flavor.
    excluded: Vec<(usize, FlavorId)>,
    steps: Vec<Step>,
    made: usize,
}

impl Tries {
    /// The flavors that were tried at the position `at` after the same earlier choices.
    pub(super) fn excluded(&self, at: usize) -> Vec<FlavorId> {
        self.excluded.iter().filter(|(turn, _)| *turn == at).map(|(_, flavor)| *flavor).collect()
    }

    /// Records the flavor that the scan found for one resource group.
    pub(super) fn note(&mut self, at: usize, found: &Found) {
        let flavor = found.choices.first().map(|choice| choice.flavor);
        self.steps.push(Step { at, flavor, fitness: Fitness::of(found), is_narrowed: found.is_narrowed });
    }

    /// How well the combination of flavors that was tried last serves the pods.
    pub(super) fn fitness(&self) -> Fitness {
        self.steps.iter().map(|step| step.fitness).min().unwrap_or(Fitness::Fitting)
    }

    /// Goes on to the next combination of flavors for the resource groups of a pod set. Returns true if there is a combination that may serve the pods better.
    pub(super) fn advance(&mut self) -> bool {
        self.made = self.made.saturating_add(1);
        let steps = std::mem::take(&mut self.steps);
        let is_short = |step: &Step| step.is_narrowed && step.fitness < Fitness::Fitting;
        let Some(short) = steps.iter().rposition(is_short).filter(|_| self.made < MOST) else { return false };
        let before = steps.iter().take(short).rev();
        let Some((at, flavor)) = before.filter_map(|step| Some((step.at, step.flavor?))).next() else { return false };
        self.excluded.retain(|(turn, _)| *turn <= at);
        self.excluded.push((at, flavor));
        true
    }
}

impl Scan<'_> {
    /// Reason why a flavor can not be of one node with the flavors that the pods are given for other resources.
    pub(super) fn of_another_node(&self, flavor: FlavorId) -> Option<Why> {
        if !self.request.options.profile.has(Departure::FlavorsOfOneNode) {
            return None;
        }
        let spec = self.store.flavors.get(&flavor)?;
        // The flavor that an earlier resource group chose for a resource will be replaced if this group covers the resource, too, so that flavor is not
        // compared.
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

    /// The reason to skip a flavor that was tried before together with the same flavors of earlier resource groups.
    pub(super) fn tried_before(store: &Store, flavor: FlavorId) -> Why {
        let name = store.flavor(flavor);
        Why::Mismatch(format!("flavor {name} does not go with a flavor of another resource group that fits").into())
    }

    /// Whether some pod requests both the resource of `choice` and a resource of this resource group.
    fn are_of_one_pod(&self, choice: &Choice) -> bool {
        let asks = |member: &Member<'_>, resource| member.requests.iter().any(|(asked, _)| *asked == resource);
        let both = |member: &&Member<'_>| {
            asks(member, choice.resource) && self.group.covered.iter().any(|resource| asks(member, *resource))
        };
        self.members.iter().any(|member| both(&member))
    }
}

/// Difference between the nodes of two flavors because of which no node belongs to both flavors; `None` if there is no difference.
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
