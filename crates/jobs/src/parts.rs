//! Jobs that another job is made of.

/// Jobs of one sort that a job is made of, as its spec has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of their pod set.
    pub name: Box<str>,
    /// Jobs.
    pub replicas: i32,
    /// Pods that one of them has at once.
    pub pods: i32,
}

/// Size of one of these Jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSize {
    /// Pods that it has at once.
    pub pods: i32,
    /// Digest of the requests of one pod, see [`crate::requests_digest`].
    pub asks: [u8; 16],
}
