use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{admitted, evicted, flavor_of_tier, job, reserved, workload_of};
use crate::testing::{State, now};

fn state(workload: Value) -> State {
    State::new().with(flavor_of_tier("f", "spot")).with(job("a")).with(workload)
}

#[test]
fn admission_to_tier_and_departure_from_it_are_logged() {
    let moved = |old: Value, new: Value| {
        let (old, new) = (state(old), state(new));
        let found = new.context().tier_moves(old.workload("w"), new.workload("w"), now());
        found.into_iter().map(|one| (one.tier, one.flavors, one.what)).collect::<Vec<_>>()
    };
    let pending = || workload_of(&job("a"));
    let one = |what: TierStep| vec![("spot".to_owned(), "f".to_owned(), what)];
    assert_eq!(moved(pending(), reserved(pending())), []);
    assert_eq!(moved(reserved(pending()), admitted(pending())), one(TierStep::Admitted { waited: 600 }));
    let left = TierStep::Left { reason: "StockOut".to_owned(), stayed: 60 };
    assert_eq!(moved(admitted(pending()), evicted(admitted(pending()), "StockOut")), one(left));
}

#[test]
fn tier_departure_counts_stock_out_and_promotion_but_not_preemption() {
    let counted = |reason: &str| {
        let (old, new) =
            (state(admitted(workload_of(&job("a")))), state(evicted(admitted(workload_of(&job("a"))), reason)));
        let found = new.context().tier_measures(old.workload("w"), new.workload("w"), now());
        found.iter().filter(|one| matches!(one, Measure::Count { name: "berth_tier_departures", .. })).count()
    };
    assert_eq!([counted("StockOut"), counted("ClimbedBack"), counted("Preempted")], [1, 1, 0]);
    let names = state(admitted(workload_of(&job("a"))));
    assert_eq!(names.context().tiers_held(names.workload("w")).len(), 1);
    assert_eq!(json!(growth_measures(names.workload("w"), Tier::Spot, (now(), now())).len()), json!(2));
}
