//! Back-off of a failing watch.
//!
//! The back-off of `kube` restarts at the beginning of every list, so a list that always fails would be requested every second.

use kube::runtime::watcher::Error;
use std::time::{Duration, Instant};

/// Pause before the first new attempt of a failed watch.
const FIRST: Duration = Duration::from_millis(800);
/// Longest pause before a new attempt of a failed watch; a pause of up to half a second, which differs by watch, is added.
const MOST: Duration = Duration::from_secs(30);

/// Time without a failure after which a watch counts as working, even if no object changed.
const CALM: Duration = Duration::from_secs(90);

/// Pauses between the attempts of a failing watch; the pauses double after each failure, until the watch delivers events again.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    last: Option<Instant>,
}

impl Retry {
    /// Notes that the watch delivers events.
    pub(crate) fn works(&mut self) {
        self.failures = 0;
    }

    /// Notes a failure of the watch, and returns whether the watch worked before the failure. A watch without events may work, because objects of some kinds
    /// change once in weeks.
    pub(crate) fn began(&mut self, now: Instant) -> bool {
        let worked = self.last.is_none_or(|last| now.saturating_duration_since(last) > CALM);
        if worked {
            self.failures = 0;
        }
        self.last = Some(now);
        worked
    }

    /// Pause after a failure of the watch, at least as long as the API server asked for. `number` differs by watch, so that the watches do not all retry at the
    /// same time.
    pub(crate) fn failed(&mut self, number: usize, error: &Error) -> Duration {
        let own = FIRST.saturating_mul(1 << self.failures.min(6)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        let apart = Duration::from_millis(u64::try_from(number % 32).unwrap_or_default() * 17);
        own.max(asked_for(error)) + apart
    }
}

fn asked_for(error: &Error) -> Duration {
    let status = match error {
        Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status)) => {
            status
        }
        Error::WatchError(status) => status,
        _ => return Duration::ZERO,
    };
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(u64::from(seconds)).min(MOST)
}

/// Whether the error says that the API server does not serve the watched kind.
pub(crate) fn is_gone(error: &Error) -> bool {
    matches!(
        error,
        Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status))
            if status.code == 404
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    fn failure(code: u16, seconds: u32) -> Error {
        let details: StatusDetails = serde_json::from_value(serde_json::json!({"retryAfterSeconds": seconds})).unwrap();
        let status = Status { code, details: Some(details), ..Status::failure("no", "No") };
        Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn retry_pauses_double_up_to_30s_until_the_watch_works() {
        let mut retry = Retry::default();
        let mut pauses =
            |times: usize| -> Vec<u128> { (0..times).map(|_| retry.failed(0, &failure(503, 0)).as_millis()).collect() };
        assert_eq!(pauses(8), [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        retry.works();
        assert_eq!(retry.failed(2, &failure(503, 0)).as_millis(), 834);
        assert_eq!(retry.failed(0, &failure(429, 7)).as_secs(), 7, "the server knows better");
        let start = Instant::now();
        assert!(retry.began(start), "the first one");
        assert_eq!(retry.failed(0, &failure(503, 0)).as_millis(), 800);
        assert!(!retry.began(start + Duration::from_secs(60)), "it may have been silent for that long");
        assert_eq!(retry.failed(0, &failure(503, 0)).as_millis(), 1_600);
        assert!(retry.began(start + Duration::from_secs(160)));
        assert_eq!(retry.failed(0, &failure(503, 0)).as_millis(), 800, "it was quiet, and worked");
        assert!(is_gone(&failure(404, 0)) && !is_gone(&failure(503, 0)));
        assert!(!is_gone(&Error::NoResourceVersion));
    }
}
