//! Partial admission: a search for the largest counts of pods that fit, by bisection as in Kueue.

/// Searches the largest counts that fit, between the full size and `minCount`, which `pod_sets` gives in pairs. The search assumes that smaller counts of pods
/// fit if larger counts fit.
pub(crate) fn search<R>(pod_sets: &[(i64, Option<i64>)], mut fits: impl FnMut(&[i64]) -> Option<R>) -> Option<R> {
    // If fewer pods are left than `minCount`, the workload needs all pods that are left.
    let delta =
        |(count, least): &(i64, Option<i64>)| count.saturating_sub(least.map_or(*count, |least| least.min(*count)));
    let deltas: Vec<i64> = pod_sets.iter().map(delta).collect();
    let total: i64 = deltas.iter().sum();
    if total <= 0 {
        return None;
    }
    let counts_at = |step: i64| -> Vec<i64> {
        let reduced = |((count, _), delta): (&(i64, Option<i64>), &i64)| {
            let less = i128::from(*delta).saturating_mul(i128::from(step)).checked_div(i128::from(total));
            count.saturating_sub(less.and_then(|less| i64::try_from(less).ok()).unwrap_or(*delta))
        };
        pod_sets.iter().zip(&deltas).map(reduced).collect()
    };
    let (mut low, mut high) = (0_i64, total.saturating_add(1));
    let mut last = None;
    while low < high {
        let middle = low.midpoint(high);
        match fits(&counts_at(middle)) {
            Some(result) => {
                last = Some((middle, result));
                high = middle;
            }
            None => low = middle.saturating_add(1),
        }
    }
    last.filter(|(step, _)| *step == low).map(|(_, result)| result)
}
