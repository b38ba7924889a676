//! Tests that Berth starts with the configuration files that Kueue 0.19 ships, and warns only about their settings that have no effect.

use super::*;
use crate::Addresses;
use berth_engine::model::SelectorOp;
use std::collections::BTreeMap;

/// The configuration file in the ConfigMap of Kueue's chart with default values: its keys are sorted, and its names are those of a release called
/// kueue.
const CHART: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
clientConnection:
  burst: 500
  qps: 300
controller:
  groupKindConcurrency:
    ClusterQueue.kueue.x-k8s.io: 5
    Job.batch: 5
    LocalQueue.kueue.x-k8s.io: 5
    Pod: 5
    ResourceFlavor.kueue.x-k8s.io: 1
    Workload.kueue.x-k8s.io: 10
health:
  healthProbeBindAddress: :8081
integrations:
  frameworks:
  - batch/job
  - kubeflow.org/mpijob
  - ray.io/rayjob
  - ray.io/rayservice
  - ray.io/raycluster
  - jobset.x-k8s.io/jobset
  - trainer.kubeflow.org/trainjob
  - workload.codeflare.dev/appwrapper
  - pod
  - deployment
  - statefulset
  - leaderworkerset.x-k8s.io/leaderworkerset
internalCertManagement:
  enable: true
  webhookSecretName: kueue-webhook-server-cert
  webhookServiceName: kueue-webhook-service
kind: Configuration
leaderElection:
  leaderElect: true
  resourceName: c1f6bfd2.kueue.x-k8s.io
metrics:
  bindAddress: :8443
webhook:
  port: 9443
";

/// The configuration file in the ConfigMap of Kueue's plain manifests.
const MANIFESTS: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ':8081'}
metrics: {bindAddress: ':8443'}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller:
  groupKindConcurrency: {Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 10, LocalQueue.kueue.x-k8s.io: 5,
    Cohort.kueue.x-k8s.io: 1, ClusterQueue.kueue.x-k8s.io: 5, ResourceFlavor.kueue.x-k8s.io: 1}
