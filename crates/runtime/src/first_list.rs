//! Time limit for the first list of a kind. Berth decides only on complete lists, so a kind that cannot be listed would stop all decisions. The control loop
//! continues without the list of a dispensable kind, and only jobs that need the kind then wait.

use kube::runtime::watcher::Error;
use std::time::{Duration, Instant};

/// Time for which the control loop waits for the first list of a kind while this list fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest reason of a failed list that is reported, in characters.
const REASON_LIMIT: usize = 300;

/// Progress of the first list of a kind since fresh lists were requested.
#[derive(Debug, Default)]
pub(crate) struct FirstList {
    begun: Option<Instant>,
    failures: u32,
    /// True if the control loop no longer waits for the first list of the kind.
    listed: bool,
    /// True if the control loop continues without the first list of the kind.
    continued: bool,
}

impl FirstList {
    /// Notes the request of a fresh list.
    pub(crate) fn begin(&mut self, now: Instant) {
        *self = Self { begun: Some(now), continued: self.continued, ..Self::default() };
    }

    /// Notes a failed list. Returns true if the control loop is to continue without the kind's list from now on, once for each requested list. A list that RBAC
    /// forbids stays forbidden until an administrator changes the permissions. A single failed list does not count, because the next attempt follows within a
    /// second.
    pub(crate) fn failed(&mut self, error: &Error, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let late = self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PATIENCE);
        let goes_on = !self.listed && self.failures >= 2 && (late || is_forbidden(error));
        self.listed |= goes_on;
        self.continued |= goes_on;
        goes_on
    }

    /// Notes a complete list. Returns true if the control loop continued without the kind's list until now.
    pub(crate) fn is_complete(&mut self) -> bool {
        let continued = self.continued;
        *self = Self { listed: true, ..Self::default() };
        continued
    }

    /// Whether the control loop still waits for the requested list of the kind.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.listed
    }
}

fn status(error: &Error) -> Option<&kube::core::Status> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status)) => {
            Some(status)
        }
        Error::WatchError(status) => Some(status),
        _ => None,
    }
}

fn is_forbidden(error: &Error) -> bool {
    status(error).is_some_and(|status| status.code == 403)
}

/// Reason of a failed list, in the API server's words if there are any.
pub(crate) fn reason(error: &Error) -> String {
    let text = status(error).map_or_else(|| error.to_string(), |status| status.message.clone());
    text.chars().take(REASON_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn failure(code: u16) -> Error {
        let status = Status { code, ..Status::failure("jobsets is forbidden", "Forbidden") };
        Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn first_list_that_is_forbidden_twice_is_given_up() {
        let now = Instant::now();
        let mut first = FirstList::default();
        first.begin(now);
        assert!(!first.failed(&failure(403), now) && first.is_awaited());
        assert!(first.failed(&failure(403), now) && !first.is_awaited());
        assert!(!first.failed(&failure(403), now + PATIENCE), "told once");
        assert_eq!(reason(&failure(403)), "jobsets is forbidden");
    }

    /// An API server that answers each list after a minute fails only twice in two minutes.
    #[test]
    fn first_list_with_server_errors_is_given_up_after_patience() {
        let now = Instant::now();
        let mut first = FirstList::default();
        first.begin(now);
        assert!(!first.failed(&failure(500), now) && !first.failed(&failure(500), now + PATIENCE / 2));
        assert!(first.failed(&failure(500), now + PATIENCE));
        first.begin(now);
        assert!(!first.failed(&failure(500), now + 6 * PATIENCE), "the first");
        assert!(first.failed(&failure(500), now + 12 * PATIENCE));
    }

    #[test]
    fn first_list_that_was_given_up_reports_its_later_completion() {
        let now = Instant::now();
        let mut first = FirstList::default();
        first.begin(now);
        assert!(!first.failed(&failure(403), now) && first.failed(&failure(403), now));
        // A new epoch of the watches requests a fresh list of the kind.
        first.begin(now);
        assert!(first.is_awaited());
        assert!(first.is_complete(), "it was done without so far");
        assert!(!first.is_complete() && !first.is_awaited(), "and is not any more");
        assert!(!first.failed(&failure(403), now) && !first.failed(&failure(403), now + PATIENCE), "it was listed");
    }
}
