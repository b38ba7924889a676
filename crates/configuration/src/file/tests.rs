//! Tests of valid configuration files, of invalid ones with their lines, and of the defaults of both versions.

use super::*;
use crate::webhook::ObjectNames;
use berth_control::write::Kind;
use berth_jobs::training::Accelerators;
use std::collections::BTreeMap;
use std::time::Duration;

const V2: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const V1: &str = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";

fn given() -> Given {
    Given { home: "berth-system".into(), ..Given::default() }
}

fn read(text: &str) -> Result<Loaded, String> {
    load(text, &given())
}

/// Loads a v1beta2 file with the body `text`, whose first line is line 3 of the file.
fn body(text: &str) -> Result<Loaded, String> {
    read(&format!("{V2}{text}"))
}

fn refused(text: &str, parts: &[&str]) {
    let error = body(text).expect_err(text);
    for part in parts {
        assert!(error.contains(part), "`{part}` not in `{error}`");
    }
}

#[test]
fn configuration_without_a_file_has_kueue_defaults() {
    let loaded = read("").unwrap();
    assert_eq!(loaded, body("").unwrap());
    assert!(loaded.warnings.is_empty());
    assert_eq!((loaded.metrics_address.as_str(), loaded.health_address.as_str()), (":8443", ":8081"));
    assert_eq!((loaded.qps, loaded.burst), (Some(300.0), 500.0));
    let election = loaded.election.unwrap();
    assert_eq!((election.name.as_str(), election.namespace.as_str()), ("c1f6bfd2.kueue.x-k8s.io", "berth-system"));
    assert_eq!(
        (election.lease_duration, election.renew_deadline, election.retry_period),
        (Duration::from_secs(15), Duration::from_secs(10), Duration::from_secs(2))
    );
    let settings = loaded.settings;
    assert_eq!(
        settings.wait_for_pods_ready,
        Some(WaitForPodsReady {
            timeout_ms: 1_800_000,
            recovery_timeout_ms: Some(1_800_000),
            block_admission: false,
            order_by_creation: false,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
        })
    );
    assert!(!settings.manage_jobs_without_queue_name && !settings.engine.ignore_undeclared);
    assert_eq!(settings.managed_namespaces.0[0].values, ["kube-system", "berth-system"]);
    assert_eq!(settings.max_unacknowledged, 256);
}

#[test]
fn v1beta1_configuration_waits_for_pods_ready_only_when_enabled() {
    assert_eq!(read(V1).unwrap().settings.wait_for_pods_ready, None);
    let on = read(&format!("{V1}waitForPodsReady:\n  enable: true\n")).unwrap().settings.wait_for_pods_ready.unwrap();
    assert_eq!((on.timeout_ms, on.block_admission, on.recovery_timeout_ms), (300_000, true, None));
    let off = read(&format!("{V1}waitForPodsReady:\n  enable: false\n  timeout: 1m\n")).unwrap();
    assert_eq!(off.settings.wait_for_pods_ready, None);
}

#[test]
fn full_configuration_file_reaches_the_settings() {
    let loaded = body(
        "namespace: jobs-system
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, jobs-system]}
  - {key: team, operator: Exists}
waitForPodsReady:
  timeout: 1m30s
  recoveryTimeout: 0s
  blockAdmission: true
  requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3, backoffBaseSeconds: 1, backoffMaxSeconds: 5}
clientConnection: {qps: -1, burst: 7}
integrations:
  frameworks: [batch/job]
  labelKeysToCopy: [b, a]
resources:
  excludeResourcePrefixes: [networking.example.com/]
objectRetentionPolicies:
  workloads: {afterFinished: 1h, afterDeactivatedByKueue: 0s}
leaderElection:
  leaderElect: true
  resourceName: other
metrics:
  bindAddress: 127.0.0.1:9
health:
  healthProbeBindAddress: \"0\"
",
    )
    .unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!((loaded.qps, loaded.burst, loaded.namespace.as_str()), (None, 7.0, "jobs-system"));
    assert_eq!((loaded.metrics_address.as_str(), loaded.health_address.as_str()), ("127.0.0.1:9", "0"));
    assert_eq!(loaded.election.unwrap().name, "other");
    let settings = loaded.settings;
    let wait = settings.wait_for_pods_ready.unwrap();
    assert_eq!((wait.timeout_ms, wait.recovery_timeout_ms, wait.backoff_limit_count), (90_000, None, Some(3)));
    assert!(wait.block_admission && wait.order_by_creation);
    assert_eq!(settings.managed_namespaces.0.len(), 2);
    assert_eq!(settings.label_keys_to_copy.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((settings.retain_finished_ms, settings.retain_deactivated_ms), (Some(3_600_000), Some(0)));
}

