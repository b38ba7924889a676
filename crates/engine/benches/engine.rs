//! Speed and memory of the engine alone: draining Kueue's performance shapes, one event in a full world, a search for victims among many holders, memory per
//! pending workload. `cargo bench -p berth-engine` runs the benchmark; its figures are in docs/performance.md.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_engine::*;
use criterion::{BatchSize, Criterion, Throughput};

/// The benchmark uses the allocator of the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NOW: Millis = Millis(1_000_000);
const ALL: Limits = Limits { max_admissions: usize::MAX };

fn quota(nominal: i64, borrowing_limit: Option<i64>) -> Vec<ResourceGroup> {
    let borrowing_limit = borrowing_limit.map(Amount::new);
    let quota = Quota { nominal: Amount::new(nominal), borrowing_limit, lending_limit: None };
    vec![ResourceGroup {
        covered: vec!["cpu".into()],
        flavors: vec![FlavorQuotas { flavor: "default".into(), quotas: vec![quota] }],
    }]
}

fn queue(name: String, cohort: String, groups: Vec<ResourceGroup>) -> ClusterQueueSpec {
    ClusterQueueSpec {
        name,
        cohort: Some(cohort),
        groups,
        namespace_selector: Some(Selector::default()),
        preemption: Preemption {
            within_cluster_queue: PreemptionPolicy::LowerPriority,
            reclaim_within_cohort: PreemptionPolicy::Any,
            borrow_within_cohort: false,
            max_priority_threshold: None,
        },
        ..ClusterQueueSpec::default()
    }
}

fn workload(uid: String, queue: String, priority: i64, at: i64, cpu: i64) -> WorkloadSpec {
    WorkloadSpec {
        namespace: "default".into(),
        name: uid.clone(),
        uid,
        local_queue: queue,
        priority,
        queued_at: Millis(at),
        at_front: false,
        pod_sets: vec![PodSetSpec {
            name: "main".into(),
            count: 1,
            requests: BTreeMap::from([("cpu".to_owned(), Amount::new(cpu))]),
            ..PodSetSpec::default()
        }],
        allowed_flavors: None,
        tiers: None,
        preempts: Preempts::AsQueue,
        points_per_hour: 0,
        waits_since: Millis(at),
        replaces: None,
        refused: None,
        checks_failed: false,
        preemption_gated: false,
        runs: false,
        state: WorkloadState::Pending { not_before: None, blocked: None },
        revision: 1,
    }
}

fn world(cohorts: usize, queues: usize, nominal: i64, limit: Option<i64>, fair: bool) -> World {
    let fair_sharing = fair.then(FairSharing::default);
    let mut world = World::new(Options { fair_sharing, ..Options::default() });
    let mut apply = |delta| world.apply(delta).expect("a delta on known objects");
    apply(Delta::Namespace("default".into(), BTreeMap::new()));
    apply(Delta::Flavor(FlavorSpec { name: "default".into(), ..FlavorSpec::default() }));
    for cohort in 0..cohorts {
        for index in 0..queues {
            let name = format!("q{cohort}-{index}");
            apply(Delta::ClusterQueue(queue(name.clone(), format!("c{cohort}"), quota(nominal, limit))));
            let (namespace, stop) = ("default".into(), StopPolicy::None);
            apply(Delta::LocalQueue(LocalQueueSpec {
                namespace,
                name: name.clone(),
                cluster_queue: name,
                stop,
                weight: WEIGHT_ONE,
            }));
        }
    }
    world
}

/// Numbers of small, medium and large workloads in a repeated sequence, as in the two shapes of Kueue's performance test.
const BASELINE: [usize; 3] = [7, 2, 1];
const LARGE_SCALE: [usize; 3] = [35, 11, 4];

/// Fills a world with the workloads of Kueue's generator, in the mix of sizes `small`, `medium` and `large`, with their priorities.
fn fill(world: &mut World, cohorts: usize, queues: usize, each: usize, [small, medium, large]: [usize; 3]) {
    for cohort in 0..cohorts {
        for index in 0..queues {
            for number in 0..each {
                let (cpu, priority) = match number % (small + medium + large) {
                    place if place < small => (1000, 50),
                    place if place < small + medium => (5000, 100),
                    _ => (20_000, 200),
                };
                let uid = format!("w{cohort}-{index}-{number}");
                let spec =
                    workload(uid, format!("q{cohort}-{index}"), priority, i64::try_from(number).unwrap_or(0), cpu);
                world.apply(Delta::Workload(spec)).expect("a workload");
            }
        }
    }
}

