//! The namespaces that use a queue, and their LocalQueues.

use super::objects::Made;
use super::report::Report;
use crate::decide::manifests::{Manifest, text};
use berth_api::API_VERSION;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Name of Volcano's Queue for jobs that name no Queue.
const DEFAULT: &str = "default";
/// LocalQueue of the queue `default`. A LocalQueue called `default` would also take jobs that name no queue, and jobs that Volcano does not know.
const DEFAULT_LOCAL_QUEUE: &str = "volcano-default";
/// Annotation of a namespace or pod with the name of its Queue.
pub(super) const QUEUE_ANNOTATION: &str = "scheduling.volcano.sh/queue-name";

/// The uses of Volcano's Queues in namespaces.
#[derive(Debug)]
pub(super) struct Uses<'m> {
    /// Namespace of the objects whose documents name no namespace.
    namespace: &'m str,
    /// By namespace, the Queue that the namespace's annotation names.
    annotated: BTreeMap<String, String>,
    /// By namespace and Queue, the first document that uses the Queue in the namespace.
    uses: BTreeMap<(String, String), &'m Manifest>,
}

impl<'m> Uses<'m> {
    /// The uses that the annotations of namespaces declare.
    pub(super) fn of(namespaces: &[&'m Manifest], namespace: &'m str, report: &mut Report) -> Self {
        let mut uses = Self { namespace, annotated: BTreeMap::new(), uses: BTreeMap::new() };
        for &manifest in namespaces {
            let name = text(&manifest.object, "/metadata/name");
            let Some(queue) = report.text(manifest, &format!("metadata.annotations[{QUEUE_ANNOTATION}]")) else {
                continue;
            };
            uses.add(&name, &queue, manifest);
            uses.annotated.insert(name, queue);
        }
        uses
    }

    /// Namespace of an object.
    pub(super) fn namespace(&self, object: &Value) -> String {
        match text(object, "/metadata/namespace") {
            namespace if namespace.is_empty() => self.namespace.to_owned(),
            namespace => namespace,
        }
    }

    /// The Queue of an object that names the Queue `named`, or none. An object that names no Queue or the Queue `default` gets the Queue that its namespace's
    /// annotation names, if any.
    pub(super) fn queue(&self, namespace: &str, named: Option<String>) -> String {
        match named {
            Some(queue) if queue != DEFAULT => queue,
            _ => self.annotated.get(namespace).cloned().unwrap_or_else(|| DEFAULT.to_owned()),
        }
    }

    /// Records that a document uses a Queue in a namespace; the first document for a Queue and namespace stays.
    pub(super) fn add(&mut self, namespace: &str, queue: &str, by: &'m Manifest) {
        self.uses.entry((namespace.to_owned(), queue.to_owned())).or_insert(by);
    }

    /// Names of all queues that are used.
    pub(super) fn queues(&self) -> BTreeSet<String> {
        self.uses.keys().map(|(_, queue)| queue.clone()).collect()
    }

    /// The LocalQueues, one for each Queue used in a namespace. The parameter `known` has the names of the ClusterQueues that exist after the import.
    pub(super) fn local_queues(&self, known: &BTreeSet<String>, report: &mut Report) -> Vec<Made<'m>> {
        let mut made = Vec::new();
        for ((namespace, queue), &by) in &self.uses {
            let name = local_queue(queue);
            if !known.contains(queue) {
                let why = format!(
                    "uses the Queue {queue}, which is not among the documents: the LocalQueue {namespace}/{name} admits nothing \
                     until a ClusterQueue {queue} exists"
                );
                report.note(by, "", why);
            }
            let metadata = json!({"name": name, "namespace": namespace});
            let spec = json!({"clusterQueue": queue});
            let object = json!({"apiVersion": API_VERSION, "kind": "LocalQueue", "metadata": metadata, "spec": spec});
            made.push(Made { object, source: Some(by) });
        }
        made
    }
}

/// Name of the LocalQueue of a queue.
pub(super) fn local_queue(queue: &str) -> &str {
    if queue == DEFAULT { DEFAULT_LOCAL_QUEUE } else { queue }
}
