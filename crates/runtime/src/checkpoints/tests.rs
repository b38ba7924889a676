//! Tests of checkpoint stores in memory and in a folder.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::listing::MOST_CHECKPOINTS;
use super::*;
use berth_api::berth::CheckpointStoreSpec;
use kube::client::Body;
use object_store::PutPayload;
use object_store::memory::InMemory;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

fn nobody() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, kube::Error>(http::Response::builder().status(404).body(Body::empty()).unwrap())
    });
    Client::new(service, "default")
}

pub(super) fn place(spec: Value, job: &str) -> CheckpointPlace {
    let spec: CheckpointStoreSpec = serde_json::from_value(spec).unwrap();
    CheckpointPlace { store: "main".into(), spec: Arc::new(spec), namespace: "team".into(), job: job.into() }
}

/// Checkpoint stores that already have an open connection to the given object store or folder.
async fn stores(place: &CheckpointPlace, backend: Backend) -> Stores {
    let stores = Stores::new(nobody(), None);
    let connection = Connection { place: place.clone(), backend, since: Instant::now() };
    stores.connections.lock().await.insert(place.store.clone(), connection);
    stores
}

async fn ids(stores: &Stores, place: &CheckpointPlace) -> Vec<(String, i64, u64)> {
    let mut found: Vec<_> =
        stores.list(place).await.unwrap().into_iter().map(|found| (found.id, found.step, found.bytes)).collect();
    found.sort();
    found
}

fn row(id: &str, step: i64, bytes: u64) -> (String, i64, u64) {
    (id.to_owned(), step, bytes)
}

