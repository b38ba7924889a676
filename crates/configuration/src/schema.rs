//! Types for Kueue's configuration file: both versions in one set of types, with every known key; any other key is an error with its line.
//!
//! Blocks that have no effect yet are decoded nevertheless, so that a typing error in them is found; they are [`Marked`] values, whose line the
//! warning names.

use crate::document::Marked;
use crate::duration::GoDuration;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Configuration {
    #[serde(rename = "apiVersion")]
    pub(crate) _api_version: Option<String>,
    #[serde(rename = "kind")]
    pub(crate) _kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) webhook: Webhook,
    pub(crate) leader_election: LeaderElection,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) pprof_bind_address: Marked<String>,
    pub(crate) controller: Marked<Controller>,
    pub(crate) tls: Marked<Tls>,
    pub(crate) manage_jobs_without_queue_name: bool,
    pub(crate) managed_jobs_namespace_selector: Option<LabelSelector>,
    pub(crate) internal_cert_management: InternalCertManagement,
    pub(crate) wait_for_pods_ready: Option<WaitForPodsReady>,
    pub(crate) client_connection: ClientConnection,
    pub(crate) integrations: Integrations,
    pub(crate) multi_kueue: Marked<MultiKueue>,
    pub(crate) fair_sharing: Marked<FairSharing>,
    pub(crate) admission_fair_sharing: Marked<AdmissionFairSharing>,
    pub(crate) resources: Resources,
    pub(crate) feature_gates: BTreeMap<String, bool>,
    pub(crate) object_retention_policies: ObjectRetentionPolicies,
    pub(crate) visibility_server: Marked<VisibilityServer>,
    pub(crate) queue_visibility: Marked<QueueVisibility>,
}

macro_rules! blocks {
    ($($name:ident { $($field:ident : $type:ty),* $(,)? })*) => {
        $(
            #[derive(Debug, Default, Deserialize)]
            #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }
        )*
    };
}

/// Defines types for blocks of the configuration file whose form is checked, but whose values have no effect.
macro_rules! unread {
    ($($name:ident { $($field:ident : $type:ty),* $(,)? })*) => {
        $(
            #[derive(Debug, Default, Deserialize)]
            #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
            #[allow(dead_code, reason = "read only so that unknown keys and wrong types are found")]
            pub(crate) struct $name {
                $($field: $type,)*
            }
        )*
    };
}

blocks! {
    Webhook {
        port: Option<i32>,
        host: Option<String>,
        cert_dir: Option<String>,
    }
    InternalCertManagement {
        enable: Option<bool>,
        webhook_service_name: Option<String>,
        webhook_secret_name: Option<String>,
    }
    LeaderElection {
        leader_elect: Option<bool>,
        lease_duration: Option<GoDuration>,
        renew_deadline: Option<GoDuration>,
        retry_period: Option<GoDuration>,
        resource_lock: Option<String>,
        resource_name: Option<String>,
        resource_namespace: Option<String>,
    }
    Metrics {
        bind_address: Option<String>,
        enable_cluster_queue_resources: Marked<bool>,
        custom_labels: Marked<Vec<CustomLabel>>,
        local_queue_metrics: Marked<LocalQueueMetrics>,
    }
    LocalQueueMetrics {
        enable: Option<bool>,
        local_queue_selector: Option<LabelSelector>,
    }
    CustomLabel {
        name: String,
        source_label_key: Option<String>,
        source_annotation_key: Option<String>,
        source_kind: Marked<String>,
        tracked_values: Marked<Vec<String>>,
    }
    Health {
        health_probe_bind_address: Option<String>,
        readiness_endpoint_name: Option<String>,
        liveness_endpoint_name: Option<String>,
    }
    LabelSelector {
        match_labels: BTreeMap<String, String>,
        match_expressions: Vec<LabelRequirement>,
    }
    LabelRequirement {
        key: String,
        operator: String,
        values: Vec<String>,
    }
    WaitForPodsReady {
        enable: Marked<bool>,
        timeout: Option<GoDuration>,
        block_admission: Option<bool>,
        recovery_timeout: Option<GoDuration>,
        requeuing_strategy: RequeuingStrategy,
    }
    RequeuingStrategy {
        timestamp: Option<String>,
        backoff_limit_count: Option<i32>,
        backoff_base_seconds: Option<i32>,
        backoff_max_seconds: Option<i32>,
    }
    ClientConnection {
        qps: Option<f64>,
        burst: Option<i32>,
    }
    Integrations {
        frameworks: Option<Vec<Spanned<String>>>,
        external_frameworks: Marked<Vec<String>>,
        label_keys_to_copy: Vec<String>,
        pod_options: Marked<PodOptions>,
    }
    MultiKueue {
        gc_interval: Option<GoDuration>,
        origin: Option<String>,
        worker_lost_timeout: Option<GoDuration>,
        dispatcher_name: Option<String>,
        external_frameworks: Vec<NamedFramework>,
        cluster_profile: Marked<ClusterProfile>,
        incremental_dispatcher_config: Marked<IncrementalDispatcher>,
    }
    AdmissionFairSharing {
        usage_half_life_time: Option<GoDuration>,
        usage_sampling_interval: Option<GoDuration>,
        resource_weights: BTreeMap<String, f64>,
    }
    FairSharing {
        enable: Marked<bool>,
        preemption_strategies: Option<Vec<String>>,
    }
    Resources {
        quota_check_strategy: Marked<String>,
        exclude_resource_prefixes: Vec<String>,
        transformations: Marked<Vec<Transformation>>,
        device_class_mappings: Marked<Vec<DeviceClassMapping>>,
    }
    Transformation {
        input: String,
        strategy: Option<String>,
        multiply_by: Option<String>,
        outputs: BTreeMap<String, serde_json::Value>,
    }
    DeviceClassMapping {
        name: String,
        device_class_names: Vec<String>,
        sources: Marked<Vec<DeviceSource>>,
    }
    ObjectRetentionPolicies {
        workloads: RetainWorkloads,
    }
    RetainWorkloads {
        after_finished: Option<GoDuration>,
        after_deactivated_by_kueue: Option<GoDuration>,
    }
}

unread! {
    Controller { group_kind_concurrency: BTreeMap<String, i32>, cache_sync_timeout: Option<GoDuration> }
    Tls { min_version: Option<String>, cipher_suites: Vec<String>, curve_preferences: Vec<i32> }
    PodOptions { namespace_selector: Option<LabelSelector>, pod_selector: Option<LabelSelector> }
    NamedFramework { name: String }
    ClusterProfile { access_providers: Vec<AccessProvider>, credentials_providers: Vec<AccessProvider> }
    AccessProvider { name: String, exec_config: serde_json::Value }
    IncrementalDispatcher { step_size: Option<i32> }
    DeviceSource { counter: Option<DeviceQuantity>, capacity: Option<DeviceQuantity> }
    DeviceQuantity { name: String, driver: Option<String>, device_selector: Option<String> }
    VisibilityServer { bind_address: Option<String>, bind_port: Option<i32> }
    QueueVisibility { cluster_queues: Option<QueueVisibilityCluster>, update_interval_seconds: Option<i32> }
    QueueVisibilityCluster { max_count: Option<i32> }
}
