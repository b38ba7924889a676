//! Laws of the account of a workload: the account names each victim of a preemption as a workload that may be preempted. The account of a workload also agrees
//! with messages about lacking quota, about the preemptor of a victim, and about the quota of an admitted workload.
//!
//! A failed law prints its seed and the smallest set of workloads that fails; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::slow;
use crate::slow::accounting::{Amounts, Fr, Node};
use crate::slow::victims::{Plea, lawful, over};
use crate::worlds::{Dice, Named, Objects, cases, mixed, seeds};
use berth_engine::steps::*;
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };

/// A world in which, for every second seed on average, policies bound preemption.
fn bounded(seed: u64) -> Objects {
    let mut objects = mixed(seed);
    let mut dice = Dice::new(seed ^ 0x3c6e_f372);
    if dice.chance(2) {
        for queue in &mut objects.queues {
            queue.guard = PreemptionGuard {
                min_priority_difference: dice.pick(&[0, 0, 0, 2]),
                // The last workload of a world came at time 3 and is still protected by a protection of 998 ms.
                protected_ms: dice.pick(&[0, 0, 998, 10_000]),
                max_victims: dice.pick(&[None, None, Some(1), Some(2)]),
                max_evicted_percent: dice.pick(&[None, None, Some(100), Some(150)]),
            };
        }
    }
    objects
}

/// The world of `objects` before its first cycle, with the time already set to the time of this cycle.
fn at_first(objects: &Objects) -> World {
    let mut world = objects.world();
    let plan = world.plan_cycles(NOW, ALL, 0);
    assert!(plan.admissions.is_empty() && plan.evictions.is_empty(), "no cycle, and yet {plan:?}");
    world
}

/// Tries a law on the worlds of all seeds; returns the sums of the law's counts.
fn on_all<const N: usize>(law: impl Fn(&Objects) -> Result<[usize; N], String>) -> [usize; N] {
    let mut sums = [0; N];
    for seed in seeds() {
        let _named = Named(seed);
        let objects = bounded(seed);
        match law(&objects) {
            Ok(found) => {
                for (sum, more) in sums.iter_mut().zip(found) {
                    *sum += more;
                }
            }
            Err(_) => {
                let small = objects.shrink(|objects| law(objects).is_err());
                panic!("seed {seed}\n{}{}", small.describe(), law(&small).err().unwrap_or_default());
            }
        }
    }
    sums
}

fn cell_of(cell: &CellAccount) -> Fr {
    (cell.flavor.clone(), cell.resource.clone())
}

/// The preemption policy that applies to a workload: its queue's policy, narrowed to the workload's preemption scope.
fn policy(objects: &Objects, spec: &WorkloadSpec, is_own: bool) -> PreemptionPolicy {
    let queue = objects.queues.iter().find(|queue| queue.name == spec.local_queue).unwrap();
    let Preemption { within_cluster_queue, reclaim_within_cohort, .. } = queue.preemption;
    match (spec.preempts, if is_own { within_cluster_queue } else { reclaim_within_cohort }) {
        (Preempts::Nobody, _) => PreemptionPolicy::Never,
        (Preempts::Lower, policy) if policy != PreemptionPolicy::Never => PreemptionPolicy::LowerPriority,
        (_, policy) => policy,
    }
}

