use super::manifests::named;
use super::*;
use crate::{Command, Line};
use std::path::{Path, PathBuf};

/// A ClusterQueue and LocalQueue for jobs of the namespace `default`, with a quota of 4 CPUs.
pub(super) const QUEUES: &str = "
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: standard}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: standard, resources: [{name: cpu, nominalQuota: 4}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: all}, spec: {clusterQueue: all}}
---
";

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(super) fn given(content: &str) -> Vec<Manifest> {
    manifests::of_text("given.yaml", content).unwrap()
}

pub(super) fn decided_text(manifests: &[Manifest]) -> anyhow::Result<String> {
    answer(manifests, "", Accelerators::default(), latest(manifests), Output::Text)
}

/// A configuration with these integrations.
pub(super) fn with_frameworks(names: &str) -> String {
    format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: {names}\n")
}

/// The output lines that begin with a word, without the place in [`given`] manifests.
pub(super) fn lines(output: &str, word: &str) -> Vec<String> {
    let begin = format!("{word}: ");
    let placeless = |line: &str| match line.split_once(": ") {
        Some((place, rest)) if place.starts_with("given.yaml:") => rest.to_owned(),
        _ => line.to_owned(),
    };
    output.lines().filter_map(|line| line.strip_prefix(&begin)).map(placeless).collect()
}

/// Each folder of tests/decide has manifests, an optional configuration, and the expected answers as text and YAML. The environment variable `UPDATE=1` makes
/// the test rewrite the expected answers.
#[test]
fn decide_answers_equal_the_golden_files_in_both_formats() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder("tests/decide")).unwrap() {
        let folder = entry.unwrap().path();
        let objects = manifests::read(&[folder.join("objects.yaml")]).unwrap();
        let config = std::fs::read_to_string(folder.join("configuration.yaml")).unwrap_or_default();
        for (output, name) in [(Output::Text, "answer.txt"), (Output::Yaml, "answer.yaml")] {
            count += 1;
            let place = format!("{}/", folder.display());
            let reported_by = || {
                answer(&objects, &config, Accelerators::default(), latest(&objects), output)
                    .unwrap()
                    .replace(&place, "")
            };
            let got = reported_by();
            assert_eq!(got, reported_by(), "the same twice");
            let path = folder.join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, &got).unwrap();
            }
            assert_eq!(got, std::fs::read_to_string(&path).unwrap(), "{}", path.display());
        }
    }
    assert!(count >= 4, "only {count} answers");
}

/// `berth decide` admits the jobs of the borrowing example as the README of the example says.
#[test]
fn borrowing_example_is_decided_as_its_readme_says() {
    let output = decided_text(&manifests::read(&[folder("../../examples/two-teams-borrowing")]).unwrap()).unwrap();
    let admitted = |job: &str| output.lines().any(|line| line.contains(job) && line.contains("admitted"));
    for (job, runs) in [("sweep-1", true), ("sweep-2", true), ("sweep-3", false), ("batch-scoring", true)] {
        assert_eq!(admitted(job), runs, "{job}:\n{output}");
    }
}

/// Berth knows every field of its own examples, and ignores none of their objects.
#[test]
fn example_manifests_have_no_unknown_or_ignored_objects() {
    let config = with_frameworks("[batch/job, jobset.x-k8s.io/jobset, pod, deployment, statefulset]");
    let mut count = 0;
    for entry in std::fs::read_dir(folder("../../examples")).unwrap() {
        let example = entry.unwrap().path();
        let objects = manifests::read(std::slice::from_ref(&example)).unwrap();
        let output = answer(&objects, &config, Accelerators::default(), latest(&objects), Output::Text).unwrap();
        for word in ["invalid", "unknown", "ignored"] {
            let mut passed_over = lines(&output, word);
            // Berth may report RoleBindings and admission policies of its examples as ignored, because only the API server reads them.
            passed_over.retain(|line| {
                !["RoleBinding ", "ValidatingAdmissionPolicy"].iter().any(|kind| line.starts_with(kind))
            });
            assert_eq!(passed_over, [""; 0], "{}", example.display());
        }
        count += 1;
    }
    assert!(count >= 4, "only {count} examples");
}

