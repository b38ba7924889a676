//! Strict decoding of Kueue's configuration file: an unknown key is an error with its line, a setting that has no effect yet is a warning that names
//! the setting, and everything else becomes Berth's settings.

use crate::document::{self, Header, Marked};
use crate::duration::GoDuration;
use crate::election::{self, Election};
use crate::fault::Fault;
use crate::gates::Gates;
use crate::given::Given;
use crate::schema::{self, Configuration};
use crate::webhook::{self, Webhook};
use crate::{addresses, namespaces, transformations};
use berth_api::node::RECLAIM_TAINTS;
use berth_control::settings::{Settings, WaitForPodsReady};
use berth_control::write::Kind;
use berth_engine::{AdmissionFairSharing, FairSharing, Gates as EngineGates, Options, Profile, ShareStrategy};
use std::collections::BTreeSet;

/// Content of a configuration file, after defaults were filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Control's settings.
    pub settings: Settings,
    /// Leader election; `None` if it is off.
    pub election: Option<Election>,
    /// `metrics.bindAddress`.
    pub metrics_address: String,
    /// The value of `health.healthProbeBindAddress`.
    pub health_address: String,
    /// The value of `health.readinessEndpointName`.
    pub readiness_path: String,
    /// The value of `health.livenessEndpointName`.
    pub liveness_path: String,
    /// `clientConnection.qps`; `None` is unlimited.
    pub qps: Option<f64>,
    /// `clientConnection.burst`.
    pub burst: f64,
    /// Namespace of the manager.
    pub namespace: String,
    /// The settings of the blocks `webhook` and `internalCertManagement`.
    pub webhook: Webhook,
    /// Warnings about settings that have no effect yet, one sentence for each.
    pub warnings: Vec<String>,
}

/// Version of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1Beta1,
    V1Beta2,
}

const GROUP: &str = "config.kueue.x-k8s.io";

/// Frameworks that Kueue knows.
const FRAMEWORKS: [&str; 18] = [
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "trainer.kubeflow.org/trainjob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
];

/// Reads a configuration file; an empty text gives the defaults.
///
/// # Errors
/// Fails if the configuration file is invalid; the error is one sentence with the line, the field, the value and what is allowed.
pub fn load(text: &str, given: &Given) -> Result<Loaded, String> {
    checked(text, given).map_err(|fault| fault.with_line(text))
}

