//! Story of the crash table: a job whose queue has an admission check of a controller that Berth does not know; the test acts as the controller.

use anyhow::Result;
use berth_e2e::kinds::{Kind, WORKLOAD, condition, items, text};
use berth_e2e::scenario::Scenario;
use futures::FutureExt;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::crash::StoryRun;

const CONTROLLER: &str = "e2e.berth.dev/judge";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Writes the status of an AdmissionCheck or Workload as the check's controller does, with a field manager of its own.
async fn set_status(s: &Scenario<'_>, kind: Kind, name: &str, status: &Value) -> Result<()> {
    let body = json!({"apiVersion": KUEUE, "kind": kind.kind, "metadata": {"name": name}, "status": status});
    let params = PatchParams::apply(CONTROLLER).force();
    kind.api(&s.client, &s.namespace).patch_status(name, &params, &Patch::Apply(&body)).await?;
    Ok(())
}

/// Story: a job gets quota, waits for its admission check, and runs when the check is Ready.
pub(crate) fn passes_its_check<'a>(s: &'a Scenario<'a>) -> StoryRun<'a> {
    async move {
        let name = s.name("check");
        let check = json!({"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name},
            "spec": {"controllerName": CONTROLLER}});
        s.apply(&check).await?;
        let active = json!({"type": "Active", "status": "True", "reason": "Told", "message": "by the test",
            "lastTransitionTime": Timestamp::now().to_string()});
        set_status(s, Kind::of(&check)?, &name, &json!({"conditions": [active]})).await?;
        s.simple_queue("1", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}})).await?;
        s.create(s.job("checked")).await?;
        let workload = s.workload("checked", "quota reserved and its check Pending", |w| {
            let pending = items(w, "/status/admissionChecks").iter().any(|check| text(check, "/state") == "Pending");
            condition(w, "QuotaReserved") == "True" && pending
        });
        let workload = workload.await?;
        let ready = json!({"name": name, "state": "Ready", "message": "granted",
            "lastTransitionTime": Timestamp::now().to_string()});
        set_status(s, WORKLOAD, text(&workload, "/metadata/name"), &json!({"admissionChecks": [ready]})).await?;
        s.finished("checked").await
    }
    .boxed()
}
