//! The end of a job.

/// Result of a finished job: whether it succeeded, its message, and for some kinds the time of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// True if the job succeeded instead of failing.
    pub success: bool,
    /// The message of the job's end, from the job's status.
    pub message: String,
    /// Time of the end in seconds since 1970, for a job made of Jobs. Child Jobs that still run after this time are stopped.
    pub at: Option<i64>,
}
