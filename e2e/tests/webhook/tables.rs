//! Accepted and refused objects of each job kind, by the tables in `cases/reviews`. The message of a refusal names the field and the allowed values,
//! as kubectl prints it, and comes from the webhook of the object's kind.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::jobset;
use berth_e2e::kinds::{DEPLOYMENT, JOB, Kind, POD, STATEFUL_SET, USER, items, text};
use berth_e2e::manifest::{self, patch};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::webhooks;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    good: Value,
    stored: BTreeMap<String, Stored>,
    cases: Vec<Case>,
}

/// An object of the table that exists before the test asks about it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// True if the stored object runs, false if it waits.
    #[serde(default)]
    runs: bool,
    /// True if the object ran and is ending: a StatefulSet by its replicas, an object of another kind by its deletion. If a stored object is to be
    /// ending, its pods must take a while to end.
    #[serde(default)]
    leaves: bool,
    /// Fields that are merged into the valid object of the table.
    with: Value,
}

/// A case of the table: a new object, or a change of a stored object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    of: Option<String>,
    accepted: Option<Value>,
    refused: Option<Value>,
    #[serde(default)]
    field: String,
    #[serde(default)]
    says: String,
}

fn table(kind: Kind) -> Result<Table> {
    let path = repository().join("e2e/cases/reviews").join(format!("{}.yaml", kind.kind));
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// The object with a change; a key that begins with a slash is a JSON pointer, of which all but the last name must exist in the object.
fn changed(object: &Value, change: &Value) -> Result<Value> {
    let mut object = object.clone();
    let mut rest = change.clone();
    for (place, value) in change.as_object().context("a change is an object")? {
        let Some((above, name)) = place.rsplit_once('/').filter(|_| place.starts_with('/')) else { continue };
        let is_there = object.pointer(place).is_some();
        let parent = object.pointer_mut(above).with_context(|| format!("nothing is at {above}"))?;
        if let Some(fields) = parent.as_object_mut().filter(|_| !is_there) {
            fields.insert(name.replace("~1", "/").replace("~0", "~"), value.clone());
        } else {
            *object.pointer_mut(place).with_context(|| format!("nothing is at {place}"))? = value.clone();
        }
        rest.as_object_mut().and_then(|rest| rest.remove(place));
    }
    patch(&mut object, &rest);
    Ok(object)
}

impl Case {
    /// The change about which the case asks the API server, and whether it must be refused.
    fn asked(&self) -> Result<(&Value, bool)> {
        match (&self.accepted, &self.refused) {
            (Some(change), None) if self.field.is_empty() && self.says.is_empty() => Ok((change, false)),
            (None, Some(change)) if !self.field.is_empty() && !self.says.is_empty() => Ok((change, true)),
            _ => bail!("a case is accepted, or refused with the field and words on what is allowed"),
        }
    }

    /// The answer of the API server to a dry run of the case.
    async fn ask(&self, s: &Scenario<'_>, kind: Kind, good: &Value) -> Result<kube::Result<DynamicObject>> {
        let api = kind.api(&s.client, &s.namespace);
        let (change, _) = self.asked()?;
        Ok(match &self.of {
            None => {
                let params = PostParams { dry_run: true, field_manager: Some(USER.to_owned()) };
                api.create(&params, &serde_json::from_value(changed(good, change)?)?).await
            }
            Some(name) => {
                let field_manager = Some(USER.to_owned());
                // A merge patch replaces a complete list; a change at a JSON pointer within a list keeps the entries that other clients have set.
                if change.as_object().is_some_and(|change| change.keys().any(|key| key.starts_with('/'))) {
                    let stored = serde_json::to_value(api.get(name).await?)?;
                    let params = PostParams { dry_run: true, field_manager };
                    api.replace(name, &params, &serde_json::from_value(changed(&stored, change)?)?).await
                } else {
                    let params = PatchParams { dry_run: true, field_manager, ..PatchParams::default() };
                    api.patch(name, &params, &Patch::Merge(change)).await
                }
            }
        })
    }

    /// Compares the answer of the API server with the case; `Err` has the difference.
    fn judge(&self, answer: kube::Result<DynamicObject>, webhook: &str) -> Result<(), String> {
        let refused = self.refused.is_some();
        let status = match answer {
            Ok(_) if refused => return Err("accepted".to_owned()),
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if refused => status,
            Err(error) => return Err(error.to_string()),
        };
        let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
        let named = causes.iter().any(|cause| cause.field == self.field && cause.message.contains(&self.says));
        let reported = [webhook, &self.field, &self.says].iter().all(|words| status.message.contains(words));
        if named && reported && status.code == 403 && status.reason == "Forbidden" {
            return Ok(());
        }
        Err(format!("expected {}: {}, told {status:?}", self.field, self.says))
    }
}

/// Whether an object of the kind `kind` has been started, and its pods run.
fn runs(kind: Kind, object: &Value) -> bool {
    match kind {
        // A pod without a node would be gone as soon as it is deleted, so the pod must run.
        POD => items(object, "/spec/schedulingGates").is_empty() && text(object, "/status/phase") == "Running",
        DEPLOYMENT | STATEFUL_SET => object["status"]["readyReplicas"] == object["spec"]["replicas"],
        _ => object["spec"]["suspend"] == json!(false),
    }
}

/// Creates the stored objects of the table.
async fn store(s: &Scenario<'_>, kind: Kind, table: &Table) -> Result<()> {
    for (name, stored) in &table.stored {
        let mut object = changed(&table.good, &stored.with)?;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(s.namespace);
        s.apply(&object).await.with_context(|| format!("{} {name}", kind.kind))?;
    }
    for (name, _) in table.stored.iter().filter(|(_, stored)| stored.runs) {
        s.object_is(kind, name, "started", |object| runs(kind, object)).await?;
    }
    for (name, _) in table.stored.iter().filter(|(_, stored)| stored.leaves) {
        if kind == STATEFUL_SET {
            kind.patch(&s.client, &s.namespace, name, &json!({"spec": {"replicas": 0}})).await?;
        } else {
            kind.delete(&s.client, &s.namespace, name).await?;
        }
    }
    Ok(())
}

/// Deletes the stored objects and the objects that were made for them, without Jobs.
pub(crate) async fn clear(s: &Scenario<'_>) -> Result<()> {
    let mut kinds = webhooks::kinds_with_tables()?;
    kinds.retain(|kind| ![JOB, POD].contains(kind));
    s.delete_all(&kinds).await?;
    s.delete_groups_and_pods().await
}

pub(crate) async fn answered(stage: &Stage) -> Result<()> {
    let s = stage.scenario("reviews").await?;
    // A JobSet is started only after its controller has seen it suspended, so the controller runs in this test.
    let _controller = jobset::start(&stage.plane).await?;
    s.simple_queue("8", &json!({})).await?;
    s.apply(&manifest::cluster_queue(&s.name("closed"), &[], &json!({}))).await?;
    // Waiting objects name the LocalQueue `closed`, and objects without a queue get the LocalQueue `default`.
    for queue in ["closed", "default"] {
        s.apply(&manifest::local_queue(&s.namespace, queue, &s.name("closed"))).await?;
    }
    s.apply(&manifest::priority_class(&s.name("class"), 5)).await?;
    let (mut wrong, mut count) = (Vec::new(), [0, 0]);
    let kinds = webhooks::kinds_with_tables()?;
    for kind in kinds.iter().copied() {
        // Name of the webhook that must refuse the case.
        let webhook = format!("v{}.berth.dev", kind.kind.to_lowercase());
        let table = table(kind)?;
        store(&s, kind, &table).await?;
        for case in &table.cases {
            let (change, refused) = case.asked().with_context(|| format!("{}: {:?}", kind.kind, case.field))?;
            count[usize::from(refused)] += 1;
            let answer = case.ask(&s, kind, &table.good).await?;
            if let Err(why) = case.judge(answer, &webhook) {
                let what = case.of.as_deref().unwrap_or("new");
                wrong.push(format!("{} {what}: {change}: {why}", kind.kind));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {count:?} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
    println!(
        "{} objects of {} kinds are accepted, {} refused with the field and what is allowed",
        count[0],
        kinds.len(),
        count[1]
    );
    clear(&s).await?;
    s.conclude().await
}
