//! Jobs and CronJobs of Volcano: they get the label with their LocalQueue, and stay as they are.

use super::objects::{Made, placed, put};
use super::report::Report;
use super::uses::{Uses, local_queue};
use crate::decide::manifests::{Manifest, text};
use berth_api::labels::QUEUE_NAME;
use serde_json::Value;

/// The parts of a kind that the import reads and changes.
struct Shape {
    /// Field with the queue.
    queue: &'static str,
    /// Field with the labels of the job.
    labels: &'static str,
    /// Steps to the labels.
    way: &'static [&'static str],
}

const JOB: Shape = Shape { queue: "spec.queue", labels: "metadata.labels", way: &["metadata", "labels"] };
const CRON_JOB: Shape = Shape {
    queue: "spec.jobTemplate.spec.queue",
    labels: "spec.jobTemplate.metadata.labels",
    way: &["spec", "jobTemplate", "metadata", "labels"],
};

/// The job with its label. A job that has the label with a LocalQueue already keeps this label.
pub(super) fn job<'m>(manifest: &'m Manifest, uses: &mut Uses<'m>, report: &mut Report) -> Made<'m> {
    let shape = if text(&manifest.object, "/kind") == "CronJob" { CRON_JOB } else { JOB };
    let namespace = uses.namespace(&manifest.object);
    let named = report.text(manifest, shape.queue);
    let queue = uses.queue(&namespace, named);
    let mut object = placed(&manifest.object, &namespace);
    let local = local_queue(&queue);
    let label = format!("{}[{QUEUE_NAME}]", shape.labels);
    let given = manifest.value(&label).and_then(Value::as_str);
    if let Some(other) = given.filter(|given| *given != local) {
        report.note(manifest, &label, format!("the job keeps the LocalQueue {other}, and does not get {local}"));
    } else {
        uses.add(&namespace, &queue, manifest);
        if !put(&mut object, shape.way, QUEUE_NAME, local) {
            report.fault(manifest, shape.labels, "a map is needed");
        }
    }
    Made { object, source: Some(manifest) }
}
