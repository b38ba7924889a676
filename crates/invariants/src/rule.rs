//! The rules by which the judge finds broken invariants, and what they find.

/// A rule of the judge. `docs/invariants.md` says what each invariant promises; several rules may watch over one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Q1, with several replicas C1: an admission fits into a quota that is in force.
    Fit,
    /// Q2: no Workload is admitted where a queue, or a cohort above it, is over its quota.
    Overfed,
    /// Q6: a job has no more pods than its quota is for, and none from a template that no start has changed.
    PodCount,
    /// Q6: the running pods of a job request no more than its Workloads hold, or the excess ends or is charged.
    Excess,
    /// Q7: a reservation is for all pod sets, each with its count, or with fewer pods where the pod set allows that.
    AllPods,
    /// L1: a job starts under an admission, and for the pods for which it was admitted.
    Start,
    /// L2: an admitted Workload has quota, and all its admission checks were ready when it was admitted.
    Admission,
    /// L3: a job without an admission does not run, and a suspended job has no pods.
    Suspension,
    /// L4: quota is given back only when no pod of the job is left.
    Release,
    /// L5: an evicted job stops, and its Workload gives the quota back and waits.
    Eviction,
    /// L6: a finished Workload stays finished, and starts no job.
    Finish,
    /// L7: a job that waits is as its user wrote it.
    Template,
    /// L8: a job has one live Workload, and a Workload is for the job that controls it.
    Single,
}

impl Rule {
    /// Id of the invariant over which the rule watches.
    #[must_use]
    pub const fn invariant(self) -> &'static str {
        match self {
            Rule::Fit => "Q1",
            Rule::Overfed => "Q2",
            Rule::PodCount | Rule::Excess => "Q6",
            Rule::AllPods => "Q7",
            Rule::Start => "L1",
            Rule::Admission => "L2",
            Rule::Suspension => "L3",
            Rule::Release => "L4",
            Rule::Eviction => "L5",
            Rule::Finish => "L6",
            Rule::Template => "L7",
            Rule::Single => "L8",
        }
    }
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Rule that found it.
    pub rule: Rule,
    /// Revision at which it was broken.
    pub revision: u64,
    /// The observation that breaks it.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} broken at revision {}: {}", self.rule.invariant(), self.revision, self.what)
    }
}
