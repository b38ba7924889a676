//! Checkpoints in a folder that is mounted into Berth. Tenants write there, too: every step goes from an open folder to the next
//! one, and no link leads out of the folder of a namespace.

use std::io::{self, Read};
use std::path::PathBuf;

use berth_control::write::CheckpointPlace;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use jiff::Timestamp;

use super::File;
use super::marker::{MARKER, MOST_MARKER_BYTES};

/// So many folders below one another are looked at.
const MOST_DEPTH: usize = 16;

/// A folder.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) root: PathBuf,
}

impl Files {
    /// All files of a job; none when it has no folder yet. One with more than `most` entries, or with folders too far below one
    /// another, is an error: a tenant's folder must not keep us busy for ever.
    pub(super) async fn list(&self, place: &CheckpointPlace, most: usize) -> Result<Vec<File>, String> {
        let name = format!("{}/{}", place.namespace, place.job);
        self.with(place, move |job| {
            let mut walk = Walk { name, most, entries: 0, found: Vec::new() };
            walk.enter(&job, "", 0)?;
            Ok(walk.found)
        })
        .await
    }

    /// A file of a job.
    pub(super) async fn read(&self, place: &CheckpointPlace, path: &str) -> Result<Vec<u8>, String> {
        let path = path.to_owned();
        self.with(place, move |job| {
            let mut text = Vec::new();
            job.open(path)?.take(MOST_MARKER_BYTES).read_to_end(&mut text)?;
            Ok(text)
        })
        .await
    }

    /// Deletes folders of a job, the file that makes them checkpoints first.
    pub(super) async fn delete(&self, place: &CheckpointPlace, ids: &[String]) -> Result<(), String> {
        let ids = ids.to_vec();
        self.with(place, move |job| {
            for id in &ids {
                unless_gone(job.remove_file(format!("{id}/{MARKER}")))?;
                unless_gone(job.remove_dir_all(id))?;
            }
            Ok(())
        })
        .await
    }

    /// Does something in the folder of a job, where it has one, on a thread that may block.
    async fn with<T: Default + Send + 'static>(
        &self,
        place: &CheckpointPlace,
        act: impl FnOnce(Dir) -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let (root, place) = (self.root.clone(), place.clone());
        let act = move || match open(&root, &place) {
            Ok(job) => act(job),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error),
        };
        let done = tokio::task::spawn_blocking(act).await.map_err(|error| error.to_string())?;
        done.map_err(|error| format!("{}: {error}", self.root.display()))
    }
}

/// The folder of a job. That the root is missing is an error, whatever else is not there yet.
fn open(root: &std::path::Path, place: &CheckpointPlace) -> io::Result<Dir> {
    let mut folder = Dir::open_ambient_dir(root, ambient_authority())
        .map_err(|error| io::Error::other(format!("cannot be opened: {error}")))?;
    for part in place.spec.prefix.iter().flat_map(|prefix| prefix.split('/')) {
        folder = folder.open_dir(part)?;
    }
    folder.open_dir(&place.namespace)?.open_dir(&place.job)
}

/// A walk through the folder of a job.
struct Walk {
    /// What it is called in messages.
    name: String,
    most: usize,
    /// Files, folders and links so far.
    entries: usize,
    found: Vec<File>,
}

impl Walk {
    fn enter(&mut self, folder: &Dir, at: &str, depth: usize) -> io::Result<()> {
        for entry in folder.entries()? {
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
                // It may be gone by now.
                let Ok(data) = entry.metadata() else { continue };
                let modified = data.modified().ok().map(cap_std::time::SystemTime::into_std);
                let modified = modified.and_then(|time| Timestamp::try_from(time).ok());
                let modified = modified.unwrap_or(Timestamp::UNIX_EPOCH);
                self.found.push(File { path, bytes: data.len(), modified });
            }
        }
        Ok(())
    }
}

fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
