//! The cached text of `/metrics`, made at most once per second for any number of requests. The thread of the control loop computes the gauges, and the text
//! takes a good part of a second of CPU time in a cluster with many queues, so more scrapes must not cause more such work.

use super::ask;
use crate::core_loop::StateQuery;
use crate::metrics::{Gauges, Metrics};
use axum::body::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Time for which a metrics text is served before a new text is made.
const FRESH: Duration = Duration::from_secs(1);

/// A text of `/metrics`, metric by metric, shared by all requests that read it.
pub(super) type Text = Arc<[Bytes]>;

/// The text of `/metrics` and the gauges that all requests share.
#[derive(Default)]
pub struct Scrape {
    /// The text of `/metrics` that is served or is being made; absent if the last text is outdated.
    latest: Mutex<Option<watch::Receiver<Option<Text>>>>,
    /// Gauges of the last text of `/metrics`, used again if the control loop is too busy to answer.
    gauges: Mutex<Arc<Gauges>>,
}

impl Scrape {
    /// The current text of `/metrics`; `None` if the text could not be made.
    pub(super) async fn text(
        self: &Arc<Self>,
        queries: &mpsc::Sender<StateQuery>,
        metrics: &Arc<Metrics>,
    ) -> Option<Text> {
        let mut text = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            let known = latest.clone().filter(|text| text.has_changed().is_ok() || text.borrow().is_some());
            let text = known.unwrap_or_else(|| self.begin(queries.clone(), Arc::clone(metrics)));
            *latest = Some(text.clone());
            text
        };
        // A task of its own makes the text of `/metrics`, so that a client who disconnects delays no other client.
        text.wait_for(Option::is_some).await.ok()?.clone()
    }

    fn begin(
        self: &Arc<Self>,
        queries: mpsc::Sender<StateQuery>,
        metrics: Arc<Metrics>,
    ) -> watch::Receiver<Option<Text>> {
        let (show, shown) = watch::channel(None);
        let scrape = Arc::clone(self);
        tokio::spawn(async move {
            let gauges = scrape.gauges(&queries).await;
            // Lease renewals run on the async runtime's thread, so another thread makes the text of `/metrics`.
            let words = move || metrics.exposition(gauges).map(Bytes::from).collect::<Text>();
            if let Ok(text) = tokio::task::spawn_blocking(words).await {
                show.send_replace(Some(text));
                tokio::time::sleep(FRESH).await;
            }
            *scrape.latest.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        shown
    }

    async fn gauges(&self, queries: &mpsc::Sender<StateQuery>) -> Arc<Gauges> {
        let fresh = ask(queries, StateQuery::Gauges).await.map(Arc::new);
        let mut last = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fresh) = fresh {
            *last = fresh;
        }
        Arc::clone(&last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A control loop for tests that answers `answers` queries; each answer is a gauge with the number of queries so far.
    fn counting(answers: u32) -> (mpsc::Sender<StateQuery>, Arc<AtomicU32>) {
        let (queries, mut questions) = mpsc::channel(1);
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            for number in 1..=answers {
                let Some(StateQuery::Gauges(reply)) = questions.recv().await else { return };
                counted.store(number, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
                let mut gauges = Gauges::default();
                gauges.set("berth_unacknowledged_admissions", &[], f64::from(number));
                let _ = reply.send(gauges);
            }
        });
        (queries, count)
    }

    fn shows(text: &Text, number: u32) -> bool {
        let line = format!("berth_unacknowledged_admissions {number}");
        text.iter().any(|part| String::from_utf8_lossy(part).contains(&line))
    }

    /// A flood of scrapes queries the control loop's gauges once per second, whether the clients wait for the answer or disconnect.
    #[tokio::test]
    async fn concurrent_scrapes_share_one_query_of_the_gauges() {
        let (queries, count) = counting(10);
        let (scrape, metrics) = (Arc::new(Scrape::default()), Arc::new(Metrics::new("test")));
        let ask = || {
            let (scrape, queries, metrics) = (Arc::clone(&scrape), queries.clone(), Arc::clone(&metrics));
            tokio::spawn(async move { scrape.text(&queries, &metrics).await })
        };
        for _ in 0..50 {
            let gone = ask();
            tokio::task::yield_now().await;
            gone.abort();
        }
        let all: Vec<_> = (0..200).map(|_| ask()).collect();
        for asker in all {
            let text = asker.await.expect("an end").expect("a text");
            assert!(shows(&text, 1));
        }
        assert!(shows(&ask().await.expect("an end").expect("a text"), 1), "shown again");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        tokio::time::sleep(FRESH + Duration::from_millis(200)).await;
        assert!(scrape.latest.lock().expect("no panic").is_none(), "nothing is kept for those who do not ask");
        assert!(shows(&ask().await.expect("an end").expect("a text"), 2));
    }

    #[tokio::test]
    async fn scrape_of_unanswering_core_loop_shows_its_last_gauges() {
        let (queries, _) = counting(1);
        let (scrape, metrics) = (Arc::new(Scrape::default()), Arc::new(Metrics::new("test")));
        assert!(shows(&scrape.text(&queries, &metrics).await.expect("a text"), 1));
        tokio::time::sleep(FRESH + Duration::from_millis(200)).await;
        let text = scrape.text(&queries, &metrics).await.expect("a text");
        assert!(shows(&text, 1), "what the loop said last");
    }
}