/// Searches victims for every pending workload of a random world. The account of a workload must allow the preemption of each victim, and policies and quotas
/// must protect no workload that the account allows to preempt. Returns the number of victims, and the number of holders that may not be preempted.
fn searched(objects: &Objects, seen: &mut BTreeSet<Right>) -> Result<[usize; 2], String> {
    let mut counts = [0; 2];
    let mut world = at_first(objects);
    let accounting = slow::accounting(&objects.cohorts, &objects.queues, &objects.workloads);
    for spec in objects.workloads.iter().filter(|spec| matches!(spec.state, WorkloadState::Pending { .. })) {
        let queue = spec.local_queue.as_str();
        let account = world.account(&spec.uid, NOW).unwrap();
        let pods = |set: &PodSetSpec| {
            let cell = account.cells.iter().find(|cell| cell.pod_set == set.name);
            cell.map_or(set.count, |cell| cell.pods)
        };
        let reported = AssignInput { counts: Some(spec.pod_sets.iter().map(pods).collect()), ..AssignInput::default() };
        let report = world.steps().assign(&spec.uid, queue, reported).unwrap();
        if account.mode != Some(report.mode) {
            return Err(format!("{} is told {:?} and gets {:?}", spec.uid, account.mode, report.mode));
        }
        let mut needs = BTreeSet::<Fr>::new();
        for (resource, found) in report.pod_sets.iter().flat_map(|set| &set.flavors) {
            if report.mode == Mode::Preempt && found.mode == Mode::Preempt {
                needs.insert((found.flavor.clone(), resource.clone()));
            }
        }
        for cell in &account.cells {
            let here = cell_of(cell);
            let needs: Vec<Fr> = if needs.contains(&here) { needs.iter().cloned().collect() } else { vec![here] };
            let (priority, queued_at, usage) = (spec.priority, spec.queued_at, Amounts::new());
            let equals_by_lot = objects.options.profile.has(Departure::EqualsByLot);
            let plea = Plea { queue, priority, queued_at, needs, usage, equals_by_lot };
            for holding in &cell.holders {
                seen.insert(holding.right);
                if holding.right != Right::MayBePreempted {
                    counts[1] += 1;
                    continue;
                }
                let holder = accounting.holders.iter().find(|holder| holder.uid == holding.uid).unwrap();
                let is_own = holder.queue == queue;
                let unprotected = lawful(policy(objects, spec, is_own), &plea, holder)
                    && accounting.queues[&holder.queue].stop == StopPolicy::None
                    && (is_own || over(&accounting, &Node::Queue(holder.queue.clone()), &plea.needs));
                if !unprotected {
                    return Err(format!("{} may preempt {} by its account of {:?}", spec.uid, holder.uid, plea.needs));
                }
            }
        }
        let cells = |fr: &Fr| FlavorResource { flavor: fr.0.clone(), resource: fr.1.clone() };
        let lacking: Vec<FlavorResource> = needs.iter().map(cells).collect();
        // Unlimited amounts are cut off in the usage, which may then exceed the request, so a workload with an unlimited amount is skipped.
        if lacking.is_empty() || report.usage.values().any(|amount| amount.is_unlimited()) {
            continue;
        }
        for (victim, reason) in world.steps().victims(&spec.uid, queue, &lacking, &report.usage).unwrap() {
            counts[0] += 1;
            // A victim may have to leave a cell that lacks no quota, so that a queue that reclaims its own quota does not borrow in this cell.
            let mut rights = account.cells.iter().flat_map(|cell| &cell.holders).filter(|holder| holder.uid == victim);
            if !rights.any(|holder| [Right::MayBePreempted, Right::Leaving].contains(&holder.right)) {
                return Err(format!("{victim} would leave for {} ({reason}); its account: {account:#?}", spec.uid));
            }
        }
    }
    Ok(counts)
}

#[test]
fn victims_found_by_search_are_preemptible_in_account_of_preemptor() {
    let seen = std::cell::RefCell::new(BTreeSet::new());
    let [victims, protected] = on_all(|objects| searched(objects, &mut seen.borrow_mut()));
    let seen = seen.into_inner();
    println!("{victims} victims, {protected} times one who may not be preempted; {seen:?}");
    let all = [
        Right::Leaving,
        Right::MayBePreempted,
        Right::Stopped,
        Right::WithinQueueNever,
        Right::ReclaimNever,
        Right::PreemptsNobody,
        Right::Priority,
        Right::WithinItsQuota,
        Right::CohortWithinQuota,
        Right::Borrowing,
        Right::Threshold,
        Right::Share,
        Right::Protected,
        Right::TooNear,
        Right::Bounds,
    ];
    let never: Vec<Right> = all.into_iter().filter(|right| !seen.contains(right)).collect();
    assert!(cases() < 20_000 || never.is_empty(), "too tame: never {never:?}");
    assert!(cases() < 1000 || victims > cases() as usize / 100, "too tame: {victims} victims");
}

