//! The compatibility profile, which says whether the engine decides as Berth or as Kueue.

/// Compatibility with Kueue's decisions. A profile is the only thing that a caller chooses: the engine, control and the requests of pods derive from it which
/// departures are in force ([`Profile::has`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Berth's decisions: all departures are in force.
    #[default]
    Berth,
    /// Kueue's decisions to the letter: no departure is in force. This profile is for comparisons with Kueue.
    KueueLetter,
    /// Berth's decisions without one departure: for tests that need to know how one part decides without it.
    BerthWithout(Departure),
}

/// A difference from Kueue's decisions that Berth makes on purpose, with its page in `docs/departures`. Differences that no profile can turn off have a page,
/// too, and are not listed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// No workload is preempted by a workload that was evicted in its favour, directly or through other workloads (`0005-no-eviction-loops.md`).
    NoEvictionCircles,
    /// A preemptor keeps its claim on the quota for which it issued preemptions, instead of searching again (`0005-no-eviction-loops.md`).
    Claims,
    /// A parked workload that has several pod sets, or whose scan goes past flavors that it could borrow, is tried again when other workloads of its cohort
    /// tree have been admitted (`0005-no-eviction-loops.md`). In Kueue a parked workload that comes to fit because other workloads were admitted waits until
    /// another workload leaves.
    TriedAgainAfterAdmissions,
    /// An admitted workload fits although the victims of its cycle still hold their quota (`0001-fit-beside-victims.md`).
    FitsBesideVictims,
    /// A scan over flavors that began behind the first flavor starts over before its workload is parked (`0002-flavor-scan-starts-over.md`).
    ScanStartsOver,
    /// A flavor is a fit only if each resource fits, whether preemption or borrowing is preferred (`0003-hidden-preemption.md`).
    AllResourcesFit,
    /// If a head of a BestEffortFIFO queue loses only to usage that is reserved for the rest of the cycle, the workloads behind it are tried
    /// (`0012-losers-stand-aside.md`).
    LosersStandAside,
    /// A pod set that gets no flavor, because it requests no counted resource, does not end the search for the other pod sets
    /// (`0016-all-pod-sets-are-given-quota.md`).
    AllPodSetsGetQuota,
    /// Pods that select a kind of capacity get no flavor without the selected label while another flavor of the same resource group has the label
    /// (`0018-capacity-selectors-pin.md`).
    CapacitySelectorsPin,
    /// Workloads are equal if the fields are equal that decide about them, whatever else differs in their pod templates (`0019-equals-by-what-decides.md`).
    EqualByWhatDecides,
    /// A set of victims is enough only if the victims also free enough quota of `pods` (`0023-pods-count-for-victims.md`).
    PodsCountForVictims,
    /// A workload that has tried all flavors is parked, however its scans ended (`0025-scans-come-to-an-end.md`).
    ScansEnd,
    /// Between workloads of equal priority and time, a hash of namespace and second (the lot) decides, then the name (`0035-equal-times.md`).
    EqualsByLot,
    /// If a workload is passed over because an equal workload did not fit, it gets the reason of the equal workload (`0036-equals-are-told-why.md`).
    EqualsGetReasons,
    /// The flavors of a pod can be of one node: no two of these flavors have different values for a node label (`0057-flavors-of-one-node.md`).
    FlavorsOfOneNode,
    /// Requests of pods are counted and checked as the API server does (`0013-own-limits-before-limit-ranges.md`,
    /// `0040-limit-ranges-as-the-api-server.md`, `0051-runtime-class-is-waited-for.md`) and transformed before some are excluded
    /// (`0054-transform-before-exclude.md`).
    RequestsAsTheApiServer,
}

impl Profile {
    /// Whether a departure from Kueue is in force. Cost: constant.
    #[must_use]
    pub fn has(self, departure: Departure) -> bool {
        match self {
            Self::Berth => true,
            Self::KueueLetter => false,
            Self::BerthWithout(one) => one != departure,
        }
    }
}
