//! Cache of marker files, so that an unchanged marker file is not read again. Tenants write the markers, so the size of the cache is limited.

use std::collections::{BTreeMap, BTreeSet};

use super::listing::Version;
use super::marker::Marker;

/// Largest size of the cache in bytes; beyond it, the jobs that were not listed for longest are removed.
const MOST_BYTES: usize = 32 << 20;
/// Assumed size in bytes of the cache entry of a marker file, without the entry's texts.
const ENTRY: usize = 160;
/// Assumed size in bytes of a cached metadata entry, without the texts of its key and value.
const TEXTS: usize = 64;

/// Cache key of a job: store, namespace and name.
pub(super) type JobKey = (String, String, String);

/// The part of a marker file that the cache keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkerContent {
    pub(super) step: i64,
    pub(super) epoch: Option<i64>,
    /// Metadata of the checkpoint; `None` if the metadata is not cached, because no status of a TrainingJob shows the checkpoint.
    pub(super) metadata: Option<BTreeMap<String, String>>,
}

impl From<Marker> for MarkerContent {
    fn from(marker: Marker) -> Self {
        Self { step: marker.step, epoch: marker.epoch, metadata: Some(marker.metadata) }
    }
}

impl MarkerContent {
    /// A copy of the marker's content without the metadata, which may be large.
    pub(super) fn brief(&self) -> Self {
        let nothing = self.metadata.as_ref().filter(|metadata| metadata.is_empty());
        Self { metadata: nothing.cloned(), ..*self }
    }
}

#[derive(Debug)]
struct Known {
    version: Version,
    /// Content of the marker; `None` for a marker that cannot be read.
    content: Option<MarkerContent>,
}

impl Known {
    fn cost(&self, id: &str) -> usize {
        let metadata = self.content.as_ref().and_then(|content| content.metadata.as_ref());
        let texts = metadata.into_iter().flatten().map(|(key, value)| TEXTS + key.len() + value.len());
        ENTRY + id.len() + texts.sum::<usize>()
    }
}

#[derive(Debug, Default)]
struct Job {
    markers: BTreeMap<String, Known>,
    bytes: usize,
    /// Number of the last listing of the job's checkpoints; a job with a higher number was listed later.
    looked: u64,
}

/// The cache of the markers of all jobs.
#[derive(Debug)]
pub(super) struct Memory {
    jobs: BTreeMap<JobKey, Job>,
    /// Approximate size of all cache entries in bytes.
    pub(super) bytes: usize,
    most: usize,
    looks: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_most(MOST_BYTES)
    }
}

impl Memory {
    fn with_most(most: usize) -> Self {
        Self { jobs: BTreeMap::new(), bytes: 0, most, looks: 0 }
    }

    /// Begins a listing of a job: removes the markers that are gone or have changed.
    pub(super) fn begin(&mut self, key: &JobKey, listed: &BTreeMap<String, Version>) {
        self.looks = self.looks.saturating_add(1);
        let looks = self.looks;
        self.change(key, |job| {
            job.looked = looks;
            job.markers.retain(|id, known| listed.get(id) == Some(&known.version));
        });
    }

    /// The cached content of a marker file; `None` if the cache does not have this version of the file.
    pub(super) fn known(&self, key: &JobKey, id: &str, version: Version) -> Option<Option<MarkerContent>> {
        let known = self.jobs.get(key)?.markers.get(id)?;
        (known.version == version).then(|| known.content.clone())
    }

    /// Adds the content of a marker to the cache.
    pub(super) fn put(&mut self, key: &JobKey, id: &str, version: Version, content: Option<MarkerContent>) {
        let (known, looks) = (Known { version, content }, self.looks);
        let job = self.jobs.entry(key.clone()).or_insert_with(|| Job { looked: looks, ..Job::default() });
        let new = known.cost(id);
        let old = job.markers.insert(id.to_owned(), known).map_or(0, |old| old.cost(id));
        job.bytes = job.bytes.saturating_add(new).saturating_sub(old);
        self.bytes = self.bytes.saturating_add(new).saturating_sub(old);
        self.make_room();
    }

    /// Removes the metadata of a job's checkpoints, except the checkpoints that a status shows.
    pub(super) fn show_only(&mut self, key: &JobKey, shown: &BTreeSet<&str>) {
        self.change(key, |job| {
            for (id, known) in &mut job.markers {
                if !shown.contains(id.as_str()) {
                    known.content = known.content.as_ref().map(MarkerContent::brief);
                }
            }
        });
    }