/// Whether an account covers fewer pods than all: a cycle searches the largest size, and its message is about the full size.
fn is_of_fewer(account: &Account) -> bool {
    account.cells.iter().any(|cell| cell.pods < cell.all_pods)
}

/// The workloads that a first cycle judges only once. A workload that the cycle judges a second time is left out, because the second result depends on the
/// cycle's earlier steps.
fn judged_once<'a>(objects: &'a Objects, plan: &Plan) -> BTreeMap<&'a str, &'a WorkloadSpec> {
    let again = |queue: &str| plan.recomputed_targets.keys().any(|(name, _)| name == queue);
    let specs = objects.workloads.iter().filter(|spec| !again(&spec.local_queue));
    specs.map(|spec| (spec.uid.as_str(), spec)).collect()
}

/// Runs a first cycle: the account must allow the preemption of each victim in a requested cell, and making accounts must change nothing.
fn planned(objects: &Objects) -> Result<[usize; 2], String> {
    let plan = objects.world().plan_cycles(NOW, ALL, 1);
    if plan.evictions.is_empty() {
        return Ok([0, 0]);
    }
    let mut world = at_first(objects);
    let mut accounts = BTreeMap::new();
    for spec in &objects.workloads {
        accounts.insert(spec.uid.as_str(), world.account(&spec.uid, NOW).unwrap());
    }
    let faults = check(&world);
    if !faults.is_empty() {
        return Err(format!("accounts spoil the books: {faults:?}"));
    }
    let then = world.plan_cycles(NOW, ALL, 1);
    if (&then.admissions, &then.evictions) != (&plan.admissions, &plan.evictions) {
        return Err(format!("once asked, the world plans {then:#?}, else {plan:#?}"));
    }
    let judged = judged_once(objects, &plan);
    let mut counts = [0; 2];
    for eviction in plan.evictions.iter().filter(|eviction| judged.contains_key(eviction.preemptor.as_str())) {
        let account = &accounts[eviction.preemptor.as_str()];
        if is_of_fewer(account) {
            continue;
        }
        let holders = account.cells.iter().flat_map(|cell| &cell.holders);
        let mut rights = holders.filter(|holder| holder.uid == eviction.uid).map(|holder| holder.right);
        if !rights.any(|right| right == Right::MayBePreempted) {
            return Err(format!("{eviction:?}, and the account was {account:#?}"));
        }
        counts[usize::from(objects.options.fair_sharing.is_some())] += 1;
    }
    Ok(counts)
}

#[test]
fn account_names_victims_as_preemptible_before_plan_evicts_them() {
    let [classical, fair] = on_all(planned);
    println!("evictions: {classical} classical, {fair} under fair sharing");
    assert!(cases() < 1000 || classical.min(fair) > cases() as usize / 500, "too tame: {classical} and {fair}");
}

/// The message of a cycle about a cell that lacks quota, computed from the cell's account. Returns an error if the change that the account of the cell names
/// has another amount than the message.
fn expected_text(cell: &CellAccount) -> Result<Option<String>, String> {
    if cell.mismatch.is_some() {
        return Ok(None);
    }
    let text = |amount: i64| berth_quantity::format(&cell.resource, Amount::new(amount));
    let amounts = [cell.asked, cell.earlier, cell.free, cell.debt, cell.maximum];
    let [asked, earlier, free, debt, maximum] = amounts.map(Amount::get);
    let (beyond, lacking) = (asked + earlier - maximum, asked + earlier - free);
    let (resource, flavor) = (&cell.resource, &cell.flavor);
    let (message, is_reported) = if beyond > 0 {
        let (earlier, asked, maximum) = (text(earlier), text(asked), text(maximum));
        let message = format!(
            "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({earlier}) + current podset request ({asked}) > maximum capacity ({maximum})"
        );
        (message, cell.unblock == Unblock::RaiseQuota(Amount::new(beyond)))
    } else if lacking > 0 {
        let message =
            format!("insufficient unused quota for {resource} in flavor {flavor}, {} more needed", text(lacking));
        // The message about lacking quota does not include usage above the available quota, which other workloads have to release as well.
        (message, [Unblock::EvictedLeave, Unblock::Release(Amount::new(lacking + debt))].contains(&cell.unblock))
    } else {
        return Ok(None);
    };
    if is_reported { Ok(Some(message)) } else { Err(format!("{message:?} is told as {cell:#?}")) }
}

