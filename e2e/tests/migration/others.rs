//! The migration of JobSets under their real controller, StatefulSets, pods and pod groups, in namespaces and queues of their own. Running objects
//! are not restarted, Berth starts the ones that wait behind Kueue's gates, ended ones give their quota back, and Berth's writes have the form in
//! which Kueue would have written them.

mod sets;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::control_plane::create_namespace;
use berth_e2e::jobset::{self, JOBSET};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, Kind, POD, WORKLOAD, condition, items, text};
use berth_e2e::manager::Manager;
use berth_e2e::manifest::{self, group, quota};
use berth_e2e::process::Guarded;
use berth_e2e::quota_tree::reserved;
use berth_e2e::wait::{self, STEP, Seen};
use serde_json::{Value, json};

use crate::migration::World;
use crate::migration::forms::{self, ROLE_HASH};
use crate::migration::kueue::{self, Kueue};

/// Namespace of the JobSets, pods and pod groups, and the name of their ClusterQueue.
pub(crate) const NAMESPACE: &str = "others";
/// Cpus of the queue's quota, of which Kueue has admitted seven, so that the waiting pod with a request of two does not fit.
const QUOTA: &str = "8";
/// Name of the pod group whose pods Kueue has started.
const CREW: &str = "crew";
/// Label of a pod with the name of its JobSet.
const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";

/// Parts of running objects that must not change: uid and start of each pod and of each Job, uid and spec of each JobSet.
pub(crate) type Runs = BTreeMap<String, Value>;

/// Applies the CRD of JobSets and starts their controller.
pub(crate) async fn controller(world: &World) -> Result<Guarded> {
    for entry in fs::read_dir(jobset::definitions().await?)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            kinds::apply_yaml(&world.client, &fs::read_to_string(&path)?).await?;
        }
    }
    wait::until(STEP, "JobSets are served", || async {
        Ok(Seen::when(JOBSET.is_served(&world.client).await?, || "not yet".to_owned()))
    })
    .await?;
    jobset::start(&world.plane).await
}

fn kueue(world: &World) -> Kueue<'_> {
    let (client, manager) = (&world.client, &world.as_kueue);
    Kueue { client, manager, namespace: NAMESPACE, cluster_queue: NAMESPACE, flavor: "flavor" }
}

/// Waits until `check` holds for an object in the namespace `others`.
async fn is(world: &World, kind: Kind, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
    is_in(world, NAMESPACE, kind, name, what, check).await
}

/// Waits until `check` holds for an object in the namespace `namespace`.
async fn is_in(
    world: &World,
    namespace: &str,
    kind: Kind,
    name: &str,
    what: &str,
    check: impl Fn(&Value) -> bool,
) -> Result<Value> {
    wait::until(STEP, &format!("{} {name}: {what}", kind.kind), || async {
        Ok(match kind.get(&world.client, namespace, name).await? {
            None => Seen::NotYet("absent".to_owned()),
            Some(object) if check(&object) => Seen::Yes(object),
            Some(object) => Seen::NotYet(format!("{} {}", object["metadata"]["finalizers"], object["status"])),
        })
    })
    .await
}

