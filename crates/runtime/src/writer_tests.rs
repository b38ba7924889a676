//! Tests of the writer with a small HTTP service in memory.

use super::*;
use crate::leadership::State;
use crate::rate::Bucket;
use berth_control::write::{Kind, LeftPod, ObjectKey, PodOnNode, PodsLeft, PodsOf, Purpose, StuckPod, TaskId};
use http::Response;
use std::sync::Mutex;

type Seen = Arc<Mutex<Vec<(String, String, String, String)>>>;

fn answering(code: u16, body: &'static str, seen: Seen) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body_in) = request.into_parts();
            let bytes = body_in.collect_bytes().await?;
            let header = |name| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
            seen.lock().unwrap().push((
                parts.method.to_string(),
                parts.uri.to_string(),
                header(CONTENT_TYPE),
                String::from_utf8(bytes.to_vec()).unwrap(),
            ));
            if code == 0 {
                std::future::pending::<()>().await;
            }
            Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(body.as_bytes().to_vec())).unwrap())
        }
    });
    Client::new(service, "default")
}

fn write(kind: Kind, namespace: &str, action: impl Into<Action>) -> Task {
    Task {
        id: TaskId(1),
        term: Term(4),
        purpose: Purpose::ReserveQuota,
        key: ObjectKey { kind, namespace: namespace.into(), name: "w".into() },
        action: action.into(),
    }
}

fn writer(client: Client, state: State) -> (tokio::sync::watch::Sender<State>, Writer) {
    let (sender, leadership) = Leadership::new(Duration::from_secs(10));
    sender.send_replace(state);
    (sender, in_term(client, leadership, None))
}

/// A writer that may send `patches` patches at once, and after these none for an hour; `None` means no limit.
fn in_term(client: Client, leadership: Leadership, patches: Option<f64>) -> Writer {
    let stores = Stores::new(client.clone(), None);
    let rate = Rate::new(Bucket::new(patches.map(|_| 1.0 / 3_600.0), patches.unwrap_or(1.0), Instant::now()));
    Writer::new(client, leadership, stores, rate, Arc::new(Metrics::new("test")))
}

/// The pods with the label `label` and the value `uid` that the Job with the uid `j-1` controls.
fn pods_of(label: &'static str, uid: &str) -> PodsOf {
    PodsOf { label, uid: uid.to_owned(), jobs: Some(["j-1".to_owned()].into()) }
}

const LEADING: State = State { term: Some(Term(4)), until: None, pods_since: None };

#[tokio::test]
async fn pod_annotation_patches_only_own_pods_that_lack_it() {
    let seen = Seen::default();
    let list = r#"{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [
        {"metadata": {"name": "a", "uid": "p-1", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]}},
        {"metadata": {"name": "b", "annotations": {"stop": "now"}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]}},
        {"metadata": {"name": "not-its-own"}}]}"#;
    let (_sender, writer) = writer(answering(200, list, Arc::clone(&seen)), LEADING);
    let annotations = std::collections::BTreeMap::from([("stop".to_owned(), "now".to_owned())]);
    let request = Write::AnnotatePods { pods: pods_of("job-uid", "u 1"), annotations };
    let reported = writer.perform(&write(Kind::Workload, "ns", request)).await;
    assert!(matches!(reported, TaskOutcome::Written(WriteOutcome::Applied { .. })), "{reported:?}");
    let seen = seen.lock().unwrap();
    let [(method, uri, _, _), (patch, pod, _, body)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((method.as_str(), patch.as_str()), ("GET", "PATCH"));
    assert_eq!(pod, "/api/v1/namespaces/ns/pods/a?fieldManager=kueue&timeout=9s");
    assert!(uri.contains("labelSelector=job-uid%3Du%201&fieldSelector=status.phase%21%3DSucceeded"), "{uri}");
    assert_eq!(body, r#"{"metadata":{"annotations":{"stop":"now"},"uid":"p-1"}}"#, "no other pod of that name");
}

/// A client of an API server with three pods of a job that lack an annotation; `patches` counts the patches of these pods.
fn three_without_answer(patches: Arc<Mutex<usize>>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        if request.method() == http::Method::PATCH {
            *patches.lock().unwrap() += 1;
        }
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true});
        let pod = |name: &str| json!({"metadata": {"name": name, "uid": name, "ownerReferences": [owner]}});
        let list = json!({"metadata": {}, "items": [pod("a"), pod("b"), pod("c")]}).to_string();
        async move { Ok::<_, kube::Error>(Response::builder().status(200).body(Body::from(list.into_bytes())).unwrap()) }
    });
    Client::new(service, "default")
}

