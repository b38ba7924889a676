//! Objects and events as Kueue's scheduler alone would have written them. Kueue's tests of complete cycles run the scheduler without Kueue's controllers, while
//! Berth's control does the work of both. Control also lists admission checks, admits Workloads whose checks are ready, releases the quota of deleted queues,
//! and explains the wait of Workloads that no cycle tried. The functions of this module remove the parts of writes that Kueue's scheduler would not have made.

use berth_control::offline::Made;
use berth_control::write::{Notice, ObjectKey, Purpose};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Purposes of the writes that a scheduling cycle of Kueue makes.
const OF_CYCLES: [Purpose; 3] = [Purpose::ReserveQuota, Purpose::ExplainPending, Purpose::Evict];

/// Whether a scheduling cycle of Kueue would have made the write `made`. Kueue admits a Workload without pending checks together with its reservation, which
/// control may do in two writes.
fn is_of_a_cycle(made: &Made, before: &[Made]) -> bool {
    let reserved = |other: &Made| other.key == made.key && other.purpose == Purpose::ReserveQuota;
    OF_CYCLES.contains(&made.purpose) || (made.purpose == Purpose::SetAdmitted && before.iter().any(reserved))
}

fn others(history: &[Made]) -> impl DoubleEndedIterator<Item = &Made> {
    let is_other = |(at, made): &(usize, &Made)| !is_of_a_cycle(made, history.get(..*at).unwrap_or_default());
    history.iter().enumerate().filter(is_other).map(|(_, made)| made)
}

/// The object `now` without the values that control wrote outside of scheduling cycles, except values that a later write of a cycle has replaced.
#[must_use]
pub fn object(now: &Value, key: &ObjectKey, history: &[Made]) -> Value {
    let mut shown = now.clone();
    for made in others(history).rev().filter(|made| made.key == *key) {
        for part in ["metadata", "spec", "status"] {
            take_back(&mut shown, part, made.before.get(part), made.after.get(part));
        }
    }
    shown
}

/// Reason of Berth's event about the owners that scenes give to Workloads, whose kind is unknown.
const OF_SCENES: &str = "OwnerKindUnknown";

/// The events without the events about writes that control made outside of scheduling cycles.
#[must_use]
pub fn notices(all: &[Notice], history: &[Made]) -> Vec<Notice> {
    let mut shown: Vec<Notice> = all.iter().filter(|notice| notice.reason != OF_SCENES).cloned().collect();
    for notice in others(history).flat_map(|made| &made.notices) {
        if let Some(at) = shown.iter().rposition(|other| other == notice) {
            shown.remove(at);
        }
    }
    shown
}

fn take_back(object: &mut Value, part: &str, before: Option<&Value>, after: Option<&Value>) {
    let nothing = Map::new();
    let fields = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, after) = (fields(before), fields(after));
    let Some(object) = object.as_object_mut() else { return };
    let Value::Object(now) = object.entry(part).or_insert_with(|| Value::Object(nothing)) else { return };
    for field in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let (was, became) = (before.get(field), after.get(field));
        if was == became {
            continue;
        }
        if field == "conditions" {
            take_back_conditions(now, was, became);
        } else if now.get(field) == became {
            put(now, field, was.cloned());
        }
    }
}

fn put(now: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => now.insert(field.to_owned(), value),
        None => now.remove(field),
    };
}

fn take_back_conditions(now: &mut Map<String, Value>, was: Option<&Value>, became: Option<&Value>) {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (was, became, mut current) = (list(was), list(became), list(now.get("conditions")));
    let find = |list: &[Value], kind: &Value| list.iter().find(|one| one.get("type") == Some(kind)).cloned();
    let kinds: Vec<Value> = was.iter().chain(&became).filter_map(|one| one.get("type").cloned()).collect();
    for kind in kinds {
        let (old, new) = (find(&was, &kind), find(&became, &kind));
        if old != new && find(&current, &kind) == new {
            current.retain(|one| one.get("type") != Some(&kind));
            current.extend(old);
        }
    }
    put(now, "conditions", (!current.is_empty()).then_some(Value::Array(current)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_control::write::Kind;
    use serde_json::json;

    fn key() -> ObjectKey {
        ObjectKey { kind: Kind::Workload, namespace: "ns".to_owned(), name: "a".to_owned() }
    }

    fn made(purpose: Purpose, before: &Value, after: &Value) -> Made {
        Made { purpose, key: key(), before: before.clone(), after: after.clone(), notices: Vec::new() }
    }

    #[test]
    fn shown_object_lacks_controller_writes_and_keeps_cycle_writes() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let first = json!({"status": {}});
        let listed = json!({"status": {"admissionChecks": [{"name": "c"}]}});
        let reserved = json!({"status": {"admissionChecks": [{"name": "c"}], "admission": {"clusterQueue": "q"},
            "conditions": [condition("QuotaReserved", "True")]}});
        let history =
            [made(Purpose::SyncAdmissionChecks, &first, &listed), made(Purpose::ReserveQuota, &listed, &reserved)];
        let shown = object(&reserved, &key(), &history);
        assert_eq!(
            shown["status"],
            json!({"admission": {"clusterQueue": "q"}, "conditions": [condition("QuotaReserved", "True")]})
        );
        // A quota reservation that control released outside of a scheduling cycle is shown as still held.
        let released = json!({"status": {"conditions": [condition("QuotaReserved", "False")]}});
        let history = [made(Purpose::ReleaseQuota, &reserved, &released)];
        assert_eq!(object(&released, &key(), &history)["status"], reserved["status"]);
    }

    #[test]
    fn admission_is_shown_only_after_reservation_in_same_run() {
        let reserved = json!({"status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}});
        let mut admitted = reserved.clone();
        admitted["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Admitted", "status": "True"}));
        let alone = [made(Purpose::SetAdmitted, &reserved, &admitted)];
        assert_eq!(object(&admitted, &key(), &alone)["status"], reserved["status"]);
        let both =
            [made(Purpose::ReserveQuota, &json!({}), &reserved), made(Purpose::SetAdmitted, &reserved, &admitted)];
        assert_eq!(object(&admitted, &key(), &both)["status"], admitted["status"]);
    }
}