fn runs(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

fn waits(pod: &Value) -> bool {
    !items(pod, "/spec/schedulingGates").is_empty()
}

/// Whether a Workload is Finished and has no finalizer.
fn let_go(workload: &Value) -> bool {
    condition(workload, "Finished") == "True" && items(workload, "/metadata/finalizers").is_empty()
}

async fn pods_of_set(world: &World, set: &str) -> Result<Vec<Value>> {
    let mut pods = POD.list(&world.client, NAMESPACE).await?;
    pods.retain(|pod| pod["metadata"]["labels"][JOB_SET] == json!(set));
    Ok(pods)
}

/// Waits until `count` pods of a JobSet run.
async fn set_runs(world: &World, set: &str, count: usize) -> Result<()> {
    wait::until(STEP, &format!("{count} pods of JobSet {set} run"), || async {
        let pods = pods_of_set(world, set).await?;
        let running = pods.iter().filter(|pod| runs(pod)).count();
        Ok(Seen::when(running == count && pods.len() == count, || format!("{running} of {}", pods.len())))
    })
    .await
}

async fn running(world: &World) -> Result<Runs> {
    let mut found = Runs::new();
    for kind in [POD, JOB, JOBSET] {
        for object in kind.list(&world.client, NAMESPACE).await? {
            let what = if kind == JOBSET { &object["spec"] } else { &object["status"]["startTime"] };
            if kind != POD || !waits(&object) {
                let name = format!("{} {}", kind.kind, text(&object, "/metadata/name"));
                found.insert(name, json!([object["metadata"]["uid"], what]));
            }
        }
    }
    Ok(found)
}

/// Checks that every object that ran at the beginning still exists and was never started again.
async fn untouched(world: &World, before: &Runs) -> Result<()> {
    let now = running(world).await?;
    for (name, run) in before {
        ensure!(now.get(name) == Some(run), "{name} was {run}, and is {:?}", now.get(name));
    }
    Ok(())
}

/// Waits until the queue's status has `cpus` cpus reserved, and Berth's view agrees with a fresh list.
async fn usage_is(world: &World, manager: &Manager, cpus: i128) -> Result<()> {
    wait::until(STEP, &format!("{cpus} cpus are reserved"), || async {
        let queue = CLUSTER_QUEUE.get(&world.client, "", NAMESPACE).await?.context("no queue")?;
        let reported = reserved(&queue, "total");
        Ok(Seen::when(reported == cpus * 1_000, || format!("{reported} thousandths")))
    })
    .await?;
    manager.recomputes().await
}

/// Creates two running pods and a waiting pod, a running pod group, and two running JobSets; returns the running objects.
pub(crate) async fn as_kueue_leaves_them(world: &World) -> Result<Runs> {
    create_namespace(&world.client, NAMESPACE, &[]).await?;
    let groups = [group(&[("flavor", &[quota("cpu", QUOTA)])])];
    let mut queue = manifest::cluster_queue(NAMESPACE, &groups, &json!({}));
    queue["metadata"]["finalizers"] = json!([kueue::IN_USE]);
    kinds::apply(&world.client, &queue).await?;
    kinds::apply(&world.client, &manifest::local_queue(NAMESPACE, "queue", NAMESPACE)).await?;
    let kueue = kueue(world);
    for name in ["runs", "ends"] {
        let pod = kinds::apply(&world.client, &forms::gated(forms::pod(NAMESPACE, name, "1", None))).await?;
        let workload = kueue.record(forms::workload_of_pod(&pod)).await?;
        kueue.status(&workload, "kueue-admission", &kueue.admission("1")).await?;
        kueue.start_pod(name, "main", &workload).await?;
        is(world, POD, name, "running", runs).await?;
        kueue.ready(&workload).await?;
    }
    let pod = kinds::apply(&world.client, &forms::gated(forms::pod(NAMESPACE, "waits", "2", None))).await?;
    let workload = kueue.record(forms::workload_of_pod(&pod)).await?;
    let message =
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor flavor, 1 more needed";
    let conditions = json!([kueue::is("QuotaReserved", false, "WaitingForQuota", message)]);
    kueue.status(&workload, "kueue-admission", &json!({"conditions": conditions})).await?;

    let mut pods = Vec::new();
    for name in ["crew-a", "crew-b"] {
        let pod = forms::gated(forms::pod(NAMESPACE, name, "1", Some(CREW)));
        pods.push(kinds::apply(&world.client, &pod).await?);
    }
    let group = forms::workload_of_group(&pods)?;
    let role = text(&group, "/spec/podSets/0/name").to_owned();
    let workload = kueue.record(group).await?;
    kueue.status(&workload, "kueue-admission", &kueue.admission_of(&role, 2, "2")).await?;
    for pod in &pods {
        let name = text(pod, "/metadata/name");
        kueue.start_pod(name, &role, &workload).await?;
        is(world, POD, name, "running", runs).await?;
    }
    kueue.ready(&workload).await?;

    for (name, jobs) in [("set", 2), ("done", 1)] {
        let set = kinds::apply(&world.client, &forms::job_set(NAMESPACE, name, jobs)).await?;
        let workload = kueue.record(forms::workload_of_job_set(&set)).await?;
        kueue.status(&workload, "kueue-admission", &kueue.admission_of("job", jobs, &jobs.to_string())).await?;
        kueue.start_job_set(&set, &workload).await?;
        set_runs(world, name, jobs).await?;
        kueue.ready(&workload).await?;
    }
    // The Job and the JobSet must be ready, too, before the test compares states.
    is(world, JOBSET, "set", "ready", |set| set["status"]["replicatedJobsStatus"][0]["ready"] == json!(2)).await?;
    is(world, JOBSET, "done", "ready", |set| set["status"]["replicatedJobsStatus"][0]["ready"] == json!(1)).await?;
    sets::as_kueue_leaves_them(world).await.context("StatefulSets")?;
    quiet(world).await?;
    running(world).await
}

/// Waits until the controllers of the cluster have made their last writes, so that all later writes come from an operator.
async fn quiet(world: &World) -> Result<()> {
    wait::until(STEP, "nothing is written for two seconds", || async {
        let before = world.versions().await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(Seen::when(world.versions().await? == before, || "something was".to_owned()))
    })
    .await
}

/// Lets pods succeed.
async fn end(world: &World, names: &[&str]) -> Result<()> {
    for name in names {
        let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": null, "e2e.berth.dev/run-ms": "100"}}});
        POD.patch(&world.client, NAMESPACE, name, &ends).await?;
    }
    Ok(())
}

/// Waits until pods have succeeded and Berth has removed their finalizer.
async fn ended(world: &World, names: &[&str]) -> Result<()> {
    for name in names {
        let over = |pod: &Value| text(pod, "/status/phase") == "Succeeded" && !forms::is_held(pod);
        is(world, POD, name, "succeeded and let go", over).await?;
    }
    Ok(())
}

/// Berth leads: running pods go on, ended pods give their quota back, and the pod that waits with both of Kueue's gates gets that quota.
pub(crate) async fn taken_over(world: &World, manager: &Manager, before: &Runs) -> Result<()> {
    usage_is(world, manager, 7).await?;
    untouched(world, before).await?;
    let waiting = POD.get(&world.client, NAMESPACE, "waits").await?.context("the pod that waits")?;
    ensure!(waits(&waiting), "there is no room for it: {}", waiting["status"]);
    let single = POD.get(&world.client, NAMESPACE, "ends").await?.context("the pod that ends")?;
    let single = kueue::name_of(POD, &single);
    end(world, &["ends"]).await?;
    is(world, WORKLOAD, &single, "let go", let_go).await?;
    ended(world, &["ends"]).await?;
    let started = is(world, POD, "waits", "running", |pod| runs(pod) && !waits(pod)).await?;
    ensure!(started["metadata"]["uid"] == waiting["metadata"]["uid"], "it is another pod");
    ensure!(started["spec"]["nodeSelector"]["e2e/pool"] == json!("cpu"), "{}", started["spec"]["nodeSelector"]);
    usage_is(world, manager, 8).await?;

    replaced(world).await.context("a pod of a group that Kueue started fails")?;
    end(world, &["crew-a", "crew-c"]).await?;
    is(world, WORKLOAD, CREW, "let go", let_go).await?;
    ended(world, &["crew-a", "crew-c"]).await?;
    let pods = pods_of_set(world, "done").await?;
    let names: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
    end(world, &names).await?;
    let set = is(world, JOBSET, "done", "Completed", |set| condition(set, "Completed") == "True").await?;
    is(world, WORKLOAD, &kueue::name_of(JOBSET, &set), "let go", let_go).await?;
    usage_is(world, manager, 5).await?;
    sets::taken_over(world).await.context("StatefulSets")?;
    untouched(world, before).await
}

/// A pod of a group that Kueue started fails, and the pod that its user creates in its place starts at once. The new pod can start because Berth
/// computes the same role hash as Kueue, so that the Workload has a pod set for the pod.
async fn replaced(world: &World) -> Result<()> {
    let fails = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "fail", "e2e.berth.dev/run-ms": "100"}}});
    POD.patch(&world.client, NAMESPACE, "crew-b", &fails).await?;
    is(world, POD, "crew-b", "failed", |pod| text(pod, "/status/phase") == "Failed").await?;
    let lacks = |workload: &Value| condition(workload, "WaitingForReplacementPods") == "True";
    let before = is(world, WORKLOAD, CREW, "waiting for another pod", lacks).await?;
    kinds::apply(&world.client, &forms::pod(NAMESPACE, "crew-c", "1", Some(CREW))).await?;
    let pod = is(world, POD, "crew-c", "running", |pod| runs(pod) && !waits(pod)).await?;
    let role = text(&pod, "/metadata/annotations/kueue.x-k8s.io~1role-hash");
    ensure!(role == forms::role_of(&pod), "its role is called {role:?}, and Kueue calls it {:?}", forms::role_of(&pod));
    is(world, POD, "crew-b", "let go", |pod| !forms::is_held(pod)).await?;
    let after = WORKLOAD.get(&world.client, NAMESPACE, CREW).await?.context("the Workload of the group")?;
    let admission = |workload: &Value| workload["status"]["admission"].clone();
    ensure!(admission(&before) == admission(&after), "it was admitted anew: {}", after["status"]);
    Ok(())
}

