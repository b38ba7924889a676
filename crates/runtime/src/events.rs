//! Kubernetes events: a bounded queue, one worker, and a rate limit. An event that does not fit into the queue is dropped and counted, and no part of Berth
//! waits until an event is sent. While the API server is busy with writes that move jobs, Berth sends events at a fraction of their rate. An event has the time
//! at which it happened, so that a late event is still correct. Events are sent in small batches, because waking up the worker costs as much CPU time as
//! sending an event.

mod packed;

use crate::load::Load;
use crate::metrics::Metrics;
use crate::rate::Bucket;
use crate::writer::METADATA_ONLY;
use berth_control::write::{EventType, Notice};
use futures::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use jiff::Timestamp;
use kube::client::{Body, Client};
use packed::Packed;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Longest note of an event that the API server accepts, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Text at the end of an event's note that was shortened.
const CUT: &str = " ...";
/// Longest reason or action of an event, in bytes.
const REASON_LIMIT: usize = 128;
/// Largest number of event notices in the channel to the worker; `WAITING` is the largest number of notices that wait in the worker itself.
const QUEUE: usize = 2048;
const WAITING: usize = 6144;
/// Time within which an identical event notice is not sent to the API server again.
const REPEAT: Duration = Duration::from_secs(60);
/// Largest number of event notices that the worker remembers in order to drop repeated notices.
const REMEMBERED: usize = 8192;
/// Largest number of events that the worker sends in a batch.
const BATCH: usize = 16;
/// Tokens of the rate limit that an event costs beside its one token, while writes that move jobs take all of the API server's time.
const BUSY_COST: f64 = 9.0;
/// Time limit of the request that creates an event.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sink for event notices. An [`EventSink`] is cheap to clone and never blocks its caller.
#[derive(Clone)]
pub struct EventSink {
    queue: mpsc::Sender<Packed>,
    metrics: Arc<Metrics>,
}

impl EventSink {
    /// Starts the worker. The worker that sends events ends when every [`EventSink`] is dropped and the queued events are sent, or with the async runtime,
    /// which drops the remaining events. `load` is the API server's load by writes that move jobs.
    #[must_use]
    pub fn spawn(client: Client, instance: String, bucket: Bucket, load: Arc<Load>, metrics: Arc<Metrics>) -> Self {
        let (queue, notices) = mpsc::channel(QUEUE);
        let recent = Recent::default();
        metrics.count("berth_events_published", &[], 0);
        for cause in ["queue_full", "repeated", "superseded", "refused"] {
            metrics.count("berth_events_dropped", &[("cause", cause)], 0);
        }
        let worker = Worker { client, instance, metrics: Arc::clone(&metrics), load, recent, count: 0 };
        tokio::spawn(worker.run(notices, bucket));
        Self { queue, metrics }
    }

    /// Queues an event about an object of the API for publication. If the queue is full, the event is dropped and counted.
    pub fn publish(&self, notice: &Notice) {
        let Some(notice) = Packed::new(notice, Timestamp::now()) else { return };
        match self.queue.try_reserve() {
            Ok(place) => place.send(notice),
            Err(_) => self.metrics.count("berth_events_dropped", &[("cause", "queue_full")], 1),
        }
    }
}

struct Worker {
    client: Client,
    instance: String,
    metrics: Arc<Metrics>,
    load: Arc<Load>,
    recent: Recent,
    count: u64,
}

impl Worker {
    async fn run(mut self, mut notices: mpsc::Receiver<Packed>, mut bucket: Bucket) {
        let mut waiting = Waiting::default();
        let mut arrived = Vec::new();
        loop {
            if waiting.is_empty() && notices.recv_many(&mut arrived, QUEUE).await == 0 {
                return;
            }
            while waiting.len() + arrived.len() < WAITING {
                let Ok(more) = notices.try_recv() else { break };
                arrived.push(more);
            }
            for notice in arrived.drain(..) {
                if self.recent.repeats(&notice, Instant::now()) {
                    self.metrics.count("berth_events_dropped", &[("cause", "repeated")], 1);
                } else if waiting.push(notice) {
                    self.metrics.count("berth_events_dropped", &[("cause", "superseded")], 1);
                }
            }
            if self.wait(&mut bucket, waiting.next_batch()).await {
                let posts: Vec<_> = waiting.take(BATCH).into_iter().map(|notice| self.body(notice)).collect();
                join_all(posts.iter().map(|(notice, body)| self.publish(notice, body))).await;
            }
        }
    }

