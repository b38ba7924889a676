//! Tests of `berth decide` for pods, pod groups, Deployments and StatefulSets.

use super::tests::{QUEUES, given, lines, with_frameworks};
use super::*;
use berth_control::settings::Settings;

/// Configuration value that enables every kind that is admitted through pods.
const ALL: &str = "[batch/job, pod, deployment, statefulset]";

fn decided_with(integrations: &str, content: &str) -> String {
    let config = with_frameworks(integrations);
    let objects = given(content);
    let reported_by = || answer(&objects, &config, Accelerators::default(), latest(&objects), Output::Text).unwrap();
    let got = reported_by();
    assert_eq!(got, reported_by(), "the same twice");
    got
}

/// The text output of `berth decide` for the objects of a test and [`QUEUES`], with every job kind managed.
fn decided_text(objects: &str) -> String {
    decided_with(ALL, &format!("{QUEUES}{objects}"))
}

/// The output lines with decisions on Workloads.
fn outcomes(output: &str) -> Vec<&str> {
    let words = ["inactive: ", "invalid: ", "unknown: ", "assumed: ", "ignored: "];
    output.lines().filter(|line| !line.starts_with(' ') && !words.iter().any(|word| line.starts_with(word))).collect()
}

const QUEUE: &str = "labels: {kueue.x-k8s.io/queue-name: all}";

fn template(cpu: u32) -> String {
    format!("{{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}")
}

/// The manifest of a pod with this metadata beside its name.
fn pod(name: &str, metadata: &str, cpu: u32) -> String {
    format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, {metadata}}}, spec: {}}}\n", template(cpu))
}

/// The manifest of a pod in a pod group of this size.
fn member(name: &str, group: &str, size: &str, cpu: u32) -> String {
    let labels = format!("labels: {{kueue.x-k8s.io/queue-name: all, kueue.x-k8s.io/pod-group-name: {group}}}");
    let notes = format!("annotations: {{kueue.x-k8s.io/pod-group-total-count: '{size}'}}");
    pod(name, &format!("{labels}, {notes}"), cpu)
}

/// The manifest of a Deployment or StatefulSet with this metadata beside its name.
fn parent(kind: &str, name: &str, metadata: &str, replicas: u32, cpu: u32) -> String {
    let template = format!("{{metadata: {{labels: {{app: web}}}}, spec: {}}}", template(cpu));
    let spec = format!("{{replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, template: {template}}}");
    format!("---\n{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}, {metadata}}}, spec: {spec}}}\n")
}

#[test]
fn pod_is_admitted_or_shows_why_it_waits() {
    let output = decided_text(&(pod("alone", QUEUE, 1) + &pod("large", QUEUE, 5)));
    let expected = "\
default/pod-alone-92c5d (Pod default/alone): admitted in all
    main x1: cpu=standard
    main: has 1 cpu in flavor standard, 3 free (3 own, 0 to borrow) of 4
default/pod-large-ab6d1 (Pod default/large): pending: ExceedsMaxQuota
    couldn't assign flavors to pod set main: insufficient quota for cpu in flavor standard, previously considered podsets requests (0) + current podset request (5) > maximum capacity (4)
";
    assert!(output.starts_with(expected), "{output}");
    assert_eq!(lines(&output, "ignored"), [""; 0]);
}

#[test]
fn pod_group_is_admitted_completely_or_stays_pending() {
    let group = |cpu| member("a", "training", "2", cpu) + &member("b", "training", "2", cpu);
    let output = decided_text(&group(2));
    assert_eq!(outcomes(&output), ["default/training (PodGroup default/training): admitted in all"]);
    assert!(output.contains(" x2: cpu=standard\n"), "{output}");
    let output = decided_text(&group(3));
    assert_eq!(outcomes(&output), ["default/training (PodGroup default/training): pending: ExceedsMaxQuota"]);
    assert_eq!(lines(&output, "ignored"), [""; 0]);
}

