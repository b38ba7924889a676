//! Tests of every feature gate in a configuration file. The value of a feature gate that Berth supports changes this gate in the settings, and no other
//! setting. Switching off a feature gate that is always on causes a warning that it cannot be switched off; changing any other gate without an effect in Berth
//! causes a warning that it has none. A value that a feature gate cannot have is refused, and the error names the gate.

use super::*;
use crate::gates::{ACTED_ON, ALWAYS_ON, GATES, Gate, IN_REVIEWS};
use std::collections::BTreeMap;

/// Blocks of a configuration file without which some gates have no effect.
const FILE: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
admissionFairSharing:
  usageHalfLifeTime: 2h
resources: {quotaCheckStrategy: IgnoreUndeclared}
";

type Read = fn(&Settings) -> bool;

/// The setting that shows the value of each gate.
const READ: [(&str, Read); 20] = [
    ("AdmissionFairSharing", |settings| settings.engine.admission_fair_sharing.is_some()),
    ("AdmissionGatedBy", |settings| settings.admission_gates),
    ("CleanupProvisioningRequestsOnEviction", |settings| settings.cleanup_provisioning_requests),
    ("DisableWaitForPodsReady", |settings| settings.wait_for_pods_ready.is_none()),
    ("FairSharingPreemptWithinNominal", |settings| settings.engine.gates.fair_preempt_within_nominal),
    ("FairSharingPrioritizeNonBorrowing", |settings| settings.engine.gates.fair_prefer_non_borrowing),
    ("FlavorFungibility", |settings| settings.engine.gates.flavor_fungibility),
    ("FlavorFungibilityPreserveScanProgress", |settings| settings.engine.gates.preserve_scan_progress),
    ("LocalQueueMetrics", |settings| settings.local_queue_metrics),
    ("MetricForWorkloadCreationLatency", |settings| settings.creation_latency_metric),
    ("MetricsForCohorts", |settings| settings.cohort_metrics),
    ("MultiKueueOrchestratedPreemption", |settings| settings.preemption_gates),
    ("PartialAdmission", |settings| settings.engine.partial_admission),
    ("PriorityBoost", |settings| settings.priority_boost),
    ("PrioritySortingWithinCohort", |settings| settings.engine.gates.priority_sorting),
    ("QuotaCheckStrategy", |settings| settings.engine.ignore_undeclared),
    ("ReclaimablePods", |settings| settings.reclaimable_pods),
    ("RecomputeAssignmentUponPreemptionTargetsOverlap", |settings| settings.engine.gates.recompute_overlap),
    ("SchedulingEquivalenceHashing", |settings| settings.engine.gates.park_equals),
    ("UnadmittedWorkloadsObservability", |settings| settings.observe_unadmitted),
];

fn given() -> Given {
    Given { home: "berth-system".into(), ..Given::default() }
}

/// Loads a configuration file that sets the feature gates `gates`.
fn file(gates: &BTreeMap<&'static str, bool>) -> Result<Loaded, String> {
    let named: Vec<String> = gates.iter().map(|(name, on)| format!("{name}: {on}")).collect();
    load(&format!("{FILE}featureGates: {{{}}}\n", named.join(", ")), &given())
}

/// Values of gates in which `gate` differs from its default, and the gates that need it are off.
fn flipped(gate: &Gate) -> BTreeMap<&'static str, bool> {
    let mut set = BTreeMap::from([(gate.name, !gate.on)]);
    loop {
        let lacks = |other: &&Gate| other.needs.iter().any(|need| set.get(*need) == Some(&false));
        let next = GATES.iter().filter(|other| other.on && !set.contains_key(other.name)).find(lacks);
        match next.map(|next| next.name) {
            Some(name) => drop(set.insert(name, false)),
            None => return set,
        }
    }
}

