//! Partial admission: the largest counts that find room, by bisection (kueue.md 6.10).

use crate::store::PodSet;

/// Tries counts between full size and `minCount`. Room is taken to be monotonous in the counts.
pub(crate) fn search<R>(pod_sets: &[PodSet], mut fits: impl FnMut(&[i64]) -> Option<R>) -> Option<R> {
    let deltas: Vec<i64> = pod_sets
        .iter()
        .map(|pod_set| pod_set.spec.count - pod_set.spec.min_count.unwrap_or(pod_set.spec.count))
        .collect();
    let total: i64 = deltas.iter().sum();
    if total <= 0 {
        return None;
    }
    let counts_at = |step: i64| -> Vec<i64> {
        let reduced = |(pod_set, delta): (&PodSet, &i64)| {
            let less = i128::from(*delta) * i128::from(step) / i128::from(total);
            pod_set.spec.count - i64::try_from(less).unwrap_or(*delta)
        };
        pod_sets.iter().zip(&deltas).map(reduced).collect()
    };
    let (mut low, mut high) = (0, total + 1);
    let mut last = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(&counts_at(middle)) {
            Some(result) => {
                last = Some((middle, result));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    last.filter(|(step, _)| *step == low).map(|(_, result)| result)
}