fn checked(text: &str, given: &Given) -> Result<Loaded, Fault> {
    let (version, file) = parse(text)?;
    check_version(version, &file)?;
    let namespace = given
        .namespace
        .clone()
        .or_else(|| file.namespace.clone().filter(|name| !name.is_empty()))
        .unwrap_or_else(|| given.home.clone());
    if given.feature_gates.is_some() && !file.feature_gates.is_empty() {
        return Err(Fault::of("featureGates", "featureGates in the file and --feature-gates exclude each other"));
    }
    let gates = match &given.feature_gates {
        Some(by_flag) => Gates::with(by_flag).map_err(|bad| bad.text)?,
        None => {
            Gates::with(&file.feature_gates).map_err(|bad| Fault::of(format!("featureGates.{}", bad.name), bad.text))?
        }
    };
    let mut warnings = unsupported(&file);
    warnings.extend(webhook::unused_names(&file.internal_cert_management, given.names));
    warnings.extend(gates.warnings());
    warnings.extend(election::overruled(&file.leader_election, given));
    let webhook = Webhook::of(&file, &gates)?;
    warnings.extend(addresses::overruled(&file, &webhook.address, &given.addresses));
    let (job_kinds, unsupported) = frameworks(&file)?;
    warnings.extend(unsupported);
    let ignore_undeclared = quota_check(&file.resources, &gates)?;
    let transformations = transformations::read(&file.resources.transformations)?;
    warnings.extend(transformations::excluded(&transformations, &file.resources.exclude_resource_prefixes));
    let metrics = &file.metrics;
    if let Some(block) = &metrics.local_queue_metrics
        && let Some(selector) = &block.value.local_queue_selector
    {
        namespaces::read(selector, "metrics.localQueueMetrics.localQueueSelector")?;
    }
    let reclaim_taints = RECLAIM_TAINTS.map(str::to_owned).into_iter().chain(given.reclaim_taints.iter().cloned());
    let settings = Settings {
        manage_jobs_without_queue_name: file.manage_jobs_without_queue_name,
        managed_namespaces: namespaces::managed(&file, &namespace)?,
        job_kinds,
        label_keys_to_copy: file.integrations.label_keys_to_copy.iter().cloned().collect(),
        wait_for_pods_ready: if gates.on("DisableWaitForPodsReady") { None } else { pods_ready(version, &file)? },
        exclude_resource_prefixes: file.resources.exclude_resource_prefixes.clone(),
        transformations,
        accelerators: given.accelerators.clone(),
        reclaim_taints: reclaim_taints.collect(),
        engine: engine_options(&file, &gates, ignore_undeclared)?,
        local_queue_metrics: gates.on("LocalQueueMetrics")
            && metrics.local_queue_metrics.as_ref().is_none_or(|block| block.value.enable.unwrap_or(false)),
        cohort_metrics: gates.on("MetricsForCohorts"),
        queue_resource_metrics: metrics.enable_cluster_queue_resources.as_ref().is_some_and(|on| on.value),
        admission_gates: gates.on("AdmissionGatedBy"),
        preemption_gates: gates.on("MultiKueueOrchestratedPreemption"),
        observe_unadmitted: gates.on("UnadmittedWorkloadsObservability"),
        creation_latency_metric: gates.on("MetricForWorkloadCreationLatency"),
        priority_boost: gates.on("PriorityBoost"),
        reclaimable_pods: gates.on("ReclaimablePods"),
        cleanup_provisioning_requests: gates.on("CleanupProvisioningRequestsOnEviction"),
        retain_finished_ms: retention("afterFinished", file.object_retention_policies.workloads.after_finished)?,
        retain_deactivated_ms: retention(
            "afterDeactivatedByKueue",
            file.object_retention_policies.workloads.after_deactivated_by_kueue,
        )?,
        ..Settings::default()
    };
    let qps = file.client_connection.qps.filter(|qps| *qps != 0.0).unwrap_or(300.0);
    let endpoint = |given: &Option<String>, default: &str| {
        given.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
    };
    let readiness_path = endpoint(&file.health.readiness_endpoint_name, "readyz");
    let liveness_path = endpoint(&file.health.liveness_endpoint_name, "healthz");
    probe_paths(&readiness_path, &liveness_path)?;
    let counts_pods = settings.job_kinds.contains(&Kind::Pod);
    Ok(Loaded {
        settings,
        election: election::election(&file.leader_election, given, &namespace, counts_pods)?,
        metrics_address: endpoint(&file.metrics.bind_address, ":8443"),
        health_address: endpoint(&file.health.health_probe_bind_address, ":8081"),
        readiness_path,
        liveness_path,
        qps: (qps > 0.0).then_some(qps),
        burst: f64::from(file.client_connection.burst.filter(|burst| *burst > 0).unwrap_or(500)),
        namespace,
        webhook,
        warnings,
    })
}

fn parse(text: &str) -> Result<(Version, Configuration), Fault> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok((Version::V1Beta2, Configuration::default()));
    }
    let header: Header = document::parse(text)?;
    let allowed = format!("allowed is {GROUP}/v1beta1 or {GROUP}/v1beta2 with kind Configuration");
    let version = match header.api_version.as_deref().and_then(|text| text.split_once('/')) {
        Some((GROUP, "v1beta1")) => Version::V1Beta1,
        Some((GROUP, "v1beta2")) => Version::V1Beta2,
        _ => {
            let text = format!("apiVersion is {:?}; {allowed}", header.api_version.unwrap_or_default());
            return Err(Fault::of("apiVersion", text));
        }
    };
    if header.kind.as_deref() != Some("Configuration") {
        return Err(Fault::of("kind", format!("kind is {:?}; {allowed}", header.kind.unwrap_or_default())));
    }
    Ok((version, document::parse(text)?))
}

fn line<T>(marked: &Marked<T>) -> Option<u64> {
    marked.as_ref().map(|value| value.referenced.line())
}

