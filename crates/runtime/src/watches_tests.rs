//! A watch against a small API server in memory: lists, restarts with a new epoch, bad objects.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use std::sync::Mutex;

/// Number of batch/v1 Jobs among the kinds.
const NUMBER: usize = KINDS - JOB_TYPES.len();

fn job(name: &str, parallelism: serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "metadata": {
            "name": name, "namespace": "a", "resourceVersion": "5",
            "managedFields": [{"manager": "x"}],
            "annotations": {LAST_APPLIED: "{}", "keep": "1"},
        },
        "spec": {"parallelism": parallelism},
    })
}

/// Serves whatever `items` holds as a list; watches hang open.
fn server(items: Arc<Mutex<Vec<serde_json::Value>>>) -> Client {
    server_with(items, Arc::default())
}

/// The same; every watch shows `event` first, however often it is begun.
fn server_with(items: Arc<Mutex<Vec<serde_json::Value>>>, event: Arc<Mutex<Option<serde_json::Value>>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (items, event) = (Arc::clone(&items), Arc::clone(&event));
        async move {
            if request.uri().query().unwrap_or("").contains("watch=true") {
                let event = event.lock().unwrap().clone();
                if let Some(event) = event {
                    // In the server's order: the type comes first.
                    let line = format!("{{\"type\":{},\"object\":{}}}\n", event["type"], event["object"]);
                    return Ok(Response::new(Body::from(line.into_bytes())));
                }
                std::future::pending::<()>().await;
            }
            let items = items.lock().unwrap().clone();
            let list = serde_json::json!({
                "apiVersion": "batch/v1", "kind": "JobList", "metadata": {"resourceVersion": "9"}, "items": items,
            });
            Ok::<_, kube::Error>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    Client::new(service, "default")
}

/// The objects of a list, then its end, which names the same ones.
async fn list(seen: &mut mpsc::Receiver<Seen>) -> (Vec<String>, u64) {
    let mut told = Vec::new();
    loop {
        let seen = seen.recv().await.unwrap();
        match seen.observation {
            Observation::Job(_, Change::Apply(job)) => {
                assert!(seen.listed.is_none() && job.metadata().managed_fields.is_none());
                let annotations = job.metadata().annotations.as_ref().unwrap();
                assert_eq!(annotations.keys().collect::<Vec<_>>(), ["keep"]);
                told.push(job.metadata().name.clone().unwrap());
            }
            Observation::Job(_, Change::Only(names)) => {
                let (kind, epoch) = seen.listed.unwrap();
                assert_eq!(kind, NUMBER);
                // What does not decode is there all the same.
                let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
                assert_eq!(
                    names.iter().filter(|name| *name != "bad").collect::<Vec<_>>(),
                    told.iter().collect::<Vec<_>>()
                );
                return (names, epoch);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn jobs() -> Kind {
    kinds().into_iter().nth(NUMBER).unwrap()
}

#[tokio::test]
async fn lists_restart_with_the_epoch_and_survive_bad_objects() {
    let items = Arc::new(Mutex::new(vec![job("one", 1.into())]));
    let (sender, mut seen) = mpsc::channel(8);
    let (epochs, epoch) = channel::channel(0);
    let metrics = Arc::new(Metrics::new("test"));
    let context = Context {
        client: server(Arc::clone(&items)),
        seen: sender,
        epoch,
        metrics: Arc::clone(&metrics),
        tap: None,
        job_kinds: BTreeSet::new(),
    };
    let task = tokio::spawn(follow(context, NUMBER, jobs()));
    assert_eq!(list(&mut seen).await, (vec!["one".to_owned()], 0));

    *items.lock().unwrap() = vec![job("bad", "many".into()), job("two", 2.into())];
    epochs.send_replace(1);
    assert_eq!(list(&mut seen).await, (vec!["bad".to_owned(), "two".to_owned()], 1));
    let text = metrics.encode(crate::metrics::Gauges::default());
    assert!(text.contains("berth_undecodable_objects_total{resource=\"jobs\"} 1"), "{text}");

    drop(seen);
    epochs.send_replace(2);
    task.await.unwrap();
}

#[tokio::test]
async fn a_bad_object_in_a_watch_does_not_stop_it() {
    let items = Arc::new(Mutex::new(vec![job("one", 1.into())]));
    let bad = serde_json::json!({"type": "MODIFIED", "object": job("bad", "many".into())});
    let event = Arc::new(Mutex::new(Some(bad)));
    let (sender, mut seen) = mpsc::channel(8);
    let (_epochs, epoch) = channel::channel(0);
    let client = server_with(Arc::clone(&items), Arc::clone(&event));
    let context = Context {
        client,
        seen: sender,
        epoch,
        metrics: Arc::new(Metrics::new("test")),
        tap: None,
        job_kinds: BTreeSet::new(),
    };
    let task = tokio::spawn(follow(context, NUMBER, jobs()));
    assert_eq!(list(&mut seen).await, (vec!["one".to_owned()], 0));
    // The watch goes past the bad object and shows what comes after it.
    *event.lock().unwrap() = Some(serde_json::json!({"type": "MODIFIED", "object": job("two", 2.into())}));
    match tokio::time::timeout(std::time::Duration::from_secs(20), seen.recv()).await.unwrap().unwrap().observation {
        Observation::Job(_, Change::Apply(job)) => assert_eq!(job.metadata().name.as_deref(), Some("two")),
        other => panic!("{other:?}"),
    }
    task.abort();
}

#[test]
fn a_workload_that_does_not_decode_keeps_its_place() {
    let workloads = kinds().into_iter().find(|kind| kind.resource.plural == "workloads").unwrap();
    let metrics = Arc::new(Metrics::new("test"));
    let mut follower = Follower {
        plural: "workloads",
        decode: Arc::clone(&workloads.decode),
        metrics: &metrics,
        listed: Vec::new(),
        failing: false,
    };
    let raw: Raw = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "w", "namespace": "a", "uid": "u", "resourceVersion": "5"}, "spec": "text",
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": []}},
    }))
    .unwrap();
    assert!(follower.take(Event::Init).is_none());
    match follower.take(Event::InitApply(raw.clone())) {
        Some(Observation::Workload(Change::Apply(workload))) => {
            assert!(workload.status.unwrap().admission.is_some());
            assert!(workload.metadata.annotations.unwrap().contains_key(api::labels::UNREADABLE));
        }
        other => panic!("{other:?}"),
    }
    match follower.take(Event::InitDone) {
        Some(Observation::Workload(Change::Only(names))) => assert_eq!(names, [("a".to_owned(), "w".to_owned())]),
        other => panic!("{other:?}"),
    }
    // A fresh list agrees with the watch.
    match (workloads.decode)(Change::Reset(vec![raw])) {
        Ok(Observation::Workload(Change::Reset(list))) => assert_eq!(list.len(), 1),
        _ => panic!("a list always decodes"),
    }
    let text = metrics.encode(crate::metrics::Gauges::default());
    assert!(text.contains("berth_undecodable_objects_total{resource=\"workloads\"} 1"), "{text}");
}

#[test]
fn every_kind_has_a_number_and_is_watched_once() {
    let kinds = kinds();
    assert_eq!(kinds.len(), KINDS);
    let names: BTreeSet<_> = kinds.iter().map(|kind| (&kind.resource.group, &kind.resource.plural)).collect();
    assert_eq!(names.len(), KINDS);
    assert_eq!(jobs().resource.plural, "jobs");
    let needed = |plural: &str| kinds.iter().find(|kind| kind.resource.plural == plural).unwrap().needs.is_none();
    assert!(needed("jobs") && !needed("jobsets"));
}
