//! Requests of pod sets: the part of a template that decides about the charge, to compare a job with the Workload under which it is
//! started.

use serde_json::Value;

use crate::kinds::{items, text};
use crate::quota_tree::thousandths;

/// One pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    name: String,
    /// Pods of a job; for a Workload the pods that its reservation covers, ended pods included.
    pods: i128,
    /// Names, images, requests and limits of init containers and containers, in order.
    containers: String,
}

fn number(object: &Value, pointer: &str) -> Option<i128> {
    object.pointer(pointer).and_then(Value::as_i64).map(i128::from)
}

/// Quantities are compared by value, as both sides may be written in another form.
fn containers(template: &Value) -> String {
    let mut all = Vec::new();
    for list in ["initContainers", "containers"] {
        for container in items(template, &format!("/spec/{list}")) {
            let mut amounts = Vec::new();
            for side in ["requests", "limits"] {
                let given = container.pointer(&format!("/resources/{side}")).and_then(Value::as_object);
                amounts.extend(given.into_iter().flatten().map(|(resource, amount)| match thousandths(amount) {
                    Some(value) => format!("{side}.{resource}={value}m"),
                    None => format!("{side}.{resource}={amount}"),
                }));
            }
            amounts.sort();
            let (name, image) = (text(container, "/name"), text(container, "/image"));
            all.push(format!("{name} {image} {}", amounts.join(" ")));
        }
    }
    all.join(", ")
}

/// Pods that a Job has at once at most.
fn pods_of_job(spec: &Value) -> i128 {
    let parallelism = number(spec, "/parallelism").unwrap_or(1);
    number(spec, "/completions").map_or(parallelism, |completions| completions.min(parallelism))
}

/// The one pod set of a Job.
pub(super) fn of_job(job: &Value) -> Vec<Ask> {
    let spec = job.get("spec").unwrap_or(&Value::Null);
    let template = spec.get("template").unwrap_or(&Value::Null);
    vec![Ask { name: String::new(), pods: pods_of_job(spec), containers: containers(template) }]
}

/// The pod sets of a JobSet: one for each replicated Job.
pub(super) fn of_job_set(set: &Value) -> Vec<Ask> {
    let asks = items(set, "/spec/replicatedJobs").iter().map(|part| {
        let spec = part.pointer("/template/spec").unwrap_or(&Value::Null);
        let template = spec.get("template").unwrap_or(&Value::Null);
        let pods = number(part, "/replicas").unwrap_or(1) * pods_of_job(spec);
        Ask { name: text(part, "/name").to_owned(), pods, containers: containers(template) }
    });
    asks.collect()
}

/// The pod sets of a Workload, with the pods that its admission is for.
pub(super) fn of_workload(workload: &Value) -> Vec<Ask> {
    let named = |list: &str, name: &str| {
        let found = items(workload, list).iter().find(|entry| text(entry, "/name") == name);
        found.and_then(|entry| number(entry, "/count"))
    };
    let asks = items(workload, "/spec/podSets").iter().map(|set| {
        let name = text(set, "/name");
        let asked = number(set, "/count").unwrap_or(1);
        let over = named("/status/reclaimablePods", name).unwrap_or(0);
        // An admission that was made after some pods had ended counts only the remaining pods.
        let given = named("/status/admission/podSetAssignments", name).map_or(asked, |given| given + over);
        let template = set.get("template").unwrap_or(&Value::Null);
        Ask { name: name.to_owned(), pods: given.min(asked), containers: containers(template) }
    });
    asks.collect()
}

/// Reason why the pod sets of a Workload do not cover those of its job; `None` when they do. The pod set of a Job may have any name.
pub(super) fn uncovered(job: &[Ask], workload: &[Ask]) -> Option<String> {
    if job.len() != workload.len() {
        return Some(format!("it has {} pod sets, its workload {}", job.len(), workload.len()));
    }
    job.iter().find_map(|ask| {
        let Some(set) = workload.iter().find(|set| ask.name.is_empty() || set.name == ask.name) else {
            return Some(format!("its workload has no pod set {}", ask.name));
        };
        if ask.containers != set.containers {
            return Some(format!(
                "its containers are [{}], those of its workload [{}]",
                ask.containers, set.containers
            ));
        }
        (ask.pods > set.pods).then(|| format!("it has {} pods, its workload is admitted with {}", ask.pods, set.pods))
    })
}