/// Refuses keys that exist only in the other version of the configuration file.
fn check_version(version: Version, file: &Configuration) -> Result<(), String> {
    let labels = file.metrics.custom_labels.iter().flat_map(|labels| &labels.value);
    let mappings = file.resources.device_class_mappings.iter().flat_map(|mappings| &mappings.value);
    let multi_kueue = file.multi_kueue.as_ref().map(|block| &block.value);
    let mut newer = vec![
        ("visibilityServer", line(&file.visibility_server)),
        ("resources.quotaCheckStrategy", line(&file.resources.quota_check_strategy)),
        ("multiKueue.clusterProfile", multi_kueue.and_then(|block| line(&block.cluster_profile))),
        (
            "multiKueue.incrementalDispatcherConfig",
            multi_kueue.and_then(|block| line(&block.incremental_dispatcher_config)),
        ),
    ];
    for label in labels {
        newer.push(("metrics.customLabels.sourceKind", line(&label.source_kind)));
        newer.push(("metrics.customLabels.trackedValues", line(&label.tracked_values)));
    }
    for mapping in mappings {
        newer.push(("resources.deviceClassMappings.sources", line(&mapping.sources)));
    }
    let older = vec![
        ("queueVisibility", line(&file.queue_visibility)),
        ("integrations.podOptions", line(&file.integrations.pod_options)),
        ("waitForPodsReady.enable", file.wait_for_pods_ready.as_ref().and_then(|block| line(&block.enable))),
        ("fairSharing.enable", file.fair_sharing.as_ref().and_then(|block| line(&block.value.enable))),
    ];
    let (foreign, name) = match version {
        Version::V1Beta1 => (newer, "v1beta1"),
        Version::V1Beta2 => (older, "v1beta2"),
    };
    match foreign.into_iter().find_map(|(key, line)| Some((key, line?))) {
        Some((key, line)) => Err(format!("line {line}: unknown field `{key}` in version {name}")),
        None => Ok(()),
    }
}

/// Warnings about blocks that have no effect yet, one sentence for each.
fn unsupported(file: &Configuration) -> Vec<String> {
    let metrics = &file.metrics;
    let resources = &file.resources;
    let selector = metrics.local_queue_metrics.as_ref().filter(|block| block.value.local_queue_selector.is_some());
    let blocks = [
        ("pprofBindAddress", line(&file.pprof_bind_address)),
        ("controller", line(&file.controller)),
        ("tls", line(&file.tls)),
        ("metrics.customLabels", line(&metrics.custom_labels)),
        ("metrics.localQueueMetrics.localQueueSelector", selector.map(|block| block.referenced.line())),
        ("multiKueue", line(&file.multi_kueue)),
        ("resources.deviceClassMappings", line(&resources.device_class_mappings)),
        ("integrations.externalFrameworks", line(&file.integrations.external_frameworks)),
        ("integrations.podOptions", line(&file.integrations.pod_options)),
        ("visibilityServer", line(&file.visibility_server)),
        ("queueVisibility", line(&file.queue_visibility)),
    ];
    blocks
        .into_iter()
        .filter_map(|(key, line)| Some(format!("line {}: `{key}` is not supported yet and has no effect", line?)))
        .collect()
}

/// The settings of the configuration file that change the engine's decisions.
fn engine_options(file: &Configuration, gates: &Gates, ignore_undeclared: bool) -> Result<Options, Fault> {
    let block = file.fair_sharing.as_ref();
    let fair = block.filter(|block| block.value.enable.as_ref().is_none_or(|enable| enable.value));
    let fair_sharing = fair.map(|block| share_strategies(&block.value)).transpose()?;
    Ok(Options {
        admission_fair_sharing: admission_sharing(file)?.filter(|_| gates.on("AdmissionFairSharing")),
        ignore_undeclared,
        fair_sharing,
        partial_admission: gates.on("PartialAdmission"),
        gates: EngineGates::named(|name| gates.of_engine(name)),
        profile: Profile::Berth,
    })
}