#[test]
fn manifest_lists_are_expanded_and_namespaced_objects_get_a_namespace() {
    let objects = given(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: a}}\n\
         ---\n---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: q}}\n",
    );
    let objects = manifests::sorted(&objects, &BTreeSet::new()).unwrap().objects;
    assert_eq!(objects[0].object["metadata"], json!({"name": "a"}));
    assert_eq!(objects[1].object["metadata"], json!({"name": "q", "namespace": "default"}));
}

#[test]
fn field_unknown_to_the_api_server_is_reported() {
    let queues = QUEUES.replace("spec:\n  namespaceSelector", "spec:\n  cohort: a\n  namespaceSelector");
    let output =
        decided_text(&given(&queues.replace("{clusterQueue: all}", "{clusterQueue: all, stopPolice: Hold}"))).unwrap();
    let expected = [
        "ClusterQueue all: spec.cohort: no such field, the API server drops it; in kueue.x-k8s.io/v1beta2 it is spec.cohortName",
        "LocalQueue default/all: spec.stopPolice: no such field, the API server drops it",
    ];
    assert_eq!(lines(&output, "unknown"), expected);
    assert_eq!(lines(&decided_text(&given(QUEUES)).unwrap(), "unknown"), [""; 0]);
}

#[test]
fn later_pod_set_is_accounted_on_top_of_earlier_ones() {
    let template = "{spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 3}}}]}}";
    let pod_set = |name: &str| format!("{{name: {name}, count: 1, template: {template}}}");
    let workload = format!(
        "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: pair, uid: u}}, spec: {{queueName: all, \
         podSets: [{}, {}]}}}}\n",
        pod_set("master"),
        pod_set("worker")
    );
    let output = decided_text(&given(&format!("{QUEUES}{workload}"))).unwrap();
    let master = "    master: asks 3 cpu in flavor standard, 4 free (4 own, 0 to borrow) of 4; fits\n";
    let worker = "    worker: asks 3 cpu in flavor standard on top of 3 of earlier pod sets, 4 free (4 own, 0 to borrow) of 4; \
                  never fits unless quota is raised by 2\n";
    assert!(output.contains(master) && output.contains(worker), "{output}");
}

#[test]
fn preempted_pending_workload_shows_its_preemptor() {
    let template = "{spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 4}}}]}}";
    let workload = |name: &str, status: &str| {
        format!(
            "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: {name}, uid: uid-of-{name}}}, spec: \
             {{queueName: all, podSets: [{{name: main, count: 1, template: {template}}}]}}, status: {{{status}}}}}\n---\n"
        )
    };
    let is = |kind: &str, reason: &str, message: &str| {
        let at = "2026-01-01T00:00:01Z";
        format!("{{type: {kind}, status: 'True', reason: {reason}, message: '{message}', lastTransitionTime: '{at}'}}")
    };
    let given_to = "admission: {clusterQueue: all, podSetAssignments: [{name: main, count: 1, flavors: {cpu: standard}, \
                    resourceUsage: {cpu: '4'}}]}";
    let runs = format!(
        "{given_to}, conditions: [{}, {}]",
        is("QuotaReserved", "QuotaReserved", "m"),
        is("Admitted", "Admitted", "m")
    );
    let evicted_for = |uid: &str| {
        let message = berth_control::preemption_message((uid, ""), "InClusterQueue", "/all", "/all");
        format!(
            "conditions: [{}, {}]",
            is("Evicted", "Preempted", &message),
            is("Preempted", "InClusterQueue", &message)
        )
    };
    for (uid, line) in [
        ("uid-of-runs", Some("    was evicted to make room for default/runs\n")),
        ("gone", Some("    was evicted to make room for gone\n")),
        ("", None),
    ] {
        let workloads = workload("runs", &runs) + &workload("waits", &evicted_for(uid));
        let output = decided_text(&given(&format!("{QUEUES}{workloads}"))).unwrap();
        assert_eq!(output.contains("was evicted to make room for"), line.is_some(), "{output}");
        assert!(line.is_none_or(|line| output.contains(line)), "{output}");
    }
}

