//! Settings of the installation that change decisions.

pub(crate) mod departures;

use crate::options::departures::Departures;
use crate::queue::afs::AdmissionFairSharing;

/// Strategies of fair-sharing preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareStrategy {
    /// `LessThanOrEqualToFinalShare`.
    LessThanOrEqualToFinalShare,
    /// `LessThanInitialShare`.
    LessThanInitialShare,
}

impl std::str::FromStr for ShareStrategy {
    type Err = String;

    /// Kueue's name of a strategy.
    ///
    /// # Errors
    /// A message with the allowed names.
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
    /// Preemption strategies in order; empty is Kueue's default of both.
    pub strategies: Vec<ShareStrategy>,
}

/// Settings of the installation that change decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Set when admission fair sharing is on.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Resources that no resource group covers do not count (`quotaCheckStrategy: IgnoreUndeclared`).
    pub ignore_undeclared: bool,
    /// Set when fair sharing is on.
    pub fair_sharing: Option<FairSharing>,
    /// Pod sets with `minCount` may be admitted with fewer pods.
    pub partial_admission: bool,
    /// Kueue's feature gates that change decisions.
    pub gates: Gates,
    /// Departures from Kueue.
    pub departures: Departures,
}

/// Feature gates that change decisions; the defaults are Kueue's but for `prioritize_preemptors` and
/// `rouse_after_admissions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `FlavorFungibility`: off, the first flavor that fits is taken, else the one with the best mode.
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`: the progress of a scan is kept for a cycle whatever changed.
    pub preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`: priority orders the heads of a cycle.
    pub priority_sorting: bool,
    /// `PrioritizePreemptorWorkloads`: heads that wait for their victims come first. It is on, unlike in Kueue: there other workloads may take
    /// the freed quota, be evicted for it again, and so on for ever.
    pub prioritize_preemptors: bool,
    /// `FairSharingPrioritizeNonBorrowing`.
    pub fair_prefer_non_borrowing: bool,
    /// `FairSharingPreemptWithinNominal`.
    pub fair_preempt_within_nominal: bool,
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`.
    pub recompute_overlap: bool,
    /// Parked workloads that have several pod sets, or scan on past flavors that they could borrow, are tried again once other workloads of
    /// their tree were admitted. Kueue has no such gate: there they wait until a workload leaves.
    pub rouse_after_admissions: bool,
    /// `SchedulingEquivalenceHashing`: workloads equal to one without room are parked with it.
    pub park_equals: bool,
}

impl Gates {
    /// The gates by Kueue's names, each with its `value`; the default where `value` is `None`.
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
            rouse_after_admissions: true,
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
            departures: Departures::default(),
        }
    }
}