fn stop_now() -> Task {
    let annotations = std::collections::BTreeMap::from([("stop".to_owned(), "now".to_owned())]);
    write(Kind::Workload, "ns", Write::AnnotatePods { pods: pods_of("job-uid", "u"), annotations })
}

#[tokio::test]
async fn pod_annotation_takes_a_write_token_per_pod() {
    let patches = Arc::<Mutex<usize>>::default();
    // The time limit of the write is long enough for the first two patches, and the third patch gets no token of the rate limit within this time.
    let (sender, leadership) = Leadership::new(Duration::from_secs(2));
    sender.send_replace(LEADING);
    let writer = in_term(three_without_answer(Arc::clone(&patches)), leadership, Some(2.0));
    assert_eq!(writer.perform(&stop_now()).await, WriteOutcome::Busy(1_000).into(), "the third is told the next time");
    assert_eq!(*patches.lock().unwrap(), 2);
}

#[tokio::test]
async fn pod_annotation_stops_when_the_term_ends() {
    let patches = Arc::<Mutex<usize>>::default();
    let (sender, leadership) = Leadership::new(Duration::from_secs(60));
    sender.send_replace(LEADING);
    let writer = in_term(three_without_answer(Arc::clone(&patches)), leadership, Some(1.0));
    let begin = Instant::now();
    let resign = async {
        for _ in 0..2_000 {
            if *patches.lock().unwrap() > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        sender.send_replace(State::default());
    };
    let reported = stop_now();
    let (outcome, ()) = tokio::join!(writer.perform(&reported), resign);
    assert_eq!(outcome, WriteOutcome::NotSent.into());
    assert_eq!(*patches.lock().unwrap(), 1);
    assert!(begin.elapsed() < Duration::from_secs(30), "a hand-over waits for it");
}

#[tokio::test]
async fn pod_annotation_skips_a_pod_replaced_under_its_name() {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true});
        let pod = |name: &str| json!({"metadata": {"name": name, "uid": name, "ownerReferences": [owner]}});
        let list = json!({"metadata": {}, "items": [pod("a"), pod("b")]});
        let message = "Pod \"a\" is invalid: metadata.uid: Invalid value: \"a\": field is immutable";
        let (code, body) = match (request.method(), request.uri().path()) {
            (&http::Method::PATCH, "/api/v1/namespaces/ns/pods/a") => {
                (422_u16, json!({"kind": "Status", "reason": "Invalid", "message": message}))
            }
            _ => (200, list),
        };
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
    });
    let (_sender, writer) = writer(Client::new(service, "default"), LEADING);
    let reported = writer.perform(&stop_now()).await;
    assert!(matches!(reported, TaskOutcome::Written(WriteOutcome::Applied { .. })), "{reported:?}");
}

/// The outcome of annotating two pods: the API server refuses the patch of the first pod finally, and answers the patch of the second pod with the status
/// `code`.
async fn outcome_where_one_refuses(code: u16) -> TaskOutcome {
    let owner = r#"[{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]"#;
    let list = format!(
        r#"{{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {{}}, "items": [
        {{"metadata": {{"name": "a", "ownerReferences": {owner}}}}},
        {{"metadata": {{"name": "b", "ownerReferences": {owner}}}}}]}}"#
    );
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (status, body) = match (request.method().as_str(), request.uri().path()) {
            ("GET", _) => (200, list.clone()),
            (_, "/api/v1/namespaces/ns/pods/a") => (403, "{}".to_owned()),
            _ => (code, "{}".to_owned()),
        };
        let answer = Response::builder().status(status).header(RETRY_AFTER, "3").body(Body::from(body.into_bytes()));
        async move { Ok::<_, kube::Error>(answer.unwrap()) }
    });
    let (_sender, writer) = writer(Client::new(service, "default"), LEADING);
    writer.perform(&stop_now()).await
}

#[tokio::test]
async fn pod_annotation_failure_does_not_stop_the_other_pods() {
    assert_eq!(outcome_where_one_refuses(409).await, WriteOutcome::Conflict.into());
    assert_eq!(outcome_where_one_refuses(429).await, WriteOutcome::Busy(3_000).into());
    for code in [200, 404, 403] {
        let reported = outcome_where_one_refuses(code).await;
        assert!(matches!(reported, TaskOutcome::Written(WriteOutcome::Refused(_))), "{code}: {reported:?}");
    }
}

