//! Checkpoint stores: listing and deleting of checkpoints on control's request.
//!
//! A checkpoint is a folder below the folder of its job. A checkpoint is complete when the folder has the marker file `checkpoint.json`, which has the training
//! step and which the job writes last. A deletion removes the marker first, so that a partly deleted checkpoint is never complete.

mod connect;
mod error;
mod files;
mod listing;
mod marker;
mod memory;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_api::berth::MAX_SHOWN_CHECKPOINTS;
use berth_control::write::{Checkpoint, CheckpointPlace, Rank, rank};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::client::Client;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use error::{FolderError, SpecError, StoreError};
use files::Files;
use listing::{Listing, Version};
use marker::{MARKER, MOST_MARKER_BYTES, Marker};
use memory::{JobKey, MarkerContent, Memory};
use turn::Turn;

/// Largest number of a job's files that are listed.
const MOST_FILES: usize = 100_000;
/// Number of marker files that are read concurrently.
const AT_ONCE: usize = 8;
/// Lifetime of a connection to a store, whose credentials may be replaced meanwhile.
const CONNECTION_AGE: Duration = Duration::from_secs(600);

/// Time limit for deleting the files of a checkpoint after its marker.
const REST_DEADLINE: Duration = Duration::from_secs(120);

/// Access to a checkpoint store: the client of an object store, or a mounted folder.
#[derive(Clone)]
enum Backend {
    Objects(Arc<dyn ObjectStore>),
    Files(Files),
}

struct Connection {
    place: CheckpointPlace,
    backend: Backend,
    since: Instant,
}

/// The checkpoint stores with open connections.
pub struct Stores {
    client: Client,
    namespace: Option<String>,
    connections: Mutex<BTreeMap<String, Connection>>,
    /// Order of the calls in mounted folders, by path. The order of the calls is kept when a connection is closed, because a call that hangs may outlive its
    /// connection.
    turns: Mutex<BTreeMap<PathBuf, Arc<Turn>>>,
    memory: Mutex<Memory>,
}

impl Stores {
    /// Checkpoint stores whose credentials are in Secrets of this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace, connections: Mutex::default(), turns: Mutex::default(), memory: Mutex::default() }
    }

    /// The complete checkpoints of a job, in no order.
    ///
    /// # Errors
    /// The store, the folder or a marker cannot be read; the message has the name of the store.
    pub async fn list(&self, place: &CheckpointPlace) -> Result<Vec<Checkpoint>, StoreError> {
        let backend = self.connect(place).await?;
        let found = self.find(place, &backend).await;
        self.drop_broken(place, found).await
    }

    /// Deletes checkpoints of a job by id.
    ///
    /// # Errors
    /// A checkpoint cannot be deleted; the message has the name of the store.
    pub async fn delete(&self, place: &CheckpointPlace, ids: &[String]) -> Result<(), StoreError> {
        let backend = self.connect(place).await?;
        let deleted = delete(place, &backend, ids).await;
        self.drop_broken(place, deleted).await
    }

    /// Closes the connection to a checkpoint store after an error, so that the next call opens a new connection.
    async fn drop_broken<T>(&self, place: &CheckpointPlace, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_err() {
            self.connections.lock().await.remove(&place.store);
        }
        result.map_err(|error| error.of(&place.store))
    }

    async fn connect(&self, place: &CheckpointPlace) -> Result<Backend, StoreError> {
        let mut connections = self.connections.lock().await;
        if let Some(known) = connections.get(&place.store)
            && known.place.spec == place.spec
            && known.since.elapsed() < CONNECTION_AGE
        {
            return Ok(known.backend.clone());
        }
        let backend = match &place.spec.file_system {
            Some(folder) => Ok(Backend::Files(self.folder(&folder.path).await)),
            None => connect::open(&self.client, self.namespace.as_deref(), &place.spec).await.map(Backend::Objects),
        };
        let backend = backend.map_err(|error| error.of(&place.store))?;
        let connection = Connection { place: place.clone(), backend: backend.clone(), since: Instant::now() };
        connections.insert(place.store.clone(), connection);
        Ok(backend)
    }

    async fn folder(&self, path: &str) -> Files {
        let root = PathBuf::from(path);
        let turn = Arc::clone(self.turns.lock().await.entry(root.clone()).or_default());
        Files { root, turn }
    }

    async fn find(&self, place: &CheckpointPlace, backend: &Backend) -> Result<Vec<Checkpoint>, StoreError> {
        let listing = backend.list(place).await?;
        let job = (place.store.clone(), place.namespace.clone(), place.job.clone());
        self.memory.lock().await.begin(&job, &listing.markers);
        let mut reading = Vec::new();
        for (id, version) in &listing.markers {
            reading.push(self.marked(place, backend, &job, id, *version).boxed());
        }
        let mut read = stream::iter(reading).buffer_unordered(AT_ONCE);
        let mut found = BTreeMap::new();
        // The status of a TrainingJob shows only the latest checkpoints, so only the metadata of the latest checkpoints is cached.
        let mut shown = BTreeMap::<Rank<'_>, MarkerContent>::new();
        while let Some((id, at, content)) = read.try_next().await? {
            let Some(content) = content else { continue };
            let checkpoint = Checkpoint {
                id: id.to_owned(),
                at,
                step: content.step,
                epoch: content.epoch,
                bytes: listing.size(id),
                metadata: BTreeMap::new(),
            };
            found.insert(id, checkpoint);
            shown.insert(rank(at, content.step, id), content);
            if shown.len() > MAX_SHOWN_CHECKPOINTS {
                shown.pop_first();
            }
        }
        let ids: BTreeSet<&str> = shown.keys().map(|(_, _, id)| *id).collect();
        self.memory.lock().await.show_only(&job, &ids);
        for ((_, _, id), content) in shown {
            let Some((checkpoint, version)) = found.get_mut(id).zip(listing.markers.get(id)) else { continue };
            let metadata = match content.metadata {
                Some(metadata) => metadata,
                // The status of the TrainingJob did not show the checkpoint until a newer checkpoint was deleted, so the checkpoint's metadata is read now.
                None => marker_of(place, backend, id, *version)
                    .await?
                    .and_then(|content| content.metadata)
                    .unwrap_or_default(),
            };
            checkpoint.metadata.clone_from(&metadata);
            let content = MarkerContent { step: content.step, epoch: content.epoch, metadata: Some(metadata) };
            self.memory.lock().await.put(&job, id, *version, Some(content));
        }
        Ok(found.into_values().collect())
    }

    /// Id, time and marker of a checkpoint; the marker is `None` if the marker file cannot be read. An unchanged marker file is not read again.
    async fn marked<'a>(
        &self,
        place: &CheckpointPlace,
        backend: &Backend,
        job: &JobKey,
        id: &'a str,
        version: Version,
    ) -> Result<(&'a str, Timestamp, Option<MarkerContent>), StoreError> {
        let known = self.memory.lock().await.known(job, id, version);
        if let Some(content) = known {
            return Ok((id, version.modified, content));
        }
        let content = marker_of(place, backend, id, version).await?;
        // The marker of a checkpoint is cached at once, so that the next listing does not read the marker again, even if this listing is cancelled.
        self.memory.lock().await.put(job, id, version, content.as_ref().map(MarkerContent::brief));
        Ok((id, version.modified, content))
    }
}

