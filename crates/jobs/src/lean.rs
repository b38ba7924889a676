//! The part of a large job that is kept in memory: the requests and placement of its pods decide about the job, and a user can write a mebibyte of other
//! fields.

use crate::job_type::JobType;
use serde_json::Value;

/// Fields of a pod spec that list containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// Fields of a container on which charged quota depends.
const OF_A_CONTAINER: [&str; 3] = ["name", "resources", "restartPolicy"];
/// Fields of a pod spec that no patch writes and on which charged quota does not depend.
const NOT_OF_A_POD: [&str; 6] =
    ["volumes", "hostAliases", "dnsConfig", "imagePullSecrets", "readinessGates", "securityContext"];

/// A job's JSON text, reduced to the fields of its patches and the fields on which the requests of its pods depend; `None` for a kind whose patches repeat
/// further parts of the job, and for a job that cannot be read.
#[must_use]
pub fn lean_text(kind: JobType, text: &str) -> Option<String> {
    if !kind.info().lean_patches {
        return None;
    }
    let mut job: Value = serde_json::from_str(text).ok()?;
    thin(job.get_mut("spec")?);
    Some(job.to_string())
}

fn thin(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(thin),
        Value::Object(fields) => {
            let is_pod = fields.get("containers").is_some_and(Value::is_array);
            for list in CONTAINERS {
                let containers = fields.get_mut(list).and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                    container.retain(|key, _| OF_A_CONTAINER.contains(&key.as_str()));
                }
            }
            if is_pod {
                fields.retain(|key, _| !NOT_OF_A_POD.contains(&key.as_str()));
            }
            // The affinity of a pod spec is kept unchanged, because it contains lists but no pod specs.
            fields.iter_mut().filter(|(key, _)| *key != "affinity").for_each(|(_, field)| thin(field));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_object::JobObject;
    use crate::{Placement, TemplateParts};
    use serde_json::json;
    use std::collections::BTreeMap;

    /// A random number generator with fixed results per seed.
    struct Dice(u64);

    impl Dice {
        fn throw(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }

        fn happens(&mut self) -> bool {
            self.throw(2) == 0
        }

        fn map(&mut self, names: &[&str]) -> BTreeMap<String, String> {
            let pairs = names.iter().filter_map(|name| Some((*name).to_owned()).filter(|_| self.throw(2) == 0));
            let pairs: Vec<String> = pairs.collect();
            pairs.into_iter().map(|name| (name, self.throw(3).to_string())).collect()
        }
    }

    fn container(dice: &mut Dice) -> Value {
        let mut container = json!({"name": "c", "image": "i", "args": ["x".repeat(10)], "env": [{"name": "A", "value": "b"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        if dice.happens() {
            container["resources"] = json!({"requests": {"cpu": dice.throw(4).to_string()}});
        }
        container
    }

    /// A random Job in any state in which control may find it.
    fn job(dice: &mut Dice) -> Value {
        let mut spec = json!({"containers": [container(dice)], "volumes": [{"name": "v", "emptyDir": {}}],
            "nodeSelector": dice.map(&["zone", "tier"]), "restartPolicy": "Never"});
        if dice.happens() {
            spec["initContainers"] = json!([container(dice)]);
        }
        if dice.happens() {
            spec["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        }
        if dice.happens() {
            let terms = json!([{"matchExpressions": [{"key": "containers", "operator": "In", "values": ["a"]}]}]);
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        }
        let mut annotations = dice.map(&["a", "kueue.x-k8s.io/job-min-parallelism", "berth.dev/own-parallelism"]);
        if dice.happens() {
            annotations.insert(berth_api::labels::STOPPING.to_owned(), "true".to_owned());
        }
        let mut status = json!({"active": dice.throw(2), "conditions": []});
        if dice.happens() {
            status["startTime"] = json!("2026-11-29T00:00:00Z");
        }
        let labels = dice.map(&["kueue.x-k8s.io/podset", "app", "batch.kubernetes.io/job-name"]);
        let template = json!({"metadata": {"labels": labels, "annotations": dice.map(&["note", "kueue.x-k8s.io/workload"])}, "spec": spec});
        json!({"metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "7", "annotations": annotations},
            "spec": {"suspend": dice.happens(), "parallelism": dice.throw(5), "completions": dice.throw(9), "template": template},
            "status": status})
    }

    fn placement(dice: &mut Dice) -> Placement {
        Placement {
            pod_set: "main".to_owned(),
            count: i32::try_from(dice.throw(5)).unwrap(),
            labels: dice.map(&["kueue.x-k8s.io/podset", "app"]),
            annotations: dice.map(&["note"]),
            node_selector: dice.map(&["zone", "pool"]),
            scheduling_gates: dice.map(&["gate"]).into_keys().collect(),
            forbidden: dice.map(&["spot"]).into_keys().map(|key| (key, Vec::new())).collect(),
            ..Placement::default()
        }
    }

    /// All patches that control makes of a job.
    fn patches(job: &dyn JobObject, placements: &[Placement], originals: &[TemplateParts]) -> Vec<String> {
        vec![
            format!("{:?}", job.suspend_patch()),
            format!("{:?}", job.stop_patch()),
            format!("{:?}", job.unlock_patch()),
            format!("{:?}", job.restore_patch(originals)),
            format!("{:?}", job.start_patch(placements)),
        ]
    }

    #[test]
    fn lean_job_gives_same_patches_as_full_job() {
        let mut dice = Dice(29);
        let mut differ = 0;
        for _ in 0..5_000 {
            let text = job(&mut dice).to_string();
            let lean = lean_text(JobType::JOB, &text).expect("a Job");
            let [full, lean] = [&text, &lean].map(|text| JobType::JOB.decode(text).expect("a Job"));
            let placements = [placement(&mut dice)];
            let other = JobType::JOB.decode(&job(&mut dice).to_string()).expect("a Job");
            let originals: Vec<TemplateParts> =
                other.pod_sets().into_iter().flatten().map(|set| TemplateParts::of_pod_set(&set)).collect();
            let wanted = patches(&*full, &placements, &originals);
            assert_eq!(patches(&*lean, &placements, &originals), wanted, "{text}");
            differ += usize::from(wanted.iter().any(|patch| patch.contains("nodeSelector")));
            let sets = |job: &dyn JobObject| {
                job.pod_sets().map(|sets| sets.iter().map(TemplateParts::of_pod_set).collect::<Vec<_>>())
            };
            assert_eq!(sets(&*lean), sets(&*full), "{text}");
        }
        assert!(differ > 1_000, "too tame: {differ}");
    }

    #[test]
    fn lean_job_drops_large_user_fields() {
        let mut dice = Dice(1);
        let mut large = job(&mut dice);
        large["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1 << 20)]);
        large["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": "v", "configMap": {"name": "y".repeat(1 << 10)}}]);
        let lean = lean_text(JobType::JOB, &large.to_string()).expect("a Job");
        assert!(lean.len() < 2_000 && !lean.contains("volumes"), "{lean}");
        assert!(lean_text(JobType::JOB_SET, "{\"spec\":{}}").is_none(), "its start repeats its Jobs whole");
    }
}
