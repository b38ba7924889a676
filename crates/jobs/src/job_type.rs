//! A kind of job as a value, for code that does not know the kind.

use crate::job_object::JobObject;
use crate::kind::JobKind;
use crate::parts::Part;
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};

/// Type of the function [`JobKind::part_called`].
type PartCalled = for<'a> fn(&str, &str, &'a [Part]) -> Option<(&'a Part, i32)>;

/// Properties of a job kind: its names, labels and fields, and the functions that read its objects.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "properties of a kind, each of which a kind has or has not")]
pub struct JobInfo {
    /// Name of the kind's integration in Kueue's configuration.
    pub framework: &'static str,
    /// API group of the kind.
    pub group: &'static str,
    /// API version of the kind that Berth reads and writes.
    pub version: &'static str,
    /// `apiVersion` of owner references to the kind.
    pub api_version: &'static str,
    /// Plural name of the kind, as in URLs.
    pub plural: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Reporter of events about jobs of the kind.
    pub reporter: &'static str,
    /// Label of pods with the uid of their job.
    pub uid_label: &'static str,
    /// True if a job of the kind may name its queue in an annotation; see [`JobKind::QUEUE_IN_ANNOTATION`].
    pub queue_in_annotation: bool,
    /// True if Berth writes the status of jobs; see [`JobKind::WRITES_STATUS`].
    pub writes_status: bool,
    /// True if every cluster has the kind; see [`JobKind::BUILT_IN`].
    pub built_in: bool,
    /// True if jobs of the kind consist of Jobs; see [`JobKind::MADE_OF_JOBS`].
    pub made_of_jobs: bool,
    /// Field of a job's spec that lists the Jobs of which the job consists; see [`JobKind::JOBS_IN`].
    pub jobs_in: Option<&'static str>,
    /// Label of a child Job with the name of its part; see [`JobKind::PART_LABEL`].
    pub part_label: Option<&'static str>,
    /// True if the pod templates of suspended jobs accept a node affinity; see [`JobKind::TAKES_AFFINITY`].
    pub takes_affinity: bool,
    /// True if patches need no containers and volumes; see [`JobKind::LEAN_PATCHES`].
    pub lean_patches: bool,
    pub(crate) part_called: PartCalled,
    pub(crate) decode: fn(&str) -> serde_json::Result<Box<dyn JobObject>>,
    pub(crate) read: fn(&Value) -> serde_json::Result<Box<dyn JobObject>>,
}

impl JobInfo {
    /// Path at which the API server asks a webhook to `verb` objects of the kind, as in Kueue's controller-runtime.
    #[must_use]
    pub fn review_path(&self, verb: &str) -> String {
        format!("/{verb}-{}-{}-{}", self.group.replace('.', "-"), self.version, self.kind.to_lowercase())
    }
}

/// A kind of job that [`crate::KINDS`] lists.
pub trait ListedKind: JobKind {
    /// Properties of the kind, for code that does not know the kind. As a static of the crate `berth-jobs`, the properties let the functions of the kind
    /// compile once, instead of once for each crate that names the kind.
    const INFO: &'static JobInfo;
}

/// A kind of job that can be suspended. Kinds are compared and ordered by their names and groups.
#[derive(Clone, Copy)]
pub struct JobType(&'static JobInfo);

impl JobType {
    /// The job kind `K` as a value.
    #[must_use]
    pub const fn of<K: ListedKind>() -> Self {
        Self(K::INFO)
    }

    /// The properties of the kind.
    #[must_use]
    pub const fn info(self) -> &'static JobInfo {
        self.0
    }

    /// Decodes a job from the JSON text of a watch or a review, without `metadata.managedFields`.
    ///
    /// # Errors
    /// The text is no object of this kind.
    pub fn decode(self, text: &str) -> serde_json::Result<Box<dyn JobObject>> {
        (self.0.decode)(text)
    }

    /// Decodes a job from a JSON value.
    ///
    /// # Errors
    /// The value is no object of this kind.
    pub fn read(self, value: &Value) -> serde_json::Result<Box<dyn JobObject>> {
        (self.0.read)(value)
    }

    fn name(self) -> (&'static str, &'static str) {
        (self.0.kind, self.0.group)
    }
}

impl PartialEq for JobType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || self.name() == other.name()
    }
}

impl Eq for JobType {}

impl PartialOrd for JobType {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobType {
    fn cmp(&self, other: &Self) -> Ordering {
        if std::ptr::eq(self.0, other.0) { Ordering::Equal } else { self.name().cmp(&other.name()) }
    }
}

impl Hash for JobType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.kind.hash(state);
    }
}

impl Debug for JobType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind)
    }
}