#[tokio::test]
async fn checkpoint_list_and_delete_cover_only_complete_ones_of_job() {
    let memory = Arc::new(InMemory::new());
    let place = place(json!({"s3": {"bucket": "b"}, "prefix": "all/jobs"}), "gpt");
    let stores = stores(&place, Backend::Objects(memory.clone())).await;
    assert_eq!(ids(&stores, &place).await, [], "a job that has saved nothing has nothing");
    for (path, text) in [
        ("all/jobs/team/gpt/step-1/checkpoint.json", r#"{"step": 1}"#),
        ("all/jobs/team/gpt/step-1/shard/0", "12345"),
        ("all/jobs/team/gpt/step-2/checkpoint.json", r#"{"step": 2, "epoch": 1}"#),
        ("all/jobs/team/gpt/step-3/shard/0", "not complete"),
        ("all/jobs/team/gpt/step-4/checkpoint.json", "no marker"),
        ("all/jobs/team/gpt/step-5/shard/checkpoint.json", r#"{"step": 5}"#),
        ("all/jobs/team/gpt/checkpoint.json", r#"{"step": 6}"#),
        ("all/jobs/team/gpt-2/step-7/checkpoint.json", r#"{"step": 7}"#),
        ("all/jobs/other/gpt/step-8/checkpoint.json", r#"{"step": 8}"#),
        ("team/gpt/step-9/checkpoint.json", r#"{"step": 9}"#),
    ] {
        memory.put(&Path::from(path), PutPayload::from(text.as_bytes().to_vec())).await.unwrap();
    }
    assert_eq!(ids(&stores, &place).await, [row("step-1", 1, 16), row("step-2", 2, 23)]);
    let marker = Path::from("all/jobs/team/gpt/step-4/checkpoint.json");
    memory.put(&marker, PutPayload::from(br#"{"step": 4}"#.to_vec())).await.unwrap();
    assert_eq!(ids(&stores, &place).await.len(), 3, "what has changed is read again");
    stores.delete(&place, &["step-1".to_owned(), "step-9".to_owned()]).await.unwrap();
    assert_eq!(ids(&stores, &place).await, [row("step-2", 2, 23), row("step-4", 4, 11)]);
    let left: Vec<_> = memory.list(None).try_collect().await.unwrap();
    assert_eq!(left.len(), 8, "{left:?}");
    for bad in ["..", "a/b", ""] {
        assert!(stores.delete(&place, &[bad.to_owned()]).await.is_err(), "{bad:?}");
    }
}

/// A temporary folder, which is deleted on drop.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("berth-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn checkpoint_folder_is_read_without_following_links_out_of_it() {
    let folder = Folder::new("checkpoints");
    folder.put("jobs/team/gpt/a/checkpoint.json", r#"{"step": 1}"#);
    folder.put("jobs/team/gpt/a/deep/er/shard", "12345");
    folder.put("jobs/other/gpt/b/checkpoint.json", r#"{"step": 2}"#);
    folder.put("jobs/other/gpt/b/shard", "theirs");
    std::os::unix::fs::symlink("../../other/gpt/b", folder.0.join("jobs/team/gpt/b")).unwrap();
    std::os::unix::fs::symlink(folder.0.join("jobs/other/gpt"), folder.0.join("jobs/team/stolen")).unwrap();
    std::os::unix::fs::symlink("../../../other/gpt/b/shard", folder.0.join("jobs/team/gpt/a/link")).unwrap();
    let spec = json!({"fileSystem": {"path": folder.0.to_str().unwrap()}, "prefix": "jobs"});
    let stores = Stores::new(nobody(), None);
    let gpt = place(spec.clone(), "gpt");
    assert_eq!(ids(&stores, &gpt).await, [row("a", 1, 16)]);
    assert!(stores.list(&place(spec.clone(), "stolen")).await.is_err(), "its folder is somebody else's");
    assert_eq!(ids(&stores, &place(spec.clone(), "new")).await, []);
    let _ = stores.delete(&gpt, &["b".to_owned()]).await;
    stores.delete(&gpt, &["a".to_owned()]).await.unwrap();
    assert_eq!(ids(&stores, &gpt).await, []);
    assert!(
        folder.0.join("jobs/other/gpt/b/checkpoint.json").exists() && folder.0.join("jobs/other/gpt/b/shard").exists()
    );
    let gone = place(json!({"fileSystem": {"path": "/no/such/folder"}}), "gpt");
    let error = stores.list(&CheckpointPlace { store: "gone".into(), ..gone }).await.unwrap_err().to_string();
    assert!(error.contains("CheckpointStore gone") && error.contains("/no/such/folder"), "{error}");
}

#[tokio::test]
async fn checkpoint_folder_beyond_entry_or_depth_limit_is_refused() {
    let folder = Folder::new("large");
    let gpt = place(json!({"fileSystem": {"path": folder.0.to_str().unwrap()}}), "gpt");
    let files = Files { root: folder.0.clone(), turn: Arc::default() };
    folder.put("team/gpt/a/checkpoint.json", r#"{"step": 1}"#);
    assert_eq!(files.list(&gpt, 2).await.unwrap().files, 1, "a folder and a file");
    // Folders and links count towards the limit of files in a job's checkpoint folder, because a walk needs time for folders and links, too.
    fs::create_dir(folder.0.join("team/gpt/empty")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.0.join("team/gpt/link")).unwrap();
    assert_eq!(files.list(&gpt, 4).await.unwrap().files, 1);
    for most in [1, 2, 3] {
        let error = files.list(&gpt, most).await.unwrap_err().to_string();
        let words = format!("gpt has more than {most} files, folders and links; no more are looked at");
        assert!(error.ends_with(&words), "{error}");
    }
    let deep = vec!["d"; 16].join("/");
    folder.put(&format!("team/gpt/{deep}/shard"), "1");
    assert_eq!(files.list(&gpt, 100).await.unwrap().files, 2);
    folder.put(&format!("team/gpt/{deep}/d/shard"), "1");
    let error = files.list(&gpt, 100).await.unwrap_err().to_string();
    let words = format!("gpt/{deep}/d is more than 16 folders deep; no deeper ones are looked at");
    assert!(error.ends_with(&words), "{error}");
}

#[tokio::test]
async fn store_error_for_bad_credentials_or_ca_names_the_field() {
    let stores = Stores::new(nobody(), None);
    let spec = json!({"s3": {"bucket": "b"}, "credentialsSecret": "keys"});
    let error = stores.list(&place(spec, "gpt")).await.unwrap_err().to_string();
    assert!(error.contains("spec.credentialsSecret"), "{error}");
    let spec =
        json!({"gcs": {"bucket": "b"}, "caBundle": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"});
    let error = stores.list(&place(spec, "gpt")).await.unwrap_err().to_string();
    assert!(error.contains("spec.caBundle"), "{error}");
}

/// Checkpoints of a job, the newest first, in control's order.
async fn newest(stores: &Stores, place: &CheckpointPlace) -> Vec<Checkpoint> {
    let mut found = stores.list(place).await.unwrap();
    found.sort_by(|a, b| (b.at, b.step, &b.id).cmp(&(a.at, a.step, &a.id)));
    found
}

#[tokio::test]
async fn job_checkpoints_are_bounded_and_only_shown_ones_keep_metadata() {
    let memory = Arc::new(InMemory::new());
    let place = place(json!({"s3": {"bucket": "b"}}), "gpt");
    let stores = stores(&place, Backend::Objects(memory.clone())).await;
    let metadata: BTreeMap<String, String> = (0..16).map(|key| (format!("{key:02}"), "x".repeat(256))).collect();
    let save = async |step: usize| {
        let text = json!({"step": step, "metadata": metadata}).to_string();
        let path = Path::from(format!("team/gpt/step-{step:04}/checkpoint.json"));
        memory.put(&path, PutPayload::from(text.into_bytes())).await.unwrap();
    };
    for step in 0..MOST_CHECKPOINTS {
        save(step).await;
    }
    let shown = |found: &[Checkpoint]| -> Vec<String> {
        let with_metadata = found.iter().filter(|found| found.metadata == metadata);
        assert_eq!(with_metadata.clone().count(), found.iter().filter(|found| !found.metadata.is_empty()).count());
        with_metadata.map(|found| found.id.clone()).collect()
    };
    let first = newest(&stores, &place).await;
    let ids = |found: &[Checkpoint]| found.iter().take(10).map(|found| found.id.clone()).collect::<Vec<_>>();
    assert_eq!((first.len(), shown(&first)), (MOST_CHECKPOINTS, ids(&first)));
    let bytes = stores.memory.lock().await.bytes;
    assert!(bytes < 600_000, "{bytes} bytes are remembered");
    assert_eq!(newest(&stores, &place).await, first, "from memory");
    stores.delete(&place, &[first[0].id.clone()]).await.unwrap();
    let second = newest(&stores, &place).await;
    assert_eq!((second.len(), shown(&second)), (MOST_CHECKPOINTS - 1, ids(&first[1..])), "the next one is shown now");
    save(5_000).await;
    save(5_001).await;
    let error = stores.list(&place).await.unwrap_err().to_string();
    for words in ["CheckpointStore main", "team/gpt has more than 2000 checkpoints", "deleted by hand"] {
        assert!(error.contains(words), "{error}");
    }
    // The earlier error has closed the connection to the checkpoint store.
    let again = self::stores(&place, Backend::Objects(memory.clone())).await;
    again.delete(&place, &[second[0].id.clone()]).await.unwrap();
    assert_eq!(newest(&again, &place).await.len(), MOST_CHECKPOINTS, "once there are fewer it is read again");
}

#[tokio::test]
async fn store_connections_to_the_same_folder_share_its_turn() {
    let folder = Folder::new("turns");
    let stores = Stores::new(nobody(), None);
    let path = folder.0.to_str().unwrap();
    let (first, second) = (stores.folder(path).await, stores.folder(path).await);
    assert!(Arc::ptr_eq(&first.turn, &second.turn));
    assert!(!Arc::ptr_eq(&first.turn, &stores.folder("/elsewhere").await.turn));
}