#[test]
fn inactive_queue_is_reported_with_its_reason() {
    assert_eq!(lines(&decided_text(&given(QUEUES)).unwrap(), "inactive"), [""; 0]);
    let local = "LocalQueue default/all: ClusterQueueIsInactive: Can't submit new workloads to clusterQueue";
    let none = "LocalQueue default/all: ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue";
    let checks = "\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}\n  namespaceSelector";
    for (from, to, expected) in [
        (
            "{name: standard}}",
            "{name: other}}",
            vec![
                "ClusterQueue all: FlavorNotFound: Can't admit new workloads: references missing ResourceFlavor(s): standard.",
                local,
            ],
        ),
        (
            "\n  namespaceSelector",
            checks,
            vec![
                "ClusterQueue all: AdmissionCheckNotFound: Can't admit new workloads: references missing AdmissionCheck(s): budget.",
                local,
            ],
        ),
        (
            "\n  namespaceSelector",
            "\n  stopPolicy: Hold\n  namespaceSelector",
            vec!["ClusterQueue all: Stopped: Can't admit new workloads: is stopped.", local],
        ),
        ("{clusterQueue: all}", "{clusterQueue: none}", vec![none]),
    ] {
        assert!(QUEUES.contains(from), "{from}");
        let output = decided_text(&given(&QUEUES.replace(from, to))).unwrap();
        assert_eq!(lines(&output, "inactive"), expected, "{to}");
    }
}

#[test]
fn training_job_is_admitted_only_if_its_checkpoint_store_exists() {
    let store = "{apiVersion: berth.dev/v1alpha1, kind: CheckpointStore, metadata: {name: main}, spec: {s3: {bucket: abc}}}\n---\n";
    let job = "
apiVersion: berth.dev/v1alpha1
kind: TrainingJob
metadata: {name: model}
spec:
  jobType: PyTorchJob
  resources: {maxReplicas: 2, replicaResources: {cpu: 1}}
  schedulingConfig: {queue: all}
  checkpoint: {store: main}
  template: {spec: {containers: [{name: c, image: i}]}}
";
    let output = decided_text(&given(&format!("{QUEUES}{store}{job}"))).unwrap();
    assert!(output.contains(" (TrainingJob default/model): admitted in all\n"), "{output}");
    assert_eq!(lines(&output, "ignored"), [""; 0]);
    let output = decided_text(&given(&format!("{QUEUES}{job}"))).unwrap();
    let why = "TrainingJob default/model: CheckpointStoreNotFound: spec.checkpoint.store: \"main\" is no CheckpointStore; \
               those that exist: there is none";
    assert_eq!(lines(&output, "ignored"), [why]);
    assert!(!output.contains("admitted"), "{output}");
}

#[test]
fn child_job_is_not_reported_beside_its_job_set() {
    let job = |name: &str, more: &str| {
        let template = "{spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}";
        format!(
            "---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}{more}}}, spec: {{template: {template}}}}}\n"
        )
    };
    let set = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: set}, spec: {}}\n";
    let owner = ", ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: set, uid: u, controller: true}]";
    let alone = lines(&decided_text(&given(&job("part", owner))).unwrap(), "ignored");
    assert!(alone[0].starts_with("Job default/part: "), "{alone:?}");
    let both = decided_text(&given(&format!("{set}{}{}", job("part", owner), job("other", "")))).unwrap();
    assert!(!both.contains("default/part"), "{both}");
    assert!(both.contains("ignored: JobSet default/set: ") && both.contains("ignored: Job default/other: "), "{both}");
}

