//! Cases about preemption: victims, messages about victims, and priorities.

use super::statuses::{self, Expected};
use crate::case::Case;
use crate::diff::Diff;
use crate::scene::{self, Scene, text};
use berth_engine::FlavorResource;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    incoming: String,
    cluster_queue: String,
    assignment: Assignment,
}

/// The flavor assignment of the preemptor, by pod set.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Assignment {
    pod_sets: Vec<PodSet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PodSet {
    name: String,
    count: Option<i64>,
    flavors: BTreeMap<String, Flavor>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Flavor {
    name: String,
    mode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    victims: Option<Vec<Victim>>,
    preempted: Option<usize>,
    workloads: Option<Vec<Expected>>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(deny_unknown_fields, default)]
struct Victim {
    workload: String,
    reason: String,
}

/// Judges a case of kind `preemption-targets`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn targets(case: &Case) -> Result<Diff, String> {
    let input: Input = case.input()?;
    let expect: Expect = case.expect()?;
    let mut scene = Scene::new(case)?;
    let uid = scene.uid(&input.incoming);
    let (namespace, name) = input.incoming.split_once('/').unwrap_or_default();
    let workload_spec =
        scene.offline.control().workload_spec(namespace, name).ok_or("input.incoming: no such workload")?;
    let mut needs: Vec<FlavorResource> = Vec::new();
    let mut usage: BTreeMap<FlavorResource, berth_engine::Amount> = BTreeMap::new();
    for set in &input.assignment.pod_sets {
        let spec = workload_spec
            .pod_sets
            .iter()
            .find(|spec| spec.name == set.name)
            .ok_or("input.assignment: no such pod set")?;
        for (resource, flavor) in &set.flavors {
            let cell = FlavorResource { flavor: flavor.name.clone(), resource: resource.clone() };
            if flavor.mode == "Preempt" && !needs.contains(&cell) {
                needs.push(cell.clone());
            }
            let one = spec.requests.get(resource).copied().unwrap_or_default();
            let sum = usage.entry(cell).or_default();
            *sum = sum.add(one.mul(set.count.unwrap_or(spec.count)));
        }
    }
    let evictions = scene
        .offline
        .control()
        .preempt_for(&uid, &input.cluster_queue, &needs, &usage)
        .ok_or("input: no such workload or ClusterQueue")?;
    scene.offline.run(0);
    let mut diff = Diff::default();
    if let Some(mut want) = expect.victims {
        want.sort();
        let victim = |eviction: &berth_engine::Eviction| Victim {
            workload: scene.name(&eviction.uid),
            reason: eviction.reason.to_owned(),
        };
        let mut got: Vec<Victim> = evictions.iter().map(victim).collect();
        got.sort();
        diff.eq("victims", &want, &got);
    }
    diff.eq_if("preempted", expect.preempted.as_ref(), || {
        let evicted = |key: &str| {
            let mut workloads = scene.workloads();
            let conditions = workloads
                .find(|(other, _)| other == key)
                .and_then(|(_, object)| object.pointer("/status/conditions")?.as_array().cloned());
            conditions.into_iter().flatten().any(|c| text(&c, "/type") == "Evicted" && text(&c, "/status") == "True")
        };
        evictions.iter().filter(|eviction| evicted(&scene.name(&eviction.uid))).count()
    });
    if let Some(want) = &expect.workloads {
        statuses::compare(&mut diff, "workloads", &scene, want, &[&input.incoming])?;
    }
    Ok(diff)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct MessageInput {
    reason: String,
    preemptor_path: String,
    preemptee_path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageExpect {
    message: String,
}

/// Judges a case of kind `message`: the message that a victim's condition gets.
///
/// # Errors
/// A field of the case cannot be read.
pub fn message(case: &Case) -> Result<Diff, String> {
    let input: MessageInput = case.input()?;
    let expect: MessageExpect = case.expect()?;
    let preemptor = case.of_kind("Workload").next().ok_or("objects: no preemptor")?;
    let job = preemptor.pointer("/metadata/labels").and_then(|labels| labels.get("kueue.x-k8s.io/job-uid"));
    let got = berth_control::preemption_message(
        (&text(preemptor, "/metadata/uid"), job.and_then(|uid| uid.as_str()).unwrap_or_default()),
        &input.reason,
        &input.preemptor_path,
        &input.preemptee_path,
    );
    let mut diff = Diff::default();
    diff.eq("message", &expect.message, &got);
    Ok(diff)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorityInput {
    workload: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PriorityExpect {
    effective: Option<i64>,
    base: Option<i32>,
    boost: Option<i32>,
    boost_invalid: Option<bool>,
}

/// Judges a case of kind `priority`.
///
/// # Errors
/// A field of the case cannot be read.
pub fn priority(case: &Case) -> Result<Diff, String> {
    let input: PriorityInput = case.input()?;
    let PriorityExpect { effective, base, boost, boost_invalid } = case.expect()?;
    let workload = scene::workload(case, &input.workload)?;
    let got = berth_jobs::effective_priority(&workload, crate::scene::settings(case)?.priority_boost);
    let mut diff = Diff::default();
    diff.eq_if("effective", effective.as_ref(), || got.effective);
    diff.eq_if("base", base.as_ref(), || got.base);
    diff.eq_if("boost", boost.as_ref(), || got.boost);
    diff.eq_if("boostInvalid", boost_invalid.as_ref(), || got.boost_invalid);
    Ok(diff)
}
