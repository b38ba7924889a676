//! The Lease of the simulated API server.

use std::time::Duration;

use berth_lease::{Action, Record};

/// The stored Lease, if there is a Lease.
#[derive(Debug, Default)]
pub(super) struct LeaseStore {
    record: Option<Record>,
    version: u64,
}

/// Answer to a request about the Lease.
#[derive(Clone, Debug)]
pub(super) enum LeaseAnswer {
    /// The Lease as it is stored.
    Read(Option<Record>),
    /// The Lease after the request was applied.
    Written(Record),
    /// Another candidate wrote the Lease first.
    Conflict,
    /// No answer arrived.
    Lost,
}

impl LeaseStore {
    /// Performs a candidate's request about the Lease.
    pub(super) fn perform(&mut self, identity: &str, duration: Duration, action: &Action) -> LeaseAnswer {
        let version = self.record.as_ref().map(|record| record.version.clone());
        let transitions = match action {
            Action::Create if version.is_none() => 0,
            Action::Claim { version: known, transitions } if version.as_ref() == Some(known) => *transitions,
            Action::Renew { version: known } if version.as_ref() == Some(known) => {
                self.record.as_ref().map_or(0, |record| record.transitions)
            }
            Action::Read => return LeaseAnswer::Read(self.record.clone()),
            _ => return LeaseAnswer::Conflict,
        };
        self.version += 1;
        let record =
            Record { holder: Some(identity.to_owned()), duration, transitions, version: self.version.to_string() };
        self.record = Some(record.clone());
        LeaseAnswer::Written(record)
    }
}