#[test]
fn unknown_configuration_key_is_refused_with_its_line() {
    refused("manageJobsWithoutQueueNames: true\n", &["line 3", "manageJobsWithoutQueueNames"]);
    refused("health:\n  healthProbeBindAdress: x\n", &["line 4", "healthProbeBindAdress"]);
    refused("multiKueue:\n  gcInterval: 1m\n  workerLost: 3m\n", &["line 5", "workerLost"]);
    refused("waitForPodsReady:\n  enable: true\n", &["line 4", "waitForPodsReady.enable", "v1beta2"]);
    let error = read(&format!("{V1}\nvisibilityServer:\n  bindPort: 1\n")).unwrap_err();
    assert!(error.contains("line 5") || error.contains("line 4"), "{error}");
    assert!(error.contains("visibilityServer") && error.contains("v1beta1"), "{error}");
}

#[test]
fn resource_transformations_are_read_from_the_configuration() {
    let rule = "{input: a, strategy: Replace, multiplyBy: n, outputs: {b: 1, c: 0.5, d: 10m}}";
    let loaded = body(&format!("resources: {{transformations: [{rule}, {{input: e}}]}}\n")).unwrap();
    let outputs = [("b", "1"), ("c", "500m"), ("d", "10m")];
    let expected = [
        berth_jobs::Transformation::new("a", Some("n"), outputs, false).unwrap(),
        berth_jobs::Transformation::new("e", None, [], true).unwrap(),
    ];
    assert_eq!(loaded.settings.transformations, expected);
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn accelerator_resource_and_label_come_from_the_flags() {
    assert_eq!(read("").unwrap().settings.accelerators, Accelerators::default());
    let accelerators = Accelerators { resource: "amd.com/gpu".into(), type_label: "amd.com/gpu.product-name".into() };
    let reported = Given { accelerators: accelerators.clone(), ..given() };
    assert_eq!(load("", &reported).unwrap().settings.accelerators, accelerators);
}

#[test]
fn reclaim_taints_of_flags_extend_the_built_in_ones() {
    let known = read("").unwrap().settings.reclaim_taints;
    assert_eq!(known, berth_control::settings::Settings::default().reclaim_taints);
    let reported = Given { reclaim_taints: vec!["karpenter.sh/disrupted".to_owned()], ..given() };
    let all = load("", &reported).unwrap().settings.reclaim_taints;
    assert!(all.is_superset(&known), "{all:?}");
    assert_eq!(all.difference(&known).collect::<Vec<_>>(), ["karpenter.sh/disrupted"]);
}

#[test]
fn invalid_configuration_value_names_field_and_allowed_values() {
    refused("waitForPodsReady:\n  timeout: 5\n", &["line 4"]);
    refused("waitForPodsReady:\n  timeout: five\n", &["line 4", "five"]);
    refused("waitForPodsReady:\n  timeout: -5s\n", &["line 4: ", "waitForPodsReady.timeout", "negative"]);
    refused(
        "waitForPodsReady:\n  blockAdmission: true\n  requeuingStrategy:\n    backoffMaxSeconds: -1\n",
        &["line 6: ", "waitForPodsReady.requeuingStrategy.backoffMaxSeconds is -1"],
    );
    refused(
        "waitForPodsReady: {requeuingStrategy: {timestamp: Later}}\n",
        &["line 3: ", "timestamp", "Later", "Creation"],
    );
    refused(
        "objectRetentionPolicies:\n  workloads:\n    afterFinished: -1s\n",
        &["line 5: ", "objectRetentionPolicies.workloads.afterFinished is negative"],
    );
    refused("leaderElection: {leaseDuration: 5s}\n", &["line 3: ", "leaseDuration"]);
    refused(
        "leaderElection: {leaseDuration: 1s, renewDeadline: 800ms, retryPeriod: 200ms}\n",
        &["line 3: ", "leaseDuration", "3s"],
    );
    refused(
        "leaderElection:\n  leaderElect: true\n  leaseDuration: 15900ms\n",
        &["line 5: ", "leaseDuration", "whole seconds"],
    );
    refused("leaderElection: {retryPeriod: 9s}\n", &["line 3: ", "leaderElection: renewDeadline", "retryPeriod"]);
    refused(
        "health:\n  livenessEndpointName: /probe\n  readinessEndpointName: probe\n",
        &["line 5: ", "probe", "must differ"],
    );
    refused("health: {readinessEndpointName: ':a'}\n", &["line 3: ", "health.readinessEndpointName", "`:a`"]);
    refused("health: {livenessEndpointName: 'a/{b}'}\n", &["line 3: ", "health.livenessEndpointName"]);
    refused("leaderElection: {resourceLock: endpoints}\n", &["line 3: ", "endpoints", "leases"]);
    refused("integrations:\n  frameworks: [batch/jobs]\n", &["line 4", "batch/jobs", "batch/job"]);
    refused("resources: {quotaCheckStrategy: Never}\n", &["line 3: ", "Never", "BlockUndeclared"]);
    refused(
        "resources:\n  excludeResourcePrefixes: [a]\n  quotaCheckStrategy: IgnoreUndeclared\n",
        &["line 5: ", "excludeResourcePrefixes"],
    );
    for (rule, words) in [
        ("strategy: Replace", "line 5: resources.transformations[0].input is missing"),
        (
            "input: a\n    strategy: Drop",
            "line 6: resources.transformations[0].strategy is `Drop`; allowed are Retain, Replace",
        ),
        (
            "input: a\n    outputs:\n      c: 1\n      b.io/c: [1]",
            "line 8: resources.transformations[0].outputs of b.io/c is `[1]`",
        ),
        ("input: a\n    outputs: {b: much}", "line 6: resources.transformations[0].outputs"),
        ("input: a\n  - input: b\n  - input: a", "line 7: resources.transformations[2].input is `a`"),
    ] {
        refused(&format!("resources:\n  transformations:\n  - {rule}\n"), &[words]);
    }
    refused(
        "managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}\n",
        &["line 3: ", "managedJobsNamespaceSelector", "kube-system"],
    );
    refused(
        "managedJobsNamespaceSelector:\n  matchExpressions:\n  - {key: b, operator: Exists}\n  - {key: a, operator: Is, values: [b]}\n",
        &["line 6: ", "managedJobsNamespaceSelector: matchExpressions[1].operator", "Is", "NotIn"],
    );
    refused(
        "managedJobsNamespaceSelector:\n  matchExpressions:\n  - {key: b, operator: In}\n",
        &["line 5: ", "managedJobsNamespaceSelector: matchExpressions[0]: operator In of `b` needs values"],
    );
    refused("featureGates:\n  PartialAdmission: true\n  Nonsense: true\n", &["line 5: ", "Nonsense"]);
    refused("namespace: a\nnamespace: b\n", &["line 4"]);
    assert!(read("kind: Configuration\n").unwrap_err().contains("apiVersion"));
    let error = read("apiVersion: config.kueue.x-k8s.io/v1\nkind: Configuration\n").unwrap_err();
    assert!(error.starts_with("line 1: apiVersion") && error.contains("v1beta2"), "{error}");
    let error = read("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Config\n").unwrap_err();
    assert!(error.starts_with("line 2: kind"), "{error}");
}

#[test]
fn webhook_address_and_certificate_folder_follow_the_configuration() {
    let plain = body("").unwrap().webhook;
    assert_eq!((plain.address.as_str(), plain.folder), (":9443", None));
    let text = "webhook:\n  port: 1234\n  host: \"::1\"\n  certDir: /certs\ninternalCertManagement:\n  \
                webhookServiceName: s\n  webhookSecretName: t\n";
    let given = body(text).unwrap();
    let warned = |loaded: &Loaded, parts: &[&str]| {
        loaded.warnings.iter().any(|warning| parts.iter().all(|part| warning.contains(part)))
    };
    assert_eq!(given.warnings.len(), 2, "{:?}", given.warnings);
    assert!(warned(
        &given,
        &["internalCertManagement.webhookServiceName is `s`", "not used", "`berth-webhook-service`"]
    ));
    assert!(warned(&given, &["webhookSecretName is `t`", "not used", "`berth-webhook-server-cert`"]));
    assert_eq!((given.webhook.address.as_str(), given.webhook.folder), ("[::1]:1234", None));
    let external = body(&format!("{text}  enable: false\n")).unwrap();
    assert!(warned(&external, &["webhookSecretName is `t`", "read from webhook.certDir"]), "{:?}", external.warnings);
    assert_eq!(external.webhook.folder.as_deref(), Some("/certs"));
    let ours = "{webhookServiceName: berth-webhook-service, webhookSecretName: berth-webhook-server-cert}";
    assert_eq!(body(&format!("internalCertManagement: {ours}\n")).unwrap().warnings, Vec::<String>::new());
    let kueues = "{webhookServiceName: kueue-webhook-service, webhookSecretName: kueue-webhook-server-cert}";
    let kueues =
        format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\ninternalCertManagement: {kueues}\n");
    for (names, warnings) in [(ObjectNames::Berth, 2), (ObjectNames::Kueue, 0)] {
        let loaded = load(&kueues, &Given { names, home: "berth-system".into(), ..Given::default() }).unwrap();
        assert_eq!(loaded.warnings.len(), warnings, "{:?}", loaded.warnings);
    }
    refused("webhook:\n  port: 70000\n", &["line 4: ", "webhook.port", "65535"]);
}

#[test]
fn configuration_field_without_effect_causes_a_warning() {
    let loaded = body("controller:\n  cacheSyncTimeout: 1m\ntls:\n  minVersion: VersionTLS12\n").unwrap();
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].contains("`controller`") && loaded.warnings[1].contains("`tls`"));
    for missing in FRAMEWORKS.into_iter().filter(|name| Kind::of_framework(name).is_none()) {
        let loaded = body(&format!("integrations:\n  frameworks:\n  - batch/job\n  - {missing}\n")).unwrap();
        assert!(loaded.warnings[0].starts_with("line 6") && loaded.warnings[0].contains(missing));
        assert_eq!(loaded.settings.job_kinds.into_iter().collect::<Vec<_>>(), [Kind::JOB]);
    }
    let loaded = body("integrations: {frameworks: [deployment]}\n").unwrap();
    let kinds: Vec<Kind> = loaded.settings.job_kinds.into_iter().collect();
    assert_eq!(kinds, [Kind::Pod, Kind::Deployment], "it is admitted through its pods");
    assert!(!body("").unwrap().settings.job_kinds.contains(&Kind::Pod), "only where it is named");
    let loaded = body("integrations: {frameworks: [jobset.x-k8s.io/jobset]}\n").unwrap();
    assert_eq!(loaded.settings.job_kinds.into_iter().collect::<Vec<_>>(), [Kind::JOB_SET]);
    assert_eq!(body("").unwrap().settings.job_kinds.len(), Kind::jobs().count(), "all, where none is named");
    let loaded = body("featureGates: {VisibilityOnDemand: false}\n").unwrap();
    assert!(loaded.warnings[0].contains("VisibilityOnDemand"), "{:?}", loaded.warnings);
}