/// Whether sums of the amounts of a cell's account are within the range of amounts.
fn has_an_end(cell: &CellAccount) -> bool {
    [cell.asked, cell.earlier, cell.free, cell.debt, cell.maximum].iter().all(|amount| amount.get() < 1 << 60)
}

/// Runs a first cycle: each lack of quota in a message must be in the account that was made before. Returns the number of messages about a lack of quota.
fn account_fault(objects: &Objects) -> Result<[usize; 1], String> {
    let plan = objects.world().plan_cycles(NOW, ALL, 1);
    let mut world = at_first(objects);
    let judged = judged_once(objects, &plan);
    let mut count = 0;
    for verdict in plan.verdicts.iter().filter(|verdict| judged.contains_key(&*verdict.uid)) {
        let account = world.account(&verdict.uid, NOW).unwrap();
        if !account.cells.iter().all(has_an_end) || is_of_fewer(&account) {
            continue;
        }
        let mut rest = verdict.message.to_string();
        for cell in &account.cells {
            let Some(text) = expected_text(cell)? else { continue };
            count += usize::from(rest.contains(&text));
            rest = rest.replace(&text, "");
        }
        if rest.contains("insufficient") {
            return Err(format!("{verdict:?}; of that {rest:?} is not in {account:#?}"));
        }
    }
    Ok([count])
}

#[test]
fn pending_message_states_same_missing_amounts_as_account() {
    let [count] = on_all(account_fault);
    println!("{count} amounts in messages");
    assert!(cases() < 1000 || count > cases() as usize / 10, "too tame: {count}");
}

/// Runs a first cycle. The accounts afterwards must agree with a victim's condition about the preemptor, and with an admitted workload's condition about its
/// queue and number of pods. Returns the number of victims and of admitted workloads.
fn fault_of_holders(objects: &Objects) -> Result<[usize; 2], String> {
    let mut world = objects.world();
    let plan = world.plan_cycles(NOW, ALL, 1);
    let victims: Vec<&Eviction> = plan.evictions.iter().filter(|eviction| eviction.gives_up.is_none()).collect();
    for eviction in &victims {
        let account = world.account(&eviction.uid, NOW).unwrap();
        let evicted_for = account.evicted_for.as_deref();
        if (account.holds, evicted_for) != (Some(true), Some(eviction.preemptor.as_str())) {
            return Err(format!("{eviction:?}, and the account is {account:#?}"));
        }
    }
    for admission in &plan.admissions {
        let account = world.account(&admission.uid, NOW).unwrap();
        let is_of = |set: &PodSetAssignment, resource: &String, flavor: &String| {
            let mut cells = account.cells.iter().filter(|cell| cell.pod_set == set.name);
            let cell = cells.find(|cell| (&cell.flavor, &cell.resource) == (flavor, resource));
            cell.is_some_and(|cell| cell.pods == set.count)
        };
        let mut given = admission.pod_sets.iter();
        let is_reported = given.all(|set| set.flavors.iter().all(|(resource, flavor)| is_of(set, resource, flavor)));
        let queue = account.cluster_queue.as_deref();
        if (account.holds, queue, is_reported) != (Some(false), Some(&*admission.cluster_queue), true) {
            return Err(format!("{admission:?}, and the account is {account:#?}"));
        }
    }
    Ok([victims.len(), plan.admissions.len()])
}

#[test]
fn account_of_admitted_or_evicted_workload_agrees_with_plan() {
    let [victims, admitted] = on_all(fault_of_holders);
    println!("{victims} victims, {admitted} admitted");
    assert!(cases() < 1000 || victims.min(admitted) > cases() as usize / 100, "too tame: {victims} and {admitted}");
}
