use super::*;
use crate::decide::manifests::of_text;
use std::path::{Path, PathBuf};

const OPTIONS: Options<'_> = Options { namespace: "default", flavor: None };
/// A Queue with an amount, so that the import has quota to write.
const QUEUE: &str = "apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: batch}
spec: {deserved: {cpu: 8}}
";
/// A pod of the PodGroup `pair`, to be completed by its name.
const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: team, annotations: {scheduling.k8s.io/group-name: pair}}
spec: {schedulerName: volcano, containers: [{name: main, image: i, resources: {requests: {cpu: 1}}}]}
";
const POD_GROUP: &str = "apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: pair, namespace: team}
spec: {queue: batch, minMember: 2}
";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/volcano")
}

/// The folders of golden files.
fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 5, "{cases:?}");
    cases
}

fn imported(documents: &str) -> anyhow::Result<Imported> {
    import(&of_text("given.yaml", documents).unwrap(), OPTIONS)
}

fn objects(text: &str) -> Vec<Value> {
    of_text("objects.yaml", text).unwrap().into_iter().map(|manifest| manifest.object).collect()
}

/// The object of the output with this kind and name.
fn object(imported: &Imported, kind: &str, name: &str) -> Value {
    let is = |object: &Value| text(object, "/kind") == kind && text(object, "/metadata/name") == name;
    objects(&imported.text).into_iter().find(is).unwrap_or_default()
}

/// Documents one after the other in one file.
fn joined(documents: &[&str]) -> String {
    documents.join("---\n")
}

/// The Queue `batch` with this spec.
fn queue(spec: &str) -> String {
    QUEUE.replace("{deserved: {cpu: 8}}", spec)
}

/// Each folder of tests/volcano has documents of Volcano, the manifests made of them, and the report. The environment variable `UPDATE=1` makes the test
/// rewrite the manifests and reports.
#[test]
fn volcano_documents_equal_golden_manifests_and_report() {
    for case in cases() {
        let read = |file: &str| std::fs::read_to_string(case.join(file)).unwrap();
        let made = import(&of_text("objects.yaml", &read("objects.yaml")).unwrap(), OPTIONS).unwrap();
        let report: String = made.report.iter().map(|line| format!("{line}\n")).collect();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(case.join("queues.yaml"), &made.text).unwrap();
            std::fs::write(case.join("report.txt"), &report).unwrap();
        }
        assert_eq!(objects(&made.text), objects(&read("queues.yaml")), "{}", case.display());
        assert_eq!(report, read("report.txt"), "{}", case.display());
    }
}

#[test]
fn volcano_import_with_its_output_among_documents_changes_nothing() {
    for case in cases() {
        let mut manifests = manifests::read(&[case.join("objects.yaml")]).unwrap();
        let once = import(&manifests, OPTIONS).unwrap();
        manifests.extend(of_text("out.yaml", &once.text).unwrap());
        let twice = import(&manifests, OPTIONS).unwrap();
        assert_eq!(twice.text, once.text, "{}", case.display());
        assert_eq!(twice.report, once.report, "{}", case.display());
    }
}

/// Each document is a file of its own; the files are read in many orders.
#[test]
fn volcano_import_does_not_depend_on_order_of_files() {
    let mut state = 1_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    let mut files = Vec::new();
    for case in ["hierarchy", "pods", "gang"] {
        let all = manifests::read(&[folder().join(case).join("objects.yaml")]).unwrap();
        for manifest in all {
            let name = format!("{}.yaml", files.len());
            files.push(of_text(&name, &manifest.object.to_string()).unwrap());
        }
    }
    let first = import(&files.concat(), OPTIONS).unwrap();
    for _ in 0..50 {
        for last in (1..files.len()).rev() {
            files.swap(last, next(last + 1));
        }
        let again = import(&files.concat(), OPTIONS).unwrap();
        assert_eq!((&again.text, &again.report), (&first.text, &first.report));
    }
}

