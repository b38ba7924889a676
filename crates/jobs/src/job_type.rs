//! A kind of job as a value, for code that does not know the kind.

use crate::job_object::JobObject;
use crate::kind::JobKind;
use crate::parts::Part;
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};

/// [`JobKind::part_called`].
type PartCalled = for<'a> fn(&str, &str, &'a [Part]) -> Option<(&'a Part, i32)>;

/// Names of a kind, the label by which its pods name their job, and the functions that read its objects.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "properties of a kind, each of which a kind has or has not")]
pub struct JobInfo {
    /// Name of the integration in Kueue's configuration.
    pub framework: &'static str,
    /// API group.
    pub group: &'static str,
    /// The version that is read and written.
    pub version: &'static str,
    /// `apiVersion` of owner references.
    pub api_version: &'static str,
    /// Plural, as in the URL.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Reporter of events about its jobs.
    pub reporter: &'static str,
    /// Label by which pods name the uid of their job.
    pub uid_label: &'static str,
    /// See [`JobKind::QUEUE_IN_ANNOTATION`].
    pub queue_in_annotation: bool,
    /// See [`JobKind::WRITES_STATUS`].
    pub writes_status: bool,
    /// See [`JobKind::BUILT_IN`].
    pub built_in: bool,
    /// See [`JobKind::MADE_OF_JOBS`].
    pub made_of_jobs: bool,
    /// See [`JobKind::JOBS_IN`].
    pub jobs_in: Option<&'static str>,
    /// See [`JobKind::PART_LABEL`].
    pub part_label: Option<&'static str>,
    /// See [`JobKind::TAKES_AFFINITY`].
    pub takes_affinity: bool,
    /// See [`JobKind::LEAN_PATCHES`].
    pub lean_patches: bool,
    pub(crate) part_called: PartCalled,
    pub(crate) decode: fn(&str) -> serde_json::Result<Box<dyn JobObject>>,
    pub(crate) read: fn(&Value) -> serde_json::Result<Box<dyn JobObject>>,
}

impl JobInfo {
    /// Path at which a webhook is asked to `verb` its objects, as Kueue's controller runtime has it.
    #[must_use]
    pub fn review_path(&self, verb: &str) -> String {
        format!("/{verb}-{}-{}-{}", self.group.replace('.', "-"), self.version, self.kind.to_lowercase())
    }
}

/// A kind of job that [`crate::KINDS`] lists.
pub trait ListedKind: JobKind {
    /// Names and functions of the kind, for code that does not know the kind: a static of this crate, so that whatever reads and writes its objects
    /// is compiled once and not in each crate that names the kind.
    const INFO: &'static JobInfo;
}

/// A kind of job that can be suspended. Kinds are compared and ordered by their names and groups.
#[derive(Clone, Copy)]
pub struct JobType(&'static JobInfo);

impl JobType {
    /// The kind `K`.
    #[must_use]
    pub const fn of<K: ListedKind>() -> Self {
        Self(K::INFO)
    }

    /// The names of the kind, and the functions that read its objects.
    #[must_use]
    pub const fn info(self) -> &'static JobInfo {
        self.0
    }

    /// Reads a job as a watch or a review shows it, without `metadata.managedFields`.
    ///
    /// # Errors
    /// If the input is no object of this kind.
    pub fn decode(self, text: &str) -> serde_json::Result<Box<dyn JobObject>> {
        (self.0.decode)(text)
    }

    /// Reads a job.
    ///
    /// # Errors
    /// If the input is no object of this kind.
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
