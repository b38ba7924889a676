//! Requests of a pod as Kubernetes' scheduler counts them, read from the stored pod.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kinds::{items, text};
use crate::quota_tree::thousandths;

/// Amounts by resource, in thousandths.
pub(super) type Requests = BTreeMap<String, i128>;

/// Amounts of a map of a pod or a container.
fn amounts(object: &Value, pointer: &str) -> Requests {
    let given = object.pointer(pointer).and_then(Value::as_object);
    given.into_iter().flatten().filter_map(|(name, amount)| Some((name.clone(), thousandths(amount)?))).collect()
}

/// Adds amounts to a sum.
pub(super) fn add(sum: &mut Requests, more: &Requests) {
    for (resource, amount) in more {
        *sum.entry(resource.clone()).or_default() += amount;
    }
}

fn raise(most: &mut Requests, other: &Requests) {
    for (resource, amount) in other {
        let known = most.entry(resource.clone()).or_default();
        *known = (*known).max(*amount);
    }
}

/// Requests of a pod: its containers and sidecars, or one init container with the sidecars before it where that is more; requests at the
/// level of the pod in their place; its overhead; and itself as one of `pods`.
pub(super) fn of_pod(pod: &Value) -> Requests {
    const REQUESTS: &str = "/resources/requests";
    let mut sum = Requests::new();
    for container in items(pod, "/spec/containers") {
        add(&mut sum, &amounts(container, REQUESTS));
    }
    let (mut sidecars, mut at_start) = (Requests::new(), Requests::new());
    for container in items(pod, "/spec/initContainers") {
        let mut own = amounts(container, REQUESTS);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut sidecars, &own);
            raise(&mut at_start, &sidecars);
        } else {
            add(&mut own, &sidecars);
            raise(&mut at_start, &own);
        }
    }
    add(&mut sum, &sidecars);
    raise(&mut sum, &at_start);
    sum.extend(amounts(pod, "/spec/resources/requests"));
    add(&mut sum, &amounts(pod, "/spec/overhead"));
    sum.insert("pods".to_owned(), 1000);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn pod_requests_are_those_of_the_scheduler() {
        let two = json!([container("1"), container("500m")]);
        let cases = [
            (json!({"containers": two}), 1500),
            (json!({"containers": two, "initContainers": [container("1"), container("2")]}), 2000),
            (json!({"containers": two, "initContainers": [sidecar("1"), container("2")]}), 3000),
            (json!({"containers": two, "initContainers": [container("2"), sidecar("1")]}), 2500),
            (json!({"containers": two, "overhead": {"cpu": "250m"}}), 1750),
            (json!({"containers": two, "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}), 4250),
            (json!({"containers": [{}]}), 0),
        ];
        for (spec, cpu) in cases {
            let requests = of_pod(&json!({"spec": spec}));
            assert_eq!(requests.get("cpu").copied().unwrap_or(0), cpu, "{spec}");
            assert_eq!(requests["pods"], 1000, "{spec}");
        }
    }
}
