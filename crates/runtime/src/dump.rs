//! Dump of control's view into the log on a signal: a line for each ClusterQueue and cohort, and a last line with counts.

use crate::core_loop::StateQuery;
use crate::server;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Largest number of quota holders in a line of the dump. With the longest names, the quota holders of a line take 13 KB, and a container's log splits lines
/// after 16 KB.
const MOST_HOLDERS: usize = 40;

/// A line of the dump.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line of the dump about a ClusterQueue.
    ClusterQueue {
        name: String,
        ready: String,
        reserving: u64,
        pending: u64,
        /// Used and available quota of the ClusterQueue by flavor and resource.
        usage: String,
        holders: String,
    },
    /// The line of the dump about a cohort, whether a Cohort object exists or not.
    Cohort { name: String, cycle: bool, usage: String },
    /// The last line of the dump, with counts of the dumped objects and of the faults that the engine finds in its accounting.
    End { cluster_queues: usize, cohorts: usize, workloads: u64, problems: usize },
    /// The line that the dump has if the control loop did not answer.
    NoAnswer,
}

/// Makes a dump of control's view for each request, and passes its lines to `report`. All requests that arrive during a dump cause one more dump together.
pub(crate) async fn dump_on_request(
    asked: Arc<Notify>,
    queries: mpsc::Sender<StateQuery>,
    mut report: impl FnMut(Line),
) -> Infallible {
    loop {
        asked.notified().await;
        let Some(held) = server::ask(&queries, StateQuery::Held).await else {
            report(Line::NoAnswer);
            continue;
        };
        for line in lines(&held) {
            report(line);
            // Lease renewals run on the thread that writes the dump, and must not wait for thousands of lines.
            tokio::task::yield_now().await;
        }
    }
}

/// Writes a line of the dump into the log.
pub(crate) fn log(line: Line) {
    match line {
        Line::ClusterQueue { name, ready, reserving, pending, usage, holders } => {
            tracing::info!(cluster_queue = name, ready, reserving, pending, usage, holders, "dump of a ClusterQueue")
        }
        Line::Cohort { name, cycle, usage } => tracing::info!(cohort = name, cycle, usage, "dump of a cohort"),
        Line::End { cluster_queues, cohorts, workloads, problems } => {
            tracing::info!(cluster_queues, cohorts, workloads, problems, "end of the dump");
        }
        Line::NoAnswer => tracing::warn!("no dump: the loop does not answer"),
    }
}

fn lines(held: &Value) -> Vec<Line> {
    let mut lines: Vec<Line> = objects(held, "ClusterQueue").map(cluster_queue).collect();
    let cluster_queues = lines.len();
    lines.extend(objects(held, "Cohort").map(cohort));
    lines.push(Line::End {
        cluster_queues,
        cohorts: lines.len().saturating_sub(cluster_queues),
        workloads: held.get("workloads").and_then(Value::as_u64).unwrap_or_default(),
        problems: held.get("problems").and_then(Value::as_array).map_or(0, Vec::len),
    });
    lines
}

/// The objects of one kind in a digest of control's view: name and fields of each object.
fn objects<'a>(held: &'a Value, kind: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    held.get(kind).and_then(Value::as_object).into_iter().flatten()
}

fn cluster_queue((name, digest): (&String, &Value)) -> Line {
    let count = |field: &str| digest.get(field).and_then(Value::as_u64).unwrap_or_default();
    Line::ClusterQueue {
        name: name.clone(),
        ready: digest.get("ready").and_then(Value::as_str).unwrap_or_default().to_owned(),
        reserving: count("reserving"),
        pending: count("pending"),
        usage: usage(digest),
        holders: holders(digest),
    }
}

fn cohort((name, digest): (&String, &Value)) -> Line {
    let cycle = digest.get("cycle").and_then(Value::as_bool).unwrap_or_default();
    Line::Cohort { name: name.clone(), cycle, usage: usage(digest) }
}

fn usage(digest: &Value) -> String {
    let cells = digest.get("usage").and_then(Value::as_object).into_iter().flatten();
    let cells = cells.map(|(cell, used)| format!("{cell}: {}", used.as_str().unwrap_or_default()));
    cells.collect::<Vec<_>>().join(", ")
}

