//! Where Berth departs from Kueue on purpose.

/// Where Berth departs from Kueue on purpose, each with its page in `docs/decisions`. All are in force unless somebody asks for
/// Kueue's decisions to the letter, as who compares with them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departures {
    /// Nobody is preempted for whom the preemptor was evicted, directly or through others (`0005-no-eviction-loops.md`).
    pub no_circles: bool,
    /// A preemptor keeps its claim on what it preempted for, in place of looking anew (`0005-no-eviction-loops.md`).
    pub claims: bool,
    /// An admitted workload fits beside the victims of its cycle, which still hold their quota (`0001-fit-beside-victims.md`).
    pub fit_beside_victims: bool,
    /// A scan that began behind the first flavor starts over before its workload is parked (`0002-flavor-scan-starts-over.md`).
    pub scan_over: bool,
    /// Victims are enough only where quota of `pods` is, too (`0023-pods-count-for-victims.md`).
    pub pods_count: bool,
    /// A workload that has tried all flavors is parked, however its scans ended (`0025-scans-come-to-an-end.md`).
    pub scans_end: bool,
    /// A head of a BestEffortFIFO queue that loses to what is only booked lets those behind it have their turn (`0012-losers-stand-aside.md`).
    pub stand_aside: bool,
    /// A flavor is a fit only if each resource fits, whatever is preferred (`0003-hidden-preemption.md`).
    pub all_must_fit: bool,
    /// Pods that ask for a kind of capacity are given no flavor that lacks the label while another of its group has it
    /// (`0018-capacity-selectors-pin.md`).
    pub capacity_pins: bool,
    /// A pod set that is given no flavor, since it asks for nothing that counts, does not end the search for the others
    /// (`0016-all-pod-sets-are-given-quota.md`).
    pub all_pod_sets: bool,
    /// The flavors that a pod is given can be of one node: no two of them have different values for a node label
    /// (`0057-flavors-of-one-node.md`).
    pub one_node: bool,
    /// Between workloads of equal priority and time a lot of namespace and second decides, then the name (`0035-equal-times.md`).
    pub equals_by_lot: bool,
    /// A workload that is passed over for an equal that did not fit gets the reason of that one (`0036-equals-are-told-why.md`).
    pub equals_told_why: bool,
}

impl Departures {
    /// Kueue to the letter.
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