#[test]
fn unreadable_manifest_is_an_error_with_file_and_line() {
    let bad = QUEUES.replace("{clusterQueue: all}", "{clusterQueue: 5}");
    let one = decided_text(&given(&bad)).unwrap_err().to_string();
    let expected = "given.yaml:13: LocalQueue all: spec.clusterQueue: invalid type: integer `5`, expected a string";
    assert_eq!(one, expected);
    let all =
        decided_text(&given(&bad.replace("coveredResources: [cpu]", "coveredResources: cpu"))).unwrap_err().to_string();
    let found: Vec<&str> = all.lines().collect();
    assert_eq!((found[0], found[2]), ("2 faults in the manifests:", format!("  {expected}").as_str()));
    let path =
        "  given.yaml:10: ClusterQueue all: spec.resourceGroups[0].coveredResources: invalid type: string \"cpu\"";
    assert!(found[1].starts_with(path), "{all}");
    let nameless =
        decided_text(&given("{apiVersion: v1, kind: Namespace, metadata: {labels: {}}}")).unwrap_err().to_string();
    assert_eq!(nameless, "given.yaml:1: Namespace: metadata.name: it has none");
}

#[test]
fn document_without_kind_is_an_error_with_file_and_line() {
    let decided_text = "apiVersion and kind must say what it is";
    for (content, expected) in [
        ("---\n- 1\n", "given.yaml:2: [1] is no Kubernetes object".to_owned()),
        ("a: [\n", "given.yaml: ".to_owned()),
        (
            "{image: i, replicas: 2}",
            format!("given.yaml:1: apiVersion: a document with image, replicas: {decided_text}"),
        ),
        ("{}", format!("given.yaml:1: apiVersion: a document with no field: {decided_text}")),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n# Values, not a manifest.\n\nimage: i\nreplicas: 2\n",
            format!("given.yaml:5: apiVersion: a document with image, replicas: {decided_text}"),
        ),
        (
            "{apiVersion: v1, kind: Pod}\n---\nkind: ''\napiVersion: v1\n",
            format!("given.yaml:3: kind: a document with apiVersion, kind: {decided_text}"),
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- metadata:\n    name: x\n",
            format!("given.yaml:5: apiVersion: a document with metadata: {decided_text}"),
        ),
        ("apiVersion: v1\nkind: List\nitems:\n- 7\n", "given.yaml:4: 7 is no Kubernetes object".to_owned()),
    ] {
        let error = manifests::of_text("given.yaml", content).unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{content:?}: {error}");
    }
}

#[test]
fn manifest_of_foreign_kind_is_ignored_and_assumes_no_namespace() {
    let others = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: site}}\n---\n\
                  {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: web}}\n---\n\
                  {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: web}, spec: {tasks: 3}}\n";
    let output = decided_text(&given(others)).unwrap();
    let named = ["Service site/web", "ClusterRole web", "Job web"];
    assert_eq!(lines(&output, "ignored"), named.map(|name| format!("{name}: berth decide does not look at its kind")));
    assert_eq!(lines(&output, "assumed"), [""; 0]);
}

#[test]
fn missing_namespaces_are_assumed_in_one_line_default_when_needed() {
    assert_eq!(lines(&decided_text(&given(QUEUES)).unwrap(), "assumed"), [""; 0]);
    let queue = |namespace: &str| {
        format!(
            "---\n{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{name: q, namespace: {namespace}}}}}\n"
        )
    };
    let output = decided_text(&given(&format!("{QUEUES}{}{}", queue("b"), queue("a")))).unwrap();
    let many = "Namespaces a, b: they are not in the manifests, so they have no label but kubernetes.io/metadata.name";
    assert_eq!(lines(&output, "assumed"), [many]);
    let picky = QUEUES.replace("namespaceSelector: {}", "namespaceSelector: {matchLabels: {kind: training}}");
    let one = "Namespace default: it is not in the manifests, so it has no label but kubernetes.io/metadata.name";
    assert_eq!(lines(&decided_text(&given(&picky)).unwrap(), "assumed"), [one]);
    let by_name = QUEUES
        .replace("namespaceSelector: {}", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}");
    assert_eq!(lines(&decided_text(&given(&by_name)).unwrap(), "assumed"), [""; 0]);
}

