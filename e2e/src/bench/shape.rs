//! Objects of a benchmark run and the times at which they are created, after Kueue's performance shapes.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::manifest;

/// Namespace of the run.
pub const NAMESPACE: &str = "bench";

/// A class of Workloads: their number per queue, their requests, their running time, and the pause between two creations.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Name.
    pub name: &'static str,
    /// Number per queue.
    pub count: usize,
    /// Cpus.
    pub cpu: u32,
    /// Priority.
    pub priority: i32,
    /// Time for which a Workload runs after its admission.
    pub runs: Duration,
    /// Pause between two creations in one queue.
    pub every: Duration,
}

/// A shape.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Name.
    pub name: String,
    /// Cohorts.
    pub cohorts: usize,
    /// Number of ClusterQueues in each cohort of the shape.
    pub queues: usize,
    /// Classes.
    pub classes: Vec<Class>,
}

/// Cpus of each queue.
pub const NOMINAL: u32 = 20;
/// Borrowing limit of each ClusterQueue in cpus.
pub const BORROWING: u32 = 100;

/// One Workload to be created.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time since the start of the run at which the Workload is created.
    pub due: Duration,
    /// Index of the class.
    pub class: usize,
    /// Index of the queue.
    pub queue: usize,
    /// Number of the Workload within its class and queue.
    pub number: usize,
}

const fn class(name: &'static str, (count, cpu, priority): (usize, u32, i32), runs_ms: u64, every_ms: u64) -> Class {
    Class { name, count, cpu, priority, runs: Duration::from_millis(runs_ms), every: Duration::from_millis(every_ms) }
}

impl Shape {
    /// The shape `small` or `large`, with `scale` times the number of Workloads per queue (at least one Workload of each class).
    ///
    /// # Errors
    /// Fails if there is no shape with the name `name`.
    pub fn named(name: &str, scale: f64) -> Result<Shape> {
        let (cohorts, queues, mut classes) = match name {
            "small" => (
                5,
                6,
                vec![
                    class("small", (350, 1, 50), 200, 100),
                    class("medium", (100, 5, 100), 500, 500),
                    class("large", (50, 20, 200), 1000, 1200),
                ],
            ),
            "large" => (
                10,
                100,
                vec![
                    class("small", (35, 1, 50), 150, 60),
                    class("medium", (11, 5, 100), 350, 300),
                    class("large", (4, 20, 200), 700, 700),
                ],
            ),
            other => bail!("no shape is called {other:?}"),
        };
        for class in &mut classes {
            class.count = ((class.count as f64 * scale).round() as usize).max(1);
        }
        Ok(Shape { name: name.to_owned(), cohorts, queues, classes })
    }

    /// Number of Workloads.
    pub fn total(&self) -> usize {
        self.cohorts * self.queues * self.classes.iter().map(|c| c.count).sum::<usize>()
    }

    /// All Workloads of the shape, in the order of their creation.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let mut all = Vec::with_capacity(self.total());
        for (index, class) in self.classes.iter().enumerate() {
            for number in 0..class.count {
                for queue in 0..self.cohorts * self.queues {
                    let due = class.every * u32::try_from(number).unwrap_or(u32::MAX);
                    all.push(Arrival { due, class: index, queue, number });
                }
            }
        }
        all.sort_by_key(|a| (a.due, a.class, a.number, a.queue));
        all
    }

    /// The flavor, the ClusterQueues and the LocalQueues of the shape.
    pub fn queues(&self, preemption: bool) -> Vec<Value> {
        let mut all = vec![manifest::flavor("default", &[])];
        let (nominal, borrowing) = (NOMINAL.to_string(), BORROWING.to_string());
        for queue in 0..self.cohorts * self.queues {
            let name = queue_name(queue);
            let quota = [manifest::quota("cpu", &nominal).borrowing(&borrowing)];
            let mut more = json!({"cohortName": format!("cohort-{}", queue / self.queues)});
            if preemption {
                more["preemption"] = json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"});
            }
            all.push(manifest::cluster_queue(&name, &[manifest::group(&[("default", &quota)])], &more));
            all.push(manifest::local_queue(NAMESPACE, &name, &name));
        }
        all
    }

    /// The manifest of a Workload, with the class and the queue of `arrival`.
    pub fn workload(&self, namespace: &str, arrival: &Arrival) -> Option<Value> {
        let class = self.classes.get(arrival.class)?;
        let queue = queue_name(arrival.queue);
        Some(workload(namespace, &format!("{}-{}-{}", class.name, queue, arrival.number), &queue, class))
    }
}

/// Name of a ClusterQueue of the shape, and of its LocalQueue.
pub fn queue_name(index: usize) -> String {
    format!("queue-{index:04}")
}

/// A Workload without a job.
pub fn workload(namespace: &str, name: &str, queue: &str, class: &Class) -> Value {
    let container = json!({
        "name": "c", "image": "example.invalid/nothing",
        "resources": {"requests": {"cpu": class.cpu.to_string()}},
    });
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": queue,
            "priority": class.priority,
            "podSets": [{
                "name": "main", "count": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shape_has_the_arrivals_of_kueues_benchmark() {
        let shape = Shape::named("small", 1.0).unwrap();
        assert_eq!(shape.total(), 15_000);
        let arrivals = shape.arrivals();
        assert_eq!(arrivals.len(), 15_000);
        assert!(arrivals.is_sorted_by_key(|a| a.due));
        assert_eq!(arrivals.last().unwrap().due, Duration::from_millis(1200 * 49));
        assert_eq!(Shape::named("large", 1.0).unwrap().total(), 50_000);
        assert_eq!(Shape::named("small", 0.02).unwrap().total(), 30 * (7 + 2 + 1));
        assert!(Shape::named("round", 1.0).is_err());
    }
}