/// The settings of `admissionFairSharing`: if the block is present, admission fair sharing is on.
fn admission_sharing(file: &Configuration) -> Result<Option<AdmissionFairSharing>, Fault> {
    let Some(block) = &file.admission_fair_sharing else { return Ok(None) };
    let half_life = block.value.usage_half_life_time.unwrap_or(GoDuration::seconds(0));
    let interval = GoDuration::non_zero(block.value.usage_sampling_interval).unwrap_or(GoDuration::minutes(5));
    let weights = &block.value.resource_weights;
    if half_life.is_negative() {
        let field = "admissionFairSharing.usageHalfLifeTime";
        return Err(Fault::of(field, format!("{field} is negative; allowed is 0s or more")));
    }
    if interval.millis() <= 0 {
        let field = "admissionFairSharing.usageSamplingInterval";
        return Err(Fault::of(field, format!("{field} must be at least 1ms")));
    }
    if let Some((resource, weight)) = weights.iter().find(|(_, weight)| !weight.is_finite() || **weight < 0.0) {
        let field = format!("admissionFairSharing.resourceWeights.{resource}");
        let text = format!("{field} is {weight}; allowed is 0 or more");
        return Err(Fault::of(field, text));
    }
    Ok(Some(AdmissionFairSharing {
        half_life: half_life.millis(),
        sampling_interval: interval.millis(),
        weights: weights.clone(),
    }))
}

/// The preemption strategies of fair sharing: like Kueue, Berth allows both strategies or one of them alone; an absent list means both.
fn share_strategies(block: &schema::FairSharing) -> Result<FairSharing, Fault> {
    let field = "fairSharing.preemptionStrategies";
    let names = block.preemption_strategies.iter().flatten().enumerate();
    let strategies = names
        .map(|(index, name)| {
            let fault = |error: String| Fault::of(format!("{field}[{index}]"), format!("{field}: {error}"));
            name.parse::<ShareStrategy>().map_err(fault)
        })
        .collect::<Result<Vec<ShareStrategy>, Fault>>()?;
    if strategies.len() > 1
        && strategies != [ShareStrategy::LessThanOrEqualToFinalShare, ShareStrategy::LessThanInitialShare]
    {
        let allowed = "the only list of two is LessThanOrEqualToFinalShare, LessThanInitialShare";
        return Err(Fault::of(field, format!("{field}: {allowed}")));
    }
    Ok(FairSharing { strategies })
}

/// The job kinds that Berth manages, with warnings; all kinds if the configuration file lists none.
fn frameworks(file: &Configuration) -> Result<(BTreeSet<Kind>, Vec<String>), String> {
    let Some(named) = &file.integrations.frameworks else { return Ok((Kind::jobs().collect(), Vec::new())) };
    let mut kinds = BTreeSet::new();
    let mut warnings = Vec::new();
    for framework in named {
        let (name, line) = (&framework.value, framework.referenced.line());
        if !FRAMEWORKS.contains(&name.as_str()) {
            return Err(format!(
                "line {line}: integrations.frameworks: unknown framework `{name}`; known are {}",
                FRAMEWORKS.join(", ")
            ));
        }
        match Kind::of_framework(name) {
            Some(kind) => drop(kinds.insert(kind)),
            None => warnings.push(format!(
                "line {line}: integrations.frameworks: `{name}` is not supported yet, its jobs are left alone"
            )),
        }
    }
    if kinds.contains(&Kind::Deployment) || kinds.contains(&Kind::StatefulSet) {
        // Deployments and StatefulSets are admitted through their pods, so the kind Pod is managed, too.
        kinds.insert(Kind::Pod);
    }
    Ok((kinds, warnings))
}

fn quota_check(resources: &schema::Resources, gates: &Gates) -> Result<bool, Fault> {
    let Some(strategy) = &resources.quota_check_strategy else { return Ok(false) };
    let field = "resources.quotaCheckStrategy";
    match strategy.value.as_str() {
        "" | "BlockUndeclared" => Ok(false),
        "IgnoreUndeclared" if !resources.exclude_resource_prefixes.is_empty() => {
            let other = "IgnoreUndeclared and resources.excludeResourcePrefixes exclude each other";
            Err(Fault::of(field, format!("{field}: {other}")))
        }
        "IgnoreUndeclared" => Ok(gates.on("QuotaCheckStrategy")),
        other => {
            let text = format!("{field} is `{other}`; allowed are BlockUndeclared, IgnoreUndeclared");
            Err(Fault::of(field, text))
        }
    }
}