#[tokio::test]
async fn write_requests_have_the_expected_method_path_and_body() {
    let seen = Seen::default();
    let ok = r#"{"metadata":{"resourceVersion":"9"}}"#;
    let (_sender, writer) = writer(answering(200, ok, Arc::clone(&seen)), LEADING);
    let body = json!({"a": 1});
    let applied = TaskOutcome::from(WriteOutcome::Applied { resource_version: "9".into() });
    let status = Subresource::Status;
    let apply = Write::Apply { manager: "kueue-admission", subresource: status, body: body.clone().into() };
    assert_eq!(writer.perform(&write(Kind::Workload, "ns", apply)).await, applied);
    let merge = Write::Merge { manager: "a/b", subresource: Subresource::None, body: body.clone().into() };
    assert_eq!(writer.perform(&write(Kind::JOB, "ns", merge)).await, applied);
    assert_eq!(writer.perform(&write(Kind::Workload, "ns", Write::Create(body.into()))).await, applied);
    let merge = Write::Merge { manager: "m", subresource: status, body: json!({}).into() };
    writer.perform(&write(Kind::ClusterQueue, "", merge)).await;
    writer.perform(&write(Kind::Workload, "ns", Write::Delete { uid: "u-1".into(), owned_first: false })).await;
    let seen = seen.lock().unwrap();
    let lines: Vec<String> = seen.iter().map(|(method, uri, kind, _)| format!("{method} {uri} {kind}")).collect();
    assert_eq!(
        lines,
        [
            "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w/status\
             ?fieldManager=kueue-admission&force=true&timeout=9s application/apply-patch+yaml",
            "PATCH /apis/batch/v1/namespaces/ns/jobs/w?fieldManager=a%2Fb&timeout=9s application/merge-patch+json",
            "POST /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads?fieldManager=kueue&timeout=9s application/json",
            "PATCH /apis/kueue.x-k8s.io/v1beta2/clusterqueues/w/status?fieldManager=m&timeout=9s \
             application/merge-patch+json",
            "DELETE /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w?timeout=9s application/json",
        ]
    );
    let options: serde_json::Value = serde_json::from_str(&seen[4].3).unwrap();
    assert_eq!(options["preconditions"]["uid"], "u-1");
    assert_eq!(options["propagationPolicy"], "Background");
    // Berth deletes a pod with the termination grace period of the pod's template.
    assert_eq!(options["gracePeriodSeconds"], serde_json::Value::Null);
}