#[test]
fn generated_job_names_are_numbered_without_collisions() {
    let job = "---
apiVersion: batch/v1
kind: Job
metadata: {generateName: run-, labels: {kueue.x-k8s.io/queue-name: all}}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
";
    let output =
        decided_text(&given(&format!("{QUEUES}{job}{job}{}", job.replace("generateName: run-", "name: run-2"))))
            .unwrap();
    for name in ["run-1", "run-2", "run-3"] {
        assert!(output.contains(&format!(" (Job default/{name}): admitted in all\n")), "{name}:\n{output}");
    }
}

#[test]
fn manifest_folder_is_read_by_file_name_and_not_recursively() {
    let root = std::env::temp_dir().join(format!("berth-decide-{}", std::process::id()));
    let below = root.join("below.yaml");
    std::fs::create_dir_all(&below).unwrap();
    let object = |name: &str| {
        format!("{{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {{\"name\": \"{name}\"}}}}")
    };
    for (path, content) in [
        (root.join("2.yml"), object("two")),
        (root.join("1.yaml"), object("one")),
        (root.join("3.json"), object("three")),
        (root.join("README.md"), "# Not a manifest".to_owned()),
        (below.join("notes.txt"), "a: [".to_owned()),
    ] {
        std::fs::write(path, content).unwrap();
    }
    let found = manifests::read(std::slice::from_ref(&root));
    let empty = manifests::read(&[below]);
    std::fs::remove_dir_all(&root).unwrap();
    let found = found.unwrap();
    let names: Vec<String> = found.iter().map(|manifest| named(&manifest.object)).collect();
    assert_eq!(names, ["Namespace one", "Namespace two", "Namespace three"]);
    assert_eq!(found[0].place.source.file, root.join("1.yaml").display().to_string());
    let error = empty.unwrap_err().to_string();
    assert!(error.contains("the folder has no *.yaml, *.yml or *.json"), "{error}");
    assert!(manifests::read(&[root.join("gone.yaml")]).is_err());
}

#[test]
fn manifest_fault_shows_file_line_and_renamed_field() {
    let queues = QUEUES.replace("spec:\n  namespaceSelector", "spec:\n  cohort: a\n  namespaceSelector");
    let queues = queues.replace("[{name: standard,", "[{name: gone,");
    let output = decided_text(&given(&queues)).unwrap();
    let expected = [
        "invalid: given.yaml:12: ClusterQueue all: spec.resourceGroups[0].flavors[0].name: Invalid value: \"gone\": is no \
         ResourceFlavor; those that exist: standard",
        "unknown: given.yaml:8: ClusterQueue all: spec.cohort: no such field, the API server drops it; in \
         kueue.x-k8s.io/v1beta2 it is spec.cohortName",
    ];
    for line in expected {
        assert!(output.lines().any(|output| output == line), "{output}");
    }
    let older = queues.replace("v1beta2\nkind: ClusterQueue", "v1beta1\nkind: ClusterQueue");
    assert!(!decided_text(&given(&older)).unwrap().contains("spec.cohort:"), "it is a field of v1beta1");
    let older = older.replace("cohort: a", "cohortName: a");
    assert!(decided_text(&given(&older)).unwrap().contains("; in kueue.x-k8s.io/v1beta1 it is spec.cohort\n"));
}

