use super::*;
use crate::model::{Limits, WorkloadSpec};
use crate::options::Options;
use crate::sketch::{held, pending, queue, world};

const NOW: Millis = Millis(2000);
const ALL: Limits = Limits { max_admissions: 10 };

/// A workload with two pod sets that request 3 each.
fn pair(priority: i64) -> WorkloadSpec {
    pending("q", "pair", priority, &[("master", 3), ("worker", 3)])
}

/// A line of an account: pod set and flavor; the amounts requested, taken by earlier pod sets, and free; the change that would help.
type AccountRow = (String, String, [i64; 3], Unblock);

fn accounts(world: &mut World) -> (Option<Mode>, Vec<AccountRow>) {
    let account = world.account("pair", NOW).unwrap();
    let cell = |cell: CellAccount| {
        let amounts = [cell.asked, cell.earlier, cell.free].map(Amount::get);
        (cell.pod_set, cell.flavor, amounts, cell.unblock)
    };
    (account.mode, account.cells.into_iter().map(cell).collect())
}

fn line(pod_set: &str, flavor: &str, amounts: [i64; 3], unblock: Unblock) -> (String, String, [i64; 3], Unblock) {
    (pod_set.to_owned(), flavor.to_owned(), amounts, unblock)
}

#[test]
fn account_judges_pod_sets_together_when_each_fits_alone() {
    let mut world = world(Options::default(), vec![queue("q", None, &[("f", 4)])], vec![pair(0)]);
    let expected = vec![
        line("master", "f", [3, 0, 4], Unblock::Nothing),
        line("worker", "f", [3, 3, 4], Unblock::RaiseQuota(Amount::new(2))),
    ];
    assert_eq!(accounts(&mut world), (Some(Mode::NoFit), expected));
}

/// The account asks to release the same amount that the message of the cycle says is lacking.
#[test]
fn account_asks_to_release_what_both_pod_sets_lack() {
    let workloads = vec![pair(0), held("q", "high", 9, "f", 4)];
    let mut world = world(Options::default(), vec![queue("q", None, &[("f", 8)])], workloads);
    let plan = world.plan(NOW, ALL);
    let text =
        "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor f, 2m more needed";
    assert_eq!(&*plan.verdicts[0].message, text);
    let expected = vec![
        line("master", "f", [3, 0, 4], Unblock::Nothing),
        line("worker", "f", [3, 3, 4], Unblock::Release(Amount::new(2))),
    ];
    assert_eq!(accounts(&mut world), (Some(Mode::Preempt), expected));
}

#[test]
fn account_waits_for_victim_evicted_for_both_pod_sets() {
    let workloads = vec![pair(5), held("q", "low", 0, "f", 4)];
    let mut world = world(Options::default(), vec![queue("q", None, &[("f", 8)])], workloads);
    assert_eq!(world.plan(NOW, ALL).evictions.len(), 1);
    let expected =
        vec![line("master", "f", [3, 0, 4], Unblock::Nothing), line("worker", "f", [3, 3, 4], Unblock::EvictedLeave)];
    assert_eq!(accounts(&mut world), (Some(Mode::Preempt), expected));
}

/// An account charges a pod set only with what earlier pod sets were given of the same flavor.
#[test]
fn account_charges_earlier_pod_sets_only_in_same_flavor() {
    let mut world = world(Options::default(), vec![queue("q", None, &[("f", 4), ("g", 4)])], vec![pair(0)]);
    let expected = vec![
        line("master", "f", [3, 0, 4], Unblock::Nothing),
        line("master", "g", [3, 0, 4], Unblock::Nothing),
        line("worker", "f", [3, 3, 4], Unblock::RaiseQuota(Amount::new(2))),
        line("worker", "g", [3, 0, 4], Unblock::Nothing),
    ];
    assert_eq!(accounts(&mut world), (Some(Mode::Fit), expected));
}

/// A resource that the queue does not cover at all cannot be released.
#[test]
fn account_asks_to_change_requirements_for_uncovered_resource() {
    let mut odd = pair(0);
    odd.pod_sets[1].requests.insert("tpu".to_owned(), Amount::new(1));
    let mut world = world(Options::default(), vec![queue("q", None, &[("f", 9)])], vec![odd]);
    assert!(world.plan(NOW, ALL).admissions.is_empty());
    let account = world.account("pair", NOW).unwrap();
    assert_eq!((account.mode, account.obstacle), (Some(Mode::NoFit), Some(Unblock::ChangeRequirements)));
}