#[test]
fn queue_field_without_counterpart_is_reported_with_place_and_value() {
    for (spec, line) in [
        ("{type: gpu}", "spec.type: \"gpu\": no counterpart"),
        ("{extendClusters: [{name: a}]}", "spec.extendClusters: [{\"name\":\"a\"}]: no counterpart"),
        ("{dra: {capability: {gpu: {count: 1}}}}", "spec.dra: "),
        ("{later: 1}", "spec.later: 1: no counterpart"),
        ("{capability: {deviceclass/gpu: 4}}", "spec.capability[deviceclass/gpu]: 4: no counterpart"),
        ("{capability: {cpu: 0}}", "spec.capability[cpu]: 0: is no limit in Volcano"),
        ("{deserved: {cpu: 9}, capability: {cpu: 8}}", "spec.deserved[cpu]: 9: is above the capability"),
        ("{deserved: {cpu: 1}, guarantee: {resource: {cpu: 2}}}", "spec.deserved[cpu]: 1: is below the guarantee"),
        ("{guarantee: {percentage: 5}}", "spec.guarantee.percentage: 5: no counterpart"),
        ("{state: Unknown}", "spec.state: \"Unknown\": no counterpart"),
        ("{parent: above}", "spec.parent: \"above\": is not among the documents"),
    ] {
        let report = imported(&queue(spec)).unwrap().report;
        let expected = format!("given.yaml:4: Queue batch: {line}");
        assert!(report.iter().any(|found| found.starts_with(&expected)), "{expected}\n{report:#?}");
    }
    let report = imported(&queue("{deserved: {cpu: 8}, weight: 3, priority: 0, type: ''}")).unwrap().report;
    assert_eq!(report.len(), 1, "only the root has no capability: {report:?}");
}

#[test]
fn volcano_document_fault_names_place_value_and_allowed() {
    let quantity = "an amount of 0 or more is needed, such as 500m, 8 or 64Gi";
    for (documents, expected) in [
        (queue("{weight: 0}"), "given.yaml:4: Queue batch: spec.weight: 0: a whole number from 1 to 65535 is needed"),
        (queue("{weight: a}"), "spec.weight: \"a\": a whole number from 1 to 65535 is needed"),
        (queue("{capability: {cpu: -1}}"), "spec.capability[cpu]: -1: an amount of 0 or more is needed"),
        (queue("{deserved: {cpu: many}}"), quantity),
        (queue("{deserved: [cpu]}"), "spec.deserved: [\"cpu\"]: a map of amounts by resource is needed"),
        (queue("{deserved: {a b: 1}}"), "the name of a resource: "),
        (queue("{guarantee: 5}"), "spec.guarantee: 5: a map is needed"),
        (queue("[]"), "spec: []: a map is needed"),
        (queue("{reclaimable: maybe}"), "spec.reclaimable: \"maybe\": true or false is needed"),
        (queue("{dequeueStrategy: lifo}"), "spec.dequeueStrategy: \"lifo\": fifo or traverse is needed"),
        (queue("{parent: batch}"), "spec.parent: \"batch\": must lead to root in at most 64 steps"),
        (queue("{parent: 5}"), "spec.parent: 5: a text is needed"),
        (queue("{parent: A_b}"), "spec.cohortName: Invalid value: \"A_b\""),
        (
            QUEUE.replace("batch", "root").replace("{deserved", "{parent: a, deserved"),
            "root has no parent, a is below it",
        ),
        (
            QUEUE.replace("v1beta1", "v1alpha1"),
            "apiVersion: \"scheduling.volcano.sh/v1alpha1\": scheduling.volcano.sh/v1beta1",
        ),
        (QUEUE.replace("name: batch", "generateName: b"), "metadata.name: a name is needed"),
        (
            QUEUE.replace("batch", "A_b"),
            "the import makes ClusterQueue A_b of it: metadata.name: Invalid value: \"A_b\"",
        ),
        (joined(&[QUEUE, &queue("{deserved: {cpu: 9}}")]), "is given with another content at given.yaml:3, too"),
        (joined(&[QUEUE, &POD_GROUP.replace("minMember: 2", "minMember: -1")]), "spec.minMember: -1: a whole number"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".to_owned(), "nothing to import"),
    ] {
        let error = imported(&documents).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}\nis not in\n{error}");
    }
}

