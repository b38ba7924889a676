//! Checkpoint stores: what is listed and deleted in them when control asks for it.
//!
//! A checkpoint is a folder below the job's own; it is complete once it has a file `checkpoint.json`, which the job writes last
//! and which says the step. What is deleted loses that file first, so that no half of a checkpoint ever counts as one.

mod connect;
mod files;
mod marker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_control::write::{Checkpoint, CheckpointPlace};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::client::Client;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::Mutex;
use tokio::time::Instant;

use files::Files;
use marker::{MARKER, MOST_MARKER_BYTES, Marker};

/// So many files of one job are looked at.
const MOST_FILES: usize = 100_000;
/// So many markers are read at once.
const AT_ONCE: usize = 8;
/// So many markers are remembered.
const MOST_REMEMBERED: usize = 20_000;
/// A connection is made anew after so long: its credentials may have been replaced.
const CONNECTION_AGE: Duration = Duration::from_secs(600);

/// A file below a job's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    /// Path below that folder.
    path: String,
    bytes: u64,
    modified: Timestamp,
}

/// Where files are.
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

/// A marker as it was when it was read.
type Remembered = BTreeMap<(String, String), (Timestamp, u64, Option<Marker>)>;

/// The stores that were used so far.
pub struct Stores {
    client: Client,
    namespace: Option<String>,
    connections: Mutex<BTreeMap<String, Connection>>,
    markers: Mutex<Remembered>,
}

impl Stores {
    /// Stores whose credentials are in Secrets of that namespace.
    #[must_use]
    pub fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace, connections: Mutex::default(), markers: Mutex::default() }
    }

    /// The complete checkpoints of a job, in no order.
    ///
    /// # Errors
    /// Says what could not be read.
    pub async fn list(&self, place: &CheckpointPlace) -> Result<Vec<Checkpoint>, String> {
        let backend = self.connect(place).await?;
        let found = self.find(place, &backend).await;
        self.drop_broken(place, found).await
    }

    /// Deletes checkpoints of a job by id.
    ///
    /// # Errors
    /// Says what could not be deleted.
    pub async fn delete(&self, place: &CheckpointPlace, ids: &[String]) -> Result<(), String> {
        let backend = self.connect(place).await?;
        let deleted = delete(place, &backend, ids).await;
        self.drop_broken(place, deleted).await
    }

    /// After an error the next try begins with a new connection.
    async fn drop_broken<T>(&self, place: &CheckpointPlace, result: Result<T, String>) -> Result<T, String> {
        if result.is_err() {
            self.connections.lock().await.remove(&place.store);
        }
        result.map_err(|error| format!("CheckpointStore {}: {error}", place.store))
    }

    async fn connect(&self, place: &CheckpointPlace) -> Result<Backend, String> {
        let mut connections = self.connections.lock().await;
        if let Some(known) = connections.get(&place.store)
            && known.place.spec == place.spec
            && known.since.elapsed() < CONNECTION_AGE
        {
            return Ok(known.backend.clone());
        }
        let backend = connect::open(&self.client, self.namespace.as_deref(), &place.spec).await;
        let backend = backend.map_err(|error| format!("CheckpointStore {}: {error}", place.store))?;
        let connection = Connection { place: place.clone(), backend: backend.clone(), since: Instant::now() };
        connections.insert(place.store.clone(), connection);
        Ok(backend)
    }

    async fn find(&self, place: &CheckpointPlace, backend: &Backend) -> Result<Vec<Checkpoint>, String> {
        let files = backend.list(place).await?;
        let mut sizes = BTreeMap::<&str, u64>::new();
        for file in &files {
            if let Some((id, _)) = file.path.split_once('/') {
                *sizes.entry(id).or_default() += file.bytes;
            }
        }
        let markers = files.iter().filter_map(|file| {
            let id = file.path.strip_suffix(MARKER)?.strip_suffix('/')?;
            marker::is_id(id).then_some((id, file))
        });
        let mut reading = Vec::new();
        for (id, file) in markers {
            reading.push(self.marked(place, backend, id, file).boxed());
        }
        let read: Vec<_> = stream::iter(reading).buffer_unordered(AT_ONCE).try_collect().await?;
        let checkpoint = |(id, at, marker): (&str, Timestamp, Marker)| Checkpoint {
            id: id.to_owned(),
            at,
            step: marker.step,
            epoch: marker.epoch,
            bytes: sizes.get(id).copied().unwrap_or_default(),
            metadata: marker.metadata,
        };
        Ok(read.into_iter().flatten().map(checkpoint).collect())
    }

    /// Id, time and marker of a checkpoint.
    async fn marked<'a>(
        &self,
        place: &CheckpointPlace,
        backend: &Backend,
        id: &'a str,
        file: &File,
    ) -> Result<Option<(&'a str, Timestamp, Marker)>, String> {
        let marker = self.marker(place, backend, file).await?;
        Ok(marker.map(|marker| (id, file.modified, marker)))
    }

    /// What a marker says, `None` when it cannot be understood. One that has not changed is not read again.
    async fn marker(&self, place: &CheckpointPlace, backend: &Backend, file: &File) -> Result<Option<Marker>, String> {
        let key = (place.store.clone(), format!("{}/{}/{}", place.namespace, place.job, file.path));
        if let Some((modified, bytes, marker)) = self.markers.lock().await.get(&key)
            && (*modified, *bytes) == (file.modified, file.bytes)
        {
            return Ok(marker.clone());
        }
        let marker = if file.bytes > MOST_MARKER_BYTES {
            tracing::warn!(path = key.1, bytes = file.bytes, "a checkpoint's marker is too large");
            None
        } else {
            let text = backend.read(place, &file.path).await?;
            let read = Marker::read(&text);
            read.inspect_err(|error| tracing::warn!(path = key.1, error, "a checkpoint's marker")).ok()
        };
        let mut markers = self.markers.lock().await;
        if markers.len() >= MOST_REMEMBERED {
            markers.clear();
        }
        markers.insert(key, (file.modified, file.bytes, marker.clone()));
        Ok(marker)
    }
}

