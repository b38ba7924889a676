//! Laws of an account's advice: the change that the account names helps, and every pending workload has a reason to wait.
//!
//! A failed law prints its seed and the smallest world that fails; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::extras::{Extras, with_extras};
use crate::worlds::ledger::Ledger;
use crate::worlds::{Dice, Named, Objects, amount, cases, mixed, seeds};
use berth_engine::steps::*;
use berth_engine::*;

const NOW: Millis = Millis(1000);
const ALL: Limits = Limits { max_admissions: 1000 };
/// Number of steps after which the advice of accounts must have led to an admission.
const STEPS: usize = 24;

/// Number of times that each kind of advice was followed.
type Followed = BTreeMap<&'static str, u32>;

fn is_pending(spec: &WorkloadSpec) -> bool {
    matches!(spec.state, WorkloadState::Pending { .. })
}

const fn kind(unblock: &Unblock) -> &'static str {
    match unblock {
        Unblock::Nothing => "Nothing",
        Unblock::Release(_) => "Release",
        Unblock::RaiseQuota(_) => "RaiseQuota",
        Unblock::ChangeRequirements => "ChangeRequirements",
        Unblock::EvictedLeave => "EvictedLeave",
        Unblock::PodsStop => "PodsStop",
        Unblock::HeadGoes(_) => "HeadGoes",
        Unblock::RoomIsKept => "RoomIsKept",
        Unblock::Restock => "Restock",
        Unblock::QueueResumes => "QueueResumes",
        Unblock::BackOffEnds(_) => "BackOffEnds",
        Unblock::HoldEnds => "HoldEnds",
        Unblock::CheckReady => "CheckReady",
        Unblock::NamespaceMatches => "NamespaceMatches",
        Unblock::LimitAllows => "LimitAllows",
    }
}

/// Whether sums of the amounts of a cell's account are within the range of amounts.
fn has_an_end(cell: &CellAccount) -> bool {
    [cell.asked, cell.earlier, cell.free, cell.debt, cell.maximum].iter().all(|amount| amount.get() < 1 << 60)
}

fn together(cell: &CellAccount) -> i128 {
    i128::from(cell.asked.get()) + i128::from(cell.earlier.get())
}

/// Amount that a queue may still use of a cell, counted from the objects alone; negative if the queue is in debt.
fn room(objects: &Objects, queue: &str, cell: &CellAccount) -> i128 {
    Ledger::of(objects).queue(queue, &cell.flavor, &cell.resource).room
}

/// Amounts of a flavor and resource that a workload holds, one for each pod set.
fn parts<'a>(spec: &'a mut WorkloadSpec, cell: &'a CellAccount) -> impl Iterator<Item = &'a mut Amount> {
    let sets = match &mut spec.state {
        WorkloadState::Reserved(held) => held.pod_sets.as_mut_slice(),
        WorkloadState::Pending { .. } => &mut [],
    };
    sets.iter_mut().filter_map(|set| {
        let here = set.flavors.get(&cell.resource).is_some_and(|flavor| *flavor == cell.flavor);
        set.usage.get_mut(&cell.resource).filter(|_| here)
    })
}

fn holds(spec: &mut WorkloadSpec, cell: &CellAccount) -> i128 {
    parts(spec, cell).map(|part| i128::from(part.get())).sum()
}

/// Reduces the amount of a flavor and resource that a workload holds.
fn cut(spec: &mut WorkloadSpec, cell: &CellAccount, mut less: i128) {
    for part in parts(spec, cell) {
        let taken = less.min(i128::from(part.get()));
        *part = Amount::clamped(i128::from(part.get()) - taken);
        less -= taken;
    }
}

