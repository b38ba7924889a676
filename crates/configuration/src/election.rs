//! The block `leaderElection` of the configuration file.

use crate::duration::GoDuration;
use crate::fault::Fault;
use crate::given::Given;
use crate::schema::LeaderElection;
use berth_api::labels::LEADER_LEASE;
use std::time::Duration;

/// Settings of the leader election on a Lease, which the manager passes to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Time for which the Lease is valid without a renewal.
    pub lease_duration: Duration,
    /// Time without a renewal after which the leader gives up.
    pub renew_deadline: Duration,
    /// Pause between two attempts to get or renew the Lease.
    pub retry_period: Duration,
    /// True if Berth queues pods: the Lease then has the time since which pods are queued.
    pub counts_pods: bool,
}

/// Warnings about the name and namespace of the Lease, one for each that a flag replaces: a Kueue that still runs with this configuration file would
/// hold another Lease.
pub(crate) fn overruled(block: &LeaderElection, given: &Given) -> Vec<String> {
    let parts = [
        ("resourceName", &block.resource_name, "--leader-elect-resource-name", &given.lease_name),
        ("resourceNamespace", &block.resource_namespace, "--leader-elect-resource-namespace", &given.lease_namespace),
    ];
    let warning = |(field, file, flag, given): (&str, &Option<String>, &str, &Option<String>)| {
        let file = file.as_ref().filter(|name| !name.is_empty())?;
        let given = given.as_ref().filter(|name| !name.is_empty() && *name != file)?;
        Some(format!(
            "leaderElection.{field} is `{file}` and {flag} is `{given}`, which holds: beside a Kueue that goes by this file both would act"
        ))
    };
    parts.into_iter().filter_map(warning).collect()
}

/// The leader election that the configuration file and the flags set; `None` if leader election is off.
pub(crate) fn election(
    block: &LeaderElection,
    given: &Given,
    namespace: &str,
    counts_pods: bool,
) -> Result<Option<Election>, Fault> {
    if let Some(lock) = block.resource_lock.as_deref().filter(|lock| !matches!(*lock, "" | "leases")) {
        let field = "leaderElection.resourceLock";
        return Err(Fault::of(field, format!("{field} is `{lock}`; allowed is leases")));
    }
    let lease = GoDuration::non_zero(block.lease_duration).unwrap_or(GoDuration::seconds(15));
    let renew = GoDuration::non_zero(block.renew_deadline).unwrap_or(GoDuration::seconds(10));
    let retry = GoDuration::non_zero(block.retry_period).unwrap_or(GoDuration::seconds(2));
    if !given.leader_elect.or(block.leader_elect).unwrap_or(true) {
        return Ok(None);
    }
    // The Lease stores its duration in whole seconds, and a write of the Lease must end within that time.
    if lease.length() < Duration::from_secs(3) || lease.length().subsec_nanos() > 0 {
        let field = "leaderElection.leaseDuration";
        return Err(Fault::of(field, format!("{field} must be whole seconds, at least 3s")));
    }
    if lease <= renew {
        let text = "leaderElection: leaseDuration must be longer than renewDeadline";
        return Err(Fault::of("leaderElection", text));
    }
    // client-go multiplies the retry period by up to 1.2 for jitter, and also requires a renew deadline above 1.2 times the retry period.
    if renew.length() <= retry.length().mul_f64(1.2) || retry <= GoDuration::seconds(0) {
        let text = "leaderElection: renewDeadline must be longer than 1.2 times retryPeriod, and that above 0s";
        return Err(Fault::of("leaderElection", text));
    }
    let named = |flag: &Option<String>, file: &Option<String>, default: &str| {
        let given = flag.as_ref().or(file.as_ref()).filter(|name| !name.is_empty());
        given.map_or_else(|| default.to_owned(), Clone::clone)
    };
    Ok(Some(Election {
        namespace: named(&given.lease_namespace, &block.resource_namespace, namespace),
        name: named(&given.lease_name, &block.resource_name, LEADER_LEASE),
        lease_duration: lease.length(),
        renew_deadline: renew.length(),
        retry_period: retry.length(),
        counts_pods,
    }))
}
