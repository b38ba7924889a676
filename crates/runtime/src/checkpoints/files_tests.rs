//! Tests of calls in a mounted folder that does not answer, and of callers that no longer wait for the result of a call.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::checkpoints::tests::{Folder, place};
use serde_json::json;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

fn files(folder: &Folder, silence: Duration) -> (Files, CheckpointPlace) {
    let files = Files { root: folder.0.clone(), turn: Arc::new(Turn::with_silence(silence)) };
    (files, place(json!({"fileSystem": {"path": folder.0.to_str().unwrap()}}), "gpt"))
}

#[tokio::test]
async fn hanging_folder_holds_one_thread_and_other_calls_fail_fast() {
    let folder = Folder::new("hung");
    folder.put("team/gpt/a/checkpoint.json", r#"{"step": 1}"#);
    let (files, gpt) = files(&folder, Duration::from_millis(50));
    let (release, hung) = mpsc::channel::<()>();
    let (begun, begins) = oneshot::channel();
    let (theirs, there) = (files.clone(), gpt.clone());
    let first = tokio::spawn(async move {
        theirs
            .with(&there, move |_, _| {
                let _ = begun.send(());
                let _ = hung.recv();
                Ok(())
            })
            .await
    });
    begins.await.unwrap();
    tokio::time::sleep(Duration::from_millis(80)).await;
    let before = Instant::now();
    let mut errors = Vec::new();
    for _ in 0..600 {
        errors.push(files.list(&gpt, 10).await.unwrap_err().to_string());
    }
    assert!(before.elapsed() < Duration::from_secs(5), "more looks than there are threads: {:?}", before.elapsed());
    errors.dedup();
    assert_eq!(errors.len(), 1, "a condition must not change with each look: {errors:?}");
    assert!(errors.iter().all(|error| error.contains("has not answered since 2")), "{errors:?}");
    first.abort();
    let _ = first.await;
    assert!(files.read(&gpt, "a/checkpoint.json").await.is_err(), "who gave up has left his thread there");
    drop(release);
    for _ in 0..250 {
        if let Ok(found) = files.list(&gpt, 10).await {
            assert_eq!(found.files, 1, "it answers again");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("its turn is never over");
}

#[tokio::test]
async fn folder_call_that_progresses_is_awaited_by_the_next_call() {
    let folder = Folder::new("slow");
    folder.put("team/gpt/a/checkpoint.json", r#"{"step": 1}"#);
    let (files, gpt) = files(&folder, Duration::from_secs(1));
    let (begun, begins) = oneshot::channel();
    let (theirs, there) = (files.clone(), gpt.clone());
    let first = tokio::spawn(async move {
        theirs
            .with(&there, move |_, call| {
                let _ = begun.send(());
                for _ in 0..60 {
                    std::thread::sleep(Duration::from_millis(25));
                    call.step()?;
                }
                Ok(())
            })
            .await
    });
    begins.await.unwrap();
    let before = Instant::now();
    assert_eq!(files.list(&gpt, 10).await.unwrap().files, 1);
    assert!(before.elapsed() > Duration::from_secs(1), "one at a time");
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn abandoned_deletion_stops_without_deleting_files() {
    let folder = Folder::new("late");
    for file in ["a/checkpoint.json", "a/shard", "a/deep/er/shard"] {
        folder.put(&format!("team/gpt/{file}"), "1");
    }
    let (files, gpt) = files(&folder, Duration::from_secs(5));
    let (release, hung) = mpsc::channel::<()>();
    let (begun, begins) = oneshot::channel();
    let (sender, receiver) = oneshot::channel();
    let mut deleting = Box::pin(files.with(&gpt, move |job, call| {
        let _ = begun.send(());
        let _ = hung.recv();
        let cleared = clear(&job, 0, call);
        let _ = sender.send(cleared.is_err());
        cleared
    }));
    tokio::select! {
        done = &mut deleting => panic!("{done:?}"),
        begun = begins => begun.unwrap(),
    }
    drop(deleting);
    drop(release);
    assert!(receiver.await.unwrap());
    assert_eq!(files.list(&gpt, 10).await.unwrap().files, 3, "nothing was deleted after the deadline");
}

#[tokio::test]
async fn checkpoint_deletion_removes_full_folders_and_follows_no_links() {
    let folder = Folder::new("whole");
    for file in ["gpt/a/checkpoint.json", "gpt/a/deep/er/shard", "gpt/b/shard", "other/shard"] {
        folder.put(&format!("team/{file}"), "1");
    }
    std::os::unix::fs::symlink("../../other", folder.0.join("team/gpt/a/link")).unwrap();
    std::os::unix::fs::symlink("b", folder.0.join("team/gpt/c")).unwrap();
    let (files, gpt) = files(&folder, Duration::from_secs(5));
    files.delete(&gpt, &["a".to_owned(), "none".to_owned(), "c".to_owned()]).await.unwrap();
    for (path, stays) in [("gpt/a", false), ("gpt/c", false), ("gpt/b/shard", true), ("other/shard", true)] {
        assert_eq!(folder.0.join("team").join(path).symlink_metadata().is_ok(), stays, "{path}");
    }
}

#[tokio::test]
async fn pipe_in_place_of_marker_is_refused_without_blocking() {
    let folder = Folder::new("pipe");
    folder.put("team/gpt/a/shard", "1");
    let pipe = folder.0.join("team/gpt/a/checkpoint.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (files, gpt) = files(&folder, Duration::from_secs(5));
    let read = tokio::time::timeout(Duration::from_secs(5), files.read(&gpt, "a/checkpoint.json")).await;
    // The test opens the pipe for writing, so that a thread that still waits for a writer of the pipe ends, and the test can fail.
    let _writer = std::fs::OpenOptions::new().read(true).write(true).open(&pipe);
    let error = read.unwrap().unwrap_err().to_string();
    assert!(error.ends_with("a/checkpoint.json is no file"), "{error}");
}
