//! JobSets under their real controller: accepted in the form that AxLearn writes, and moved from one kind of capacity to another. The API server
//! counts Berth's writes for JobSets and for Jobs.

mod costs;
mod gates;
mod generated;
mod pathways;

use anyhow::{Context, Result, ensure};
use berth_e2e::bench::audit::Audit;
use berth_e2e::bench::subject;
use berth_e2e::binaries::repository;
use berth_e2e::control_plane::{ControlPlane, Options};
use berth_e2e::jobset::{self, JOBSET};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, POD, QUEUE_POLICY, WORKLOAD, condition, items, text};
use berth_e2e::manager::ManagerOptions;
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::nodes::{Pool, Tier};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Run, Scenario, Stage, run_all, run_each};
use berth_e2e::wait::{self, STEP, Seen};
use futures::FutureExt;
use serde_json::{Value, json};
use std::time::Duration;

/// A JobSet of two slices of two hosts: not suspended, with its queue in an annotation, and with selectors that pin it to spot if `spot`.
fn slices(s: &Scenario<'_>, name: &str, spot: bool, run_ms: u32) -> Value {
    let mut pods = json!({
        "metadata": {"annotations": {"e2e.berth.dev/run-ms": run_ms.to_string()}, "labels": {"project-id": "p"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                "cloud.google.com/gke-tpu-topology": "2x4"},
            "containers": [{"name": "main", "image": "train", "resources": {"limits": {"google.com/tpu": "4"}}}]},
    });
    if spot {
        pods["spec"]["nodeSelector"]["cloud.google.com/gke-spot"] = json!("true");
        pods["spec"]["tolerations"] = json!([{"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true",
            "effect": "NoSchedule"}]);
        pods["metadata"]["labels"]["bastion-tier"] = json!("spot");
    }
    let jobs = json!([{"name": "job", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2,
        "backoffLimit": 0, "template": pods}}}]);
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": s.namespace, "name": name, "annotations": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"failurePolicy": {"maxRestarts": 3, "restartStrategy": "BlockingRecreate"}, "replicatedJobs": jobs}})
}

/// A spot flavor and an on-demand flavor with `spot` and `on_demand` chips, in this order; `queue` has quota of both.
async fn queues(s: &Scenario<'_>, spot: &str, on_demand: &str) -> Result<()> {
    let (first, second) = (s.name("spot"), s.name("on-demand"));
    let mut flavor = manifest::flavor(&first, &[("cloud.google.com/gke-spot", "true")]);
    flavor["spec"]["tolerations"] = json!([{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]);
    s.apply(&flavor).await?;
    s.apply(&manifest::flavor(&second, &[("e2e/pool", "on-demand")])).await?;
    let quotas = [(&*first, &[quota("google.com/tpu", spot)][..]), (&*second, &[quota("google.com/tpu", on_demand)])];
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&quotas)], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    Ok(())
}

/// Waits until Berth has seen a QueuePolicy and its queue. Berth watches each kind separately, and a job that was admitted before Berth saw the
/// policy keeps its flavor.
pub(crate) async fn governs(s: &Scenario<'_>, policy: &str) -> Result<()> {
    s.object_is(QUEUE_POLICY, policy, "Active", |policy| condition(policy, "Active") == "True").await.map(drop)
}

/// Time limit for pods to run: the JobSet controller sends only a few requests a second for all scenarios together, and a fallback through the tiers
/// costs it a dozen requests.
pub(crate) const START: Duration = Duration::from_secs(150);

/// The four running pods of the JobSet that [`slices`] makes.
async fn running(s: &Scenario<'_>, name: &str) -> Result<Vec<Value>> {
    all_run(s, name, 4).await
}