#[tokio::test]
async fn write_out_of_term_or_time_is_not_sent() {
    let seen = Seen::default();
    let client = answering(200, "{}", Arc::clone(&seen));
    let delete = || write(Kind::Workload, "ns", Write::Delete { uid: "u".into(), owned_first: false });
    let (sender, writer) = writer(client, State { term: Some(Term(5)), ..State::default() });
    assert_eq!(writer.perform(&delete()).await, WriteOutcome::NotSent.into());
    let soon = Instant::now() + Duration::from_secs(9);
    sender.send_replace(State { term: Some(Term(4)), until: Some(soon), ..State::default() });
    assert_eq!(writer.perform(&delete()).await, WriteOutcome::NotSent.into());
    sender.send_replace(State::default());
    assert_eq!(writer.perform(&delete()).await, WriteOutcome::NotSent.into());
    assert!(seen.lock().unwrap().is_empty());
    sender.send_replace(LEADING);
    assert!(matches!(writer.perform(&delete()).await, TaskOutcome::Written(WriteOutcome::Applied { .. })));
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn write_to_what_is_no_api_object_is_refused_unsent() {
    let seen = Seen::default();
    let (_sender, writer) = writer(answering(200, "{}", Arc::clone(&seen)), LEADING);
    for kind in [Kind::PodGroup, Kind::Checkpoints] {
        let outcome = writer.perform(&write(kind, "ns", Write::Create(json!({}).into()))).await;
        assert!(matches!(outcome, TaskOutcome::Written(WriteOutcome::Refused(_))), "{outcome:?}");
        let outcome = writer.perform(&write(kind, "ns", Query::ReadObject)).await;
        assert!(matches!(outcome, TaskOutcome::Answered(Err(QueryFailure::Refused(_)))), "{outcome:?}");
    }
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn write_to_a_silent_server_is_unknown_after_its_deadline() {
    let seen = Seen::default();
    let (sender, leadership) = Leadership::new(Duration::from_secs(1));
    sender.send_replace(LEADING);
    let writer = in_term(answering(0, "", Arc::clone(&seen)), leadership, None);
    let begin = Instant::now();
    let outcome = writer.perform(&write(Kind::Workload, "ns", Write::Create(json!({}).into()))).await;
    assert!(matches!(outcome, TaskOutcome::Written(WriteOutcome::Unknown(_))), "{outcome:?}");
    assert!((1_000..10_000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    assert_eq!(seen.lock().unwrap().len(), 1, "no hidden retry");
}

#[tokio::test]
async fn stuck_pod_query_finds_only_own_unschedulable_pods() {
    let seen = Seen::default();
    let body = r#"{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[
        {"metadata":{"labels":{"kueue.x-k8s.io/podset":"main"},"ownerReferences":[
            {"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"j-1","controller":true}]},"status":{"conditions":[
            {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}},
        {"metadata":{"labels":{"kueue.x-k8s.io/podset":"somebody-elses"}},"status":{"conditions":[
            {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}},
        {"metadata":{"labels":{"kueue.x-k8s.io/podset":"gated"}},"status":{"conditions":[
            {"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}},
        {"metadata":{"name":"new"}}]}"#;
    let (_sender, finder) = writer(answering(200, body, Arc::clone(&seen)), LEADING);
    let ask = || {
        let pods = pods_of("batch.kubernetes.io/controller-uid", "u-1");
        write(Kind::Workload, "ns", Query::FindStuckPods { pods })
    };
    let stuck = StuckPod { pod_set: "main".into(), message: "0/3 nodes are available".into(), refused: None };
    assert_eq!(finder.perform(&ask()).await, QueryAnswer::Stuck(vec![stuck]).into());
    let path = "/api/v1/namespaces/ns/pods?labelSelector=batch.kubernetes.io%2Fcontroller-uid%3Du-1\
                &fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending&limit=20";
    assert_eq!(seen.lock().unwrap()[0].1, path);
    let (_sender, finder) = writer(answering(500, "{}", Seen::default()), LEADING);
    assert_eq!(finder.perform(&ask()).await, QueryFailure::Busy(1_000).into(), "no answer is no stock-out");
    let (_sender, finder) = writer(answering(403, "{}", Seen::default()), LEADING);
    assert_eq!(finder.perform(&ask()).await, QueryFailure::Refused("{}".to_owned()).into());
}

#[tokio::test]
async fn pods_on_a_node_are_listed_with_their_controlling_job() {
    let list = r#"{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [
        {"metadata": {"namespace": "ns", "name": "daemon", "uid": "d-1", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-0", "controller": true}]}},
        {"metadata": {"namespace": "ns", "name": "worker", "uid": "p-1", "labels": {"kueue.x-k8s.io/podset": "main"}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]}}]}"#;
    let seen = Seen::default();
    let (_sender, finder) = writer(answering(200, list, Arc::clone(&seen)), LEADING);
    let ask = || Task {
        key: ObjectKey { kind: Kind::Node, namespace: String::new(), name: "n 1".into() },
        ..write(Kind::Node, "", Query::FindPodsOnNode)
    };
    let pod = |name: &str, uid: &str, pod_set: &str, job: Option<(String, String)>| PodOnNode {
        namespace: "ns".into(),
        name: name.into(),
        uid: uid.into(),
        pod_set: pod_set.into(),
        job,
    };
    let worker = pod("worker", "p-1", "main", Some(("j".into(), "j-1".into())));
    assert_eq!(finder.perform(&ask()).await, QueryAnswer::OnNode(vec![pod("daemon", "d-1", "", None), worker]).into());
    let path =
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dn%201%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
    assert_eq!(seen.lock().unwrap()[0].1, path);
    let (_sender, finder) = writer(answering(500, "{}", Seen::default()), LEADING);
    assert_eq!(finder.perform(&ask()).await, QueryFailure::Busy(1_000).into(), "it is asked again");
}

#[tokio::test]
async fn pod_probe_counts_only_pods_controlled_by_its_jobs() {
    let list = r#"{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [
        {"metadata": {"name": "labelled"}},
        {"metadata": {"name": "a", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]}},
        {"metadata": {"name": "b", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "k", "uid": "j-2", "controller": true}]}}]}"#;
    let seen = Seen::default();
    let (_sender, prober) = writer(answering(200, list, Arc::clone(&seen)), LEADING);
    let probe = async |jobs: Option<&[&str]>, most: usize| {
        let jobs = jobs.map(|jobs| jobs.iter().map(|uid| (*uid).to_owned()).collect());
        let pods = PodsOf { jobs, ..pods_of("l", "u") };
        matches!(
            prober.perform(&write(Kind::Workload, "ns", Query::ProbePods { pods, most })).await,
            TaskOutcome::Answered(Ok(QueryAnswer::PodsLeft(PodsLeft::Allowed)))
        )
    };
    assert!(!probe(Some(&["j-1"]), 0).await && probe(Some(&["j-1"]), 1).await);
    assert!(probe(Some(&["gone"]), 0).await && probe(Some(&[]), 0).await);
    assert!(!probe(None, 1).await && probe(None, 2).await, "where they are not known any Job counts");
    let uri = seen.lock().unwrap()[0].1.clone();
    let path = "/api/v1/namespaces/ns/pods?labelSelector=l%3Du&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.\
                phase%21%3DFailed&limit=50";
    assert_eq!(uri, path);
    let (_sender, refused) = writer(answering(403, "{}", Seen::default()), LEADING);
    let asked = Query::ProbePods { pods: pods_of("l", "u"), most: 9 };
    assert_eq!(
        refused.perform(&write(Kind::Workload, "ns", asked)).await,
        QueryFailure::Refused("{}".to_owned()).into()
    );
}

#[tokio::test]
async fn pod_probe_reads_pods_to_the_last_page() {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let last = request.uri().query().is_some_and(|query| query.contains("continue=next%201"));
        let (token, name) = if last { ("", "j-1") } else { ("next 1", "forged") };
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": name, "controller": true});
        let pod = json!({"metadata": {"name": "p", "ownerReferences": [owner]}});
        let list = json!({"metadata": {"continue": token}, "items": [pod]}).to_string();
        Ok::<_, kube::Error>(Response::builder().status(200).body(Body::from(list.into_bytes())).unwrap())
    });
    let (_sender, prober) = writer(Client::new(service, "default"), LEADING);
    let probe = |most| write(Kind::Workload, "ns", Query::ProbePods { pods: pods_of("l", "u"), most });
    assert_eq!(prober.perform(&probe(0)).await, QueryAnswer::PodsLeft(PodsLeft::TooMany).into());
    assert_eq!(prober.perform(&probe(1)).await, QueryAnswer::PodsLeft(PodsLeft::Allowed).into());
}

#[tokio::test]
async fn nodes_of_own_pods_are_counted_once_over_all_pages() {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let last = request.uri().query().is_some_and(|query| query.contains("continue=next"));
        let pod = |uid: &str, node: Option<&str>| {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true});
            json!({"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"nodeName": node}})
        };
        let (token, pods) = match last {
            false => ("next", [pod("j-1", Some("a")), pod("j-1", Some("a")), pod("forged", Some("c"))]),
            true => ("", [pod("j-1", Some("b")), pod("j-1", Some("a")), pod("j-1", None)]),
        };
        let list = json!({"metadata": {"continue": token}, "items": pods}).to_string();
        Ok::<_, kube::Error>(Response::builder().status(200).body(Body::from(list.into_bytes())).unwrap())
    });
    let (_sender, writer_of_it) = writer(Client::new(service, "default"), LEADING);
    let ask = || write(Kind::TrainingJob, "ns", Query::CountNodes { pods: pods_of("l", "u") });
    assert_eq!(writer_of_it.perform(&ask()).await, QueryAnswer::Nodes(2).into());
    let (_sender, refused) = writer(answering(403, "{}", Seen::default()), LEADING);
    assert_eq!(refused.perform(&ask()).await, QueryFailure::Refused("{}".to_owned()).into());
}

/// The query for the remaining pods of a deleted job finds pods without a controlling owner and pods that a Job controls, and no pod that an object of another
/// kind controls.
#[tokio::test]
async fn pods_left_behind_are_found_by_each_label() {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let asked = request.uri().query().is_some_and(|query| query.contains("second%3Du"));
        let owner = |kind: &str, version: &str| {
            json!([{"apiVersion": version, "kind": kind, "name": "j", "uid": "j-1",
            "controller": true}])
        };
        let pods = json!([{"metadata": {"name": "a", "uid": "a-1"}},
            {"metadata": {"name": "b", "uid": "b-1", "ownerReferences": owner("Job", "batch/v1"),
                "deletionTimestamp": "2026-01-01T00:00:00Z"}},
            {"metadata": {"name": "c", "uid": "c-1", "ownerReferences": owner("ReplicaSet", "apps/v1")}}]);
        let list = json!({"metadata": {}, "items": if asked { pods } else { json!([]) }}).to_string();
        Ok::<_, kube::Error>(Response::builder().status(200).body(Body::from(list.into_bytes())).unwrap())
    });
    let (_sender, prober) = writer(Client::new(service, "default"), LEADING);
    let ask =
        |labels: Vec<&'static str>| write(Kind::Workload, "ns", Query::FindLeftPods { labels, uid: "u".to_owned() });
    let left = |name: &str, deleting: bool, job: Option<(&str, &str)>| LeftPod {
        name: name.to_owned(),
        uid: format!("{name}-1"),
        deleting,
        job: job.map(|(name, uid)| (name.to_owned(), uid.to_owned())),
    };
    let found = vec![left("a", false, None), left("b", true, Some(("j", "j-1")))];
    assert_eq!(prober.perform(&ask(vec!["first", "second"])).await, QueryAnswer::Left(found).into());
    assert_eq!(prober.perform(&ask(vec!["first"])).await, QueryAnswer::Left(Vec::new()).into());
}

