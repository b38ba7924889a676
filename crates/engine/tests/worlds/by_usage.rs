//! Worlds in which most ClusterQueues have two LocalQueues, whose recent usage orders their workloads.

use std::collections::BTreeMap;

use berth_engine::*;
use berth_quantity::to_nano;

use super::{Dice, Objects, amount, local_queue};

/// Number of thousandths of a core in one cpu.
const UNIT: i64 = 1000;
const RESOURCE_WEIGHTS: [&[(&str, f64)]; 4] =
    [&[], &[("memory", 0.5)], &[("cpu", 2.0), ("memory", 0.25)], &[("cpu", 0.0)]];
const WEIGHTS: [i64; 5] = [0, 500_000_000, 1_000_000_000, 1_000_000_000, 2_000_000_000];

/// Lets usage of LocalQueues order the workloads of most ClusterQueues. Usage is exact in floats, in whatever order it is added up, for the following reasons:
/// cpu comes in integers; the first plan, at 1000 ms, is made one or two half-lives after the time of the ledgers; an interval is one or two half-lives;
/// weights are powers of two. Two LocalQueues therefore have equal usage, or clearly different usage.
pub(crate) fn by_usage(mut objects: Objects, seed: u64) -> Objects {
    let mut dice = Dice::new(seed ^ 0x9b05_688c);
    objects.count_in_cpus();
    let half_life = dice.pick(&[500_i64, 1000]);
    objects.options.admission_fair_sharing = Some(AdmissionFairSharing {
        half_life,
        sampling_interval: half_life * dice.pick(&[1_i64, 2]),
        weights: dice.pick(&RESOURCE_WEIGHTS).iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
    });
    for queue in &mut objects.queues {
        queue.usage_based = !dice.chance(4);
        let beside = format!("{}-b", queue.name);
        for name in [queue.name.clone(), beside.clone()] {
            if dice.chance(2) {
                let (cpu, memory) = (amount(1000 * dice.below(5)), amount(dice.below(5)));
                let consumed = [("cpu", cpu), ("memory", memory)]
                    .map(|(name, used)| (name.to_owned(), to_nano(name, used)))
                    .into();
                objects.ledgers.push((name, LedgerFigures { consumed, at: Millis(0) }));
            }
        }
        let (cluster_queue, weight) = (queue.name.clone(), dice.pick(&WEIGHTS));
        objects.local_queues.push(LocalQueueSpec { cluster_queue, weight, ..local_queue(&beside) });
    }
    for spec in &mut objects.workloads {
        if dice.chance(2) {
            spec.local_queue.push_str("-b");
        }
    }
    objects
}

fn scaled(amount: Amount) -> Amount {
    Amount::new(amount.get() * UNIT)
}

fn scale_amounts(amounts: &mut BTreeMap<String, Amount>) {
    if let Some(cpu) = amounts.get_mut("cpu") {
        *cpu = scaled(*cpu);
    }
}

impl Objects {
    /// Multiplies all amounts of cpu by a thousand, so that the decisions stay the same.
    fn count_in_cpus(&mut self) {
        let of_queues = self.queues.iter_mut().flat_map(|queue| &mut queue.groups);
        for group in of_queues.chain(self.cohorts.iter_mut().flat_map(|cohort| &mut cohort.groups)) {
            let Some(at) = group.covered.iter().position(|resource| resource == "cpu") else { continue };
            for quota in group.flavors.iter_mut().map(|flavor| &mut flavor.quotas[at]) {
                quota.nominal = scaled(quota.nominal);
                quota.borrowing_limit = quota.borrowing_limit.map(scaled);
                quota.lending_limit = quota.lending_limit.map(scaled);
            }
        }
        for spec in &mut self.workloads {
            spec.pod_sets.iter_mut().for_each(|set| scale_amounts(&mut set.requests));
            if let WorkloadState::Reserved(held) = &mut spec.state {
                held.pod_sets.iter_mut().for_each(|set| scale_amounts(&mut set.usage));
            }
        }
    }
}
