//! Tests of outcomes that do not belong to the task whose id they carry.

use berth_cache::settings::Settings;
use berth_jobs::ObjectPatch;
use berth_reconcile::decision::Draft;
use berth_reconcile::write::{
    Kind, ObjectKey, Purpose, Query, QueryAnswer, QueryFailure, TaskOutcome, Term, WriteOutcome, cluster_key, key,
};
use jiff::Timestamp;

use crate::controller::Control;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn leader() -> Control {
    let mut control = Control::new(Settings::default());
    control.lead(Some(Term(1)));
    control
}

fn node() -> ObjectKey {
    cluster_key(Kind::Node, "n")
}

#[test]
fn query_with_outcome_of_another_type_is_asked_again() {
    let applied = WriteOutcome::Applied { resource_version: "7".to_owned() };
    let foreign: [TaskOutcome; 3] = [applied.into(), WriteOutcome::Gone.into(), QueryAnswer::Nodes(3).into()];
    for outcome in foreign {
        let mut control = leader();
        let mut draft = Draft::ask(Purpose::FindPodsOnNode, node(), Query::FindPodsOnNode);
        let id = control.in_flight.start(&mut draft, node());
        control.outcome(id, outcome.clone(), NOW);
        assert!(control.in_flight.sent(&node()).is_none(), "{outcome:?}");
        assert!(control.in_flight.backing_off(&node(), NOW).is_some(), "{outcome:?}: it is asked again after a pause");
    }
    let mut control = leader();
    let mut draft = Draft::ask(Purpose::FindPodsOnNode, node(), Query::FindPodsOnNode);
    let id = control.in_flight.start(&mut draft, node());
    control.outcome(id, QueryAnswer::OnNode(Vec::new()), NOW);
    assert!(control.in_flight.backing_off(&node(), NOW).is_none(), "its own answer ends it");
}

/// A write for which an outcome of another type is reported may have been applied, because such an outcome does not show what the API server did.
#[test]
fn reservation_with_outcome_of_a_query_counts_as_unresolved() {
    for outcome in [TaskOutcome::from(QueryAnswer::Nodes(3)), QueryFailure::Gone.into()] {
        let mut control = leader();
        let object = key(Kind::Workload, &("team".to_owned(), "w".to_owned()));
        let patch = ObjectPatch::of_version("u", "7");
        let mut draft = Draft::merge(Purpose::ReserveQuota, object.clone(), patch, 7);
        let id = control.in_flight.start(&mut draft, object.clone());
        control.outcome(id, outcome, NOW);
        assert!(control.in_flight.unresolved().may_apply(&object));
    }
}