fn holders(digest: &Value) -> String {
    let all = digest.get("holders").and_then(Value::as_array).into_iter().flatten();
    let all: Vec<&str> = all.filter_map(Value::as_str).collect();
    let named = all.iter().take(MOST_HOLDERS).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST_HOLDERS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);
    const NOTHING: Line = Line::End { cluster_queues: 0, cohorts: 0, workloads: 0, problems: 0 };

    #[test]
    fn dump_has_lines_per_cluster_queue_and_cohort_and_totals() {
        let many: Vec<String> = (0..MOST_HOLDERS + 2).map(|number| format!("n/w{number}")).collect();
        let held = json!({
            "ClusterQueue": {
                "a": {
                    "ready": "Ready",
                    "reserving": 2,
                    "pending": 3,
                    "usage": {"spot/cpu": "1 of 4", "spot/memory": "2 of 8"},
                    "holders": ["n/w", "n/x"],
                },
                "b": {"ready": null, "reserving": null, "pending": null, "usage": {}, "holders": many},
            },
            "Cohort": {"c": {"cycle": true, "usage": {"spot/cpu": "1 of 4"}}},
            "workloads": 3,
            "problems": ["a problem"],
        });
        let first = Line::ClusterQueue {
            name: "a".to_owned(),
            ready: "Ready".to_owned(),
            reserving: 2,
            pending: 3,
            usage: "spot/cpu: 1 of 4, spot/memory: 2 of 8".to_owned(),
            holders: "n/w, n/x".to_owned(),
        };
        let second = Line::ClusterQueue {
            name: "b".to_owned(),
            ready: String::new(),
            reserving: 0,
            pending: 0,
            usage: String::new(),
            holders: format!("{} and 2 more", many[..MOST_HOLDERS].join(", ")),
        };
        let third = Line::Cohort { name: "c".to_owned(), cycle: true, usage: "spot/cpu: 1 of 4".to_owned() };
        let last = Line::End { cluster_queues: 2, cohorts: 1, workloads: 3, problems: 1 };
        assert_eq!(lines(&held), [first, second, third, last]);
        assert_eq!(lines(&Value::Null), [NOTHING]);
    }

    async fn soon<T>(what: &str, work: impl Future<Output = Option<T>>) -> T {
        tokio::time::timeout(PATIENCE, work).await.expect(what).expect(what)
    }

    #[tokio::test]
    async fn dump_requests_during_a_dump_lead_to_one_more() {
        let asked = Arc::new(Notify::new());
        let (queries, mut questions) = mpsc::channel(16);
        let (sender, mut lines) = mpsc::unbounded_channel();
        tokio::spawn(dump_on_request(Arc::clone(&asked), queries, move |line| drop(sender.send(line))));
        asked.notify_one();
        for again in [5, 0] {
            let StateQuery::Held(reply) = soon("a question", questions.recv()).await else { panic!("what is held") };
            for _ in 0..again {
                asked.notify_one();
            }
            reply.send(json!({})).expect("somebody listens");
            assert_eq!(soon("an end", lines.recv()).await, NOTHING);
        }
        assert!(tokio::time::timeout(Duration::from_millis(50), questions.recv()).await.is_err(), "a third dump");
    }

    #[tokio::test]
    async fn unanswered_dump_is_reported_and_next_request_is_answered() {
        let asked = Arc::new(Notify::new());
        let (queries, mut questions) = mpsc::channel(1);
        let (sender, mut lines) = mpsc::unbounded_channel();
        tokio::spawn(dump_on_request(Arc::clone(&asked), queries, move |line| drop(sender.send(line))));
        for answers in [false, true] {
            asked.notify_one();
            let StateQuery::Held(reply) = soon("a question", questions.recv()).await else { panic!("what is held") };
            if answers {
                reply.send(json!({})).expect("somebody listens");
            } else {
                drop(reply);
            }
            let expected = if answers { NOTHING } else { Line::NoAnswer };
            assert_eq!(soon("a line", lines.recv()).await, expected);
        }
    }
}
