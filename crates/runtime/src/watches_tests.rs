//! Tests of a watch with a small API server in memory: lists, restarts with a new epoch, and bad objects.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use std::sync::Mutex;
use tokio::sync::{mpsc, watch as channel};

/// Number of the kind batch/v1 Job among the watched kinds.
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

/// An API server that lists `items`, and whose watches send nothing.
fn server(items: Arc<Mutex<Vec<serde_json::Value>>>) -> Client {
    server_with(items, Arc::default())
}

/// An API server that lists `items`, and whose every watch begins with `event`.
fn server_with(items: Arc<Mutex<Vec<serde_json::Value>>>, event: Arc<Mutex<Option<serde_json::Value>>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (items, event) = (Arc::clone(&items), Arc::clone(&event));
        async move {
            if request.uri().query().unwrap_or("").contains("watch=true") {
                let event = event.lock().unwrap().clone();
                if let Some(event) = event {
                    // In the JSON of a watch event, the API server writes the field `type` before `object`.
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

/// Receives the observations of a list's objects up to the list's end, and asserts that the end has the names of these objects.
async fn list(seen: &mut mpsc::Receiver<Seen>) -> (Vec<String>, u64) {
    let mut reported = Vec::new();
    loop {
        let seen = seen.recv().await.unwrap();
        match seen.observation {
            Observation::Job(_, Change::Apply(job)) => {
                assert!(seen.listed.is_none() && job.metadata().managed_fields.is_none());
                let annotations = job.metadata().annotations.as_ref().unwrap();
                assert_eq!(annotations.keys().collect::<Vec<_>>(), ["keep"]);
                reported.push(job.metadata().name.clone().unwrap());
            }
            Observation::Job(_, Change::Only(names)) => {
                let (kind, epoch) = seen.listed.unwrap();
                assert_eq!(kind, NUMBER);
                // An object that does not decode is still in the names of the list.
                let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
                assert_eq!(
                    names.iter().filter(|name| *name != "bad").collect::<Vec<_>>(),
                    reported.iter().collect::<Vec<_>>()
                );
                return (names, epoch);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The state that all watches share, with the given client and channel.
fn context(client: Client, seen: mpsc::Sender<Seen>, epoch: channel::Receiver<u64>) -> Context {
    Context {
        client,
        seen,
        epoch,
        metrics: Arc::new(Metrics::new("test")),
        liveness: Arc::default(),
        hook: None,
        wanted: Wanted::default(),
        room: room(),
    }
}

fn jobs() -> Kind {
    kinds(&Wanted::default()).into_iter().nth(NUMBER).unwrap()
}

#[tokio::test]
async fn watch_relists_at_a_new_epoch_and_keeps_bad_objects() {
    let items = Arc::new(Mutex::new(vec![job("one", 1.into())]));
    let (sender, mut seen) = mpsc::channel(8);
    let (epochs, epoch) = channel::channel(0);
    let context = context(server(Arc::clone(&items)), sender, epoch);
    let metrics = Arc::clone(&context.metrics);
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
async fn watch_continues_after_a_bad_object() {
    let items = Arc::new(Mutex::new(vec![job("one", 1.into())]));
    let bad = serde_json::json!({"type": "MODIFIED", "object": job("bad", "many".into())});
    let event = Arc::new(Mutex::new(Some(bad)));
    let (sender, mut seen) = mpsc::channel(8);
    let (_epochs, epoch) = channel::channel(0);
    let context = context(server_with(Arc::clone(&items), Arc::clone(&event)), sender, epoch);
    let task = tokio::spawn(follow(context, NUMBER, jobs()));
    assert_eq!(list(&mut seen).await, (vec!["one".to_owned()], 0));
    // The watch continues after an object that does not decode.
    *event.lock().unwrap() = Some(serde_json::json!({"type": "MODIFIED", "object": job("two", 2.into())}));
    match tokio::time::timeout(std::time::Duration::from_secs(20), seen.recv()).await.unwrap().unwrap().observation {
        Observation::Job(_, Change::Apply(job)) => assert_eq!(job.metadata().name.as_deref(), Some("two")),
        other => panic!("{other:?}"),
    }
    task.abort();
}

/// An API server that forbids lists while `forbids` is set, and that has no objects of the kind.
fn forbidding(forbids: Arc<std::sync::atomic::AtomicBool>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let forbids = forbids.load(std::sync::atomic::Ordering::Relaxed);
        async move {
            if request.uri().query().unwrap_or("").contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let (code, body) = match forbids {
                true => (
                    403,
                    serde_json::json!({"kind": "Status", "code": 403, "status": "Failure", "reason": "Forbidden", "message": "no"}),
                ),
                false => (200, serde_json::json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": []})),
            };
            Ok::<_, kube::Error>(
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap(),
            )
        }
    });
    Client::new(service, "default")
}

fn numbered(plural: &str) -> (usize, Kind) {
    kinds(&Wanted::default()).into_iter().enumerate().find(|(_, kind)| kind.resource.plural == plural).unwrap()
}

#[tokio::test]
async fn dispensable_kind_that_is_forbidden_is_skipped_until_listed() {
    let forbids = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (sender, mut seen) = mpsc::channel(8);
    let (_epochs, epoch) = channel::channel(3);
    let context = context(forbidding(Arc::clone(&forbids)), sender, epoch);
    let liveness = Arc::clone(&context.liveness);
    let (number, kind) = numbered("jobsets");
    let task = tokio::spawn(follow(context, number, kind));
    let reported_by = |why: Option<&str>| Unlisted {
        resource: "jobsets".to_owned(),
        kind: Some(control::Kind::JOB_SET),
        why: why.map(str::to_owned),
    };
    let first = seen.recv().await.unwrap();
    assert_eq!(first.listed, Some((number, 3)), "the loop waits for it no more");
    assert!(
        matches!(&first.observation, Observation::Unlisted(unlisted) if *unlisted == reported_by(Some("no"))),
        "{first:?}"
    );
    assert_eq!(liveness.unlisted().as_deref(), Some("jobsets cannot be listed: no"));
    forbids.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(seen.recv().await.unwrap().observation, Observation::Job(_, Change::Only(_))));
    let last = seen.recv().await.unwrap();
    assert!(matches!(&last.observation, Observation::Unlisted(unlisted) if *unlisted == reported_by(None)), "{last:?}");
    assert_eq!(liveness.unlisted(), None);
    task.abort();
}

/// Limits and quota depend on the kinds that are not dispensable, so Berth decides nothing until it has listed them, and the readiness message names the
/// missing kind.
#[tokio::test]
async fn needed_kind_that_is_forbidden_is_awaited_and_named() {
    for plural in ["clusterqueues", "queuepolicies", "workloads", "jobs"] {
        let forbids = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (sender, mut seen) = mpsc::channel(8);
        let (_epochs, epoch) = channel::channel(0);
        let context = context(forbidding(Arc::clone(&forbids)), sender, epoch);
        let liveness = Arc::clone(&context.liveness);
        let (number, kind) = numbered(plural);
        let task = tokio::spawn(follow(context, number, kind));
        let silent = tokio::time::timeout(Duration::from_millis(1_500), seen.recv()).await;
        assert!(silent.is_err(), "{plural}: {silent:?}");
        assert_eq!(liveness.unlisted(), Some(format!("{plural} cannot be listed: no")));
        task.abort();
    }
}

/// The limit on objects on their way to a slow control loop is a limit of their memory, and not of their number.
#[tokio::test]
async fn watch_with_large_objects_waits_for_a_slow_core_loop() {
    let mut large = job("one", 1.into());
    large["spec"]["template"] =
        serde_json::json!({"spec": {"containers": [{"name": "c", "args": ["x".repeat(1 << 20)]}]}});
    let named = |index: usize| {
        let mut one = large.clone();
        one["metadata"]["name"] = serde_json::json!(format!("job-{index:02}"));
        one
    };
    let items = Arc::new(Mutex::new((0..40).map(named).collect()));
    let (sender, mut seen) = mpsc::channel(512);
    let (_epochs, epoch) = channel::channel(0);
    let context = context(server(items), sender.clone(), epoch);
    let task = tokio::spawn(follow(context, NUMBER, jobs()));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let waiting = 512 - sender.capacity();
    assert!((10..17).contains(&waiting), "{waiting} of a mebibyte wait");
    // The first page is too large and the list begins again, so an object may be observed twice, and its name is in the end of the list once.
    let listed = loop {
        if let Observation::Job(_, Change::Only(listed)) = seen.recv().await.unwrap().observation {
            break listed;
        }
    };
    let names: std::collections::BTreeSet<_> = listed.iter().collect();
    assert_eq!((listed.len(), names.len()), (40, 40), "{listed:?}");
    task.abort();
}

#[test]
fn undecodable_workload_is_still_listed_with_its_admission() {
    let workloads = kinds(&Wanted::default()).into_iter().find(|kind| kind.resource.plural == "workloads").unwrap();
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
    // A fresh list has the same rescued object as the watch.
    match (workloads.decode)(Change::Reset(vec![raw])) {
        Ok(Observation::Workload(Change::Reset(list))) => assert_eq!(list.len(), 1),
        _ => panic!("a list always decodes"),
    }
    let text = metrics.encode(crate::metrics::Gauges::default());
    assert!(text.contains("berth_undecodable_objects_total{resource=\"workloads\"} 1"), "{text}");
}

/// If the resourceVersion of an object is no number, control keeps the last state with a readable version until the object's deletion is reported.
#[test]
fn object_with_unreadable_version_is_undecodable_until_deleted() {
    let metrics = Arc::new(Metrics::new("test"));
    let mut follower = Follower {
        plural: "jobs",
        decode: Arc::clone(&jobs().decode),
        metrics: &metrics,
        listed: Vec::new(),
        failing: false,
    };
    let mut object = job("j", serde_json::json!(1));
    object["metadata"]["resourceVersion"] = serde_json::json!("v5");
    let raw: Raw = serde_json::from_value(object).unwrap();
    assert!(follower.take(Event::Apply(raw.clone())).is_none());
    assert!(follower.take(Event::InitApply(raw.clone())).is_none());
    assert!(
        matches!(follower.take(Event::InitDone), Some(Observation::Job(_, Change::Only(names))) if names.len() == 1)
    );
    let text = metrics.encode(crate::metrics::Gauges::default());
    assert!(text.contains("berth_undecodable_objects_total{resource=\"jobs\"} 2"), "{text}");
    assert!(matches!(follower.take(Event::Delete(raw)), Some(Observation::Job(_, Change::Delete(_)))));
}

#[test]
fn watched_kinds_have_unique_numbers_and_names() {
    let kinds = kinds(&Wanted::default());
    assert_eq!(kinds.len(), KINDS);
    let what = |kind: &Kind| (kind.resource.group.clone(), kind.resource.plural.clone(), kind.selector.clone());
    let watched: BTreeSet<_> = kinds.iter().map(what).collect();
    assert_eq!(watched.len(), KINDS);
    // Each watch of a resource has its own name for messages.
    let names: BTreeSet<_> = kinds.iter().map(Kind::name).collect();
    assert_eq!(names.len(), KINDS);
    assert_eq!(jobs().resource.plural, "jobs");
    let needed = |plural: &str| kinds.iter().find(|kind| kind.resource.plural == plural).unwrap().needs.is_none();
    assert!(needed("jobs") && !needed("jobsets"));
}

/// StatefulSets without a queue are watched only if Berth manages jobs without a queue name.
#[test]
fn stateful_set_watch_selects_queue_label_unless_all_are_managed() {
    let selector = |without_queue| {
        let wanted = Wanted { without_queue, ..Wanted::default() };
        let mut kinds = kinds(&wanted).into_iter();
        kinds.find(|kind| kind.resource.plural == "statefulsets").expect("StatefulSets are watched").selector
    };
    assert_eq!(selector(false).as_deref(), Some(api::labels::QUEUE_NAME));
    assert_eq!(selector(true), None);
}

/// Lists and watches of the started pods of jobs request metadata only.
#[tokio::test]
async fn started_pods_are_listed_and_watched_by_metadata_only() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen_by_server = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&seen_by_server);
        async move {
            let accept = request.headers()[http::header::ACCEPT].to_str().unwrap().to_owned();
            let query = request.uri().query().unwrap_or("").to_owned();
            let watches = query.contains("watch=true");
            asked.lock().unwrap().push((watches, query, accept));
            if watches {
                std::future::pending::<()>().await;
            }
            // An empty list of metadata has `null` in place of items.
            let list = serde_json::json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"resourceVersion": "9"}, "items": null});
            Ok::<_, kube::Error>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let (sender, mut seen) = mpsc::channel(8);
    let (_epochs, epoch) = channel::channel(0);
    let context = Context {
        client: Client::new(service, "default"),
        seen: sender,
        epoch,
        metrics: Arc::new(Metrics::new("test")),
        liveness: Arc::default(),
        hook: None,
        wanted: Wanted::default(),
        room: room(),
    };
    let number = kinds(&Wanted::default()).iter().position(|kind| kind.metadata_only).unwrap();
    let task = tokio::spawn(follow(context, number, Kind::of_started_pods()));
    match seen.recv().await.unwrap().observation {
        Observation::JobPod(Change::Only(names)) => assert!(names.is_empty()),
        other => panic!("{other:?}"),
    }
    while asked.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    task.abort();
    for (watches, query, accept) in asked.lock().unwrap().iter() {
        let kind = if *watches { "PartialObjectMetadata;" } else { "PartialObjectMetadataList;" };
        assert!(accept.contains(kind) && !accept.contains(",application/json"), "{query}: {accept}");
        assert!(query.contains("labelSelector=kueue.x-k8s.io%2Fpodset"), "{query}");
    }
}

/// The metadata in the last watch event of a pod shows whether the pod was deleted or has only lost the label by which it is watched.
#[test]
fn started_pod_is_read_from_its_metadata() {
    let kind = Kind::of_started_pods();
    let raw: Raw = serde_json::from_value(serde_json::json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "5", "labels": {api::labels::POD_SET: "main"}},
    }))
    .unwrap();
    match (kind.decode)(Change::Delete(raw)) {
        Ok(Observation::JobPod(Change::Delete(pod))) => assert!(&*pod.set == "main" && !pod.gone, "{pod:?}"),
        _ => panic!("metadata decode"),
    }
}
