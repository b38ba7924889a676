//! The recent usage of a LocalQueue in its status, for admission fair sharing.

use berth_api as api;
use berth_cache::Name;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::context::Context;
use crate::workload::status::seconds;

/// The value of `status.fairSharing`; `None` without admission fair sharing, or if the LocalQueue has no usage yet. The share of a LocalQueue is 0, as in
/// Kueue, because only ClusterQueues and cohorts borrow.
pub(crate) fn fair_sharing(ctx: &Context<'_>, name: &Name) -> Option<api::LocalQueueFairSharingStatus> {
    ctx.settings.engine.admission_fair_sharing.as_ref()?;
    let ledger = ctx.quota.world().ledger(&name.0, &name.1)?;
    let text = |(resource, amount): (String, berth_quantity::Nano)| {
        let text = Quantity(berth_quantity::format_nano(&resource, amount));
        (resource, text)
    };
    Some(api::LocalQueueFairSharingStatus {
        weighted_share: 0,
        admission_fair_sharing_status: Some(api::AdmissionFairSharingStatus {
            consumed_resources: ledger.consumed.into_iter().map(text).collect(),
            last_update: Time(seconds(Timestamp::from_millisecond(ledger.at.0).unwrap_or_default())),
        }),
    })
}

#[cfg(test)]
mod tests;