#[test]
fn several_resource_flavors_need_the_flag_that_chooses_one() {
    let flavor = |name: &str| {
        format!(
            "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {{name: {name}}}, spec: {{}}}}\n"
        )
    };
    let one = joined(&[QUEUE, &flavor("gpu")]);
    let of_queue = |imported: &Imported| {
        let queue = object(imported, "ClusterQueue", "batch");
        text(&queue, "/spec/resourceGroups/0/flavors/0/name")
    };
    let made = imported(&one).unwrap();
    assert_eq!(of_queue(&made), "gpu");
    assert_eq!(text(&object(&made, "ResourceFlavor", "gpu"), "/kind"), "ResourceFlavor");
    let two = of_text("given.yaml", &joined(&[&one, &flavor("cpu")])).unwrap();
    let error = import(&two, OPTIONS).unwrap_err().to_string();
    assert_eq!(error, "--flavor is missing, and the documents have several: cpu, gpu");
    let chosen = |name: &'static str| import(&two, Options { flavor: Some(name), ..OPTIONS }).unwrap();
    assert_eq!(of_queue(&chosen("cpu")), "cpu");
    let report = chosen("other").report;
    assert!(
        report.contains(&"ResourceFlavor other is not among the documents: it has to exist".to_owned()),
        "{report:?}"
    );
}

#[test]
fn pod_group_of_volcano_job_makes_nothing_of_its_own() {
    let uid = "12345678-1234-1234-1234-123456789abc";
    let job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: train, namespace: team}\nspec: {queue: batch}\n";
    let owned = POD_GROUP.replace(
        "namespace: team",
        "namespace: team, ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: train, controller: true}]",
    );
    for group in [owned, POD_GROUP.replace("pair", &format!("train-{uid}")), POD_GROUP.replace("pair", "train")] {
        let made = imported(&joined(&[QUEUE, job, &group])).unwrap();
        let names: Vec<String> = objects(&made.text).iter().map(|object| text(object, "/kind")).collect();
        assert_eq!(names, ["ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "Job"], "{group}");
        assert_eq!(made.report.len(), 1, "{:?}", made.report);
    }
}

#[test]
fn pods_of_group_get_labels_total_count_and_report() {
    let pods = ["a", "b", "c"].map(|name| POD.replace("NAME", name));
    let [a, b, c] = &pods;
    let total = |imported: &Imported| {
        let pod = object(imported, "Pod", "a");
        text(&pod, "/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count")
    };
    let made = imported(&joined(&[QUEUE, POD_GROUP, a, b, c])).unwrap();
    assert_eq!(total(&made), "3", "a total of 2 would end the third pod");
    let expected = "spec.minMember: 2: a group of pods has no minimum: its 3 pods start together";
    assert!(made.report.iter().any(|line| line.contains(expected)), "{:?}", made.report);
    let made = imported(&joined(&[QUEUE, POD_GROUP, a])).unwrap();
    assert_eq!(total(&made), "2");
    assert!(made.report.iter().any(|line| line.contains("1 of its pods are among the documents")), "{:?}", made.report);
    let single = POD_GROUP.replace("minMember: 2", "minMember: 1");
    let made = imported(&joined(&[QUEUE, &single, a, b])).unwrap();
    assert_eq!(total(&made), "", "pods that need no other pod are single");
    let bound = a.replace("schedulerName", "nodeName: node-1, schedulerName");
    let made = imported(&joined(&[QUEUE, POD_GROUP, &bound, b])).unwrap();
    assert_eq!(object(&made, "Pod", "a"), Value::Null, "a pod that runs cannot wait again");
    let expected = "Pod team/a: spec.nodeName: \"node-1\": the pod has a node already: create it again without it";
    assert!(made.report.iter().any(|line| line.contains(expected)), "{:?}", made.report);
}

#[test]
fn priority_class_missing_in_documents_is_reported_for_pods() {
    let group = POD_GROUP.replace("minMember: 2", "minMember: 2, priorityClassName: urgent");
    let pods = ["a", "b"].map(|name| POD.replace("NAME", name));
    let made = imported(&joined(&[QUEUE, &group, &pods[0], &pods[1]])).unwrap();
    let expected = "create a WorkloadPriorityClass urgent with its value";
    assert!(made.report.iter().any(|line| line.ends_with(expected)), "{:?}", made.report);
    let own = pods.map(|pod| pod.replace("spec: {", "spec: {priorityClassName: urgent, "));
    let made = imported(&joined(&[QUEUE, &group, &own[0], &own[1]])).unwrap();
    let label = text(&object(&made, "Pod", "a"), "/metadata/labels/kueue.x-k8s.io~1priority-class");
    assert_eq!(label, "", "the pod's own class counts");
}

#[test]
fn job_queue_default_follows_the_annotation_of_its_namespace() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, annotations: {scheduling.volcano.sh/queue-name: batch}}\n";
    let job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: train, namespace: team}\nspec: {queue: default}\n";
    let label = |documents: &[&str]| {
        let job = object(&imported(&joined(documents)).unwrap(), "Job", "train");
        text(&job, "/metadata/labels/kueue.x-k8s.io~1queue-name")
    };
    assert_eq!(label(&[QUEUE, namespace, job]), "batch");
    assert_eq!(label(&[QUEUE, job]), "volcano-default");
    let own = job.replace("namespace: team", "namespace: team, labels: {kueue.x-k8s.io/queue-name: mine}");
    assert_eq!(label(&[QUEUE, &own]), "mine", "the job keeps the queue of its author");
}