/// Reads the marker file of a checkpoint.
async fn marker_of(
    place: &CheckpointPlace,
    backend: &Backend,
    id: &str,
    version: Version,
) -> Result<Option<MarkerContent>, StoreError> {
    let (namespace, job, bytes) = (&place.namespace, &place.job, version.bytes);
    if bytes > MOST_MARKER_BYTES {
        tracing::warn!(namespace, job, id, bytes, "a checkpoint's marker is too large");
        return Ok(None);
    }
    let text = backend.read(place, &format!("{id}/{MARKER}")).await?;
    let read = Marker::read(&text);
    let read = read.inspect_err(|error| tracing::warn!(namespace, job, id, %error, "a checkpoint's marker"));
    Ok(read.ok().map(MarkerContent::from))
}

/// The folder of a job in a bucket.
fn folder(place: &CheckpointPlace) -> Result<Path, SpecError> {
    let prefix = place.spec.prefix.as_deref().unwrap_or_default();
    let root = Path::parse(prefix).map_err(|error| SpecError::Field {
        field: "spec.prefix".to_owned(),
        value: prefix.to_owned(),
        fault: error.to_string(),
    })?;
    Ok(root.join(place.namespace.as_str()).join(place.job.as_str()))
}

fn relative(folder: &Path, path: &Path) -> Option<String> {
    let parts: Vec<String> = path.prefix_match(folder)?.map(|part| part.as_ref().to_owned()).collect();
    Some(parts.join("/"))
}

fn from_millis(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Backend {
    /// Lists the files of a job.
    async fn list(&self, place: &CheckpointPlace) -> Result<Listing, StoreError> {
        let store = match self {
            Self::Files(files) => return files.list(place, MOST_FILES).await,
            Self::Objects(store) => store,
        };
        let folder = folder(place)?;
        let mut objects = store.list(Some(&folder)).take(MOST_FILES + 1);
        let mut found = Listing::new(place);
        while let Some(object) = objects.try_next().await? {
            let Some(path) = relative(&folder, &object.location) else { continue };
            let modified = from_millis(object.last_modified.timestamp_millis());
            found.add(&path, Version { modified, bytes: object.size })?;
        }
        if found.files > MOST_FILES {
            return Err(StoreError::TooManyFiles { folder: folder.to_string(), most: MOST_FILES });
        }
        Ok(found)
    }

    async fn read(&self, place: &CheckpointPlace, path: &str) -> Result<Vec<u8>, StoreError> {
        let store = match self {
            Self::Files(files) => return files.read(place, path).await,
            Self::Objects(store) => store,
        };
        let place = Path::parse(format!("{}/{path}", folder(place)?))?;
        let text = store.get(&place).await?.bytes().await?;
        Ok(text.to_vec())
    }
}

async fn delete(place: &CheckpointPlace, backend: &Backend, ids: &[String]) -> Result<(), StoreError> {
    if let Some(bad) = ids.iter().find(|id| !marker::is_id(id)) {
        return Err(StoreError::NoId(bad.clone()));
    }
    let store = match backend {
        Backend::Files(files) => return files.delete(place, ids).await,
        Backend::Objects(store) => store,
    };
    let folder = folder(place)?;
    for id in ids {
        let path = folder.clone().join(id.as_str());
        match store.delete(&path.clone().join(MARKER)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // A checkpoint without its marker file is never listed again, so a separate task deletes the other files of the checkpoint, even if the caller gives
        // up.
        let rest = tokio::spawn(tokio::time::timeout(REST_DEADLINE, clear(Arc::clone(store), path)));
        rest.await?.map_err(|_| StoreError::Late(id.clone()))??;
    }
    Ok(())
}

/// Deletes all objects in a folder of a bucket.
async fn clear(store: Arc<dyn ObjectStore>, folder: Path) -> Result<(), StoreError> {
    let rest = store.list(Some(&folder)).map_ok(|object| object.location).boxed();
    let deleted: Result<Vec<Path>, _> = store.delete_stream(rest).try_collect().await;
    match deleted {
        Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
