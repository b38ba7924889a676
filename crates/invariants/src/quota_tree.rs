//! An independent, slow implementation of the quota rules, by which the observer judges Berth: it shares no code with the engine.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::kinds::{items, text};

/// A flavor and a resource.
pub type Cell = (String, String);

/// Amounts of quota or usage by flavor and resource, in exact thousandths.
pub type Usage = BTreeMap<Cell, i128>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    nominal: i128,
    borrowing: Option<i128>,
    lending: Option<i128>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    parent: Option<String>,
    quotas: BTreeMap<Cell, Quota>,
}

/// All ClusterQueues and Cohorts with the quotas in their specs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest {
    queues: BTreeMap<String, Node>,
    cohorts: BTreeMap<String, Node>,
}

/// Totals of a node.
struct Totals {
    /// Quota of the subtree, without what its parts keep for themselves.
    subtree: i128,
    used: i128,
}

/// Deeper trees than this are loops, which Berth refuses.
const DEEPEST: usize = 64;

impl Forest {
    /// Adds a ClusterQueue to the forest, or replaces it there.
    pub fn set_queue(&mut self, object: &Value) {
        self.queues.insert(text(object, "/metadata/name").to_owned(), node(object, "/spec/cohortName"));
    }

    /// Removes a ClusterQueue from the forest.
    pub fn remove_queue(&mut self, name: &str) {
        self.queues.remove(name);
    }

    /// Adds a Cohort to the forest, or replaces it there.
    pub fn set_cohort(&mut self, object: &Value) {
        self.cohorts.insert(text(object, "/metadata/name").to_owned(), node(object, "/spec/parentName"));
    }

    /// Removes a Cohort object; the cohort itself exists as long as a queue or cohort refers to it.
    pub fn remove_cohort(&mut self, name: &str) {
        self.cohorts.remove(name);
    }

    /// Names of all ClusterQueues.
    pub fn queue_names(&self) -> BTreeSet<String> {
        self.queues.keys().cloned().collect()
    }

    /// The part of a queue's usage of `cell` above the queue's own nominal quota, which comes from its cohort; 0 without a cohort.
    pub fn borrowed(&self, queue: &str, cell: &Cell, used: i128) -> i128 {
        let Some(node) = self.queues.get(queue).filter(|node| node.parent.is_some()) else { return 0 };
        (used - node.quotas.get(cell).map_or(0, |quota| quota.nominal)).max(0)
    }