clientConnection: {qps: 300, burst: 500}
integrations:
  frameworks: [\"batch/job\", \"kubeflow.org/mpijob\", \"ray.io/rayjob\", \"ray.io/raycluster\", \"ray.io/rayservice\",
    \"jobset.x-k8s.io/jobset\", \"workload.codeflare.dev/appwrapper\", \"trainer.kubeflow.org/trainjob\", \"pod\",
    \"deployment\", \"statefulset\", \"leaderworkerset.x-k8s.io/leaderworkerset\"]
";

/// The settings that are commented out in the two configuration files that Kueue ships (`CHART` and `MANIFESTS`), switched on.
const EXAMPLES: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
metrics: {enableClusterQueueResources: true}
pprofBindAddress: :8083
waitForPodsReady:
  timeout: 5m
  recoveryTimeout: 3m
  blockAdmission: false
  requeuingStrategy: {timestamp: Eviction, backoffLimitCount: null, backoffBaseSeconds: 60, backoffMaxSeconds: 3600}
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [ kube-system, kueue-system ]
internalCertManagement: {enable: false, webhookServiceName: \"\", webhookSecretName: \"\"}
integrations:
  frameworks: [kubeflow.org/paddlejob, kubeflow.org/pytorchjob, kubeflow.org/tfjob, kubeflow.org/xgboostjob,
    kubeflow.org/jaxjob, sparkoperator.k8s.io/sparkapplication]
  externalFrameworks: [\"Foo.v1.example.com\"]
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
admissionFairSharing:
  usageHalfLifeTime: \"168h\"
  usageSamplingInterval: \"5m\"
  resourceWeights: {cpu: 0, memory: 0, example.com/gpu: 100}
resources:
  excludeResourcePrefixes: []
  quotaCheckStrategy: \"BlockUndeclared\"
  transformations:
  - input: nvidia.com/mig-4g.5gb
    strategy: Replace
    outputs: {example.com/accelerator-memory: 5Gi, example.com/accelerator-gpc: 4}
objectRetentionPolicies:
  workloads: {afterFinished: null, afterDeactivatedByKueue: null}
";

/// Frameworks that both configuration files list.
const LISTED: [&str; 12] = [
    "batch/job",
    "kubeflow.org/mpijob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "jobset.x-k8s.io/jobset",
    "workload.codeflare.dev/appwrapper",
    "trainer.kubeflow.org/trainjob",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
];

/// Loads a configuration file with the flags that Berth's chart sets.
fn started(text: &str) -> Loaded {
    let given = Given {
        namespace: Some("berth-system".to_owned()),
        home: "berth-system".to_owned(),
        lease_namespace: Some("kueue-system".to_owned()),
        lease_name: Some("c1f6bfd2.kueue.x-k8s.io".to_owned()),
        addresses: Addresses {
            metrics: Some(":8080".to_owned()),
            health: Some(":8081".to_owned()),
            webhook: Some(":9443".to_owned()),
        },
        ..Given::default()
    };
    load(text, &given).unwrap()
}

/// Checks that there is exactly one warning about each setting in `about`, and no other warning.
fn assert_warns(loaded: &Loaded, about: &[&str]) {
    for name in about {
        let quoted = format!("`{name}`");
        let found = loaded.warnings.iter().filter(|warning| warning.contains(&quoted)).count();
        assert_eq!(found, 1, "{quoted}: {:#?}", loaded.warnings);
    }
    assert_eq!(loaded.warnings.len(), about.len(), "{:#?}", loaded.warnings);
}

#[test]
fn configuration_shipped_with_kueue_equals_berth_defaults() {
    let left_alone: Vec<&str> = LISTED.into_iter().filter(|name| Kind::of_framework(name).is_none()).collect();
    let kinds: BTreeSet<Kind> = LISTED.into_iter().filter_map(Kind::of_framework).collect();
    assert!(left_alone.len() < LISTED.len() && kinds.contains(&Kind::Pod), "{left_alone:?}");
    let names = ["kueue-webhook-service", "kueue-webhook-server-cert"];
    for (text, unused) in [(CHART, &names[..]), (MANIFESTS, &names[..0])] {
        let loaded = started(text);
        // The chart of Berth sets another port for metrics, which causes a warning.
        assert_warns(&loaded, &[&left_alone[..], unused, &["controller", ":8443"]].concat());
        assert_eq!(loaded.settings.job_kinds, kinds);
        // Each field of Kueue's configuration file besides the frameworks has Berth's default value.
        let mut plain = started("");
        plain.settings.job_kinds = loaded.settings.job_kinds.clone();
        // Both configuration files of Kueue manage Pods, so Berth's Lease has the time since which Berth queues pods.
        plain.election.as_mut().expect("on by default").counts_pods = true;
        plain.warnings = loaded.warnings.clone();
        assert_eq!(loaded, plain);
    }
}

#[test]
fn kueue_configuration_field_that_changes_is_never_ignored() {
    for (field, other) in [
        ("burst: 500", "burst: 501"),
        ("qps: 300", "qps: 301"),
        (":8081", ":8082"),
        (":8443", ":8444"),
        ("port: 9443", "port: 9444"),
        ("leaderElect: true", "leaderElect: false"),
        ("enable: true", "enable: false"),
    ] {
        assert!(CHART.contains(field), "{field}");
        assert_ne!(started(&CHART.replace(field, other)), started(CHART), "{other} changes nothing");
    }
    for (field, other, flag) in
        [(":8081", ":8082", "--health-probe-bind-address"), ("port: 9443", "port: 9444", "--webhook-bind-address")]
    {
        let warnings = started(&CHART.replace(field, other)).warnings;
        assert!(warnings.iter().any(|warning| warning.contains(flag)), "{other}: {warnings:?}");
    }
    // Without the chart's flag, the configuration file sets the name of the Lease.
    let given = Given { home: "kueue-system".to_owned(), ..Given::default() };
    let election = load(&CHART.replace("c1f6bfd2", "other"), &given).unwrap().election.unwrap();
    assert_eq!(election.name, "other.kueue.x-k8s.io");
}

#[test]
fn kueue_configuration_for_cert_manager_reads_kueues_certificate_folder() {
    let begin = CHART.find("  enable: true\n").unwrap();
    let end = CHART.find("kind: Configuration").unwrap();
    let loaded = started(&format!("{}  enable: false\n{}", &CHART[..begin], &CHART[end..]));
    assert_eq!(loaded.webhook.folder.as_deref(), Some("/tmp/k8s-webhook-server/serving-certs"));
    // A warning about a setting that a flag replaces begins with the name of the setting.
    let about = |warning: &String| warning.contains("webhook") && !warning.starts_with("metrics.bindAddress");
    assert!(!loaded.warnings.iter().any(about), "{:?}", loaded.warnings);
}

#[test]
fn kueue_example_configuration_is_loaded_with_all_its_settings() {
    let loaded = started(EXAMPLES);
    let asked = ["paddlejob", "pytorchjob", "tfjob", "xgboostjob", "jaxjob"].map(|name| format!("kubeflow.org/{name}"));
    let asked = asked.iter().map(String::as_str).chain(["sparkoperator.k8s.io/sparkapplication"]);
    let mut about: Vec<&str> = asked.filter(|name| Kind::of_framework(name).is_none()).collect();
    about.extend(["pprofBindAddress", "integrations.externalFrameworks"]);
    assert_warns(&loaded, &about);
    assert!(loaded.webhook.folder.is_some());
    let settings = loaded.settings;
    let namespaces = settings.managed_namespaces.0.iter().map(|one| (one.op, one.values.join(" ")));
    let wanted = ["kube-system kueue-system", "berth-system"].map(|names| (SelectorOp::NotIn, names.to_owned()));
    assert_eq!(namespaces.collect::<Vec<_>>(), wanted);
    assert!(settings.manage_jobs_without_queue_name && settings.queue_resource_metrics);
    assert_eq!(
        settings.wait_for_pods_ready,
        Some(WaitForPodsReady {
            timeout_ms: 300_000,
            recovery_timeout_ms: Some(180_000),
            block_admission: false,
            order_by_creation: false,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
        })
    );
    let strategies = [ShareStrategy::LessThanOrEqualToFinalShare, ShareStrategy::LessThanInitialShare];
    assert_eq!(settings.engine.fair_sharing.unwrap().strategies, strategies);
    let sharing = settings.engine.admission_fair_sharing.unwrap();
    assert_eq!((sharing.half_life, sharing.sampling_interval), (604_800_000, 300_000));
    let weights = [("cpu", 0.0), ("memory", 0.0), ("example.com/gpu", 100.0)];
    assert_eq!(sharing.weights, BTreeMap::from(weights.map(|(name, weight)| (name.to_owned(), weight))));
    assert!(!settings.engine.ignore_undeclared && settings.exclude_resource_prefixes.is_empty());
    let outputs = [("example.com/accelerator-gpc", "4"), ("example.com/accelerator-memory", "5Gi")];
    let slices = berth_jobs::Transformation::new("nvidia.com/mig-4g.5gb", None, outputs, false).unwrap();
    assert_eq!(settings.transformations, [slices]);
    assert_eq!((settings.retain_finished_ms, settings.retain_deactivated_ms), (None, None));
}

/// The configuration file that a Go program writes for a Configuration without any settings, as Kueue's own end-to-end suite and operators write it: Go writes
/// durations that are not set as 0s, and strings that are not set as empty strings.
const ZEROS: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: true, leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceLock: \"\", resourceName: \"\",
  resourceNamespace: \"\"}
webhook: {port: 0, host: \"\", certDir: \"\"}
metrics: {bindAddress: \"\"}
health: {healthProbeBindAddress: \"\", readinessEndpointName: \"\", livenessEndpointName: \"\"}
clientConnection: {qps: 0, burst: 0}
resources: {quotaCheckStrategy: \"\"}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 0s}
";

#[test]
fn configuration_of_zero_values_equals_the_defaults() {
    let given = Given { home: "kueue-system".to_owned(), ..Given::default() };
    let zeros = load(ZEROS, &given).unwrap();
    let defaults = load("", &given).unwrap();
    assert_eq!(format!("{:?}", zeros.election), format!("{:?}", defaults.election));
    assert_eq!((zeros.metrics_address.as_str(), zeros.health_address.as_str()), (":8443", ":8081"));
    assert_eq!((zeros.readiness_path.as_str(), zeros.liveness_path.as_str()), ("readyz", "healthz"));
    assert_eq!((zeros.qps, zeros.burst, &zeros.webhook), (defaults.qps, defaults.burst, &defaults.webhook));
    let sharing = zeros.settings.engine.admission_fair_sharing.unwrap();
    assert_eq!(sharing.sampling_interval, 300_000);
}

#[test]
fn configuration_zero_with_its_own_meaning_is_kept() {
    let given = Given { home: "kueue-system".to_owned(), ..Given::default() };
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmetrics: {bindAddress: \"0\"}\n\
                waitForPodsReady: {timeout: 5m, recoveryTimeout: 0s}\n\
                objectRetentionPolicies: {workloads: {afterFinished: 0s}}\n\
                admissionFairSharing: {usageHalfLifeTime: 0s}\n";
    let loaded = load(text, &given).unwrap();
    assert_eq!(loaded.metrics_address, "0", "switched off");
    assert_eq!(loaded.settings.retain_finished_ms, Some(0), "deleted at once");
    assert_eq!(loaded.settings.wait_for_pods_ready.unwrap().recovery_timeout_ms, None, "switched off");
    assert_eq!(loaded.settings.engine.admission_fair_sharing.unwrap().half_life, 0, "forgets at once");
}
