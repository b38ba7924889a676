//! Conversion units of ClusterQueue, Cohort, LocalQueue and MultiKueueCluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fields::Fields;
use super::unit::{Unit, decodes, nothing, renamed, unchanged};
use crate::cluster_queue::{ClusterQueueSpec, ClusterQueueStatus};
use crate::local_queue::LocalQueueStatus;
use crate::multikueue::MultiKueueClusterSpec;
use crate::quota::FairSharingStatus;

/// In v1beta1 the status of ClusterQueues and Cohorts also had `fairSharing.admissionFairSharingStatus`, where it was always empty.
const DECAYED: Unit = Unit {
    parent: &["status", "fairSharing"],
    fields: &["admissionFairSharingStatus"],
    down: nothing,
    up: nothing,
    decodes: decodes::<FairSharingStatus>,
    limited: None,
};

pub(super) const CLUSTER_QUEUE: &[Unit] = &[
    Unit {
        parent: &["spec"],
        fields: &["cohortName", "cohort"],
        down: |fields| renamed(fields, "cohortName", "cohort"),
        up: |fields| renamed(fields, "cohort", "cohortName"),
        decodes: decodes::<ClusterQueueSpec>,
        limited: None,
    },
    Unit {
        parent: &["spec"],
        fields: &["admissionChecksStrategy", "admissionChecks"],
        down: |mut fields| {
            fields.remove("admissionChecks");
            fields
        },
        up: checks_as_strategy,
        decodes: decodes::<ClusterQueueSpec>,
        limited: None,
    },
    Unit {
        parent: &["spec"],
        fields: &["flavorFungibility"],
        down: unchanged,
        up: without_old_words,
        decodes: decodes::<ClusterQueueSpec>,
        limited: None,
    },
    Unit {
        parent: &["spec"],
        fields: &["concurrentAdmissionPolicy"],
        down: nothing,
        up: nothing,
        decodes: decodes::<ClusterQueueSpec>,
        limited: None,
    },
    Unit {
        parent: &["status"],
        fields: &["pendingWorkloadsStatus"],
        down: nothing,
        up: nothing,
        decodes: decodes::<ClusterQueueStatus>,
        limited: None,
    },
    DECAYED,
];

pub(super) const COHORT: &[Unit] = &[DECAYED];

pub(super) const LOCAL_QUEUE: &[Unit] = &[
    Unit {
        parent: &["status"],
        fields: &["flavorsUsage", "flavorUsage"],
        down: |fields| renamed(fields, "flavorsUsage", "flavorUsage"),
        up: |fields| renamed(fields, "flavorUsage", "flavorsUsage"),
        decodes: decodes::<LocalQueueStatus>,
        limited: None,
    },
    Unit {
        parent: &["status"],
        fields: &["flavors"],
        down: nothing,
        up: nothing,
        decodes: decodes::<LocalQueueStatus>,
        limited: None,
    },
];

pub(super) const MULTIKUEUE_CLUSTER: &[Unit] = &[Unit {
    parent: &["spec"],
    fields: &["clusterSource", "kubeConfig", "clusterProfileRef"],
    down: source_as_fields,
    up: fields_as_source,
    decodes: decodes::<MultiKueueClusterSpec>,
    limited: None,
}];

/// Converts the admission checks of a ClusterQueue from v1beta1. As in Kueue, the list `admissionChecks` takes precedence over
/// `admissionChecksStrategy`; a strategy without checks is dropped.
fn checks_as_strategy(mut fields: Fields) -> Fields {
    let mut seen = BTreeSet::new();
    let named: Vec<Value> = match fields.remove("admissionChecks") {
        Some(Value::Array(names)) => names
            .into_iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .filter(|name| seen.insert(name.clone()))
            .map(|name| json!({"name": name}))
            .collect(),
        _ => Vec::new(),
    };
    if !named.is_empty() {
        let strategy = json!({"admissionChecks": named});
        return Fields::from_iter([("admissionChecksStrategy".to_owned(), strategy)]);
    }
    let strategy = fields.get("admissionChecksStrategy").and_then(Value::as_object);
    let checks = strategy.and_then(|strategy| strategy.get("admissionChecks")).and_then(Value::as_array);
    if checks.is_none_or(Vec::is_empty) {
        fields.clear();
    }
    fields
}

fn without_old_words(mut fields: Fields) -> Fields {
    if let Some(Value::Object(fungibility)) = fields.get_mut("flavorFungibility") {
        for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
            if let Some(word) = fungibility.get_mut(field).filter(|word| **word == old) {
                *word = "MayStopSearch".into();
            }
        }
    }
    fields
}

/// Converts the source of a MultiKueueCluster to v1beta1, where `kubeConfig` is required: an empty location means that there is no kubeconfig.
fn source_as_fields(mut fields: Fields) -> Fields {
    let mut source = match fields.remove("clusterSource") {
        Some(Value::Object(source)) => source,
        _ => Fields::new(),
    };
    let none = || json!({"location": "", "locationType": "Secret"});
    let config = source.remove("kubeConfig").unwrap_or_else(none);
    let profile = source.remove_entry("clusterProfileRef");
    profile.into_iter().chain([("kubeConfig".to_owned(), config)]).collect()
}

fn fields_as_source(mut fields: Fields) -> Fields {
    let config = fields.remove_entry("kubeConfig").filter(|(_, config)| {
        config.get("location").and_then(Value::as_str).is_some_and(|location| !location.is_empty())
    });
    let source: Fields = config.into_iter().chain(fields.remove_entry("clusterProfileRef")).collect();
    if source.is_empty() {
        return Fields::new();
    }
    Fields::from_iter([("clusterSource".to_owned(), Value::Object(source))])
}
