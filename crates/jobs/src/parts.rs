//! The Jobs of which another job consists.

/// A part of a job: equal Jobs, as the job's spec lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the part's pod set.
    pub name: Box<str>,
    /// Number of Jobs of the part.
    pub replicas: i32,
    /// Number of concurrent pods of one Job.
    pub pods: i32,
}

/// Size of one Job of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSize {
    /// Number of concurrent pods of the Job.
    pub pods: i32,
    /// Digest of the requests of one pod; see [`crate::requests_digest`].
    pub asks: [u8; 16],
}
