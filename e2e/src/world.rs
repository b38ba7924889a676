//! A short description of the cluster's state for the message of a failed test.

use std::fmt::Write as _;

use kube::Client;
use serde_json::Value;

use crate::kinds::{self, CLUSTER_QUEUE, JOB, LOCAL_QUEUE, POD, WORKLOAD, items, text};

/// Largest number of objects of a kind that the description shows.
const SHOWN: usize = 30;

/// The queues of the cluster, and the Workloads, jobs and pods of one namespace (of all namespaces if `namespace` is empty).
pub async fn dump(client: &Client, namespace: &str) -> String {
    let mut out = String::new();
    for kind in [CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, JOB, POD] {
        let api = if namespace.is_empty() { kind.all(client) } else { kind.api(client, namespace) };
        let list = match api.list(&Default::default()).await {
            Ok(list) => list.items,
            Err(e) => {
                let _ = writeln!(out, "{}: {e}", kind.plural);
                continue;
            }
        };
        let _ = writeln!(out, "{} ({}):", kind.plural, list.len());
        for object in list.iter().take(SHOWN) {
            let Ok(value) = serde_json::to_value(object) else { continue };
            let _ = writeln!(out, "  {} {}", kinds::key(&value), line(&value, kind));
        }
    }
    out
}

fn line(object: &Value, kind: kinds::Kind) -> String {
    let conditions: Vec<String> = items(object, "/status/conditions")
        .iter()
        .filter(|c| kind != POD || text(c, "/status") != "True")
        .map(|c| {
            format!("{}={}({}: {})", text(c, "/type"), text(c, "/status"), text(c, "/reason"), text(c, "/message"))
        })
        .collect();
    let at = |pointer: &str| object.pointer(pointer).map(ToString::to_string).unwrap_or_else(|| "-".to_owned());
    let facts = match kind {
        kinds::JOB => format!(
            "suspend={} active={} ready={} terminating={} succeeded={} selector={}",
            at("/spec/suspend"),
            at("/status/active"),
            at("/status/ready"),
            at("/status/terminating"),
            at("/status/succeeded"),
            at("/spec/template/spec/nodeSelector")
        ),
        kinds::POD => format!("{} on {}", text(object, "/status/phase"), at("/spec/nodeName")),
        kinds::WORKLOAD => format!(
            "queue={} active={} priority={} admission={}",
            at("/spec/queueName"),
            at("/spec/active"),
            at("/spec/priority"),
            at("/status/admission")
        ),
        _ => format!(
            "pending={} reserving={} admitted={} reservation={}",
            at("/status/pendingWorkloads"),
            at("/status/reservingWorkloads"),
            at("/status/admittedWorkloads"),
            at("/status/flavorsReservation")
        ),
    };
    let deleting = if object.pointer("/metadata/deletionTimestamp").is_some() { " DELETING" } else { "" };
    format!("{facts}{deleting} {}", conditions.join(" "))
}