/// A pod of a job is read by its name.
#[tokio::test]
async fn job_pod_is_read_by_name_and_refused_when_undecodable() {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let (code, body) = match request.uri().path() {
            "/api/v1/namespaces/ns/pods/p" => {
                (200, json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}}))
            }
            "/api/v1/namespaces/ns/pods/bad" => (200, json!({"metadata": {"name": "bad"}, "spec": 7})),
            _ => (404, json!({"kind": "Status", "code": 404})),
        };
        Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap())
    });
    let (_sender, reader) = writer(Client::new(service, "default"), LEADING);
    let ask = |name: &str| Task {
        key: ObjectKey { kind: Kind::JobPod, namespace: "ns".into(), name: name.into() },
        ..write(Kind::JobPod, "ns", Query::ReadObject)
    };
    match reader.perform(&ask("p")).await {
        TaskOutcome::Answered(Ok(QueryAnswer::Object(text))) => assert!(text.contains("\"uid\":\"u\""), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(reader.perform(&ask("bad")).await, TaskOutcome::Answered(Err(QueryFailure::Refused(_)))));
    assert_eq!(reader.perform(&ask("q")).await, QueryFailure::Gone.into());
}

/// kube-apiserver 1.36 answers a metadata request with `null` items if there are none.
#[tokio::test]
async fn metadata_list_with_null_items_means_no_pods() {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        let list = r#"{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"},"items":null}"#;
        Ok::<_, kube::Error>(Response::builder().status(200).body(Body::from(list.as_bytes().to_vec())).unwrap())
    });
    let (_sender, prober) = writer(Client::new(service, "default"), LEADING);
    let probe = write(Kind::Workload, "ns", Query::ProbePods { pods: pods_of("l", "u"), most: 0 });
    assert_eq!(prober.perform(&probe).await, QueryAnswer::PodsLeft(PodsLeft::Allowed).into());
}