fn retention(field: &str, value: Option<GoDuration>) -> Result<Option<i64>, Fault> {
    match value {
        Some(value) if value.is_negative() => {
            let field = format!("objectRetentionPolicies.workloads.{field}");
            let text = format!("{field} is negative; allowed is 0s or more");
            Err(Fault::of(field, text))
        }
        value => Ok(value.map(GoDuration::millis)),
    }
}

fn pods_ready(version: Version, file: &Configuration) -> Result<Option<WaitForPodsReady>, Fault> {
    let default = schema::WaitForPodsReady::default();
    let block = file.wait_for_pods_ready.as_ref().unwrap_or(&default);
    let old = version == Version::V1Beta1;
    if old && !block.enable.as_ref().is_some_and(|enable| enable.value) {
        return Ok(None);
    }
    let timeout = block.timeout.unwrap_or(GoDuration::minutes(if old { 5 } else { 30 }));
    // In v1beta1, `waitForPodsReady.recoveryTimeout` is off unless it is set; in v1beta2, it defaults to `waitForPodsReady.timeout`, and 0s switches it off.
    let recovery = if old { block.recovery_timeout } else { Some(block.recovery_timeout.unwrap_or(timeout)) };
    for (field, value) in [("timeout", Some(timeout)), ("recoveryTimeout", recovery)] {
        if value.is_some_and(GoDuration::is_negative) {
            let field = format!("waitForPodsReady.{field}");
            let text = format!("{field} is negative; allowed is 0s or more");
            return Err(Fault::of(field, text));
        }
    }
    let strategy = &block.requeuing_strategy;
    for (field, value) in [
        ("backoffLimitCount", strategy.backoff_limit_count),
        ("backoffBaseSeconds", strategy.backoff_base_seconds),
        ("backoffMaxSeconds", strategy.backoff_max_seconds),
    ] {
        if let Some(value) = value.filter(|value| *value < 0) {
            let field = format!("waitForPodsReady.requeuingStrategy.{field}");
            let text = format!("{field} is {value}; allowed is 0 or more");
            return Err(Fault::of(field, text));
        }
    }
    let order_by_creation = match strategy.timestamp.as_deref() {
        None | Some("" | "Eviction") => false,
        Some("Creation") => true,
        Some(other) => {
            let field = "waitForPodsReady.requeuingStrategy.timestamp";
            return Err(Fault::of(field, format!("{field} is `{other}`; allowed are Eviction, Creation")));
        }
    };
    Ok(Some(WaitForPodsReady {
        timeout_ms: timeout.millis(),
        recovery_timeout_ms: recovery.map(GoDuration::millis).filter(|millis| *millis > 0),
        block_admission: block.block_admission.unwrap_or(old),
        order_by_creation,
        backoff_limit_count: strategy.backoff_limit_count,
        backoff_base_seconds: i64::from(strategy.backoff_base_seconds.unwrap_or(60)),
        backoff_max_seconds: i64::from(strategy.backoff_max_seconds.unwrap_or(3600)),
    }))
}

/// Checks the paths of the probes: each is served exactly as it is written, next to the other.
fn probe_paths(readiness: &str, liveness: &str) -> Result<(), Fault> {
    for (field, path) in [("readinessEndpointName", readiness), ("livenessEndpointName", liveness)] {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let trimmed = path.trim_start_matches('/');
        if trimmed.is_empty() || trimmed.split('/').any(str::is_empty) || !path.chars().all(plain) {
            let field = format!("health.{field}");
            let allowed = "words of letters, digits, `-`, `_` and `.` with `/` between";
            let text = format!("{field} is `{path}`; allowed are {allowed}");
            return Err(Fault::of(field, text));
        }
    }
    if readiness.trim_start_matches('/') == liveness.trim_start_matches('/') {
        let text =
            format!("health.readinessEndpointName and livenessEndpointName are both `{liveness}`; they must differ");
        return Err(Fault::of("health.readinessEndpointName", text));
    }
    Ok(())
}

#[cfg(test)]
mod gates_tests;
#[cfg(test)]
mod kueue_tests;
#[cfg(test)]
mod tests;
