//! The leadership state: the process's term and the end of its lease, shared by the elector, the control loop and the writer.

use berth_control::write::Term;
use jiff::Timestamp;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Term and lease of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The term of this process; `None` while it does not lead.
    pub term: Option<Term>,
    /// Time at which the lease ends by the monotonic clock of this process; `None` without an election, because leadership then never ends.
    pub until: Option<Instant>,
    /// Creation time in the Lease from which on pods are counted; `None` if Berth does not count pods, or the Lease has no such time.
    pub pods_since: Option<Timestamp>,
}

impl State {
    /// Whether a write that takes at most `deadline` would end before another process may lead.
    #[must_use]
    pub fn open(&self, now: Instant, deadline: Duration) -> bool {
        self.term.is_some() && self.until.is_none_or(|until| until.saturating_duration_since(now) >= deadline)
    }
}

/// Reader of the leadership state.
#[derive(Clone, Debug)]
pub struct Leadership {
    receiver: watch::Receiver<State>,
    deadline: Duration,
}

impl Leadership {
    /// A reader and a writer of the leadership state. `deadline` is the time limit of each write to the API server.
    #[must_use]
    pub fn new(deadline: Duration) -> (watch::Sender<State>, Self) {
        let (sender, receiver) = watch::channel(State::default());
        (sender, Self { receiver, deadline })
    }

    /// The time limit of each write to the API server.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The current leadership state.
    #[must_use]
    pub fn state(&self) -> State {
        *self.receiver.borrow()
    }

    /// Whether a write that was decided in `term` may be sent now.
    #[must_use]
    pub fn permits(&self, term: Term, now: Instant) -> bool {
        let state = self.state();
        state.term == Some(term) && state.open(now, self.deadline)
    }

    /// Whether writes may be sent: the process leads, and its lease is long enough for a write.
    #[must_use]
    pub fn open(&self, now: Instant) -> bool {
        self.state().open(now, self.deadline)
    }

    /// Waits until this process no longer leads in a term. Never returns if the elector is gone and the term has not ended.
    pub async fn over(&self, term: Term) {
        let mut receiver = self.receiver.clone();
        if receiver.wait_for(|state| state.term != Some(term)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a change of the term or of the lease's end. Never returns if the elector is gone.
    pub async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn write_is_permitted_only_in_its_term_with_time_left() {
        let deadline = Duration::from_secs(10);
        let (sender, leadership) = Leadership::new(deadline);
        let now = Instant::now();
        assert!(!leadership.permits(Term(1), now));
        sender.send_replace(State {
            term: Some(Term(1)),
            until: Some(now + Duration::from_secs(15)),
            ..State::default()
        });
        assert!(leadership.permits(Term(1), now));
        assert!(leadership.permits(Term(1), now + Duration::from_secs(5)));
        assert!(!leadership.permits(Term(1), now + Duration::from_millis(5001)));
        assert!(!leadership.permits(Term(2), now));
        sender.send_replace(State::default());
        assert!(!leadership.permits(Term(1), now));
        sender.send_replace(State { term: Some(Term(3)), ..State::default() });
        assert!(leadership.permits(Term(3), now + Duration::from_secs(100_000)));
    }
}