/// Plans and lets all admitted workloads finish, until no workload is left. Returns the number of admissions and the number of heads that were tried.
fn drain(world: &mut World) -> (usize, u64) {
    let (mut total, mut heads) = (0, 0);
    loop {
        let plan = world.plan(NOW, ALL);
        heads += plan.heads;
        if plan.admissions.is_empty() {
            return (total, heads);
        }
        total += plan.admissions.len();
        for admission in plan.admissions {
            world.apply(Delta::RemoveWorkload(admission.uid.to_string())).expect("an admitted workload");
        }
    }
}

/// Prints the numbers of admissions and heads per second in eleven drains: the median and the range.
fn report_drain(name: &str, full: impl Fn() -> World) {
    let (mut times, mut counts) = (Vec::new(), (0, 0));
    for _ in 0..11 {
        let mut world = full();
        timed(&mut times, || counts = drain(&mut world));
    }
    times.sort();
    let rate = |count: f64, at: usize| count / 1000.0 / times[at].as_secs_f64();
    let line = |count: f64| format!("{:.0} ({:.0} to {:.0})", rate(count, 5), rate(count, 10), rate(count, 0));
    let (admissions, heads) = counts;
    println!("{name}: {admissions} admissions, {heads} heads");
    println!("{name}: thousand admissions/s {}, thousand heads/s {}", line(admissions as f64), line(heads as f64));
}

