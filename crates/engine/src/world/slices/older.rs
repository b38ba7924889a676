//! The old slice that a replacement slice replaces, with interned names.

use std::sync::Arc;

use crate::quota::balance::Units;
use crate::world::ids::{FlavorId, ResourceId};

/// Quota that was given for one resource: resource, flavor and amount.
type Given = (ResourceId, FlavorId, Units);

/// Quota that the old slice was given, with interned names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Older {
    pub(crate) uid: Arc<str>,
    /// Quota of the old slice for each pod set: the pod set's name, and flavor and amount by resource.
    pub(super) given: Vec<(String, Vec<Given>)>,
}

impl Older {
    /// Flavor and amount of a resource in a pod set's admission; `None` if the admission does not have the resource.
    pub(crate) fn given(&self, pod_set: &str, resource: ResourceId) -> Option<(FlavorId, Units)> {
        let (_, given) = self.given.iter().find(|(name, _)| name == pod_set)?;
        given.iter().find(|(known, ..)| *known == resource).map(|(_, flavor, amount)| (*flavor, *amount))
    }

    /// The part of a request that exceeds the old slice's quota. The part of the request is negative if the pod set shrinks, so that its quota is left to pod
    /// sets that grow.
    pub(crate) fn less(&self, pod_set: &str, resource: ResourceId, asked: Units) -> Units {
        self.given(pod_set, resource).map_or(asked, |(_, amount)| asked.saturating_sub(amount))
    }
}