#[test]
fn incomplete_or_inconsistent_pod_group_is_ignored_with_the_reason() {
    let output =
        decided_text(&(member("a", "training", "3", 1) + &member("b", "training", "3", 1) + &pod("c", QUEUE, 1)));
    assert_eq!(lines(&output, "ignored"), ["PodGroup default/training: 2 of 3 pods are there"]);
    assert_eq!(outcomes(&output).len(), 1, "{output}");
    // A pod with another queue than its group causes another message than an incomplete group.
    let other = member("b", "training", "2", 1).replace("queue-name: all", "queue-name: other");
    let output = decided_text(&(member("a", "training", "2", 1) + &other));
    let why =
        "PodGroup default/training: ErrWorkloadCompose: pods a and b have different queues: all and other".to_owned();
    assert_eq!(lines(&output, "ignored"), [why]);
    let template = template(1);
    let workload = format!(
        "---\n{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: training, uid: u}}, spec: {{queueName: all, \
         podSets: [{{name: main, count: 1, template: {{spec: {template}}}}}]}}}}\n"
    );
    let output = decided_text(&(workload + &member("a", "training", "1", 1)));
    let why = "PodGroup default/training: WorkloadNameConflict: A Workload named \"training\" already exists but is not a pod group \
               workload; this pod group cannot be admitted";
    assert_eq!(lines(&output, "ignored"), [why]);
}

#[test]
fn deployment_replicas_are_admitted_one_by_one() {
    let output = decided_text(&parent("Deployment", "web", QUEUE, 3, 2));
    let expected = [
        "default/pod-web-0-a492f (Deployment default/web): admitted in all",
        "default/pod-web-1-85fb5 (Deployment default/web): admitted in all",
        "default/pod-web-2-7ca59 (Deployment default/web): pending: WaitingForQuota",
    ];
    assert_eq!(outcomes(&output), expected);
    let lacks = "insufficient unused quota for cpu in flavor standard, 2 more needed\n";
    assert!(output.contains(lacks), "{output}");
    assert_eq!(output.matches(" has 2 cpu ").count(), 1, "the second would say the same as the first:\n{output}");
    assert_eq!(lines(&output, "ignored"), [""; 0]);
}

#[test]
fn deployment_replicas_beyond_5000_are_left_out_with_a_note() {
    let output = decided_text(&parent("Deployment", "web", QUEUE, 300, 1));
    let outcomes = outcomes(&output);
    let admitted = outcomes.iter().filter(|line| line.ends_with(" (Deployment default/web): admitted in all"));
    assert_eq!((outcomes.len(), admitted.count()), (300, 4));
    assert!(output.matches(" cpu in flavor standard, 0 free ").count() < 10, "only some are accounted for:\n{output}");
    let job_kinds = [Kind::Pod, Kind::Deployment].into();
    let mut offline = Offline::new(Settings { job_kinds, ..Settings::default() }, Timestamp::UNIX_EPOCH);
    let objects = given(&parent("Deployment", "web", QUEUE, 5_001, 1));
    let pods = Pods::create(&mut offline, &objects).unwrap();
    assert_eq!(pods.assumed, ["Deployment web: it has no replicas beyond 5000; it asks for 1 more"]);
    assert_eq!(keys(&offline, &[Kind::Pod]).len(), 5_000);
    // The limit of 5000 created pods covers all Deployments together, but each Deployment gets at least one pod.
    let many: String = ["a", "b", "c", "d"].map(|name| parent("Deployment", name, QUEUE, 4_999, 1)).concat();
    let pods = Pods::create(&mut offline, &given(&many)).unwrap();
    assert_eq!(pods.assumed, ["Deployment d: it has no replicas beyond 3; it asks for 4996 more"]);
    let pods = Pods::create(&mut offline, &given(&parent("Deployment", "e", QUEUE, 4_999, 1))).unwrap();
    assert_eq!(pods.assumed, ["Deployment e: it has no replicas beyond 1; it asks for 4998 more"]);
}

/// The manifests are an export of a cluster, in which the Deployment's pods exist.
#[test]
fn existing_pods_of_a_deployment_count_as_its_replicas() {
    let queued = "kueue.x-k8s.io/queue-name: all, kueue.x-k8s.io/managed: 'true'";
    let owner = "{apiVersion: apps/v1, kind: ReplicaSet, name: web-abc, uid: r, controller: true}";
    let metadata = format!("uid: u-1, labels: {{app: web, {queued}}}, ownerReferences: [{owner}]");
    let waits = "spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}], ";
    let there = pod("web-abc-1", &metadata, 1).replace("spec: {", waits);
    let web = parent("Deployment", "web", &format!("uid: d, {QUEUE}"), 2, 1)
        .replace("{labels: {app: web}}", &format!("{{labels: {{app: web, {queued}}}}}"));
    let output = decided_text(&(web + &there));
    let expected = [
        "default/pod-web-0-a492f (Deployment default/web): admitted in all",
        "default/pod-web-abc-1-73009 (Deployment default/web): admitted in all",
    ];
    assert_eq!(outcomes(&output), expected);
    assert_eq!(lines(&output, "ignored"), [""; 0]);
}

