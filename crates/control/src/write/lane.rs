//! Lanes of tasks: the one order of urgency.

/// Lane of a task, the most urgent first. The runtime takes the tasks of the lanes that share slots in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Tasks that move jobs.
    Jobs,
    /// Tasks that keep objects right.
    Upkeep,
    /// Reasons, for people.
    Reasons,
    /// Figures. They grow old behind hundreds of finalizers.
    Figures,
    /// Ends of Workloads, which give quota back: see [`Lane::as_awaited`].
    Ends,
    /// Tidying up: nothing waits for it.
    Cleanup,
    /// Listings of stores of checkpoints. A store that does not answer must not keep anything else waiting.
    StoreListings,
    /// Deletions in stores of checkpoints.
    StoreDeletions,
    /// Annotations on all pods of a job: each task is many patches, which wait for the rate one by one.
    Pods,
}

impl Lane {
    /// The lane while a workload waits for quota, or while none does: the end of a Workload is as urgent as [`Lane::Upkeep`] when its quota is wanted.
    #[must_use]
    pub const fn as_awaited(self, quota_is_wanted: bool) -> Self {
        match self {
            Self::Ends if quota_is_wanted => Self::Upkeep,
            lane => lane,
        }
    }
}