#[tokio::test]
async fn checkpoint_store_query_ends_with_the_term() {
    // The Secret with the store's credentials never arrives, so the listing of the checkpoint store does not end.
    let seen = Seen::default();
    let (sender, writer) = writer(answering(0, "", Arc::clone(&seen)), LEADING);
    let stores = Stores::new(writer.client.clone(), Some("berth".to_owned()));
    let writer = Writer { stores, ..writer };
    let spec = json!({"s3": {"bucket": "b"}, "credentialsSecret": "s"});
    let spec = Arc::new(serde_json::from_value(spec).unwrap());
    let place = CheckpointPlace { store: "main".into(), spec, namespace: "ns".into(), job: "j".into() };
    let ask = write(Kind::TrainingJob, "ns", Query::ListCheckpoints { place });
    let resign = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(seen.lock().unwrap().len(), 1, "it is under way");
        // A renewal of the lease changes the leadership state and does not end the term.
        sender.send_replace(State {
            term: Some(Term(4)),
            until: Some(Instant::now() + Duration::from_secs(60)),
            pods_since: None,
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        sender.send_replace(State::default());
        Instant::now()
    };
    let both = async { tokio::join!(writer.perform(&ask), resign) };
    let (outcome, resigned) = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    assert_eq!(outcome, QueryFailure::NotSent.into());
    assert!(resigned.elapsed() < Duration::from_secs(1));
}