/// Releases the amount `much` of a cell, from workloads whose end helps the queue: the queue may use exactly this amount more afterwards.
fn release(objects: &mut Objects, queue: &str, cell: &CellAccount, much: i128) -> Result<(), String> {
    let mut left = much;
    // Workloads of the queue itself are reduced first, because all of the quota that they give back helps the queue. Usage of other queues helps only as far as
    // it is beyond their own nominal quota.
    let mut order: Vec<usize> = (0..objects.workloads.len()).collect();
    let is_other = |spec: &WorkloadSpec| !matches!(&spec.state, WorkloadState::Reserved(r) if r.cluster_queue == queue);
    order.sort_by_key(|at| is_other(&objects.workloads[*at]));
    for at in order {
        let held = holds(&mut objects.workloads[at], cell);
        if held == 0 || left == 0 {
            continue;
        }
        let before = room(objects, queue, cell);
        let as_it_was = objects.workloads[at].clone();
        cut(&mut objects.workloads[at], cell, held);
        let helps = (room(objects, queue, cell) - before).min(left);
        objects.workloads[at] = as_it_was;
        cut(&mut objects.workloads[at], cell, helps);
        left -= helps;
    }
    if left == 0 { Ok(()) } else { Err(format!("{left} of {much} cannot be released: {cell:#?}")) }
}

fn raise(objects: &mut Objects, queue: &str, cell: &CellAccount, more: Amount) {
    let owner = objects.queues.iter_mut().find(|known| known.name == queue).unwrap();
    for group in &mut owner.groups {
        let at = group.covered.iter().position(|resource| *resource == cell.resource);
        let flavor = group.flavors.iter_mut().find(|flavor| flavor.flavor == cell.flavor);
        if let (Some(at), Some(flavor)) = (at, flavor) {
            flavor.quotas[at].nominal = flavor.quotas[at].nominal.add(more);
        }
    }
}

fn drop_evicted(objects: &mut Objects) {
    objects.workloads.retain(|spec| !matches!(&spec.state, WorkloadState::Reserved(held) if held.evicted));
}

/// Judges the advice for one cell by a ledger that is written apart from the engine: the amount must be enough, and a smaller amount must not be.
fn judge(objects: &Objects, ledger: &Ledger, queue: &str, cell: &CellAccount) -> Result<(), String> {
    let level = ledger.queue(queue, &cell.flavor, &cell.resource);
    let asked = together(cell);
    let fault = |text: String| Err(format!("{text}: {cell:#?}"));
    match &cell.unblock {
        Unblock::Nothing if asked > level.room.max(0) => fault(format!("there is room for {} only", level.room)),
        Unblock::Release(much) => {
            let much = i128::from(much.get());
            if asked > level.most || much != asked - level.room {
                return fault(format!("room {} of {}", level.room, level.most));
            }
            let mut changed = objects.clone();
            release(&mut changed, queue, cell, much)?;
            let room = room(&changed, queue, cell);
            if room == asked { Ok(()) } else { fault(format!("once that is released there is room for {room}")) }
        }
        Unblock::EvictedLeave => {
            let mut changed = objects.clone();
            drop_evicted(&mut changed);
            let room = room(&changed, queue, cell);
            if room >= asked { Ok(()) } else { fault(format!("once they are gone there is room for {room}")) }
        }
        Unblock::RaiseQuota(more) => {
            let mut changed = objects.clone();
            raise(&mut changed, queue, cell, *more);
            let most = Ledger::of(&changed).queue(queue, &cell.flavor, &cell.resource).most;
            if most == asked { Ok(()) } else { fault(format!("then there would be {most} at most")) }
        }
        _ => Ok(()),
    }
}

/// Judges the account of one workload of a world, for all its flavors and resources.
fn helps(objects: &Objects, at: usize, followed: &mut Followed) -> Result<(), String> {
    let mut world = objects.world();
    let plan = world.plan_cycles(NOW, ALL, 0);
    assert!(plan.admissions.is_empty(), "no cycle, and yet {plan:?}");
    let pending: Vec<&WorkloadSpec> = objects.workloads.iter().filter(|spec| is_pending(spec)).collect();
    let Some(spec) = pending.get(at % pending.len().max(1)) else { return Ok(()) };
    let account = world.account(&spec.uid, NOW).unwrap();
    let ledger = Ledger::of(objects);
    for cell in account.cells.iter().filter(|cell| has_an_end(cell)) {
        *followed.entry(kind(&cell.unblock)).or_default() += 1;
        judge(objects, &ledger, &spec.local_queue, cell).map_err(|fault| format!("{}: {fault}", spec.uid))?;
    }
    Ok(())
}