/// Pods of a JobSet that Berth has started, after all of them run; without a webhook the JobSet's first pods run before Berth has suspended it. If
/// the pods end by themselves, the first pod may have succeeded when the last one begins, because Jobs are resumed one after another.
pub(crate) async fn all_run(s: &Scenario<'_>, name: &str, count: usize) -> Result<Vec<Value>> {
    wait::until(START, &format!("{count} pods of JobSet {name} run"), || async {
        let all = POD.list(&s.client, &s.namespace).await?;
        let runs = |pod: &&Value| {
            text(pod, "/metadata/labels/jobset.sigs.k8s.io~1jobset-name") == name
                && text(pod, "/metadata/labels/kueue.x-k8s.io~1podset") == "job"
                && ["Running", "Succeeded"].contains(&text(pod, "/status/phase"))
                && pod.pointer("/metadata/deletionTimestamp").is_none()
        };
        let pods: Vec<Value> = all.iter().filter(runs).cloned().collect();
        if pods.len() == count {
            return Ok(Seen::Yes(pods));
        }
        let jobs = JOB.list(&s.client, &s.namespace).await?;
        let set = JOBSET.list(&s.client, &s.namespace).await?;
        Ok(Seen::NotYet(format!("{} run of {}", pods.len(), summary(&all, &jobs, &set))))
    })
    .await
}

/// The present state in one line: the pods that do not run as they should, the Jobs and the JobSet.
fn summary(pods: &[Value], jobs: &[Value], sets: &[Value]) -> String {
    let pods = pods.iter().map(|pod| {
        let (labels, phase) = (&pod["metadata"]["labels"], text(pod, "/status/phase"));
        let leaving = pod.pointer("/metadata/deletionTimestamp").is_some();
        let (job, set) = (&labels["batch.kubernetes.io/job-name"], &labels["kueue.x-k8s.io/podset"]);
        format!("pod of {job}: {phase}, podset {set}, leaving {leaving}, selector {}", pod["spec"]["nodeSelector"])
    });
    let jobs = jobs.iter().map(|job| {
        let (status, suspend) = (&job["status"], &job["spec"]["suspend"]);
        let labels = &job["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"];
        format!("{}: suspend {suspend}, podset {labels}, status {status}", job["metadata"]["name"])
    });
    let sets = sets.iter().map(|set| format!("JobSet: suspend {}, status {}", set["spec"]["suspend"], set["status"]));
    pods.chain(jobs).chain(sets).collect::<Vec<_>>().join("\n    ")
}

pub(crate) async fn remove(s: &Scenario<'_>, name: &str) -> Result<()> {
    JOBSET.delete(&s.client, &s.namespace, name).await?;
    wait::until(STEP, "the JobSet, its pods and its Workload are gone", || async {
        let (pods, workload) = (POD.list(&s.client, &s.namespace).await?.len(), s.workload_of(name).await?.is_some());
        Ok(Seen::when(pods == 0 && !workload, || format!("{pods} pods, workload: {workload}")))
    })
    .await
}

