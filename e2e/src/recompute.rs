//! Reads the answer of Berth's `/debug/recompute` (invariant R2): the differences between the view that Berth kept up event by event and a view that
//! is made from fresh lists.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::kinds::{items, text};
use crate::observer::Scope;

/// Largest number of differences between the views that the message of a failed test lists.
const MOST_REPORTED: usize = 20;

/// The newest answer of one manager's `/debug/recompute`. Berth makes one comparison at a time and refuses further requests meanwhile: without
/// sharing, scenarios that end together would keep each other from an answer if comparisons take long and Berth lives for seconds only.
#[derive(Debug, Default)]
pub(crate) struct Comparisons(Mutex<Option<(Instant, Value)>>);

impl Comparisons {
    /// An answer of `/debug/recompute` whose comparison began after this call: the answer of another caller that waited at the same time, or the result of
    /// `ask`, which is a status code and a body.
    ///
    /// # Errors
    /// Fails if `ask` fails or its result is no JSON.
    pub(crate) async fn newest(&self, ask: impl Future<Output = Result<(u16, String)>>) -> Result<Value> {
        let called = Instant::now();
        let mut newest = self.0.lock().await;
        if let Some((_, answer)) = newest.as_ref().filter(|(begun, _)| *begun >= called) {
            return Ok(answer.clone());
        }
        let begun = Instant::now();
        let (code, body) = ask.await?;
        let answer: Value = serde_json::from_str(&body).with_context(|| format!("{code}: {body}"))?;
        *newest = Some((begun, answer.clone()));
        Ok(answer)
    }
}

/// The differences between Berth's view and a view from fresh lists that concern a scope, and the faults that the engine finds in its own accounting; empty if
/// there are none. An answer of `/debug/recompute` that does not say whether the views are equal is a difference, too.
pub fn disagreements(answer: &Value, scope: &Scope) -> Vec<String> {
    let Some(equal) = answer.get("equal").and_then(Value::as_bool) else {
        return vec![format!("no answer: {answer}")];
    };
    let mut found = Vec::new();
    for side in ["incremental", "fresh"] {
        let problems = items(answer, &format!("/{side}/problems")).iter();
        found.extend(problems.map(|problem| format!("{side} books: {problem}")));
    }
    let differences = items(answer, "/differences");
    let mine = differences.iter().filter(|difference| scope.holds(text(difference, "/name")));
    found.extend(mine.map(|difference| {
        let (kind, name) = (text(difference, "/kind"), text(difference, "/name"));
        let (kept, fresh) = (&difference["incremental"], &difference["fresh"]);
        format!("{kind} {name} {}: Berth has {kept}, the lists say {fresh}", text(difference, "/field"))
    }));
    // If `/debug/recompute` does not name all differences, the unnamed ones may concern any scope.
    let more = answer.get("more").and_then(Value::as_u64).unwrap_or(0);
    if more > 0 {
        found.push(format!("{more} more differences"));
    }
    if found.is_empty() && !equal && differences.is_empty() {
        found.push(format!("the views differ, and nothing is named: {answer}"));
    }
    if found.len() > MOST_REPORTED {
        let left = found.split_off(MOST_REPORTED).len();
        found.push(format!("and {left} more"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::Cell;
    use std::time::Duration;

    fn answer(differences: Value) -> Value {
        let side = json!({"problems": [], "objects": {}});
        let equal = differences == json!([]);
        json!({"equal": equal, "differences": differences, "more": 0, "incremental": side, "fresh": side})
    }

    #[test]
    fn recompute_difference_is_shown_only_to_its_scope() {
        let place = ("LocalQueue", "mine/lq", "reserving");
        let wrong = answer(json!([{"kind": place.0, "name": place.1, "field": place.2, "incremental": 1, "fresh": 0}]));
        let reported = disagreements(&wrong, &Scope::of("mine"));
        assert_eq!(reported, ["LocalQueue mine/lq reserving: Berth has 1, the lists say 0"]);
        assert_eq!(disagreements(&wrong, &Scope::all()), reported);
        assert!(disagreements(&wrong, &Scope::of("other")).is_empty());
        assert!(disagreements(&answer(json!([])), &Scope::all()).is_empty());
    }

    #[tokio::test]
    async fn concurrent_recompute_callers_share_an_answer_newer_than_their_question() {
        let (asked, compared) = (Cell::new(0), Comparisons::default());
        let ask = || async {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok((200, asked.get().to_string()))
        };
        let one = || async { compared.newest(ask()).await.expect("an answer") };
        // The first caller's comparison has begun when the two other callers ask, so these two share the next comparison.
        assert_eq!(futures::join!(one(), one(), one()), (json!(1), json!(2), json!(2)));
        assert_eq!(one().await, json!(3), "an old answer says nothing");
        assert!(compared.newest(async { Ok((429, "busy".to_owned())) }).await.is_err());
    }

    #[test]
    fn incomplete_recompute_answer_is_never_taken_for_equal() {
        assert_eq!(disagreements(&json!({}), &Scope::of("mine")).len(), 1, "no answer");
        let mut unnamed = answer(json!([]));
        unnamed["equal"] = json!(false);
        assert_eq!(disagreements(&unnamed, &Scope::of("mine")).len(), 1);
        let mut many = answer(json!([]));
        many["more"] = json!(3);
        assert_eq!(disagreements(&many, &Scope::of("mine")), ["3 more differences"]);
        let mut broken = answer(json!([]));
        broken["incremental"]["problems"] = json!(["cohort c: usage 1"]);
        assert_eq!(disagreements(&broken, &Scope::of("mine")).len(), 1);
    }
}