#[test]
fn advised_amount_is_enough_and_less_is_not() {
    let mut followed = Followed::new();
    for seed in seeds() {
        let _named = Named(seed);
        let objects = mixed(seed);
        let at = seed as usize;
        if helps(&objects, at, &mut followed).is_err() {
            let fails = |objects: &Objects| helps(objects, at, &mut Followed::new()).err();
            let small = objects.shrink(|objects| fails(objects).is_some());
            panic!("seed {seed}\n{}{}", small.describe(), fails(&small).unwrap_or_default());
        }
    }
    println!("{followed:?}");
    for kind in ["Nothing", "Release", "RaiseQuota", "EvictedLeave"] {
        let count = followed.get(kind).copied().unwrap_or(0);
        assert!(cases() < 1000 || count > cases() / 50, "too tame: {kind} {count} times");
    }
}

/// A world with one pending workload among holders of quota, with all kinds of obstacles, and the uid of the pending workload.
fn hindered(seed: u64) -> Option<(Extras, String)> {
    let mut dice = Dice::new(seed ^ 0x510e_527f);
    let mut extras = with_extras(mixed(seed), seed);
    let pending: Vec<String> =
        extras.objects.workloads.iter().filter(|spec| is_pending(spec)).map(|spec| spec.uid.clone()).collect();
    let uid = pending.get(dice.below(pending.len().max(1) as u64) as usize)?.clone();
    extras.objects.workloads.retain(|spec| spec.uid == uid || !is_pending(spec));
    let spec = extras.objects.workload(&uid);
    // The pending workload whose advice is followed must not get quota by preemption.
    spec.preempts = Preempts::Nobody;
    spec.checks_failed = dice.chance(12);
    spec.refused = dice.chance(12).then(|| "out of bounds".to_owned());
    spec.allowed_flavors = dice.chance(8).then(|| vec![dice.pick(&["f0", "f1", "f2"]).to_owned()]);
    if dice.chance(12) {
        spec.pod_sets[0].requests.insert("tpu".to_owned(), amount(1));
    }
    if dice.chance(6) {
        let not_before = dice.chance(2).then(|| Millis(NOW.0 + 1 + dice.below(5000) as i64));
        spec.state = WorkloadState::Pending { not_before, blocked: dice.chance(2).then_some(Blocked::InQueue) };
    }
    let name = spec.local_queue.clone();
    let owner = extras.objects.queues.iter_mut().find(|queue| queue.name == name).unwrap();
    if dice.chance(12) {
        owner.namespace_selector = None;
    }
    if dice.chance(12) {
        owner.inactive = Some("is to be understood first".to_owned());
    }
    Some((extras, uid))
}

/// The pending workload that follows advice, its world and the time.
struct Advised {
    extras: Extras,
    uid: String,
    now: Millis,
}

impl Advised {
    fn spec(&mut self) -> &mut WorkloadSpec {
        self.extras.objects.workload(&self.uid)
    }

    fn owner(&mut self) -> &mut ClusterQueueSpec {
        let name = self.spec().local_queue.clone();
        self.extras.objects.queues.iter_mut().find(|queue| queue.name == name).unwrap()
    }

    /// Removes the obstacle to admission that the account of a workload names.
    fn clear(&mut self, obstacle: &Unblock) -> Result<(), String> {
        match obstacle {
            Unblock::QueueResumes => (self.owner().stop, self.owner().inactive) = (StopPolicy::None, None),
            Unblock::BackOffEnds(time) => self.now = *time,
            Unblock::HoldEnds => {
                if let WorkloadState::Pending { blocked, .. } = &mut self.spec().state {
                    *blocked = None;
                }
            }
            Unblock::CheckReady => self.spec().checks_failed = false,
            Unblock::NamespaceMatches => self.owner().namespace_selector = Some(Selector::default()),
            Unblock::LimitAllows => self.owner().max_jobs = None,
            Unblock::ChangeRequirements => {
                self.spec().refused = None;
                self.spec().pod_sets[0].requests.remove("tpu");
            }
            other => return Err(format!("nobody else waits, and it is told {other:?}")),
        }
        Ok(())
    }

