//! Checkpoints in a folder that is mounted into Berth's pod. Tenants write to the folder, too, so every step goes from an open folder to the next folder, and
//! no link leads out of the folder of a namespace.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use berth_control::write::CheckpointPlace;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use jiff::Timestamp;

use super::error::{FolderError, StoreError};
use super::listing::{Listing, Version};
use super::marker::{MARKER, MOST_MARKER_BYTES};
use super::turn::{Call, Turn};

/// Largest depth to which Berth reads nested folders below the folder of a job.
const MOST_DEPTH: usize = 16;
/// The flag `O_NONBLOCK` of Linux, so that a tenant's pipe does not make the reading thread wait for a writer.
const NONBLOCK: i32 = 0o4000;

/// A mounted folder with checkpoints.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) root: PathBuf,
    /// Order of the blocking calls in the mounted folder, shared by all connections to this folder.
    pub(super) turn: Arc<Turn>,
}

impl Files {
    /// The files in a job's checkpoint folder; an empty listing if the job has no folder yet. A folder with more than `most` entries, or with too deeply nested
    /// folders, is an error, so that a tenant's folder cannot keep Berth busy for ever.
    pub(super) async fn list(&self, place: &CheckpointPlace, most: usize) -> Result<Listing, StoreError> {
        let (name, found) = (format!("{}/{}", place.namespace, place.job), Listing::new(place));
        self.with(place, move |job, call| {
            let mut walk = Walk { name, most, entries: 0, found, call };
            walk.enter(&job, "", 0)?;
            Ok(walk.found)
        })
        .await
    }

    /// The content of a file in a job's checkpoint folder.
    pub(super) async fn read(&self, place: &CheckpointPlace, path: &str) -> Result<Vec<u8>, StoreError> {
        let path = path.to_owned();
        self.with(place, move |job, _| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(NONBLOCK);
            let file = job.open_with(&path, &options)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other(format!("{path} is no file")));
            }
            let mut text = Vec::new();
            file.take(MOST_MARKER_BYTES).read_to_end(&mut text)?;
            Ok(text)
        })
        .await
    }

    /// Deletes the folders of a job's checkpoints, the marker file of each checkpoint first, until the caller gives up.
    pub(super) async fn delete(&self, place: &CheckpointPlace, ids: &[String]) -> Result<(), StoreError> {
        let ids = ids.to_vec();
        self.with(place, move |job, call| {
            for id in &ids {
                call.step()?;
                unless_gone(job.remove_file(format!("{id}/{MARKER}")))?;
                match job.symlink_metadata(id) {
                    Ok(data) if data.is_dir() => {
                        unless_gone(job.open_dir(id).and_then(|folder| clear(&folder, 1, call)))?;
                        unless_gone(job.remove_dir(id))?;
                    }
                    Ok(_) => unless_gone(job.remove_file(id))?,
                    Err(error) => unless_gone(Err(error))?,
                }
            }
            Ok(())
        })
        .await
    }

    /// Runs an operation in a job's checkpoint folder, if the folder exists, on a blocking thread, after earlier calls in the mounted folder.
    async fn with<T: Default + Send + 'static>(
        &self,
        place: &CheckpointPlace,
        act: impl FnOnce(Dir, &Call) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let named = |fault: FolderError| StoreError::Folder { root: self.root.clone(), fault };
        let (call, wanted) = self.turn.take().await.map_err(named)?;
        let (root, place) = (self.root.clone(), place.clone());
        let act = move || {
            call.step()?;
            match open(&root, &place) {
                Ok(job) => act(job, &call),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
                Err(error) => Err(error),
            }
        };
        let done = tokio::task::spawn_blocking(act).await?;
        drop(wanted);
        done.map_err(|error| named(error.into()))
    }
}

/// Opens a job's checkpoint folder. The error about a missing root of the store is not `NotFound`, which means that a folder below the root is missing.
fn open(root: &std::path::Path, place: &CheckpointPlace) -> io::Result<Dir> {
    let mut folder = Dir::open_ambient_dir(root, ambient_authority())
        .map_err(|error| io::Error::other(format!("cannot be opened: {error}")))?;
    for part in place.spec.prefix.iter().flat_map(|prefix| prefix.split('/')) {
        folder = folder.open_dir(part)?;
    }
    folder.open_dir(&place.namespace)?.open_dir(&place.job)
}

/// A walk through a job's checkpoint folder.
struct Walk<'a> {
    /// Name of the job's checkpoint folder, for messages.
    name: String,
    most: usize,
    /// Number of files, folders and links that the walk has found so far.
    entries: usize,
    found: Listing,
    call: &'a Call,
}

impl Walk<'_> {
    fn enter(&mut self, folder: &Dir, at: &str, depth: usize) -> io::Result<()> {
        for entry in folder.entries()? {
            self.call.step()?;
            let entry = entry?;
            self.entries = self.entries.saturating_add(1);
            if self.entries > self.most {
                let (name, most) = (&self.name, self.most);
                let text = format!("{name} has more than {most} files, folders and links; no more are looked at");
                return Err(io::Error::other(text));
            }
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let Some(name) = name.to_str() else { continue };
            let path = if at.is_empty() { name.to_owned() } else { format!("{at}/{name}") };
            if kind.is_dir() {
                if depth >= MOST_DEPTH {
                    let text = format!("is more than {MOST_DEPTH} folders deep; no deeper ones are looked at");
                    return Err(io::Error::other(format!("{}/{path} {text}", self.name)));
                }
                match entry.open_dir() {
                    Ok(inner) => self.enter(&inner, &path, depth + 1)?,
                    Err(error) => unless_gone(Err(error))?,
                }
            } else if kind.is_file() {
                // A file of the job may have been deleted since its folder was read.
                let Ok(data) = entry.metadata() else { continue };
                let modified = data.modified().ok().map(cap_std::time::SystemTime::into_std);
                let modified = modified.and_then(|time| Timestamp::try_from(time).ok());
                let modified = modified.unwrap_or(Timestamp::UNIX_EPOCH);
                self.found.add(&path, Version { modified, bytes: data.len() }).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

/// Empties a folder step by step, because a call that deletes a complete tree could not be cancelled at its time limit.
fn clear(folder: &Dir, depth: usize, call: &Call) -> io::Result<()> {
    for entry in folder.entries()? {
        call.step()?;
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            unless_gone(entry.remove_file())?;
            continue;
        }
        if depth >= MOST_DEPTH {
            return Err(io::Error::other(format!(
                "is more than {MOST_DEPTH} folders deep; no deeper ones are deleted"
            )));
        }
        unless_gone(entry.open_dir().and_then(|inner| clear(&inner, depth + 1, call)))?;
        unless_gone(entry.remove_dir())?;
    }
    Ok(())
}

fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