    /// Names of the ClusterQueues of a cohort and of all cohorts below it.
    pub fn queues_below(&self, cohort: &str) -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![cohort.to_owned()]);
        let mut queues = BTreeSet::new();
        while let Some(cohort) = open.pop() {
            if !seen.insert(cohort.clone()) {
                continue;
            }
            queues.extend(Self::children(&self.queues, &cohort).map(|(name, _)| name.clone()));
            open.extend(self.child_cohorts(&cohort).map(|(name, _)| name.clone()));
        }
        queues
    }

    /// The amount of `cell` that a queue may use in addition when all queues use `usage`; the amount may be negative. An unknown queue may use
    /// nothing.
    pub fn available(&self, usage: &BTreeMap<String, Usage>, queue: &str, cell: &Cell) -> i128 {
        let Some(node) = self.queues.get(queue) else { return 0 };
        let used = usage.get(queue).and_then(|u| u.get(cell)).copied().unwrap_or(0);
        let subtree = node.quotas.get(cell).map_or(0, |q| q.nominal);
        self.above(usage, cell, node, Totals { subtree, used }, 0)
    }

    /// The rule of one node with these totals.
    fn above(&self, usage: &BTreeMap<String, Usage>, cell: &Cell, node: &Node, totals: Totals, depth: usize) -> i128 {
        let Totals { subtree, used } = totals;
        let Some(parent) = node.parent.as_ref().filter(|_| depth < DEEPEST) else { return subtree - used };
        let quota = node.quotas.get(cell);
        let own = kept(quota, subtree);
        let totals = Totals { subtree: self.subtree(cell, parent, depth), used: self.used(usage, cell, parent, depth) };
        let empty = Node::default();
        let parent_node = self.cohorts.get(parent).unwrap_or(&empty);
        let mut from_parent = self.above(usage, cell, parent_node, totals, depth + 1);
        if let Some(limit) = quota.and_then(|q| q.borrowing) {
            let lent = (subtree - own) - (used - own).max(0);
            from_parent = from_parent.min(lent + limit);
        }
        (own - used).max(0) + from_parent
    }

    fn children<'a>(
        nodes: &'a BTreeMap<String, Node>,
        parent: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Node)> {
        nodes.iter().filter(move |(_, n)| n.parent.as_deref() == Some(parent))
    }

    fn subtree(&self, cell: &Cell, cohort: &str, depth: usize) -> i128 {
        let mut total = self.cohorts.get(cohort).and_then(|n| n.quotas.get(cell)).map_or(0, |q| q.nominal);
        for (_, node) in Self::children(&self.queues, cohort) {
            let subtree = node.quotas.get(cell).map_or(0, |q| q.nominal);
            total += subtree - kept(node.quotas.get(cell), subtree);
        }
        if depth < DEEPEST {
            for (name, node) in self.child_cohorts(cohort) {
                let subtree = self.subtree(cell, name, depth + 1);
                total += subtree - kept(node.quotas.get(cell), subtree);
            }
        }
        total
    }

    fn used(&self, usage: &BTreeMap<String, Usage>, cell: &Cell, cohort: &str, depth: usize) -> i128 {
        let mut total = 0;
        for (name, node) in Self::children(&self.queues, cohort) {
            let subtree = node.quotas.get(cell).map_or(0, |q| q.nominal);
            let used = usage.get(name).and_then(|u| u.get(cell)).copied().unwrap_or(0);
            total += (used - kept(node.quotas.get(cell), subtree)).max(0);
        }
        if depth < DEEPEST {
            for (name, node) in self.child_cohorts(cohort) {
                let kept = kept(node.quotas.get(cell), self.subtree(cell, name, depth + 1));
                total += (self.used(usage, cell, name, depth + 1) - kept).max(0);
            }
        }
        total
    }

    /// Cohorts whose parent is `parent`. Only a Cohort object can name a parent, so a cohort without an object is a root.
    fn child_cohorts<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = (&'a String, &'a Node)> {
        Self::children(&self.cohorts, parent)
    }
}

/// The part of a node's total quota that the node does not lend.
fn kept(quota: Option<&Quota>, subtree: i128) -> i128 {
    quota.and_then(|q| q.lending).map_or(0, |limit| (subtree - limit).max(0))
}

fn node(object: &Value, parent: &str) -> Node {
    let mut quotas = BTreeMap::new();
    for group in items(object, "/spec/resourceGroups") {
        for flavor in items(group, "/flavors") {
            for resource in items(flavor, "/resources") {
                let cell = (text(flavor, "/name").to_owned(), text(resource, "/name").to_owned());
                let amount = |pointer: &str| resource.pointer(pointer).and_then(thousandths);
                let quota = Quota {
                    nominal: amount("/nominalQuota").unwrap_or(0),
                    borrowing: amount("/borrowingLimit"),
                    lending: amount("/lendingLimit"),
                };
                quotas.insert(cell, quota);
            }
        }
    }
    let parent = Some(text(object, parent).to_owned()).filter(|p| !p.is_empty());
    Node { parent, quotas }
}

/// Usage that a Workload's admission charges, by flavor and resource, without reclaimable pods and without pods that an elastic job gave up.
pub fn charge(workload: &Value) -> Usage {
    let mut total = Usage::new();
    for set in items(workload, "/status/admission/podSetAssignments") {
        let name = text(set, "/name");
        let count = set.get("count").and_then(Value::as_i64).map(i128::from);
        let reclaimed = items(workload, "/status/reclaimablePods")
            .iter()
            .filter(|r| text(r, "/name") == name)
            .filter_map(|r| r.get("count").and_then(Value::as_i64))
            .map(i128::from)
            .sum::<i128>();
        let asked = items(workload, "/spec/podSets").iter().find(|spec| text(spec, "/name") == name);
        let asked = asked.and_then(|spec| spec.get("count")?.as_i64()).map(i128::from);
        let Some(usage) = set.get("resourceUsage").and_then(Value::as_object) else { continue };
        for (resource, amount) in usage {
            let flavor = set.get("flavors").and_then(|f| f.get(resource)).and_then(Value::as_str);
            let (Some(flavor), Some(mut amount)) = (flavor, thousandths(amount)) else { continue };
            if let Some(count) = count.filter(|c| *c > 0) {
                // An admission that was made after some pods had ended covers only the remaining pods.
                let left = (asked.unwrap_or(count) - reclaimed).clamp(0, count);
                amount = amount * left / count;
            }
            *total.entry((flavor.to_owned(), resource.clone())).or_default() += amount;
        }
    }
    total.retain(|_, v| *v != 0);
    total
}