#[test]
fn supported_feature_gate_reaches_the_settings_by_file_or_flag() {
    let names: Vec<&str> = READ.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ACTED_ON, "where do the settings say what a new one is?");
    let plain = file(&BTreeMap::new()).unwrap();
    assert_eq!(plain.warnings, Vec::<String>::new());
    for gate in GATES.iter().filter(|gate| ACTED_ON.contains(&gate.name)) {
        let set = flipped(gate);
        let loaded = file(&set).unwrap();
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{}", gate.name);
        for (name, read) in READ {
            let before = read(&plain.settings);
            let default = GATES.iter().find(|other| other.name == name).map(|other| other.on);
            assert_eq!(Some(before), default, "{name} without a word about it");
            assert_eq!(read(&loaded.settings), set.get(name).copied().unwrap_or(before), "{name} with {set:?}");
        }
        let flag = set.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        let flags = Given { feature_gates: Some(flag), ..given() };
        assert_eq!(load(FILE, &flags), Ok(loaded), "{} by --feature-gates", gate.name);
    }
}

#[test]
fn unsupported_feature_gate_set_away_from_default_causes_a_warning() {
    let plain = file(&BTreeMap::new()).unwrap();
    let always_on = |gate: &Gate| ALWAYS_ON.iter().any(|(name, _)| *name == gate.name);
    for gate in GATES.iter().filter(|gate| !ACTED_ON.contains(&gate.name) && !always_on(gate)) {
        let default = file(&BTreeMap::from([(gate.name, gate.on)])).unwrap();
        assert_eq!(default, plain, "{} as it is by default", gate.name);
        let other = file(&flipped(gate));
        if gate.locked {
            let error = other.expect_err(gate.name);
            assert_eq!(error, format!("line 6: feature gate `{}` is locked to {}", gate.name, gate.on));
            continue;
        }
        let other = other.unwrap();
        let reported = if gate.name == IN_REVIEWS.0 {
            format!("feature gate `{}` counts in reviews alone yet: {}", gate.name, IN_REVIEWS.1)
        } else {
            format!("feature gate `{}` has no effect yet in Berth: its default behaviour applies", gate.name)
        };
        assert!(other.warnings.contains(&reported), "{}: {:?}", gate.name, other.warnings);
        assert_eq!(other.settings, plain.settings, "{}", gate.name);
    }
}

#[test]
fn always_on_feature_gate_warns_only_when_set_to_false() {
    let plain = file(&BTreeMap::new()).unwrap();
    assert!(plain.settings.engine.gates.prioritize_preemptors);
    for (name, page) in ALWAYS_ON {
        let on = file(&BTreeMap::from([(name, true)])).unwrap();
        assert_eq!(on, plain, "{name} set to what it is");
        let off = file(&BTreeMap::from([(name, false)])).unwrap();
        assert_eq!(off.settings, plain.settings, "{name} switched off in vain");
        assert_eq!(off.warnings, [format!("feature gate `{name}` cannot be off in Berth: {page} says why")]);
        assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page).is_file(), "{page}");
    }
}

#[test]
fn feature_gate_with_unmet_need_or_unknown_name_is_refused() {
    for gate in GATES.iter().filter(|gate| gate.on && !gate.locked) {
        let needed = GATES.iter().any(|other| other.on && other.needs.contains(&gate.name));
        match file(&BTreeMap::from([(gate.name, false)])) {
            Ok(_) => assert!(!needed, "{} is off, and what needs it on", gate.name),
            Err(error) => {
                assert!(needed && error.contains(&format!("needs `{}`, which is off", gate.name)), "{error}");
            }
        }
    }
    let unknown = file(&BTreeMap::from([("NoSuchGate", true)])).unwrap_err();
    assert_eq!(unknown, "line 6: unknown feature gate `NoSuchGate`");
    let neither = load(&format!("{FILE}featureGates: {{PartialAdmission: perhaps}}\n"), &given()).unwrap_err();
    assert!(neither.contains("line "), "{neither}");
}
