//! Kueue's feature gates: their names, their defaults, and the gates that each gate depends on.

/// A feature gate of Kueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Kueue's name of the gate.
    pub name: &'static str,
    /// Default of the feature gate: true if the gate is on.
    pub on: bool,
    /// True if the gate cannot be changed.
    pub locked: bool,
    /// Gates that must be on if this gate is on.
    pub needs: &'static [&'static str],
}

const fn gate(name: &'static str, on: bool, needs: &'static [&'static str]) -> Gate {
    Gate { name, on, locked: false, needs }
}

const fn locked(name: &'static str) -> Gate {
    Gate { name, on: true, locked: true, needs: &[] }
}

const TAS: &str = "TopologyAwareScheduling";

/// All feature gates that Kueue knows.
pub const GATES: &[Gate] = &[
    gate("PartialAdmission", true, &[]),
    gate("FlavorFungibility", true, &[]),
    gate("VisibilityOnDemand", true, &[]),
    gate("DisableWaitForPodsReady", false, &[]),
    gate("PrioritySortingWithinCohort", true, &[]),
    gate("FairSharingPreemptWithinNominal", true, &[]),
    gate("FairSharingPrioritizeNonBorrowing", true, &[]),
    gate("MultiKueue", true, &[]),
    gate(TAS, true, &[]),
    gate("LocalQueueMetrics", true, &[]),
    gate("TASProfileMixed", true, &[TAS]),
    gate("AdmissionFairSharing", true, &[]),
    gate("TASFailedNodeReplacement", true, &[TAS]),
    gate("ElasticJobsViaWorkloadSlices", true, &[]),
    gate("ElasticJobsViaWorkloadSlicesWithTAS", false, &["ElasticJobsViaWorkloadSlices", TAS]),
    gate("TASFailedNodeReplacementFailFast", true, &[TAS, "TASFailedNodeReplacement"]),
    gate("TASReplaceNodeOnPodTermination", true, &[TAS, "TASFailedNodeReplacement"]),
    gate("SkipReassignmentForPodOwnedWorkloads", true, &[]),
    gate("TASReplaceNodeDueToNotReadyOverFixedTime", false, &[TAS, "TASFailedNodeReplacement"]),
    locked("ManagedJobsNamespaceSelectorAlwaysRespected"),
    gate("TASBalancedPlacement", false, &[TAS]),
    gate("TASAssignmentsEncodingByHostnamePrefix", true, &[]),
    gate("KueueDRAIntegration", true, &[]),
    gate("KueueDRAIntegrationExtendedResource", true, &["KueueDRAIntegration"]),
    gate("KueueDRARejectWorkloadsWhenDRADisabled", true, &[]),
    gate("KueueDRAIntegrationPartitionableDevices", true, &["KueueDRAIntegration"]),
    gate("KueueDRAIntegrationConsumableCapacity", false, &["KueueDRAIntegration"]),
    gate("MultiKueueAdaptersForCustomJobs", true, &[]),
    gate("WorkloadRequestUseMergePatch", false, &[]),
    gate("MultiKueueKubeConfigPathValidation", true, &[]),
    gate("ReclaimablePods", true, &[]),
    gate("MultiKueueClusterProfile", false, &[]),
    gate("FailureRecoveryPolicy", false, &[]),
    locked("TLSOptions"),
    gate("RemoveFinalizersWithStrictPatch", true, &[]),
    gate("TASReplaceNodeOnNodeTaints", true, &[TAS]),
    gate("AssignQueueLabelsForPods", true, &[]),
    gate("TASMultiLayerTopology", true, &[TAS]),
    gate("SchedulingEquivalenceHashing", true, &[]),
    gate("CustomMetricLabels", false, &[]),
    gate("SparkApplicationIntegration", false, &[]),
    gate("MultiKueueOrchestratedPreemption", false, &[]),
    gate("PriorityBoost", false, &[]),
    gate("AdmissionGatedBy", true, &[]),
    gate("ShortWorkloadNames", false, &[]),
    gate("FastQuotaReleaseInPodIntegration", false, &[]),
    gate("RejectUpdatesToCQWithInvalidOnFlavors", false, &[]),
    gate("FinishOrphanedWorkloads", true, &[]),
    gate("MultiKueueIncrementalDispatcherConfig", true, &[]),
    gate("MultiKueueIncrementalDispatcherRespectConfigOrder", true, &[]),
    gate("ConcurrentAdmission", false, &[]),
    gate("QuotaCheckStrategy", true, &[]),
    gate("MetricForWorkloadCreationLatency", true, &[]),
    gate("TASRespectNodeAffinityPreferred", false, &[TAS]),
    gate("MultiKueueManagerQuotaAutomation", false, &[]),
    gate("WorkloadIdentifierAnnotations", true, &[]),
    gate("WorkloadPriorityClassDefaulting", true, &[]),
    gate("MetricsForCohorts", true, &[]),
    gate("CleanupProvisioningRequestsOnEviction", true, &[]),
    gate("TASHandleOverlappingFlavors", true, &[TAS]),
    gate("UnadmittedWorkloadsObservability", true, &[]),
    gate("TASRecomputeAssignmentWithinSchedulingCycle", true, &[TAS]),
    gate("UnadmittedWorkloadsExplicitStatus", false, &["UnadmittedWorkloadsObservability"]),
    gate("DeferRayServiceFinalizationForRedisCleanup", true, &[]),
    gate("TASCacheNodeMatchResults", true, &[]),
    gate("TASCachingRemainingResources", true, &[]),
    gate("TASCacheTopologyTree", true, &[]),
    gate("SchedulerLibraryIntegration", false, &[]),
    gate("VectorizedResourceRequests", true, &[]),
    gate("WorkloadValidateResourcesAreNonNegative", true, &[]),
    gate("TASValidateWorkloadSliceSize", true, &[]),
    gate("WorkloadValidationForPodSetMetadata", true, &[]),
    gate("PrioritizePreemptorWorkloads", false, &[]),
    gate("LWSImmutableGroupSize", true, &[]),
    gate("FlavorFungibilityPreserveScanProgress", true, &["FlavorFungibility"]),
    gate("SkipAncestorCheckForDeletedWorkloads", true, &[]),
    gate("MultiKueueRemoteSpecSync", true, &[]),
    gate("RecomputeAssignmentUponPreemptionTargetsOverlap", true, &[]),
    gate("PodIntegrationValidateGroupOwner", true, &[]),
    gate("ValidateRayAndSparkJobUpdates", true, &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_gate_table_matches_counts_of_kueue() {
        assert_eq!(GATES.len(), 80);
        assert_eq!(GATES.iter().filter(|gate| gate.on).count(), 59);
        assert!(GATES.iter().flat_map(|gate| gate.needs).all(|need| GATES.iter().any(|gate| gate.name == *need)));
    }
}
