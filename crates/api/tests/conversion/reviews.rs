//! The answer to a review of objects equals the conversions of the single objects, whatever the objects contain and in whatever order their fields
//! come.

use berth_api::conversion::{Version, respond};
use serde_json::{Value, json};

use crate::conversion::generate::broken;
use crate::conversion::{cases, for_all, made, to, widest};

/// The value as JSON with its fields in reverse order, and with spaces between them.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().rev().map(|(name, value)| format!("{}: {}", json!(name), reversed(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(reversed).collect::<Vec<_>>().join(" ,\n")),
        other => other.to_string(),
    }
}

fn says_the_same(objects: &[Value], desired: Version) {
    let review = json!({"request": {"uid": "u", "desiredAPIVersion": desired.api_version(), "objects": objects}});
    let converted: Vec<Value> = objects.iter().map(|object| to(desired, object)).collect();
    for text in [review.to_string(), reversed(&review)] {
        let (answer, success) = respond(text.as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(success, "{text}");
        assert_eq!(answer["response"]["convertedObjects"], json!(converted), "{text}");
    }
}

#[test]
fn review_answer_equals_conversion_of_each_object() {
    for_all(cases() / 4, |kind, dice| {
        let version = |odd: bool| if odd { Version::V1beta1 } else { Version::V1beta2 };
        let mut objects = Vec::new();
        for _ in 0..=dice.below(2) {
            let mut object = made(kind, version(dice.one_in(2)), dice);
            if dice.one_in(2) {
                object = to(version(dice.one_in(2)), &object);
            }
            if dice.one_in(3) {
                let mut parts =
                    json!({"metadata": object["metadata"], "spec": object["spec"], "status": object["status"]});
                broken(&mut parts, dice);
                let Value::Object(parts) = parts else { return };
                object.as_object_mut().unwrap().extend(parts);
            }
            objects.push(object);
        }
        says_the_same(&objects, version(dice.one_in(2)));
    });
}

#[test]
fn review_answer_for_widest_workloads_equals_their_conversion() {
    for stored in [widest::wide(), widest::placed()] {
        let older = to(Version::V1beta1, &stored);
        for desired in [Version::V1beta1, Version::V1beta2] {
            says_the_same(&[stored.clone(), older.clone()], desired);
        }
    }
}