#[test]
fn fair_sharing_and_gates_of_configuration_reach_the_engine() {
    let plain = body("").unwrap().settings.engine;
    assert!(plain.fair_sharing.is_none() && plain.partial_admission && plain.gates == berth_engine::Gates::default());
    let loaded =
        body("fairSharing:\n  preemptionStrategies: [LessThanInitialShare]\nfeatureGates: {PartialAdmission: false}\n")
            .unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let strategies = loaded.settings.engine.fair_sharing.unwrap().strategies;
    assert_eq!(strategies, [berth_engine::ShareStrategy::LessThanInitialShare]);
    assert!(!loaded.settings.engine.partial_admission);
    let alone = body("featureGates: {SchedulingEquivalenceHashing: false}\n").unwrap();
    assert!(alone.warnings.is_empty() && !alone.settings.engine.gates.park_equals, "{:?}", alone.warnings);
    refused("fairSharing:\n  preemptionStrategies: [Most]\n", &["line 4: ", "Most", "LessThanInitialShare"]);
    refused(
        "fairSharing:\n  preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]\n",
        &["line 4: ", "preemptionStrategies"],
    );
}

#[test]
fn queue_metrics_are_switched_by_the_configuration() {
    let figures = |text: &str| {
        let settings = body(text).unwrap().settings;
        (settings.queue_resource_metrics, settings.local_queue_metrics)
    };
    assert_eq!(figures(""), (false, true), "as Kueue has it");
    assert_eq!(figures("metrics: {enableClusterQueueResources: true}"), (true, true));
    assert_eq!(figures("metrics: {enableClusterQueueResources: false}"), (false, true));
    assert_eq!(figures("metrics: {localQueueMetrics: {enable: true}}"), (false, true));
    assert_eq!(figures("metrics: {localQueueMetrics: {enable: false}}"), (false, false));
    assert_eq!(
        figures("metrics: {localQueueMetrics: {}}"),
        (false, false),
        "a block that says nothing asks for nothing"
    );
    assert_eq!(
        figures("featureGates: {LocalQueueMetrics: false}\nmetrics: {localQueueMetrics: {enable: true}}"),
        (false, false)
    );
}

