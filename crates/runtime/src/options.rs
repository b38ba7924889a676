//! Options that the manager passes to the runtime: addresses, election, limits.

use std::time::Duration;

/// Leader election on a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// How long a lease holds without renewal.
    pub lease_duration: Duration,
    /// The holder gives up when it could not renew for that long.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
    /// Pods are queued: the Lease says since when.
    pub counts_pods: bool,
}

/// Options of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `None`: no election, this process always leads.
    pub election: Option<Election>,
    /// Address of `/metrics` and `/debug/*`; `None` switches it off.
    pub metrics_address: Option<String>,
    /// Address of the probes; `None` switches it off.
    pub health_address: Option<String>,
    /// Path of the readiness probe, without slash.
    pub readiness_path: String,
    /// Path of the liveness probe, without slash.
    pub liveness_path: String,
    /// Writes per second; `None` is unlimited.
    pub write_rate: Option<f64>,
    /// Writes that may go at once before the rate counts.
    pub write_burst: f64,
    /// Events per second.
    pub event_rate: f64,
    /// Events that may go at once before the rate counts.
    pub event_burst: f64,
    /// Writes under way at once, beside a few more in the background.
    pub writes_in_flight: usize,
    /// The namespace of this process: it has the Secrets with credentials of checkpoint stores.
    pub namespace: Option<String>,
    /// Version for `build_info` and the user agent.
    pub version: String,
}

/// Longest time a write may take.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

impl Options {
    /// The write deadline: ten seconds, less when the lease is so short that two renewals would not fit beside it.
    #[must_use]
    pub fn write_deadline(&self) -> Duration {
        match &self.election {
            None => WRITE_DEADLINE,
            Some(election) => election
                .lease_duration
                .saturating_sub(election.retry_period.saturating_mul(2))
                .clamp(Duration::from_secs(1), WRITE_DEADLINE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(lease: u64, retry: u64) -> Options {
        Options {
            election: Some(Election {
                namespace: "n".into(),
                name: "l".into(),
                lease_duration: Duration::from_secs(lease),
                renew_deadline: Duration::from_secs(lease / 2),
                retry_period: Duration::from_secs(retry),
                counts_pods: false,
            }),
            metrics_address: None,
            health_address: None,
            readiness_path: "readyz".into(),
            liveness_path: "healthz".into(),
            write_rate: None,
            write_burst: 1.0,
            event_rate: 1.0,
            event_burst: 1.0,
            writes_in_flight: 1,
            namespace: None,
            version: "0".into(),
        }
    }

    #[test]
    fn write_deadline_leaves_room_for_lease_renewals() {
        assert_eq!(options(15, 2).write_deadline(), Duration::from_secs(10));
        assert_eq!(options(6, 1).write_deadline(), Duration::from_secs(4));
        assert_eq!(options(2, 1).write_deadline(), Duration::from_secs(1));
    }
}