    /// Changes the cached markers of a job, and recomputes their size.
    fn change(&mut self, key: &JobKey, act: impl FnOnce(&mut Job)) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        act(job);
        let cost: usize = job.markers.iter().map(|(id, known)| known.cost(id)).sum();
        self.bytes = self.bytes.saturating_sub(job.bytes).saturating_add(cost);
        job.bytes = cost;
        if job.markers.is_empty() {
            self.jobs.remove(key);
        }
    }

    /// Removes the jobs that were not listed for longest, until the cache is within its limit.
    fn make_room(&mut self) {
        while self.bytes > self.most {
            let oldest = self.jobs.iter().min_by_key(|(_, job)| job.looked).map(|(key, _)| key.clone());
            let Some(job) = oldest.and_then(|key| self.jobs.remove(&key)) else { return };
            self.bytes = self.bytes.saturating_sub(job.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn version(bytes: u64) -> Version {
        Version { modified: Timestamp::UNIX_EPOCH, bytes }
    }

    fn content_of(step: i64, text: usize) -> MarkerContent {
        let metadata = BTreeMap::from([("note".to_owned(), "x".repeat(text))]);
        MarkerContent { step, epoch: None, metadata: Some(metadata) }
    }

    fn job(name: &str) -> JobKey {
        ("main".to_owned(), "team".to_owned(), name.to_owned())
    }

    /// The size of all cache entries, computed from the entries.
    fn counted(memory: &Memory) -> usize {
        memory.jobs.values().flat_map(|job| &job.markers).map(|(id, known)| known.cost(id)).sum()
    }

    #[test]
    fn checkpoint_memory_beyond_its_size_forgets_least_recently_listed_job() {
        let mut memory = Memory::with_most(4_000);
        for name in ["a", "b", "c"] {
            memory.begin(&job(name), &BTreeMap::new());
            memory.put(&job(name), "step-1", version(1), Some(content_of(1, 1_000)));
            assert_eq!(memory.bytes, counted(&memory));
        }
        memory.begin(&job("a"), &BTreeMap::from([("step-1".to_owned(), version(1))]));
        memory.put(&job("c"), "step-2", version(1), Some(content_of(2, 1_000)));
        assert!(memory.known(&job("b"), "step-1", version(1)).is_none(), "longest ago");
        for (name, step) in [("a", "step-1"), ("c", "step-1"), ("c", "step-2")] {
            assert!(memory.known(&job(name), step, version(1)).is_some(), "{name} {step}");
        }
        assert_eq!((memory.bytes, memory.bytes <= 4_000), (counted(&memory), true));
        memory.put(&job("d"), "step-1", version(1), Some(content_of(1, 5_000)));
        assert_eq!((memory.bytes, memory.jobs.len()), (0, 0), "even one alone is not too large");
    }

    #[test]
    fn checkpoint_memory_forgets_gone_or_changed_entries_and_unshown_metadata() {
        let mut memory = Memory::default();
        for (id, bytes) in [("gone", 1), ("changed", 2), ("same", 3), ("shown", 4)] {
            memory.put(&job("a"), id, version(bytes), Some(content_of(7, 1_000)));
        }
        memory.put(&job("a"), "same", version(3), Some(content_of(7, 1_000)));
        assert_eq!(memory.bytes, counted(&memory), "replaced, not added");
        let listed = [("changed", 9), ("same", 3), ("shown", 4)];
        memory.begin(&job("a"), &listed.map(|(id, bytes)| (id.to_owned(), version(bytes))).into());
        assert_eq!(memory.known(&job("a"), "gone", version(1)), None);
        assert_eq!(memory.known(&job("a"), "changed", version(9)), None);
        memory.show_only(&job("a"), &BTreeSet::from(["shown"]));
        assert_eq!(memory.known(&job("a"), "shown", version(4)), Some(Some(content_of(7, 1_000))));
        let brief = MarkerContent { metadata: None, ..content_of(7, 0) };
        assert_eq!(memory.known(&job("a"), "same", version(3)), Some(Some(brief)));
        assert_eq!(memory.bytes, counted(&memory));
        memory.begin(&job("a"), &BTreeMap::new());
        assert_eq!((memory.bytes, memory.jobs.len()), (0, 0));
    }
}