fn drains(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("drain");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (name, cohorts, queues, each, mix, fair) in [
        ("30 queues x 500", 5, 6, 500, BASELINE, false),
        ("1000 queues x 50", 10, 100, 50, LARGE_SCALE, false),
        ("1 queue x 10000", 1, 1, 10_000, BASELINE, false),
        ("1 queue x 20000", 1, 1, 20_000, BASELINE, false),
        ("30 queues x 500, fair sharing", 5, 6, 500, BASELINE, true),
    ] {
        let full = || {
            let mut world = world(cohorts, queues, 20_000, Some(100_000), fair);
            fill(&mut world, cohorts, queues, each, mix);
            world
        };
        let filter = std::env::args().find(|argument| argument.starts_with("drain"));
        if filter.is_none_or(|filter| format!("drain/{name}").contains(&filter)) {
            report_drain(name, full);
        }
        group.throughput(Throughput::Elements((cohorts * queues * each) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                full,
                |world| assert_eq!(drain(world).0, cohorts * queues * each),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times.get(times.len() * part / 1000).copied().unwrap_or_default();
    let last = times.last().copied().unwrap_or_default();
    println!("{name}: {} times, p50 {:?}, p99 {:?}, p99.9 {:?}, most {last:?}", times.len(), at(500), at(990), at(999));
}

fn timed(times: &mut Vec<Duration>, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    times.push(start.elapsed());
}

/// Times of arrivals, finishes and evictions in a world of 10,000 admitted and 50,000 pending workloads in 10 cohorts of 10 queues; each event is followed by a
/// plan, which is part of its time.
fn events() -> [Vec<Duration>; 3] {
    let (cohorts, queues) = (10, 10);
    let mut world = world(cohorts, queues, 100_000, None, false);
    for number in 0..10_000_usize {
        let queue = format!("q{}-{}", number % 10, number / 10 % 10);
        let spec = workload(format!("held{number}"), queue, 100, 0, 1000);
        world.apply(Delta::Workload(spec)).expect("a workload");
    }
    let admitted = world.plan(NOW, ALL).admissions;
    assert_eq!(admitted.len(), 10_000);
    for number in 0..50_000_usize {
        let queue = format!("q{}-{}", number % 10, number / 10 % 10);
        let spec = workload(format!("waits{number}"), queue, 50, i64::try_from(number).unwrap_or(0), 1000);
        world.apply(Delta::Workload(spec)).expect("a workload");
    }
    let _ = black_box(world.plan(NOW, ALL));
    let (mut arrivals, mut finishes, mut evictions) = (Vec::new(), Vec::new(), Vec::new());
    for (number, admission) in admitted.iter().enumerate().take(3000) {
        let spec = workload(format!("new{number}"), admission.cluster_queue.to_string(), 50, 1_000_000, 1000);
        timed(&mut arrivals, || {
            world.apply(Delta::Workload(spec)).expect("a workload");
            let _ = black_box(world.plan(NOW, ALL));
        });
        if number % 2 == 0 {
            timed(&mut finishes, || {
                world.apply(Delta::RemoveWorkload(admission.uid.to_string())).expect("a workload");
                let _ = black_box(world.plan(NOW, ALL));
            });
        } else {
            let mut spec =
                workload(admission.uid.to_string(), admission.cluster_queue.to_string(), 40, 2_000_000, 1000);
            spec.revision = 2;
            timed(&mut evictions, || {
                world.apply(Delta::Workload(spec)).expect("a workload");
                let _ = black_box(world.plan(NOW, ALL));
            });
        }
    }
    [arrivals, finishes, evictions]
}

/// Measures the events of [`events`] three times, each time in a new world, and prints the times of each run and the shortest time of each event: delays by
/// other programs and the machine hit other events in each run.
fn report_events() {
    let runs = [events(), events(), events()];
    for (kind, name) in ["arrival", "finish", "eviction"].into_iter().enumerate() {
        let runs = [&runs[0][kind], &runs[1][kind], &runs[2][kind]];
        for run in runs {
            report(&format!("{name} and plan, 50,000 pending"), run.clone());
        }
        let quickest = (0..runs[0].len()).map(|event| runs[0][event].min(runs[1][event]).min(runs[2][event]));
        report(&format!("{name} and plan, each at its quickest of these three runs"), quickest.collect());
    }
    for length in [18, 24] {
        report(&format!("the machine alone: {length} µs of counting"), counting(Duration::from_micros(length)));
    }
}

/// Measured times of a computation without memory access, one for each finish event of the benchmark; undisturbed, the computation takes `length`. The
/// difference between the tail and the median of the measured times of this computation is noise of the machine, not of the engine.
fn counting(length: Duration) -> Vec<Duration> {
    let count = |turns: u128| {
        let start = Instant::now();
        black_box((0..turns as u64).fold(0_u64, |at, turn| black_box(at.rotate_left(5) ^ turn)));
        start.elapsed()
    };
    let quickest = (0..1000).map(|_| count(1000)).min().unwrap_or_default();
    let turns = 1000 * length.as_nanos() / quickest.as_nanos().max(1);
    (0..1500).map(|_| count(turns)).collect()
}

/// Prints the memory of 50,000 pending workloads, which have one shape (`step` is 0) or one shape each. The measured world is not freed, so that the next
/// measurement does not reuse its memory.
fn memory(name: &str, step: i64) {
    let mut world = world(10, 10, 0, None, false);
    let before = resident();
    for number in 0..50_000_usize {
        let queue = format!("q{}-{}", number % 10, number / 10 % 10);
        let cpu = 1000 + step * i64::try_from(number).unwrap_or(0);
        world.apply(Delta::Workload(workload(format!("waits{number}"), queue, 50, 0, cpu))).expect("a workload");
    }
    println!("memory: {} bytes per pending workload, {name}", (resident() - before) / 50_000);
    std::mem::forget(world);
}

/// Times of the search for victims of a workload that reclaims quota, among 10,000 admitted workloads in one cohort, half of which borrow.
fn victims(fair: bool) {
    let queues = 10;
    let mut world = world(1, queues, 1_000_000, None, fair);
    for number in 0..10_000_usize {
        let queue = format!("q0-{}", number % (queues - 1));
        let spec = workload(format!("held{number}"), queue, i64::try_from(number % 7).unwrap_or(0), 0, 1000);
        world.apply(Delta::Workload(spec)).expect("a workload");
    }
    assert_eq!(world.plan(NOW, ALL).admissions.len(), 10_000);
    world.apply(Delta::Workload(workload("asks".into(), "q0-9".into(), 9, 0, 50_000))).expect("a workload");
    let cell = FlavorResource { flavor: "default".into(), resource: "cpu".into() };
    let usage = BTreeMap::from([(cell.clone(), Amount::new(50_000))]);
    let mut times = Vec::new();
    for _ in 0..300 {
        timed(&mut times, || {
            let found = world.steps().victims("asks", "q0-9", std::slice::from_ref(&cell), &usage).expect("known");
            assert_eq!(found.len(), 50);
        });
    }
    let rules = if fair { "fair" } else { "classical" };
    report(&format!("search for 50 victims among 10,000, {rules}"), times);
    let mut times = Vec::new();
    timed(&mut times, || assert_eq!(world.plan(NOW, ALL).evictions.len(), 50));
    report(&format!("plan with 50 victims among 10,000, {rules}"), times);
}

fn main() {
    // The process `berth` disables huge pages at its start as the benchmark does here: a huge page counts in full, however little of it is used.
    rustix::thread::disable_transparent_huge_pages(true).expect("Linux");
    // The benchmarks that do not use criterion, by name. With `-- events`, `cargo bench -p berth-engine` runs only the benchmark `events` of these benchmarks;
    // with `-- drain`, it runs only benchmarks of criterion.
    let parts: [(&str, fn()); 3] = [("memory", memories), ("events", report_events), ("victims", searches)];
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_asked = |name: &str| filter.as_deref().is_none_or(|filter| filter.starts_with(name));
    for (_, run) in parts.iter().filter(|(name, _)| is_asked(name)) {
        run();
    }
    if is_asked("drain") {
        let mut criterion = Criterion::default().configure_from_args().without_plots();
        drains(&mut criterion);
        criterion.final_summary();
    }
}

fn memories() {
    memory("all of one shape", 0);
    memory("each of its own shape", 1);
}

fn searches() {
    victims(false);
    victims(true);
}
