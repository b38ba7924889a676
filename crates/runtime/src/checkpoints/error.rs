//! Failures of checkpoint stores. The texts of these failures are shown in the status of a TrainingJob.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;

/// Failure of a call to a checkpoint store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The failure of a call to a store, with the name of the CheckpointStore.
    #[error("CheckpointStore {store}: {error}")]
    Named {
        /// Name of the CheckpointStore.
        store: String,
        /// Failure of the store.
        error: Box<StoreError>,
    },
    /// The spec of the CheckpointStore or its Secret is at fault.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The object store has failed.
    #[error(transparent)]
    Objects(#[from] object_store::Error),
    /// The name of an object in the bucket is not allowed.
    #[error(transparent)]
    Path(#[from] object_store::path::Error),
    /// The TLS configuration of the connection to the store is not accepted.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The mounted folder has failed.
    #[error("{}: {fault}", .root.display())]
    Folder {
        /// Path of the mounted folder.
        root: PathBuf,
        /// Failure of the folder.
        fault: FolderError,
    },
    /// The folder of a job has too many files.
    #[error("{folder} has more than {most} files")]
    TooManyFiles {
        /// The folder of the job.
        folder: String,
        /// Largest number of files.
        most: usize,
    },
    /// The folder of a job has too many checkpoints.
    #[error(
        "{folder} has more than {most} checkpoints; none of them is looked at until its oldest folders are deleted by hand"
    )]
    TooManyCheckpoints {
        /// The folder of the job.
        folder: String,
        /// Largest number of a job's checkpoints that Berth lists.
        most: usize,
    },
    /// The given text is not the id of a checkpoint.
    #[error("{0:?} is no name of a checkpoint")]
    NoId(String),
    /// The files of the checkpoint with this id were not deleted in time.
    #[error("{0}: not deleted in time")]
    Late(String),
    /// The thread or task that made a call to the store has ended without a result.
    #[error(transparent)]
    Ended(#[from] tokio::task::JoinError),
}

impl StoreError {
    /// The failure of a call to a checkpoint store, with the name of the store.
    pub(super) fn of(self, store: &str) -> Self {
        Self::Named { store: store.to_owned(), error: Box::new(self) }
    }
}

/// Failure of a mounted folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// An earlier call in the mounted folder still runs, and has made no progress since this time.
    #[error("has not answered since {0}; a request to it is still under way")]
    Hanging(Timestamp),
    /// No further call is made in the mounted folder.
    #[error(transparent)]
    Closed(#[from] tokio::sync::AcquireError),
    /// The file system of the mounted folder has failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Fault of a CheckpointStore's spec, or of the Secret that it names. The text of the fault has no value of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A field of the CheckpointStore has a value that is not allowed.
    #[error("{field} {value:?}: {fault}")]
    Field {
        /// Path of the field.
        field: String,
        /// Value of the field.
        value: String,
        /// Fault of the value.
        fault: String,
    },
    /// The certificates of `spec.caBundle` cannot be read.
    #[error("spec.caBundle: {0}")]
    CaBundle(String),
    /// The namespace of the Secret with the store's credentials is not known.
    #[error("spec.credentialsSecret: the namespace of Berth is not known; see --namespace")]
    NoNamespace,
    /// The Secret with the store's credentials cannot be read.
    #[error("spec.credentialsSecret: Secret {namespace}/{secret}: {fault}")]
    Secret {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        secret: String,
        /// Answer of the API server.
        fault: String,
    },
    /// The Secret lacks a key.
    #[error("spec.credentialsSecret: Secret {secret:?} has no key {key}")]
    NoKey {
        /// Name of the Secret.
        secret: String,
        /// Name of the key.
        key: String,
    },
    /// The value of a key in the Secret with the store's credentials is not allowed.
    #[error("spec.credentialsSecret: key {key} of Secret {secret:?} {fault}")]
    Key {
        /// Name of the Secret.
        secret: String,
        /// Name of the key.
        key: String,
        /// Fault of the value.
        fault: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_error_text_names_store_and_fault() {
        let field =
            |field: &str| SpecError::Field { field: field.to_owned(), value: "a b".into(), fault: "is bad".into() };
        let hanging = FolderError::Hanging(Timestamp::UNIX_EPOCH);
        let all: [(StoreError, &str); 4] = [
            (field("spec.prefix").into(), "CheckpointStore s: spec.prefix \"a b\": is bad"),
            (
                SpecError::NoKey { secret: "k".into(), key: "a".into() }.into(),
                "CheckpointStore s: spec.credentialsSecret: Secret \"k\" has no key a",
            ),
            (
                StoreError::Folder { root: "/mnt".into(), fault: hanging },
                "CheckpointStore s: /mnt: has not answered since 1970-01-01T00:00:00Z; a request to it is still under way",
            ),
            (StoreError::NoId("..".into()), "CheckpointStore s: \"..\" is no name of a checkpoint"),
        ];
        for (error, text) in all {
            assert_eq!(error.of("s").to_string(), text);
        }
    }
}