/// `berth decide` runs no kubelet that would stop the pod, so the quota of the pod stays in use.
#[test]
fn pod_preempted_by_higher_priority_is_evicted_but_holds_quota() {
    let queues = QUEUES.replace(
        "  namespaceSelector: {}",
        "  preemption: {withinClusterQueue: LowerPriority}\n  namespaceSelector: {}",
    );
    let class =
        "{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 5}\n---\n";
    let is = |kind: &str| {
        let at = "2026-01-01T00:00:01Z";
        format!("{{type: {kind}, status: 'True', reason: {kind}, message: m, lastTransitionTime: '{at}'}}")
    };
    let owner = "{apiVersion: v1, kind: Pod, name: old, uid: u-old, controller: true}";
    let assigned = "[{name: main, count: 1, flavors: {cpu: standard}, resourceUsage: {cpu: '4'}}]";
    let (template, held, admitted) = (template(4), is("QuotaReserved"), is("Admitted"));
    let workload = format!(
        "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: runs, uid: w, ownerReferences: [{owner}]}}, \
         spec: {{queueName: all, podSets: [{{name: main, count: 1, template: {{spec: {template}}}}}]}}, status: {{admission: \
         {{clusterQueue: all, podSetAssignments: {assigned}}}, conditions: [{held}, {admitted}]}}}}\n"
    );
    let labels = "{kueue.x-k8s.io/queue-name: all, kueue.x-k8s.io/managed: 'true'}";
    let old = pod("old", &format!("uid: u-old, labels: {labels}"), 4).replace("spec: {", "spec: {nodeName: node, ");
    let new = pod("new", "labels: {kueue.x-k8s.io/queue-name: all, kueue.x-k8s.io/priority-class: high}", 2);
    let output = decided_with(ALL, &format!("{queues}{class}{workload}{old}{new}"));
    let expected = [
        "default/pod-new-3e260 (Pod default/new): pending: WaitingForPreemptedWorkloads",
        "default/runs (Pod default/old): evicted in all: Preempted",
    ];
    assert_eq!(outcomes(&output), expected);
    assert!(output.contains("    its pods have to stop to make room for default/pod-new-3e260\n"), "{output}");
    assert_eq!(lines(&output, "ignored"), [""; 0]);
}

#[test]
fn stateful_set_pods_are_decided_as_one_group() {
    for (cpu, outcome) in [(2, "admitted in all"), (3, "pending: ExceedsMaxQuota")] {
        let output = decided_text(&parent("StatefulSet", "db", QUEUE, 2, cpu));
        let expected = format!("default/statefulset-db-2e9fd (StatefulSet default/db): {outcome}");
        assert_eq!(outcomes(&output), [expected]);
        assert_eq!(output.contains("    main x2: cpu=standard\n"), cpu == 2, "{output}");
        assert_eq!(lines(&output, "ignored"), [""; 0]);
    }
}

#[test]
fn stateful_set_pods_are_numbered_from_its_start_ordinal() {
    let db = parent("StatefulSet", "db", "labels: {a: b}", 2, 1)
        .replace("{labels: {app: web}}", "{labels: {app: web, kueue.x-k8s.io/queue-name: all}}")
        .replace("{replicas: 2,", "{replicas: 2, ordinals: {start: 2147483647},");
    let output = decided_with("[pod]", &format!("{QUEUES}{db}"));
    let expected = [
        "default/pod-db-2147483647-5b1e6 (StatefulSet default/db): admitted in all",
        "default/pod-db-2147483648-d5da5 (StatefulSet default/db): admitted in all",
    ];
    assert_eq!(outcomes(&output), expected);
}