async fn as_axlearn_writes_it(stage: &Stage, audit: &Audit) -> Result<()> {
    let s = stage.scenario("annotated").await?;
    queues(&s, "16", "16").await?;
    let before = audit.mark();
    s.apply(&slices(&s, "train", true, 4_000)).await?;
    let workload = s.workload("train", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    ensure!(text(&workload, "/metadata/name").starts_with("jobset-train-"), "{}", workload["metadata"]["name"]);
    let set = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(set["name"] == json!("job") && set["count"] == json!(4), "{set}");
    ensure!(set["flavors"]["google.com/tpu"] == json!(s.name("spot")), "pinned by its own selector: {set}");
    for pod in running(&s, "train").await? {
        let node = text(&pod, "/spec/nodeName");
        ensure!(node.starts_with("tpu-spot"), "{node}");
    }
    ensure!(WORKLOAD.list(&s.client, &s.namespace).await?.len() == 1, "its Jobs have none of their own");
    s.object_is(JOBSET, "train", "Completed", |j| condition(j, "Completed") == "True").await?;
    s.workload("train", "Finished", |w| condition(w, "Finished") == "True").await?;
    s.workload("train", "let go", |w| items(w, "/metadata/finalizers").is_empty()).await?;
    costs::few_writes(&s, audit, before)?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    remove(&s, "train").await?;
    s.conclude().await
}

async fn another_flavor_leaves_nothing_of_the_first(stage: &Stage) -> Result<()> {
    let s = stage.scenario("moved").await?;
    queues(&s, "16", "0").await?;
    let manifest = slices(&s, "train", false, 600_000);
    s.apply(&manifest).await?;
    let workload = s.workload("train", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    for pod in running(&s, "train").await? {
        ensure!(text(&pod, "/spec/nodeName").starts_with("tpu-spot"), "{}", pod["spec"]["nodeName"]);
    }
    let name = text(&workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.workload("train", "released", |w| condition(w, "QuotaReserved") == "False").await?;
    ensure!(
        POD.list(&s.client, &s.namespace).await?.iter().all(|pod| pod.pointer("/metadata/deletionTimestamp").is_some()),
        "quota came back before the pods were gone"
    );
    let stopped = s.object_is(JOBSET, "train", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    let template = |object: &Value| object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].clone();
    for field in ["/spec/nodeSelector", "/spec/tolerations", "/metadata/labels", "/metadata/annotations"] {
        let (now, written) = (template(&stopped), template(&manifest));
        ensure!(now.pointer(field) == written.pointer(field), "{field}: {now}");
    }
    let (spot, on_demand) = (s.name("spot"), s.name("on-demand"));
    let quotas = [(&*spot, &[quota("google.com/tpu", "0")][..]), (&*on_demand, &[quota("google.com/tpu", "16")])];
    s.edit_queue(&s.name("cq"), &json!({"resourceGroups": [group(&quotas)]})).await?;
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": true}})).await?;
    for pod in running(&s, "train").await? {
        ensure!(text(&pod, "/spec/nodeName").starts_with("tpu-od"), "{}", pod["spec"]["nodeName"]);
        let selector = &pod["spec"]["nodeSelector"];
        ensure!(selector.get("cloud.google.com/gke-spot").is_none(), "the first flavor's selector stayed: {selector}");
    }
    let jobs = JOB.list(&s.client, &s.namespace).await?;
    jobs.iter().find(|job| text(job, "/metadata/name") == "train-job-0").context("the JobSet's first Job")?;
    remove(&s, "train").await?;
    s.conclude().await
}

/// A tier, and the node label that its flavor selects.
type TierLabel = (&'static str, (&'static str, &'static str));

const ON_DEMAND: TierLabel = ("on-demand", ("e2e/pool", "on-demand"));
const SPOT: TierLabel = ("spot", ("cloud.google.com/gke-spot", "true"));

/// Creates a flavor of 16 chips for each tier, in the order of `tier_labels`; `queue` has quota of all flavors.
async fn tiers(s: &Scenario<'_>, tier_labels: &[TierLabel]) -> Result<()> {
    let mut names = Vec::new();
    for (tier, label) in tier_labels {
        let name = s.name(tier);
        let mut flavor = manifest::flavor(&name, &[*label]);
        flavor["metadata"]["labels"] = json!({"berth.dev/capacity-tier": tier});
        flavor["spec"]["tolerations"] = json!([{"key": label.0, "operator": "Exists"}]);
        s.apply(&flavor).await?;
        names.push(name);
    }
    let chips = [quota("google.com/tpu", "16")];
    let quotas: Vec<(&str, &[_])> = names.iter().map(|name| (name.as_str(), chips.as_slice())).collect();
    s.apply(&manifest::cluster_queue(&s.name("cq"), &[group(&quotas)], &json!({}))).await?;
    s.apply(&manifest::local_queue(&s.namespace, "queue", &s.name("cq"))).await?;
    Ok(())
}

/// A JobSet that names spot at the beginning of its tiers gets spot, although its queue tries on-demand capacity at first.
async fn the_tier_that_it_names(stage: &Stage) -> Result<()> {
    let s = stage.scenario("named-tiers").await?;
    tiers(&s, &[ON_DEMAND, SPOT]).await?;
    let mut jobset = slices(&s, "train", false, 600_000);
    jobset["metadata"]["annotations"]["berth.dev/capacity-tiers"] = json!("spot,on-demand");
    s.apply(&jobset).await?;
    for pod in running(&s, "train").await? {
        ensure!(text(&pod, "/spec/nodeName").starts_with("tpu-spot"), "{}", pod["spec"]["nodeName"]);
    }
    let workload = s.workload("train", "Admitted", |w| condition(w, "Admitted") == "True").await?;
    let set = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(set["flavors"]["google.com/tpu"] == json!(s.name("spot")), "{set}");
    remove(&s, "train").await?;
    s.conclude().await
}

/// A JobSet in the form that AxLearn writes, pinned to spot by its selectors. The QueuePolicy of the JobSet's queue overrides the selectors, and the reserved
/// tier has no nodes, so the JobSet falls back to on-demand capacity.
async fn policy_alone_sends_it_to_the_next_tier(stage: &Stage) -> Result<()> {
    let s = stage.scenario("overridden").await?;
    tiers(&s, &[("reserved", ("cloud.google.com/reservation-name", "nowhere")), ON_DEMAND, SPOT]).await?;
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("policy")},
        "spec": {"clusterQueues": [s.name("cq")], "capacityTiers": {"selectors": "Override",
            "default": ["reserved", "on-demand", "spot"], "patience": {"reserved": "1s"}}}}))
        .await?;
    governs(&s, &s.name("policy")).await?;
    let manifest = slices(&s, "train", true, 600_000);
    s.apply(&manifest).await?;
    for pod in running(&s, "train").await? {
        ensure!(text(&pod, "/spec/nodeName").starts_with("tpu-od"), "{}", pod["spec"]["nodeName"]);
        ensure!(pod["spec"]["nodeSelector"].get("cloud.google.com/gke-spot").is_none(), "{}", pod["spec"]);
        ensure!(pod["metadata"]["labels"].get("bastion-tier").is_none(), "{}", pod["metadata"]["labels"]);
    }
    let workload = s.workload_of("train").await?.context("its Workload")?;
    let reasons: Vec<&str> = items(&workload, "/status/schedulingStats/evictions")
        .iter()
        .map(|eviction| text(eviction, "/reason"))
        .collect();
    ensure!(reasons == ["StockOut"], "{reasons:?}");
    // AxLearn's bastion would take the change of tier for one that its own runner has to make, so Berth must warn about the runner.
    s.warned("train", "BastionRunner", &["bastion-tier: \"spot\"", &s.name("policy"), "BASTION_TIER=disabled"]).await?;
    let name = text(&workload, "/metadata/name");
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": false}})).await?;
    s.workload("train", "released", |w| condition(w, "QuotaReserved") == "False").await?;
    let stopped = s.object_is(JOBSET, "train", "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
    let template = |object: &Value| object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"].clone();
    for field in ["/spec/nodeSelector", "/spec/tolerations", "/metadata/labels", "/metadata/annotations"] {
        let (now, written) = (template(&stopped), template(&manifest));
        ensure!(now.pointer(field) == written.pointer(field), "{field}: {now}");
    }
    // The JobSet is started a second time: its Jobs were made from the template that its user wrote and that Berth has restored.
    WORKLOAD.patch(&s.client, &s.namespace, name, &json!({"spec": {"active": true}})).await?;
    for pod in running(&s, "train").await? {
        ensure!(pod["spec"]["nodeSelector"].get("cloud.google.com/gke-spot").is_none(), "{}", pod["spec"]);
    }
    remove(&s, "train").await?;
    s.conclude().await
}

/// Text of the preset for AxLearn, as Berth ships it.
pub(crate) fn preset() -> Result<String> {
    let path = repository().join("examples/capacity-tiers/axlearn.yaml");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Tests the preset for AxLearn as Berth ships it: a JobSet of AxLearn's tier 0 gets reserved capacity, a JobSet without a tier gets spot, and a JobSet that is
/// pinned to spot goes to spot. The priority of each JobSet is the one in its pods' label.
async fn the_preset_serves_all(stage: &Stage) -> Result<()> {
    let s = stage.scenario("axlearn").await?;
    for object in kinds::parse(&preset()?)? {
        s.apply(&object).await?;
    }
    s.apply(&manifest::local_queue(&s.namespace, "queue", "axlearn")).await?;
    governs(&s, "axlearn").await?;
    for (name, spot, labels, nodes, flavor, priority) in [
        ("zero", false, json!({"bastion-tier": "0", "job-priority": "1"}), "tpu-res", "axlearn-reserved", 5000),
        ("silent", false, json!({"job-priority": "5"}), "tpu-spot", "axlearn-spot", 1000),
        ("cheap", true, json!({}), "tpu-spot", "axlearn-spot", 0),
    ] {
        let mut jobset = slices(&s, name, spot, 600_000);
        let pods = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        for (key, value) in labels.as_object().into_iter().flatten() {
            pods["metadata"]["labels"][key] = value.clone();
        }
        s.apply(&jobset).await?;
        let workload = s.workload(name, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        let set = &workload["status"]["admission"]["podSetAssignments"][0];
        ensure!(set["flavors"]["google.com/tpu"] == json!(flavor), "{name}: {set}");
        ensure!(workload["spec"]["priority"] == json!(priority), "{name}: {}", workload["spec"]["priority"]);
        for pod in running(&s, name).await? {
            ensure!(text(&pod, "/spec/nodeName").starts_with(nodes), "{name}: {}", pod["spec"]["nodeName"]);
        }
        remove(&s, name).await?;
    }
    s.conclude().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobsets() -> Result<()> {
    // Each scenario has quota of its own and enough nodes, so that it never waits for the nodes of another scenario.
    let mut on_demand = Pool::tpu("tpu-od", 16, Tier::OnDemand);
    on_demand.labels.push(("e2e/pool".to_owned(), "on-demand".to_owned()));
    let reserved = Pool::tpu("tpu-res", 4, Tier::Reserved("my-reservation".to_owned()));
    let cpu = Pool::cpu("cpu", 2, Tier::OnDemand);
    let mut pools = vec![Pool::tpu("tpu-spot", 16, Tier::Spot), on_demand, reserved, cpu];
    pools.extend(generated::pools());
    let audit = Audit::create(&subject::users())?;
    let mut options = Options::with_crds("jobset");
    options.api_server_args = audit.args();
    options.crds.push(jobset::definitions().await?);
    let plane = ControlPlane::start(options).await?;
    let controller = jobset::start(&plane).await?;
    jobset::place_exclusively(&plane).await?;
    let stage = Stage::on(plane, &pools, ManagerOptions::default()).await?;
    ensure!(stage.observer.watches(JOBSET), "the promises about JobSets are not judged");
    let s = &stage;
    let runs: Vec<Run<'_>> = vec![
        ("one-by-one", costs::an_end_apart_from_the_others(s, &audit).boxed()),
        ("job-crowd", costs::little_in_a_crowd_of_jobs(s, &audit).boxed()),
        ("alone", costs::by_themselves(s, &audit).boxed()),
        ("annotated", as_axlearn_writes_it(s, &audit).boxed()),
        ("axlearn", the_preset_serves_all(s).boxed()),
        ("moved", another_flavor_leaves_nothing_of_the_first(s).boxed()),
        ("gated", gates::of_its_user_stay(s).boxed()),
        ("overridden", policy_alone_sends_it_to_the_next_tier(s).boxed()),
        ("as-generated", generated::by_its_own_selectors(s).boxed()),
        ("generated-ladder", generated::by_policy_alone(s).boxed()),
        ("gates-by-hand", gates::its_controller_takes_more(s).boxed()),
        ("named-tiers", the_tier_that_it_names(s).boxed()),
        ("pathways", pathways::only_workers_fall_back(s).boxed()),
    ];
    // The scenario `crowd` runs after the others: the JobSet controller has one worker, and everything after the hundred Jobs of the crowd would wait
    // for them.
    let crowd: Vec<Run<'_>> = vec![("crowd", costs::little_in_a_crowd(s, &audit).boxed())];
    let outcome = async move {
        run_each(s, runs.len(), runs).await?;
        run_all(s, crowd).await
    }
    .await;
    drop(controller);
    stage.stop().await;
    outcome
}