    /// Changes the world as the account of a workload advises for one flavor and resource.
    fn follow(&mut self, cell: &CellAccount) -> Result<(), String> {
        let queue = self.spec().local_queue.clone();
        match &cell.unblock {
            Unblock::Nothing => {}
            Unblock::Release(much) => release(&mut self.extras.objects, &queue, cell, i128::from(much.get()))?,
            Unblock::RaiseQuota(more) => raise(&mut self.extras.objects, &queue, cell, *more),
            Unblock::EvictedLeave => drop_evicted(&mut self.extras.objects),
            Unblock::Restock => self.extras.stock_outs.retain(|out| out.flavor != cell.flavor),
            Unblock::LimitAllows => self.owner().max_shares = [None; 3],
            Unblock::ChangeRequirements => {
                self.owner().tiers.clear();
                self.spec().pod_sets.iter_mut().for_each(|set| set.node_selector.clear());
                (self.spec().allowed_flavors, self.spec().tiers) = (None, None);
            }
            other => return Err(format!("{other:?} is no help with {cell:?}")),
        }
        Ok(())
    }
}

/// Changes the world as the accounts of a workload advise until the workload is admitted.
fn follow(extras: &Extras, uid: &str, followed: &mut Followed) -> Result<(), String> {
    let mut advised = Advised { extras: extras.clone(), uid: uid.to_owned(), now: NOW };
    let mut reported = Vec::new();
    for _ in 0..STEPS {
        let mut world = advised.extras.world();
        let plan = world.plan(advised.now, ALL);
        if !plan.admissions.is_empty() {
            return Ok(());
        }
        // A world that was made smaller may not have the workload any more.
        let Some(account) = world.account(uid, advised.now) else { return Ok(()) };
        if !account.cells.iter().all(has_an_end) {
            return Ok(());
        }
        if let Some(obstacle) = &account.obstacle {
            *followed.entry(kind(obstacle)).or_default() += 1;
            advised.clear(obstacle)?;
            reported.push(format!("{obstacle:?}"));
            continue;
        }
        // The test follows the advice for one flavor only: for the flavor that is tried first.
        let mut firsts = BTreeSet::new();
        let is_first = |cell: &&CellAccount| firsts.insert((cell.pod_set.clone(), cell.resource.clone()));
        let cells: Vec<&CellAccount> = account.cells.iter().filter(is_first).collect();
        if cells.iter().all(|cell| cell.unblock == Unblock::Nothing) {
            return Err(format!("nothing is told to be in its way after {reported:#?}: {account:#?}"));
        }
        for cell in cells.iter().filter(|cell| cell.unblock != Unblock::Nothing) {
            *followed.entry(kind(&cell.unblock)).or_default() += 1;
            reported.push(format!("{} {}/{}: {:?}", cell.pod_set, cell.flavor, cell.resource, cell.unblock));
        }
        // A release for one pod set counts for the next pod set, so a new account is made after each change.
        for cell in cells {
            advised.follow(cell)?;
            if cell.unblock != Unblock::Nothing {
                break;
            }
        }
    }
    Err(format!("it still waits after {reported:#?}"))
}

#[test]
fn workload_that_follows_its_advice_is_admitted() {
    let mut followed = Followed::new();
    for seed in seeds() {
        let _named = Named(seed);
        let Some((extras, uid)) = hindered(seed) else { continue };
        if follow(&extras, &uid, &mut followed).is_err() {
            let fails = |extras: &Extras| follow(extras, &uid, &mut Followed::new()).err();
            let small = extras.shrink(|extras| fails(extras).is_some());
            panic!("seed {seed}: {uid}\n{}{}", small.describe(), fails(&small).unwrap_or_default());
        }
    }
    println!("{followed:?}");
    let all = [
        "Release",
        "RaiseQuota",
        "ChangeRequirements",
        "EvictedLeave",
        "Restock",
        "QueueResumes",
        "BackOffEnds",
        "HoldEnds",
        "CheckReady",
        "NamespaceMatches",
        "LimitAllows",
    ];
    let never: Vec<&str> = all.into_iter().filter(|kind| !followed.contains_key(kind)).collect();
    assert!(cases() < 20_000 || never.is_empty(), "too tame: never {never:?}");
}