#[test]
fn cron_job_of_volcano_gets_label_in_job_template() {
    let job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: CronJob\nmetadata: {name: nightly, namespace: team}\n\
               spec: {schedule: '0 3 * * *', jobTemplate: {spec: {queue: batch}}}\n";
    let made = object(&imported(&joined(&[QUEUE, job])).unwrap(), "CronJob", "nightly");
    assert_eq!(text(&made, "/spec/jobTemplate/metadata/labels/kueue.x-k8s.io~1queue-name"), "batch");
}

#[test]
fn object_of_cluster_is_written_without_fields_of_the_server() {
    let job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n\
               metadata: {name: train, namespace: team, uid: u, resourceVersion: '7', annotations: {kubectl.kubernetes.io/last-applied-configuration: x}}\n\
               spec: {queue: batch}\nstatus: {state: {phase: Running}}\n";
    let made = object(&imported(&joined(&[QUEUE, job])).unwrap(), "Job", "train");
    let labels = json!({"kueue.x-k8s.io/queue-name": "batch"});
    assert_eq!(made["metadata"], json!({"name": "train", "namespace": "team", "labels": labels}));
    assert_eq!(made.get("status"), None);
}

#[test]
fn foreign_and_replaced_objects_are_reported_and_left_out() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {schedulerName: volcano}}}\n";
    let tuned = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: root}\nspec: {parentName: all}\n";
    let flow = "apiVersion: flow.volcano.sh/v1alpha1\nkind: JobFlow\nmetadata: {name: flow}\n";
    let report = imported(&joined(&[QUEUE, deployment, tuned, flow])).unwrap().report;
    for expected in [
        "Deployment web: is left out: add the label kueue.x-k8s.io/queue-name: volcano-default to it",
        "Cohort root: the import makes another content of this object, which replaces it",
        "JobFlow flow: no counterpart: the import does not read this kind of Volcano",
    ] {
        assert!(report.iter().any(|line| line.ends_with(expected)), "{expected}\n{report:#?}");
    }
}
