use std::collections::BTreeMap;

use berth_cache::settings::Settings;
use serde_json::json;

use super::*;
use crate::testing::objects::{changed, local_queue};
use crate::testing::{State, at, own_name};

#[test]
fn recent_usage_is_shown_under_admission_fair_sharing_alone() {
    let shown = |on: bool| {
        let afs = berth_engine::AdmissionFairSharing {
            half_life: 60_000,
            sampling_interval: 1_000,
            weights: BTreeMap::new(),
        };
        let mut settings = Settings::default();
        settings.engine.admission_fair_sharing = on.then_some(afs);
        let status = json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {"consumedResources": {"cpu": "3"}, "lastUpdate": at(-5)}}});
        let state =
            State::with_settings(settings).with(changed(local_queue("used", "cq"), json!({ "status": status })));
        fair_sharing(&state.context(), &own_name("used"))
    };
    assert_eq!(shown(false), None);
    let status = shown(true).and_then(|status| status.admission_fair_sharing_status).expect("a status");
    assert_eq!(status.consumed_resources.get("cpu").map(|amount| amount.0.as_str()), Some("3"));
    assert_eq!(status.last_update.0, crate::testing::in_seconds(-5));
}