/// The world after a plan, without the pending workloads for which `without` is true, and the plan after their removal.
fn at_rest(objects: &Objects, without: impl Fn(&WorkloadSpec) -> bool) -> (World, Plan) {
    let mut world = objects.world();
    let mut first = world.plan(NOW, ALL);
    let gone: Vec<&WorkloadSpec> = objects.workloads.iter().filter(|spec| without(spec)).collect();
    for spec in &gone {
        world.apply(Delta::RemoveWorkload(spec.uid.clone())).unwrap();
    }
    if !gone.is_empty() {
        first = world.plan(NOW, ALL);
    }
    (world, first)
}

/// Judges the accounts of workloads that a plan leaves pending.
fn advice_fault(objects: &Objects, followed: &mut Followed) -> Result<(), String> {
    let (mut world, plan) = at_rest(objects, |_| false);
    let evicted: BTreeMap<&str, &str> = plan.evictions.iter().map(|e| (e.uid.as_str(), e.preemptor.as_str())).collect();
    let mut obstacles = Vec::new();
    for spec in &objects.workloads {
        let account = world.account(&spec.uid, NOW).unwrap();
        let fault = |text: &str| Err(format!("{}: {text}: {account:#?}", spec.uid));
        let preemptor = account.evicted_for.as_deref();
        if preemptor != evicted.get(spec.uid.as_str()).copied() {
            return fault("another preemptor than the plan told");
        }
        match (account.holds, &account.obstacle) {
            (Some(true), Some(Unblock::PodsStop)) | (Some(false), None) => continue,
            (Some(_), _) => return fault("it holds quota, and is told something else"),
            (None, _) => {}
        }
        let is_reported =
            account.obstacle.is_some() || account.cells.iter().any(|cell| cell.unblock != Unblock::Nothing);
        if account.obstacle.is_none() && account.mode == Some(Mode::Fit) {
            return fault("it fits, and nothing is told to be in its way");
        }
        // A workload with a request beyond the range of amounts may lack no quota.
        if !is_reported && account.cells.iter().all(has_an_end) {
            return fault("it is told nothing");
        }
        if let Some(obstacle) = account.obstacle {
            *followed.entry(kind(&obstacle)).or_default() += 1;
            // Amounts beyond the range of amounts are cut off, and then the fit depends on their sums, so an obstacle with amounts beyond the range is not
            // judged.
            obstacles.extend(account.cells.iter().all(has_an_end).then_some((spec, obstacle)));
        }
    }
    for (spec, obstacle) in obstacles {
        let fault =
            |text: &str, with: &dyn std::fmt::Debug| Err(format!("{}: {obstacle:?}: {text}: {with:#?}", spec.uid));
        match &obstacle {
            Unblock::HeadGoes(head) => {
                if !objects.workloads.iter().any(|other| other.uid == *head && other.local_queue == spec.local_queue) {
                    return fault("it is of another queue", &());
                }
                let (mut world, _) = at_rest(objects, |other| other.uid == *head);
                let account = world.account(&spec.uid, NOW).unwrap();
                if account.obstacle.as_ref() == Some(&obstacle) {
                    return fault("it is gone", &account);
                }
            }
            Unblock::RoomIsKept => {
                let (_, plan) = at_rest(objects, |other| is_pending(other) && other.uid != spec.uid);
                if !plan.admissions.iter().any(|admission| *admission.uid == *spec.uid) {
                    return fault("nobody else waits", &plan);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn account_of_pending_workload_names_its_obstacle() {
    let mut followed = Followed::new();
    for seed in seeds() {
        let _named = Named(seed);
        let objects = mixed(seed);
        if advice_fault(&objects, &mut followed).is_err() {
            let small = objects.shrink(|objects| advice_fault(objects, &mut Followed::new()).is_err());
            panic!("seed {seed}\n{}{}", small.describe(), advice_fault(&small, &mut Followed::new()).unwrap_err());
        }
    }
    println!("{followed:?}");
    for kind in ["HeadGoes", "RoomIsKept"] {
        let count = followed.get(kind).copied().unwrap_or(0);
        assert!(cases() < 1000 || count > cases() / 500, "too tame: {kind} {count} times");
    }
}
