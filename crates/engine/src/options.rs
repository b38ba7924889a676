//! Settings of the installation on which the engine's decisions depend.

pub(crate) mod profile;

use crate::options::profile::Profile;
use crate::queue::afs::AdmissionFairSharing;

/// Strategies of fair-sharing preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareStrategy {
    /// Kueue's strategy `LessThanOrEqualToFinalShare`: after the preemption, the preemptor's side must not have a larger share than the victim's side.
    LessThanOrEqualToFinalShare,
    /// `LessThanInitialShare`.
    LessThanInitialShare,
}

impl std::str::FromStr for ShareStrategy {
    type Err = String;

    /// The fair-sharing strategy that has the name `name` in Kueue.
    ///
    /// # Errors
    /// Returns a message with the allowed names if no strategy has this name.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "LessThanOrEqualToFinalShare" => Ok(Self::LessThanOrEqualToFinalShare),
            "LessThanInitialShare" => Ok(Self::LessThanInitialShare),
            other => Err(format!(
                "unknown strategy `{other}`; allowed are LessThanOrEqualToFinalShare and LessThanInitialShare"
            )),
        }
    }
}

/// Fair sharing between queues and cohorts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairSharing {
    /// Preemption strategies in order; an empty list stands for Kueue's default, which is both strategies.
    pub strategies: Vec<ShareStrategy>,
}

/// Settings of the installation on which the engine's decisions depend.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Settings of admission fair sharing; `None` if admission fair sharing is off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// True if resources that no resource group covers do not count (`quotaCheckStrategy: IgnoreUndeclared`).
    pub ignore_undeclared: bool,
    /// Settings of fair sharing between queues and cohorts; `None` if fair sharing is off.
    pub fair_sharing: Option<FairSharing>,
    /// True if pod sets with `minCount` may be admitted with fewer pods.
    pub partial_admission: bool,
    /// Kueue's feature gates that change decisions.
    pub gates: Gates,
    /// Compatibility with Kueue: the departures from its decisions that are in force.
    pub profile: Profile,
}

/// Kueue's feature gates on which decisions depend. The defaults are Kueue's, except for `prioritize_preemptors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a feature gate is on or off")]
pub struct Gates {
    /// `FlavorFungibility`: if the gate is off, the first flavor that fits is taken, or the flavor with the best mode if no flavor fits.
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`: the progress of a scan over flavors is kept for a cycle, whatever has changed.
    pub preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`: priority orders the heads of a cycle.
    pub priority_sorting: bool,
    /// `PrioritizePreemptorWorkloads`: heads that wait for their victims come first. Unlike in Kueue, the gate is on by default: with the gate off, other
    /// workloads may take the freed quota, be evicted for the same preemptor again, and so on for ever.
    pub prioritize_preemptors: bool,
    /// Kueue's gate `FairSharingPrioritizeNonBorrowing`: heads that do not borrow go first in the tournament of fair sharing.
    pub fair_prefer_non_borrowing: bool,
    /// Kueue's gate `FairSharingPreemptWithinNominal`: a queue within its nominal quota may preempt whatever the shares are.
    pub fair_preempt_within_nominal: bool,
    /// Kueue's gate `RecomputeAssignmentUponPreemptionTargetsOverlap`: a head whose victims another head has taken searches other victims in the same cycle.
    pub recompute_overlap: bool,
    /// `SchedulingEquivalenceHashing`: if a workload has no room, the workloads that are equal to it are parked together with it.
    pub park_equals: bool,
}

impl Gates {
    /// The gates with the values that `value` returns for Kueue's names of the gates; a gate for which `value` returns `None` has its default. Cost of `named`:
    /// eight calls of `value`.
    #[must_use]
    pub fn named(mut value: impl FnMut(&str) -> Option<bool>) -> Self {
        let mut gates = Self::default();
        for (name, gate) in [
            ("FlavorFungibility", &mut gates.flavor_fungibility),
            ("FlavorFungibilityPreserveScanProgress", &mut gates.preserve_scan_progress),
            ("PrioritySortingWithinCohort", &mut gates.priority_sorting),
            ("PrioritizePreemptorWorkloads", &mut gates.prioritize_preemptors),
            ("FairSharingPrioritizeNonBorrowing", &mut gates.fair_prefer_non_borrowing),
            ("FairSharingPreemptWithinNominal", &mut gates.fair_preempt_within_nominal),
            ("RecomputeAssignmentUponPreemptionTargetsOverlap", &mut gates.recompute_overlap),
            ("SchedulingEquivalenceHashing", &mut gates.park_equals),
        ] {
            *gate = value(name).unwrap_or(*gate);
        }
        gates
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            flavor_fungibility: true,
            preserve_scan_progress: true,
            priority_sorting: true,
            prioritize_preemptors: true,
            fair_prefer_non_borrowing: true,
            fair_preempt_within_nominal: true,
            recompute_overlap: true,
            park_equals: true,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            admission_fair_sharing: None,
            ignore_undeclared: false,
            fair_sharing: None,
            partial_admission: true,
            gates: Gates::default(),
            profile: Profile::Berth,
        }
    }
}
