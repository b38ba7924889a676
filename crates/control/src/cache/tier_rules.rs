//! Rules of tiers: their order, their patience and their back-off.

use berth_engine::model::Tier;

/// Back-off of a flavor that was out of stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackoffRules {
    /// The first time, in milliseconds.
    pub(crate) initial_ms: i64,
    /// Factor by which each next time is longer.
    pub(crate) factor: i64,
    /// The longest, in milliseconds.
    pub(crate) max_ms: i64,
    /// A failure is forgotten after so many milliseconds without another.
    pub(crate) decay_ms: i64,
}

impl BackoffRules {
    /// The delay after so many failures in a row.
    pub(crate) fn delay_ms(&self, failures: u32) -> i64 {
        let growth = self.factor.max(1).checked_pow(failures.saturating_sub(1)).unwrap_or(i64::MAX);
        self.initial_ms.saturating_mul(growth).min(self.max_ms).max(0)
    }
}

/// Moment at which a running job may return to a better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    AfterCheckpoint,
    Anytime,
}

/// Rules for the return of a running job to a better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClimbRules {
    pub(crate) when: When,
    pub(crate) min_stay_ms: i64,
    /// Time in milliseconds for which the better tier must have been free.
    pub(crate) steady_ms: i64,
    pub(crate) max_times: i32,
}

/// Default rules for the return to a better tier.
pub(crate) const USUAL_CLIMB: ClimbRules =
    ClimbRules { when: When::AfterCheckpoint, min_stay_ms: 60 * MINUTE_MS, steady_ms: 5 * MINUTE_MS, max_times: 3 };

/// Signals that count as capacity that did not turn up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signals {
    /// No node takes a pod within the patience.
    pub(crate) unschedulable: bool,
    /// An autoscaler says that a pod gets no node.
    pub(crate) scale_up_failed: bool,
    /// An autoscaler that was asked for capacity did not get it.
    pub(crate) provisioning_failed: bool,
    /// A taint announces the end of a spot node on which a pod runs.
    pub(crate) node_reclaimed: bool,
}

impl Signals {
    /// Signals by their names in a policy; no names stand for all.
    pub(crate) fn of(names: &[String]) -> Self {
        let counts = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
        Self {
            unschedulable: counts("Unschedulable"),
            scale_up_failed: counts("ScaleUpFailed"),
            provisioning_failed: counts("ProvisioningRequestFailed"),
            node_reclaimed: counts("NodeReclaimed"),
        }
    }
}

/// The tiers of jobs with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TiersFor {
    pub(crate) label: String,
    /// Values of the label, of which a job has one.
    pub(crate) values: Vec<String>,
    /// Best first.
    pub(crate) tiers: Vec<Tier>,
}

/// The rules of tiers for a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierRules {
    /// The tiers of jobs that name none, best first; empty: flavors as they come.
    pub(crate) default: Vec<Tier>,
    /// The tiers of jobs among them that have a label; the first that fits takes the place of `default`.
    pub(crate) default_for: Vec<TiersFor>,
    /// How long a started job may lack nodes, in milliseconds, by tier in the usual order.
    pub(crate) patience_ms: [i64; 3],
    pub(crate) signals: Signals,
    pub(crate) backoff: BackoffRules,
    /// Selectors of capacity in jobs give way.
    pub(crate) overrides: bool,
    /// `None` if no job returns to a better tier.
    pub(crate) climb: Option<ClimbRules>,
    /// Most of a tier that a queue may hold, in per cent, by tier in the usual order.
    pub(crate) max_shares: [Option<u32>; 3],
}

impl TierRules {
    /// How long a job in a tier may lack nodes, in milliseconds.
    pub(crate) fn patience_ms(&self, tier: Tier) -> i64 {
        let [reserved, on_demand, spot] = self.patience_ms;
        match tier {
            Tier::Reserved => reserved,
            Tier::OnDemand => on_demand,
            Tier::Spot => spot,
        }
    }
}

const MINUTE_MS: i64 = 60_000;

/// Default rules of tiers.
pub(crate) static USUAL: TierRules = TierRules {
    default: Vec::new(),
    default_for: Vec::new(),
    patience_ms: [10 * MINUTE_MS; 3],
    signals: Signals { unschedulable: true, scale_up_failed: true, provisioning_failed: true, node_reclaimed: true },
    backoff: BackoffRules { initial_ms: 5 * MINUTE_MS, factor: 2, max_ms: 120 * MINUTE_MS, decay_ms: 30 * MINUTE_MS },
    overrides: false,
    climb: None,
    max_shares: [None; 3],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_delay_grows_by_factor_up_to_maximum() {
        let backoff = BackoffRules { initial_ms: 100, factor: 3, max_ms: 1_000, decay_ms: 1 };
        let delays: Vec<i64> = [0, 1, 2, 3, 4, 90, u32::MAX].map(|failures| backoff.delay_ms(failures)).to_vec();
        assert_eq!(delays, [100, 100, 300, 900, 1_000, 1_000, 1_000]);
        assert_eq!(BackoffRules { factor: 0, ..backoff }.delay_ms(9), 100);
    }
}
