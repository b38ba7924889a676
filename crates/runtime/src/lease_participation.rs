//! Lease participation: the process joins the election only after all objects of Kueue's kinds are stored in the version that Berth reads. Without an election,
//! the process then leads at once.

use crate::elector::{self, Elector};
use crate::leadership::State;
use crate::options::Election;
use berth_control::write::Term;
use kube::Client;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Participation of the process in the election.
pub(crate) enum LeaseParticipation {
    /// The process does not take part in the election yet.
    Waits {
        /// Identity of the process in the election.
        identity: String,
        /// Channel for the leadership state.
        state: watch::Sender<State>,
    },
    /// The process takes part in the election.
    Stands(elector::Handle),
    /// The process leads without an election.
    Leads(watch::Sender<State>),
}

impl LeaseParticipation {
    pub(crate) const fn waits(&self) -> bool {
        matches!(self, Self::Waits { .. })
    }

    /// Lets the process join the election, or lead if there is no election.
    pub(crate) fn begin(self, client: &Client, election: Option<&Election>) -> Self {
        match (self, election) {
            (Self::Waits { identity, state }, Some(election)) => {
                Self::Stands(Elector::spawn(client.clone(), election, identity, state))
            }
            (Self::Waits { state, .. }, None) => {
                state.send_replace(State { term: Some(Term(1)), ..State::default() });
                Self::Leads(state)
            }
            (begun, _) => begun,
        }
    }

    /// Waits for the end of the elector's task; without an elector, the wait never ends.
    pub(crate) async fn end(&mut self) {
        match self {
            Self::Stands(handle) => {
                let _ = (&mut handle.task).await;
            }
            Self::Waits { .. } | Self::Leads(_) => std::future::pending().await,
        }
    }

    /// Ends the leadership of this process, and returns the lease if the process took part in an election.
    pub(crate) fn resign(self) -> Option<Lease> {
        match self {
            Self::Waits { .. } => None,
            Self::Stands(elector::Handle { resign, release, task }) => {
                let _ = resign.send(());
                Some(Lease { release, task })
            }
            Self::Leads(state) => {
                state.send_replace(State::default());
                None
            }
        }
    }
}

/// The lease of a process that has stopped leading.
pub(crate) struct Lease {
    release: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Lease {
    /// Releases the lease, unless writes may still arrive at the API server: then no other process may lead before the lease has expired.
    pub(crate) async fn end(self, drained: bool, patience: Duration) {
        if drained {
            let _ = self.release.send(());
            // A finished task must not be awaited a second time.
            if !self.task.is_finished() {
                let _ = tokio::time::timeout(patience, self.task).await;
            }
        } else {
            self.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn elector_task_that_ended_is_not_awaited_twice() {
        let ((resign, _resigned), (release, _released)) = (oneshot::channel(), oneshot::channel());
        let task = tokio::spawn(async {});
        let mut participation = LeaseParticipation::Stands(elector::Handle { resign, release, task });
        participation.end().await;
        participation.resign().unwrap().end(true, Duration::from_secs(1)).await;
    }
}