#[test]
fn admission_fair_sharing_configuration_reaches_the_engine() {
    let text = "admissionFairSharing:\n  usageHalfLifeTime: 2h\n  resourceWeights: {cpu: 2, memory: 0}\n";
    let loaded = body(text).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let sharing = loaded.settings.engine.admission_fair_sharing.unwrap();
    assert_eq!((sharing.half_life, sharing.sampling_interval), (7_200_000, 300_000));
    assert_eq!(sharing.weights, BTreeMap::from([("cpu".to_owned(), 2.0), ("memory".to_owned(), 0.0)]));
    let off = body(&format!("{text}featureGates: {{AdmissionFairSharing: false}}\n")).unwrap();
    assert!(off.settings.engine.admission_fair_sharing.is_none());
    for (text, parts) in [
        ("usageHalfLifeTime: -1s", ["line 4: ", "usageHalfLifeTime", "0s or more"]),
        ("usageSamplingInterval: -1s", ["line 4: ", "usageSamplingInterval", "at least"]),
        ("resourceWeights: {a.io/b: 1,\n    cpu: -1}", ["line 5: ", "resourceWeights.cpu", "-1"]),
    ] {
        refused(&format!("admissionFairSharing:\n  {text}\n"), &parts);
    }
}

#[test]
fn flags_override_configuration_and_gates_in_both_are_refused() {
    let off = body("featureGates: {DisableWaitForPodsReady: true}\n").unwrap();
    assert_eq!((off.settings.wait_for_pods_ready, off.warnings.len()), (None, 0));
    let both = Given { feature_gates: Some(BTreeMap::new()), ..given() };
    let text = format!("{V2}featureGates: {{DisableWaitForPodsReady: true}}\n");
    assert!(load(&text, &both).unwrap_err().contains("exclude each other"));
    let alone = Given { leader_elect: Some(false), namespace: Some("flag".into()), ..given() };
    let loaded = load(&format!("{V2}namespace: file\n"), &alone).unwrap();
    assert_eq!((loaded.election, loaded.namespace.as_str()), (None, "flag"));
    let lease = Given { lease_namespace: Some("kueue-system".into()), lease_name: Some("mine".into()), ..given() };
    let text =
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nleaderElection: {resourceName: other}\n";
    let loaded = load(text, &lease).unwrap();
    let election = loaded.election.unwrap();
    assert_eq!((election.namespace.as_str(), election.name.as_str()), ("kueue-system", "mine"));
    let reported = "leaderElection.resourceName is `other` and --leader-elect-resource-name is `mine`, which holds: beside a Kueue that \
                goes by this file both would act";
    assert_eq!(loaded.warnings, [reported]);
    let same = Given { lease_name: Some("other".into()), ..given() };
    assert_eq!(load(text, &same).unwrap().warnings, Vec::<String>::new());
}

#[test]
fn transformation_output_with_excluded_prefix_causes_a_warning() {
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nresources:\n  excludeResourcePrefixes: [example.com/]\n  \
                transformations: [{input: a.com/card, outputs: {example.com/memory: 1Gi, gpu: 1}}]\n";
    let warnings = load(text, &Given::default()).unwrap().warnings;
    let named: Vec<&String> = warnings.iter().filter(|warning| warning.contains("example.com/memory")).collect();
    assert!(matches!(named.as_slice(), [one] if one.contains("`a.com/card`")), "{warnings:?}");
}

#[test]
fn unreadable_local_queue_selector_is_refused_with_its_line() {
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmetrics:\n  localQueueMetrics:\n    \
                localQueueSelector: {matchExpressions: [{key: a, operator: Near}]}\n";
    let error = load(text, &Given::default()).unwrap_err();
    assert!(
        error.starts_with("line 5: ") && error.contains(": metrics.localQueueMetrics.localQueueSelector: "),
        "{error}"
    );
    assert!(error.contains("`Near`"), "{error}");
}