/// Reserved quota in the status of a ClusterQueue, over all flavors and resources: the sum of the figure `figure` (`total` or `borrowed`), in
/// thousandths.
#[must_use]
pub fn reserved(queue: &Value, figure: &str) -> i128 {
    usage_in_status(queue, "flavorsReservation", figure).values().sum()
}

/// The figure `figure` (`total` or `borrowed`) of each resource in the list `list` of a queue's status, such as `flavorsReservation`, in thousandths; without
/// the figures that are zero.
#[must_use]
pub fn usage_in_status(queue: &Value, list: &str, figure: &str) -> Usage {
    let mut usage = Usage::new();
    for flavor in items(queue, &format!("/status/{list}")) {
        for resource in items(flavor, "/resources") {
            let amount = resource.get(figure).and_then(thousandths).unwrap_or(0);
            *usage.entry((text(flavor, "/name").to_owned(), text(resource, "/name").to_owned())).or_default() += amount;
        }
    }
    usage.retain(|_, amount| *amount != 0);
    usage
}

/// A Kubernetes quantity in thousandths, rounded up; `None` if the value is no quantity.
pub fn thousandths(value: &Value) -> Option<i128> {
    if let Some(number) = value.as_i64() {
        return Some(i128::from(number) * 1000);
    }
    let text = value.as_str()?;
    let digits_end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (scale, divisor): (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: u32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            (10_i128.checked_pow(power)?, 1)
        }
    };
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    let places = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let mantissa: i128 = format!("{integer}{fraction}").parse().ok()?;
    let numerator = mantissa.checked_mul(scale)?.checked_mul(1000)?;
    let denominator = places.checked_mul(divisor)?;
    let floor = numerator.div_euclid(denominator);
    Some(if numerator.rem_euclid(denominator) == 0 { floor } else { floor + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn queue(name: &str, cohort: &str, nominal: &str, borrowing: Option<&str>, lending: Option<&str>) -> Value {
        let mut resource = json!({"name": "cpu", "nominalQuota": nominal});
        if let Some(limit) = borrowing {
            resource["borrowingLimit"] = json!(limit);
        }
        if let Some(limit) = lending {
            resource["lendingLimit"] = json!(limit);
        }
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}]);
        json!({"metadata": {"name": name}, "spec": {"cohortName": cohort, "resourceGroups": groups}})
    }

    #[test]
    fn quantity_text_is_read_in_thousandths() {
        for (text, expected) in
            [("1", 1000), ("1.5", 1500), ("100m", 100), ("1n", 1), ("2Ki", 2_048_000), ("1e3", 1_000_000)]
        {
            assert_eq!(thousandths(&json!(text)), Some(expected), "{text}");
        }
        assert_eq!(thousandths(&json!("abc")), None);
    }

    #[test]
    fn available_quota_respects_borrowing_and_lending_limits() {
        let mut forest = Forest::default();
        forest.set_queue(&queue("a", "root", "5", Some("3"), None));
        forest.set_queue(&queue("b", "root", "10", None, Some("4")));
        let cell = ("f".to_owned(), "cpu".to_owned());
        let mut usage: BTreeMap<String, Usage> = BTreeMap::new();
        assert_eq!(forest.available(&usage, "a", &cell), 8000, "own 5, borrowing at most 3 of the 4 lent");
        assert_eq!(forest.available(&usage, "b", &cell), 15_000);
        usage.insert("b".to_owned(), Usage::from([(cell.clone(), 8000)]));
        assert_eq!(forest.available(&usage, "a", &cell), 7000, "b keeps 6 and uses 2 of the shared 9");
        usage.insert("a".to_owned(), Usage::from([(cell.clone(), 7000)]));
        assert_eq!(forest.available(&usage, "b", &cell), 0);
    }
}