    fn body(&mut self, notice: Packed) -> (Packed, Value) {
        self.count += 1;
        let body = event(&notice, &self.instance, self.count);
        (notice, body)
    }

    /// Takes rate-limit tokens for `count` events, and more tokens while the API server is busy. If there are too few tokens, the function waits for a while
    /// and returns false.
    async fn wait(&self, bucket: &mut Bucket, count: u32) -> bool {
        let now = Instant::now();
        let cost = 1.0 + BUSY_COST * self.load.yielding(now);
        let Err(pause) = bucket.take_many(f64::from(count) * cost, now) else { return true };
        tokio::time::sleep(pause).await;
        false
    }

    async fn publish(&self, notice: &Packed, body: &Value) {
        match self.post(body).await {
            Ok(()) => self.metrics.count("berth_events_published", &[], 1),
            Err(error) => {
                self.metrics.count("berth_events_dropped", &[("cause", "refused")], 1);
                tracing::debug!(
                    kind = notice.kind.name(),
                    name = notice.name(),
                    reason = notice.reason(),
                    error,
                    "event not written"
                );
            }
        }
    }

    async fn post(&self, body: &Value) -> Result<(), String> {
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or("default");
        let request = http::Request::builder()
            .method(http::Method::POST)
            .uri(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, METADATA_ONLY)
            .body(Body::from(body.to_string().into_bytes()))
            .map_err(|error| error.to_string())?;
        match tokio::time::timeout(DEADLINE, self.client.send(request)).await {
            Ok(Ok(response)) => {
                let status = response.status();
                // The body of the API server's answer is read to its end, so that the connection can be used again.
                let _body = response.into_body().collect_bytes().await;
                if status.is_success() { Ok(()) } else { Err(status.to_string()) }
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

/// Event notices that wait for the rate limit, in order of arrival.
#[derive(Default)]
struct Waiting {
    /// Waiting event notices; a notice that a newer notice has replaced leaves an empty entry.
    notices: VecDeque<Option<Packed>>,
    /// Number of the first entry in `notices`; later entries have the following numbers.
    first: u64,
    /// Number of entries in `notices` that are not empty.
    live: usize,
    /// Number of the notice that explains why an object waits for quota, by the object's uid.
    explained: HashMap<Box<str>, u64>,
}

impl Waiting {
    /// Adds an event notice, and removes an older notice that explains why the same object waits, because the older reason is outdated. Returns true if an
    /// older notice was removed.
    fn push(&mut self, notice: Packed) -> bool {
        let older = self.explained.remove(notice.uid());
        if let Some(older) = older {
            let at = usize::try_from(older.saturating_sub(self.first)).unwrap_or(usize::MAX);
            self.live -= usize::from(self.notices.get_mut(at).and_then(Option::take).is_some());
        }
        if self.notices.len() >= 2 * WAITING {
            self.close_gaps();
        }
        if notice.explains_waiting {
            self.explained.insert(notice.uid().into(), self.first + self.notices.len() as u64);
        }
        self.notices.push_back(Some(notice));
        self.live += 1;
        older.is_some()
    }

    /// Removes the empty entries of `notices`. The entries are renumbered rarely, because empty entries are removed only after half of all entries are empty.
    fn close_gaps(&mut self) {
        self.notices.retain(Option::is_some);
        self.first = 0;
        for (at, notice) in (0..).zip(self.notices.iter().flatten()) {
            if notice.explains_waiting
                && let Some(place) = self.explained.get_mut(notice.uid())
            {
                *place = at;
            }
        }
    }

    fn take(&mut self, count: usize) -> Vec<Packed> {
        let mut taken = Vec::with_capacity(count.min(self.live));
        while taken.len() < count {
            let Some(place) = self.notices.pop_front() else { break };
            self.first += 1;
            let Some(notice) = place else { continue };
            self.live -= 1;
            if notice.explains_waiting {
                self.explained.remove(notice.uid());
            }
            taken.push(notice);
        }
        taken
    }

    fn next_batch(&self) -> u32 {
        u32::try_from(self.live.min(BATCH)).unwrap_or(u32::MAX)
    }

    fn len(&self) -> usize {
        self.live
    }

    fn is_empty(&self) -> bool {
        self.live == 0
    }
}

/// Recently sent event notices, kept as hashes because the texts would take megabytes.
#[derive(Default)]
struct Recent {
    hasher: RandomState,
    sent: BTreeMap<u64, Instant>,
}

impl Recent {
    fn repeats(&mut self, notice: &Packed, now: Instant) -> bool {
        if self.sent.len() >= REMEMBERED {
            self.sent.retain(|_, at| now.saturating_duration_since(*at) < REPEAT);
        }
        if self.sent.len() >= REMEMBERED {
            self.sent.clear();
        }
        let key = self.hasher.hash_one((notice.uid(), notice.reason(), notice.message()));
        let last = self.sent.insert(key, now);
        last.is_some_and(|at| now.saturating_duration_since(at) < REPEAT)
    }
}

/// The Event object that is created for a notice.
fn event(notice: &Packed, instance: &str, count: u64) -> Value {
    let now = notice.at;
    let namespace = if notice.namespace().is_empty() { "default" } else { notice.namespace() };
    let suffix = format!(".{:x}{:x}", now.as_microsecond(), count & 0xffff);
    let name = format!("{}{suffix}", cut_at(notice.name(), 253 - suffix.len()).trim_end_matches(['.', '-']));
    let reason = cut_at(notice.reason(), REASON_LIMIT);
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": format!("{now:.6}"),
        "type": match notice.event_type { EventType::Normal => "Normal", EventType::Warning => "Warning" },
        "reason": reason,
        "action": reason,
        "note": truncated(notice.message()),
        "reportingController": notice.reporter,
        "reportingInstance": cut_at(instance, REASON_LIMIT),
        "regarding": {
            "apiVersion": notice.kind.api_version(),
            "kind": notice.kind.name(),
            "namespace": notice.namespace(),
            "name": notice.name(),
            "uid": notice.uid(),
        },
    })
}

/// The longest beginning of `text` with at most `limit` bytes that ends at a character boundary.
fn cut_at(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The message of an event notice, shortened to the longest note that the API server accepts.
fn truncated(message: &str) -> String {
    if message.len() <= NOTE_LIMIT {
        return message.to_owned();
    }
    format!("{}{CUT}", cut_at(message, NOTE_LIMIT - CUT.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_control::write::{Kind, ObjectKey};

    fn notice(message: &str) -> Notice {
        Notice {
            key: ObjectKey { kind: Kind::Workload, namespace: "team".into(), name: "job-a-12345".into() },
            uid: "u-1".into(),
            event_type: EventType::Warning,
            reason: "Pending".into(),
            message: message.into(),
            reporter: "kueue-admission",
        }
    }

    #[test]
    fn event_note_beyond_1024_bytes_is_cut_between_characters() {
        assert_eq!(truncated("short"), "short");
        assert_eq!(truncated(&"a".repeat(1024)).len(), 1024);
        let cut = truncated(&"a".repeat(1025));
        assert_eq!((cut.len(), cut.ends_with("a ...")), (1024, true));
        let wide = truncated(&"é".repeat(600));
        assert!(wide.len() <= 1024 && wide.ends_with("é ..."), "{}", wide.len());
    }

    #[test]
    fn event_has_fields_and_name_length_that_api_server_requires() {
        let now = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        let event = event(&Packed::new(&notice("no quota"), now).unwrap(), "berth_1", 1);
        assert_eq!(event["eventTime"], "2023-11-14T22:13:20.123456Z");
        assert_eq!(event["regarding"]["apiVersion"], "kueue.x-k8s.io/v1beta2");
        assert_eq!(
            (&event["type"], &event["reason"], &event["action"]),
            (&json!("Warning"), &json!("Pending"), &json!("Pending"))
        );
        assert_eq!(event["metadata"]["namespace"], "team");
        let mut cluster = notice("x");
        cluster.key = ObjectKey { kind: Kind::ClusterQueue, namespace: String::new(), name: "q".repeat(253) };
        let event = super::event(&Packed::new(&cluster, now).unwrap(), "berth_1", 2);
        assert_eq!(event["metadata"]["namespace"], "default");
        assert!(event["metadata"]["name"].as_str().unwrap().len() <= 253);
        cluster.key.kind = Kind::Pod;
        let event = super::event(&Packed::new(&cluster, now).unwrap(), "berth_1", 3);
        assert_eq!(event["regarding"]["apiVersion"], "v1", "the core group has no name");
    }

    #[test]
    fn queued_waiting_event_is_superseded_by_newer_event_of_object() {
        let at = Timestamp::UNIX_EPOCH;
        let of = |uid: &str, reason: &str| {
            let event_type = if reason == "WaitingForQuota" { EventType::Warning } else { EventType::Normal };
            Packed::new(&Notice { event_type, uid: uid.into(), reason: reason.into(), ..notice("x") }, at).unwrap()
        };
        let mut waiting = Waiting::default();
        assert!(!waiting.push(of("a", "CreatedWorkload")) && !waiting.push(of("a", "WaitingForQuota")));
        assert!(!waiting.push(of("b", "WaitingForQuota")), "another object");
        assert!(waiting.push(of("a", "QuotaReserved")) && !waiting.push(of("a", "Admitted")));
        let reasons: Vec<_> =
            waiting.take(9).iter().map(|notice| (notice.uid().to_owned(), notice.reason().to_owned())).collect();
        let expected = [("a", "CreatedWorkload"), ("b", "WaitingForQuota"), ("a", "QuotaReserved"), ("a", "Admitted")];
        assert_eq!(reasons, expected.map(|(uid, reason)| (uid.to_owned(), reason.to_owned())));
        assert!(!waiting.push(of("b", "QuotaReserved")), "what was sent is not superseded");
    }

    #[test]
    fn superseded_event_slots_are_reused_so_the_queue_stays_bounded() {
        let at = Timestamp::UNIX_EPOCH;
        let of = |uid: &str| {
            Packed::new(&Notice { uid: uid.into(), reason: "WaitingForQuota".into(), ..notice("x") }, at).unwrap()
        };
        let mut waiting = Waiting::default();
        assert!(!waiting.push(of("first")));
        for round in 0..5 * WAITING {
            assert_eq!(waiting.push(of("again")), round > 0);
            assert!(waiting.len() == 2 && waiting.notices.len() <= 2 * WAITING + 1);
        }
        assert!(waiting.push(of("first")), "found where it stands now");
        let uids: Vec<_> = waiting.take(9).iter().map(|notice| notice.uid().to_owned()).collect();
        assert_eq!((uids, waiting.is_empty()), (vec!["again".to_owned(), "first".to_owned()], true));
    }

    #[tokio::test]
    async fn identical_event_within_a_minute_is_a_repeat() {
        let mut recent = Recent::default();
        let now = Instant::now();
        let notice = |message| Packed::new(&notice(message), Timestamp::UNIX_EPOCH).unwrap();
        assert!(!recent.repeats(&notice("a"), now));
        assert!(recent.repeats(&notice("a"), now + Duration::from_secs(59)));
        assert!(!recent.repeats(&notice("b"), now));
        assert!(!recent.repeats(&notice("a"), now + Duration::from_secs(120)));
    }
    #[tokio::test]
    async fn event_beyond_the_full_queue_is_dropped_and_counted() {
        let metrics = Arc::new(Metrics::new("test"));
        let service = tower::service_fn(|_: http::Request<Body>| async {
            Ok::<_, kube::Error>(http::Response::builder().status(201).body(Body::empty()).unwrap())
        });
        let now = Instant::now();
        let (bucket, load) = (Bucket::new(None, 1.0, now), Arc::new(Load::new(now)));
        let sink =
            EventSink::spawn(Client::new(service, "default"), "berth_1".into(), bucket, load, Arc::clone(&metrics));
        let shown = |name: &str, labels: &str| {
            let text = metrics.encode(crate::metrics::Gauges::default());
            let head = format!("{name}_total{labels} ");
            text.lines().find_map(|line| line.strip_prefix(&*head).map(str::to_owned))
        };
        // The event worker takes no event from the queue before the test awaits for the first time.
        for number in 0..QUEUE + 3 {
            sink.publish(&Notice { uid: format!("u-{number}"), ..notice("no quota") });
        }
        let dropped = "{cause=\"queue_full\"}";
        assert_eq!(shown("berth_events_dropped", dropped).as_deref(), Some("3"));
        let sent = QUEUE.to_string();
        for _ in 0..1_000 {
            if shown("berth_events_published", "").as_ref() == Some(&sent) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(shown("berth_events_published", ""), Some(sent), "all that had a place");
        sink.publish(&notice("there is room again"));
        assert_eq!(shown("berth_events_dropped", dropped).as_deref(), Some("3"));
    }
}