/// Creates objects that Berth starts, for the way back to Kueue.
pub(crate) async fn begun_by_berth(world: &World, manager: &Manager) -> Result<()> {
    kinds::apply(&world.client, &forms::pod(NAMESPACE, "new", "1", None)).await?;
    for name in ["next-a", "next-b"] {
        kinds::apply(&world.client, &forms::pod(NAMESPACE, name, "500m", Some("next"))).await?;
    }
    kinds::apply(&world.client, &forms::job_set(NAMESPACE, "young", 1)).await?;
    for name in ["new", "next-a", "next-b"] {
        is(world, POD, name, "running", runs).await?;
    }
    set_runs(world, "young", 1).await?;
    sets::begun_by_berth(world).await.context("StatefulSets")?;
    usage_is(world, manager, 8).await
}

/// After Berth has ended, every Workload is as Kueue would have written it, and the objects that ran under Kueue have run all the time.
pub(crate) async fn as_kueue_writes_them(world: &World, before: &Runs) -> Result<()> {
    let mut wanted = Vec::new();
    let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pod in POD.list(&world.client, NAMESPACE).await? {
        if pod["metadata"]["labels"][JOB_SET].is_string() {
            continue;
        }
        let name = text(&pod, "/metadata/name");
        ensure!(runs(&pod) == forms::is_held(&pod), "pod {name} is held: {}", forms::is_held(&pod));
        match forms::group_of(&pod) {
            "" => wanted.push(forms::workload_of_pod(&pod)),
            group => groups.entry(group.to_owned()).or_default().push(pod),
        }
    }
    for pods in groups.values() {
        for pod in pods {
            let role = &pod["metadata"]["annotations"][ROLE_HASH];
            ensure!(*role == forms::role_of(pod), "the role of {} is called {role}", pod["metadata"]["name"]);
        }
        wanted.push(forms::workload_of_group(pods)?);
    }
    wanted.extend(JOBSET.list(&world.client, NAMESPACE).await?.iter().map(forms::workload_of_job_set));
    for workload in &wanted {
        let name = text(workload, "/metadata/name");
        let found = WORKLOAD.get(&world.client, NAMESPACE, name).await?;
        let found = found.with_context(|| format!("there is no Workload {name}, as Kueue calls it"))?;
        let strange = kueue::strange(&found, workload);
        ensure!(strange.is_empty(), "Workload {name}: {}", strange.join("; "));
    }
    sets::as_kueue_writes_them(world).await.context("StatefulSets")?;
    let all = WORKLOAD.list(&world.client, NAMESPACE).await?.len();
    ensure!(all == wanted.len(), "there are {all} Workloads, and {} should be", wanted.len());
    for kind in [POD, JOBSET] {
        for object in kind.list(&world.client, NAMESPACE).await? {
            for entry in items(&object, "/metadata/managedFields") {
                let manager = text(entry, "/manager");
                ensure!(!manager.contains("berth"), "{manager} wrote into {} {}", kind.kind, kinds::key(&object));
            }
        }
    }
    untouched(world, before).await
}
