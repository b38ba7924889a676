//! The end of a job.

/// End of a job: its result and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Succeeded; else failed.
    pub success: bool,
    /// The job's own words.
    pub message: String,
    /// When, in seconds since 1970, of one that is made of Jobs: those that still run are stopped after it.
    pub at: Option<i64>,
}