/// The folder of a job in a bucket.
fn folder(place: &CheckpointPlace) -> Result<Path, String> {
    let prefix = place.spec.prefix.as_deref().unwrap_or_default();
    let root = Path::parse(prefix).map_err(|error| format!("spec.prefix {prefix:?}: {error}"))?;
    Ok(root.join(place.namespace.as_str()).join(place.job.as_str()))
}

fn relative(folder: &Path, path: &Path) -> Option<String> {
    let parts: Vec<String> = path.prefix_match(folder)?.map(|part| part.as_ref().to_owned()).collect();
    Some(parts.join("/"))
}

fn time(text: i64) -> Timestamp {
    Timestamp::from_millisecond(text).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Backend {
    /// All files of a job.
    async fn list(&self, place: &CheckpointPlace) -> Result<Vec<File>, String> {
        let store = match self {
            Self::Files(files) => return files.list(place, MOST_FILES).await,
            Self::Objects(store) => store,
        };
        let folder = folder(place)?;
        let mut objects = store.list(Some(&folder)).take(MOST_FILES + 1);
        let mut found = Vec::new();
        while let Some(object) = objects.try_next().await.map_err(|error| error.to_string())? {
            let Some(path) = relative(&folder, &object.location) else { continue };
            found.push(File { path, bytes: object.size, modified: time(object.last_modified.timestamp_millis()) });
        }
        if found.len() > MOST_FILES {
            return Err(format!("{folder} has more than {MOST_FILES} files"));
        }
        Ok(found)
    }

    async fn read(&self, place: &CheckpointPlace, path: &str) -> Result<Vec<u8>, String> {
        let store = match self {
            Self::Files(files) => return files.read(place, path).await,
            Self::Objects(store) => store,
        };
        let place = Path::parse(format!("{}/{path}", folder(place)?)).map_err(|error| error.to_string())?;
        let text = async { store.get(&place).await?.bytes().await };
        text.await.map(|text| text.to_vec()).map_err(|error| error.to_string())
    }
}

async fn delete(place: &CheckpointPlace, backend: &Backend, ids: &[String]) -> Result<(), String> {
    if let Some(bad) = ids.iter().find(|id| !marker::is_id(id)) {
        return Err(format!("{bad:?} is no name of a checkpoint"));
    }
    let store = match backend {
        Backend::Files(files) => return files.delete(place, ids).await,
        Backend::Objects(store) => store,
    };
    let folder = folder(place)?;
    for id in ids {
        let whole = folder.clone().join(id.as_str());
        match store.delete(&whole.clone().join(MARKER)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        let rest = store.list(Some(&whole)).map_ok(|object| object.location).boxed();
        let deleted: Result<Vec<Path>, _> = store.delete_stream(rest).try_collect().await;
        match deleted {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