#[test]
fn strict_mode_fails_on_faults_and_not_on_pending_jobs() {
    let is_wrong = |objects: &str| {
        let objects = given(objects);
        answered(&objects, "", Accelerators::default(), latest(&objects)).unwrap().is_wrong()
    };
    let waits = "{apiVersion: batch/v1, kind: Job, metadata: {name: large, labels: {kueue.x-k8s.io/queue-name: all}}, spec: \
                 {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: \
                 {requests: {cpu: 99}}}]}}}}\n";
    assert!(!is_wrong(&format!("{QUEUES}{waits}")));
    for (from, to) in [
        ("nominalQuota: 4", "nominalQuota: 4, nominal: 5"),
        ("[{name: standard,", "[{name: gone,"),
        ("  namespaceSelector", "  stopPolicy: Hold\n  namespaceSelector"),
    ] {
        assert!(QUEUES.contains(from) && is_wrong(&QUEUES.replace(from, to)), "{to}");
    }
    use clap::Parser as _;
    let strict = |words: &[&str]| {
        let words = ["berth", "decide", "-f", "-"].iter().chain(words);
        match Line::try_parse_from(words).unwrap().command {
            Command::Decide(flags) => flags.strict,
            other => unreachable!("the first word is decide: {other:?}"),
        }
    };
    assert!(strict(&["--strict"]) && !strict(&[]));
    let ends = |text: &str, words: &[&str]| {
        let file = std::env::temp_dir().join(format!("berth-strict-{}.yaml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let path = file.display().to_string();
        let words = ["berth", "decide", "-f", path.as_str()].into_iter().chain(words.iter().copied());
        let code = match Line::try_parse_from(words).unwrap().command {
            Command::Decide(flags) => run(&flags),
            other => unreachable!("the first word is decide: {other:?}"),
        };
        std::fs::remove_file(&file).unwrap();
        format!("{:?}", code.unwrap())
    };
    let [good, bad] = [ExitCode::SUCCESS, ExitCode::FAILURE].map(|code| format!("{code:?}"));
    let wrong = QUEUES.replace("nominalQuota: 4", "nominalQuota: 4, nominal: 5");
    let codes = [ends(QUEUES, &["--strict"]), ends(&wrong, &[]), ends(&wrong, &["--strict"])];
    assert_eq!(codes, [good.clone(), good, bad]);
}

/// The younger job comes first in the manifests and by name, but the older job is admitted.
#[test]
fn job_order_follows_creation_timestamps_in_manifests() {
    let job = |name: &str, minute: u32| {
        format!(
            "---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}, creationTimestamp: \"2026-01-01T00:0{minute}:00Z\", \
             labels: {{kueue.x-k8s.io/queue-name: all}}}}, spec: {{suspend: true, template: {{spec: {{restartPolicy: Never, \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}}}}}}}\n"
        )
    };
    let output = decided_text(&given(&format!("{QUEUES}{}{}", job("a", 5), job("b", 1)))).unwrap();
    assert!(output.contains("(Job default/b): admitted") && output.contains("(Job default/a): pending"), "{output}");
}

/// The uid of kube-system decides which of two namespaces goes first within a second, as in the cluster that the manifests are from.
#[test]
fn equal_jobs_of_two_namespaces_follow_uid_of_kube_system() {
    let first = |uid: &str| {
        let mut objects = QUEUES.to_owned();
        for namespace in ["a", "b"] {
            objects += &format!(
                "---\n{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{name: all, namespace: {namespace}}}, spec: \
                 {{clusterQueue: all}}}}\n---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, namespace: {namespace}, labels: \
                 {{kueue.x-k8s.io/queue-name: all}}}}, spec: {{suspend: true, template: {{spec: {{restartPolicy: Never, containers: \
                 [{{name: c, image: i, resources: {{requests: {{cpu: 3}}}}}}]}}}}}}}}\n"
            );
        }
        objects += &format!("---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: kube-system, uid: {uid}}}}}\n");
        let output = decided_text(&given(&objects)).unwrap();
        ["a", "b"].into_iter().find(|namespace| output.contains(&format!("(Job {namespace}/j): admitted"))).unwrap()
    };
    let uids: Vec<String> = (0..16).map(|number| format!("f6a1c0de-{number}")).collect();
    let firsts: Vec<&str> = uids.iter().map(|uid| first(uid)).collect();
    assert!(firsts.contains(&"a") && firsts.contains(&"b"), "{firsts:?}");
    assert_eq!(firsts, uids.iter().map(|uid| first(uid)).collect::<Vec<_>>());
}
