//! Lanes of tasks: the order of urgency.

/// Lane of a task, the most urgent lane first. The runtime takes the tasks of lanes that share slots in the order of the variants of `Lane`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Tasks that start, stop, admit and evict jobs.
    Jobs,
    /// Tasks that keep objects up to date.
    Upkeep,
    /// Writes of reasons that users read, such as why a Workload waits.
    Reasons,
    /// Writes of figures in statuses. Writes of figures have the lane `Figures`, so that figures may become old behind hundreds of removals of finalizers.
    Figures,
    /// Writes of the ends of Workloads, which release quota: see [`Lane::as_awaited`].
    Ends,
    /// Clean-up that no job waits for.
    Cleanup,
    /// Listings of checkpoint stores. A checkpoint store that does not answer must not delay tasks of other lanes.
    StoreListings,
    /// Deletions in checkpoint stores.
    StoreDeletions,
    /// Annotations on all pods of a job: each task is many patches, which wait one by one for the rate limit.
    Pods,
}

impl Lane {
    /// The lane if a workload waits for quota, or if none waits: the end of a Workload is as urgent as [`Lane::Upkeep`] if its quota is wanted.
    #[must_use]
    pub const fn as_awaited(self, quota_is_wanted: bool) -> Self {
        match self {
            Self::Ends if quota_is_wanted => Self::Upkeep,
            lane => lane,
        }
    }
}
