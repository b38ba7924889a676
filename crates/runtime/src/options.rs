//! Options that the crate `berth-manager` passes to the runtime: addresses, election, limits.

use std::time::Duration;

/// Leader election on a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Time after its last renewal for which the Lease stays held (`leaseDurationSeconds`).
    pub lease_duration: Duration,
    /// Time without a renewal after which the leader steps down.
    pub renew_deadline: Duration,
    /// Pause between two attempts to get or renew the Lease.
    pub retry_period: Duration,
    /// True if Berth manages pods, so that the Lease gets the creation time from which on pods are counted.
    pub counts_pods: bool,
}

/// Options of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Settings of the election; with `None` there is no election, and the process always leads.
    pub election: Option<Election>,
    /// Address of `/metrics` and `/debug/*`; `None` switches the server off.
    pub metrics_address: Option<String>,
    /// Address of the server for the readiness and liveness probes; `None` switches the server off.
    pub health_address: Option<String>,
    /// URL path of the readiness probe, without its leading slash.
    pub readiness_path: String,
    /// URL path of the liveness probe, without its leading slash.
    pub liveness_path: String,
    /// Largest number of writes to the API server per second; `None` means no limit.
    pub write_rate: Option<f64>,
    /// Number of writes to the API server that may be sent in a burst before the rate applies.
    pub write_burst: f64,
    /// Events per second.
    pub event_rate: f64,
    /// Number of Kubernetes events that may be sent in a burst before the rate applies.
    pub event_burst: f64,
    /// Largest number of concurrent writes to the API server, to which a few background writes are added.
    pub writes_in_flight: usize,
    /// Namespace of this process, which has the Secrets with credentials of checkpoint stores.
    pub namespace: Option<String>,
    /// Berth's version, for the metric `build_info` and the HTTP user agent.
    pub version: String,
}

/// Time limit of a write.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

impl Options {
    /// The time limit of a write to the API server: ten seconds, or less if the lease would be too short for such a write and two renewals.
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
