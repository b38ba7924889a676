//! The differences in decisions from Kueue that Berth makes on purpose.

/// The differences from Kueue that Berth makes on purpose, each with its page in `docs/departures`. All departures are in force, unless a caller asks for
/// Kueue's exact decisions in order to compare with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a departure is in force or not")]
pub struct Departures {
    /// No workload is preempted by a workload that was evicted in its favour, directly or through other workloads (`0005-no-eviction-loops.md`).
    pub no_circles: bool,
    /// A preemptor keeps its claim on the quota for which it issued preemptions, instead of searching again (`0005-no-eviction-loops.md`).
    pub claims: bool,
    /// An admitted workload fits beside the victims of its cycle, which still hold their quota (`0001-fit-beside-victims.md`).
    pub fit_beside_victims: bool,
    /// A scan over flavors that began behind the first flavor starts over before its workload is parked (`0002-flavor-scan-starts-over.md`).
    pub scan_over: bool,
    /// Victims are enough only if they also free enough quota of `pods` (`0023-pods-count-for-victims.md`).
    pub pods_count: bool,
    /// A workload that has tried all flavors is parked, however its scans ended (`0025-scans-come-to-an-end.md`).
    pub scans_end: bool,
    /// If a head of a BestEffortFIFO queue loses only to usage that is reserved for the rest of the cycle, the workloads behind it are tried
    /// (`0012-losers-stand-aside.md`).
    pub stand_aside: bool,
    /// A flavor is a fit only if each resource fits, whether preemption or borrowing is preferred (`0003-hidden-preemption.md`).
    pub all_must_fit: bool,
    /// Pods that select a kind of capacity get no flavor without the selected label while another flavor of the same resource group has the label
    /// (`0018-capacity-selectors-pin.md`).
    pub capacity_pins: bool,
    /// A pod set that gets no flavor, because it requests no counted resource, does not end the search for the other pod sets
    /// (`0016-all-pod-sets-are-given-quota.md`).
    pub all_pod_sets: bool,
    /// The flavors of a pod can be of one node: no two of these flavors have different values for a node label (`0057-flavors-of-one-node.md`).
    pub one_node: bool,
    /// Between workloads of equal priority and time, a hash of namespace and second (the lot) decides, then the name (`0035-equal-times.md`).
    pub equals_by_lot: bool,
    /// If a workload is passed over because an equal workload did not fit, it gets the reason of the equal workload (`0036-equals-are-told-why.md`).
    pub equals_told_why: bool,
}

impl Departures {
    /// No departures: Kueue's decisions to the letter.
    pub const NONE: Self = Self {
        no_circles: false,
        claims: false,
        fit_beside_victims: false,
        scan_over: false,
        scans_end: false,
        pods_count: false,
        stand_aside: false,
        all_must_fit: false,
        capacity_pins: false,
        all_pod_sets: false,
        one_node: false,
        equals_by_lot: false,
        equals_told_why: false,
    };
}

impl Default for Departures {
    fn default() -> Self {
        Self {
            no_circles: true,
            claims: true,
            fit_beside_victims: true,
            scan_over: true,
            scans_end: true,
            pods_count: true,
            stand_aside: true,
            all_must_fit: true,
            capacity_pins: true,
            all_pod_sets: true,
            one_node: true,
            equals_by_lot: true,
            equals_told_why: true,
        }
    }
}
