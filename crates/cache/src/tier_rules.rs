//! Rules of capacity tiers: their order, their patience and their back-off.

use berth_engine::model::Tier;

/// The back-off of a flavor that was out of stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffRules {
    /// The back-off after the first stock-out of a flavor, in milliseconds.
    pub initial_ms: i64,
    /// The factor by which the back-off of a flavor grows with each further stock-out.
    pub factor: i64,
    /// The longest back-off of a flavor, in milliseconds.
    pub max_ms: i64,
    /// The time in milliseconds without a further stock-out after which a stock-out of a flavor is forgotten.
    pub decay_ms: i64,
}

impl BackoffRules {
    /// The back-off of a flavor in milliseconds after a number of stock-outs in a row.
    pub fn delay_ms(&self, failures: u32) -> i64 {
        let growth = self.factor.max(1).checked_pow(failures.saturating_sub(1)).unwrap_or(i64::MAX);
        self.initial_ms.saturating_mul(growth).min(self.max_ms).max(0)
    }
}

/// The times at which a running job may move back to a better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A job moves only if its last checkpoint is not older than the time since which the better tier has been free.
    AfterCheckpoint,
    /// A job moves with or without a checkpoint.
    Anytime,
}

/// The rules by which a running job moves back to a better tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotionRules {
    /// The times at which a job may move, with regard to its checkpoints.
    pub when: When,
    /// The shortest time in milliseconds for which a job runs before it moves.
    pub min_stay_ms: i64,
    /// Time in milliseconds for which the better tier must have been free before a job moves back to it.
    pub steady_ms: i64,
    /// The number of times that a Workload may move back; with 0, no Workload moves back.
    pub max_times: i32,
}

/// The default rules for moving back to a better tier.
pub(crate) const USUAL_PROMOTION: PromotionRules =
    PromotionRules { when: When::AfterCheckpoint, min_stay_ms: 60 * MINUTE_MS, steady_ms: 5 * MINUTE_MS, max_times: 3 };

/// The signals that count as a lack of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// True if a pod that no node takes within the patience is a signal of lacking capacity.
    pub unschedulable: bool,
    /// True if an autoscaler's message that a pod gets no node is a signal of lacking capacity.
    pub scale_up_failed: bool,
    /// True if an autoscaler's failure to provide requested capacity is a signal of lacking capacity.
    pub provisioning_failed: bool,
    /// True if a taint that announces that a spot node with a running pod is taken away is a signal of lacking capacity.
    pub node_reclaimed: bool,
}

impl Signals {
    /// The signals with the given names of a policy; an empty list means all signals.
    pub fn of(names: &[String]) -> Self {
        let counts = |name: &str| names.is_empty() || names.iter().any(|named| named == name);
        Self {
            unschedulable: counts("Unschedulable"),
            scale_up_failed: counts("ScaleUpFailed"),
            provisioning_failed: counts("ProvisioningRequestFailed"),
            node_reclaimed: counts("NodeReclaimed"),
        }
    }
}

/// The tiers of jobs that have a label with one of several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TiersFor {
    /// The key of the label. The tiers apply if the Workload or one of its pod templates has the label with one of the values.
    pub label: String,
    /// The values of the label for which the tiers apply.
    pub values: Vec<String>,
    /// The tiers, the best first.
    pub tiers: Vec<Tier>,
}

/// The tier rules of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierRules {
    /// The tiers of jobs that name no tier, the best first; if empty, jobs take flavors in the order of the ClusterQueue.
    pub default: Vec<Tier>,
    /// The tiers of jobs that name no tier and have a label; the first rule that fits replaces `default`.
    pub default_for: Vec<TiersFor>,
    /// The time in milliseconds for which a started job may lack nodes, for the tiers reserved, on demand and spot.
    pub patience_ms: [i64; 3],
    /// The signals that count as a lack of capacity.
    pub signals: Signals,
    /// The back-off of a flavor whose nodes were not created.
    pub backoff: BackoffRules,
    /// True if the tiers override selectors of capacity in jobs.
    pub overrides: bool,
    /// The rules for moving back; `None` if no job moves back to a better tier.
    pub promotion: Option<PromotionRules>,
    /// The most quota that one ClusterQueue may hold in a tier, in per cent of the nominal quota of its cohort tree in the flavors of the tier, for the tiers
    /// reserved, on demand and spot.
    pub(crate) max_shares: [Option<u32>; 3],
}

impl TierRules {
    /// The time in milliseconds for which a job in a tier may lack nodes.
    pub fn patience_ms(&self, tier: Tier) -> i64 {
        let [reserved, on_demand, spot] = self.patience_ms;
        match tier {
            Tier::Reserved => reserved,
            Tier::OnDemand => on_demand,
            Tier::Spot => spot,
        }
    }
}

const MINUTE_MS: i64 = 60_000;

/// The default tier rules.
pub static USUAL: TierRules = TierRules {
    default: Vec::new(),
    default_for: Vec::new(),
    patience_ms: [10 * MINUTE_MS; 3],
    signals: Signals { unschedulable: true, scale_up_failed: true, provisioning_failed: true, node_reclaimed: true },
    backoff: BackoffRules { initial_ms: 5 * MINUTE_MS, factor: 2, max_ms: 120 * MINUTE_MS, decay_ms: 30 * MINUTE_MS },
    overrides: false,
    promotion: None,
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
