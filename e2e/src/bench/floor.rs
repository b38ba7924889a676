//! The floor: the time that the API server itself needs for the writes that cannot be avoided, measured while no other client writes.

use std::time::Instant;

use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};

use super::feed::Feed;
use super::plane;
use super::shape::{self, Class};

/// Rates at which the API server performs the unavoidable writes.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Workloads created per second.
    pub creates: f64,
    /// Workload statuses applied per second.
    pub statuses: f64,
}

impl Rates {
    /// Seconds that the API server needs for `n` Workloads: for each, one creation, one status write to admit it and one status write to finish it.
    pub fn floor(&self, n: usize) -> f64 {
        n as f64 / self.creates + 2.0 * n as f64 / self.statuses
    }
}

/// Rates that correspond to the mean times of two measurements, `a` before a run and `b` after it.
pub fn between(a: Rates, b: Rates) -> Rates {
    let middle = |a: f64, b: f64| 2.0 / (1.0 / a + 1.0 / b);
    Rates { creates: middle(a.creates, b.creates), statuses: middle(a.statuses, b.statuses) }
}

/// Measures the API server's rates in a namespace of its own, with one watch open, and deletes all objects afterwards.
///
/// # Errors
/// Fails if the API server refuses a request.
pub async fn measure(client: &Client, namespace: &str, count: usize, class: &Class) -> Result<Rates> {
    plane::namespace(client, namespace).await?;
    let path = plane::workloads(namespace);
    let mut feed = Feed::start(client, "/apis/kueue.x-k8s.io/v1beta2/workloads").await?;
    let drain = tokio::spawn(async move { while feed.next().await.is_ok() {} });
    let names: Vec<String> = (0..count).map(|n| format!("floor-{n}")).collect();
    let begun = Instant::now();
    plane::each(names.clone(), |name| {
        let (path, object) = (path.clone(), shape::workload(namespace, &name, "none", class));
        async move { plane::create(client, &path, &object).await }
    })
    .await?;
    let creates = count as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    plane::each(names.clone(), |name| {
        let (path, body) = (format!("{path}/{name}/status"), admitted(namespace, &name, class));
        async move { plane::apply(client, &path, "kueue-admission", &body).await }
    })
    .await?;
    plane::each(names, |name| {
        let (path, body) = (format!("{path}/{name}/status"), finished(namespace, &name));
        async move { plane::apply(client, &path, "bench", &body).await }
    })
    .await?;
    let statuses = 2.0 * count as f64 / begun.elapsed().as_secs_f64();
    plane::clear(client, &path).await?;
    drain.abort();
    Ok(Rates { creates, statuses })
}

/// The body of a status write: a Workload's name with its status.
pub fn status(namespace: &str, name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace}, "status": status,
    })
}

/// A condition with the present time as its transition time.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        "observedGeneration": 1})
}

/// The admission of a Workload with one pod set.
pub fn admission(queue: &str, cpu: &str) -> Value {
    json!({"clusterQueue": queue, "podSetAssignments": [{
        "name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": cpu},
    }]})
}

fn admitted(namespace: &str, name: &str, class: &Class) -> Value {
    let body = json!({
        "admission": admission("none", &class.cpu.to_string()),
        "conditions": [
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue none"),
            condition("Admitted", "True", "Admitted", "The workload is admitted"),
        ],
    });
    status(namespace, name, &body)
}

/// The status that a run writes for a Workload when the Workload's running time is over.
pub fn finished(namespace: &str, name: &str) -> Value {
    let end = condition("Finished", "True", "ByTest", "The running time is over");
    status(namespace, name, &json!({"conditions": [end]}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_is_one_create_and_two_status_writes() {
        let rates = between(Rates { creates: 100.0, statuses: 50.0 }, Rates { creates: 100.0, statuses: 50.0 });
        assert!((rates.floor(100) - 5.0).abs() < 1e-9);
        let slower = between(Rates { creates: 100.0, statuses: 100.0 }, Rates { creates: 100.0, statuses: 50.0 });
        assert!((slower.statuses - 66.666).abs() < 0.01);
    }
}