#[test]
fn object_refused_by_webhook_is_reported_and_blocks_nothing_else() {
    let wrong = "labels: {kueue.x-k8s.io/queue-name: all, kueue.x-k8s.io/max-exec-time-seconds: '0'}";
    let web = parent("Deployment", "web", QUEUE, 2, 1).replace(
        "{labels: {app: web}}",
        "{labels: {app: web}, annotations: {kueue.x-k8s.io/admission-gated-by: 'a b'}}",
    );
    let all = pod("bad", wrong, 1) + &member("odd", "training", "two", 1) + &web + &pod("alone", QUEUE, 1);
    let output = decided_text(&all);
    let invalid = lines(&output, "invalid");
    let size = "Pod default/odd: metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"two\": must be a \
                whole number greater than 0";
    let seconds = "Pod default/bad: metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: \"0\": must be a whole \
                   number of seconds greater than 0";
    assert_eq!(invalid[..2], [seconds, size], "{output}");
    let gates = "Deployment default/web: spec.template.metadata.annotations[kueue.x-k8s.io/admission-gated-by]: ";
    assert!(invalid.len() == 3 && invalid[2].starts_with(gates), "{output}");
    assert_eq!(outcomes(&output), ["default/pod-alone-92c5d (Pod default/alone): admitted in all"]);
    assert_eq!(lines(&output, "ignored"), [""; 0]);
}

#[test]
fn pod_or_parent_without_workload_is_ignored_with_the_reason() {
    let app = "labels: {app: web}";
    let owner = "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: sum, uid: u, controller: true}]";
    let objects = [
        pod("alone", app, 1),
        pod("part", &format!("{QUEUE}, {owner}"), 1),
        parent("Deployment", "web", app, 2, 1),
        parent("StatefulSet", "none", QUEUE, 0, 1),
    ]
    .concat();
    let output = decided_text(&objects);
    let expected = [
        "Pod default/alone: it names no queue",
        "Pod default/part: it is admitted with Job sum, which controls it",
        "Deployment default/web: it names no queue",
        "StatefulSet default/none: it has no replicas",
    ];
    assert_eq!(lines(&output, "ignored"), expected);
    assert_eq!(outcomes(&output), [""; 0]);
    let output = decided_with("[pod]", &format!("{QUEUES}{}", parent("Deployment", "web", QUEUE, 2, 1)));
    let unknown = "Deployment default/web: the configuration does not name the integration deployment";
    assert_eq!(lines(&output, "ignored"), [unknown]);
}

/// Fields of pods and StatefulSets of disabled integrations are not checked, because Berth does not read these objects.
#[test]
fn pods_and_stateful_sets_outside_configured_frameworks_are_ignored() {
    let odd = pod("alone", QUEUE, 1).replace("containers:", "container:");
    let output = decided_with("[batch/job]", &format!("{QUEUES}{odd}{}", parent("StatefulSet", "db", QUEUE, 2, 1)));
    let expected = [
        "Pod alone: the configuration does not name the integration pod",
        "StatefulSet db: the configuration does not name the integration statefulset",
    ];
    assert_eq!(lines(&output, "ignored"), expected);
    assert_eq!((outcomes(&output).len(), lines(&output, "unknown").len()), (0, 0), "{output}");
}

#[test]
fn default_queue_takes_pods_that_name_no_queue() {
    let queues =
        QUEUES.replace("metadata: {name: all}, spec: {clusterQueue", "metadata: {name: default}, spec: {clusterQueue");
    assert_ne!(queues, QUEUES);
    let all = pod("alone", "labels: {a: b}", 1) + &parent("StatefulSet", "db", "labels: {a: b}", 2, 1);
    let output = decided_with(ALL, &format!("{queues}{all}"));
    let expected = [
        "default/pod-alone-92c5d (Pod default/alone): admitted in all",
        "default/statefulset-db-2e9fd (StatefulSet default/db): admitted in all",
    ];
    assert_eq!(outcomes(&output), expected);
    // Without the StatefulSet integration, the pods of a StatefulSet are managed one by one.
    let output = decided_with("[pod]", &format!("{queues}{}", parent("StatefulSet", "db", "labels: {a: b}", 1, 1)));
    assert_eq!(outcomes(&output), ["default/pod-db-0-923ac (StatefulSet default/db): admitted in all"]);
}

#[test]
fn unknown_field_or_bad_value_of_pod_kinds_is_reported() {
    let output = decided_text(&parent("Deployment", "web", QUEUE, 1, 1).replace("replicas: 1", "replica: 1"));
    assert_eq!(
        lines(&output, "unknown"),
        ["Deployment default/web: spec.replica: no such field, the API server drops it"]
    );
    let config = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: {ALL}}}\n"
    );
    let objects = given(&pod("alone", "labels: {a: 1}", 1));
    let error =
        answer(&objects, &config, Accelerators::default(), latest(&objects), Output::Text).unwrap_err().to_string();
    assert_eq!(error, "given.yaml:2: Pod alone: metadata.labels.a: invalid type: integer `1`, expected a string");
}
