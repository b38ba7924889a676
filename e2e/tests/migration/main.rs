//! A cluster moves from Kueue to Berth and back by the steps of docs/migrate-from-kueue.md, under the real Helm: no job is restarted,
//! the books are right, and every queue and Workload is there at the end.

mod kueue;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::control_plane::{ControlPlane, Options, create_namespace};
use berth_e2e::helm::{self, Helm};
use berth_e2e::kinds::{
    self, CLUSTER_QUEUE, CRD, DEPLOYMENT, FLAVOR, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD, condition, items, text,
};
use berth_e2e::manager::{self, Manager, ManagerOptions};
use berth_e2e::manifest::{self, Job, group, quota};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::quota_tree::{reserved, thousandths};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::MUTATING;
use kube::Client;
use serde_json::{Value, json};

use kueue::Kueue;

const TEAM: &str = "team";
const QUEUE: &str = "cq";

struct World {
    plane: ControlPlane,
    client: Client,
    helm: Helm,
}

/// What must not change of a Job that nobody may restart: its spec, when it started, and its pods.
type Run = (Value, Value, Vec<String>);

impl World {
    fn kueue(&self) -> Kueue<'_> {
        Kueue { client: &self.client, namespace: TEAM, cluster_queue: QUEUE, flavor: "flavor" }
    }

    async fn manager(&self, name: &str) -> Result<Manager> {
        let args = vec![format!("--leader-elect-resource-namespace={}", kueue::NAMESPACE)];
        let options = ManagerOptions { name: name.to_owned(), args, ..ManagerOptions::default() };
        Manager::start(&self.plane, options).await
    }

    async fn job(&self, name: &str) -> Result<Value> {
        JOB.get(&self.client, TEAM, name).await?.with_context(|| format!("job {name} is gone"))
    }

    async fn workload(&self, job: &str) -> Result<Value> {
        let name = kueue::workload_name(&self.job(job).await?);
        WORKLOAD.get(&self.client, TEAM, &name).await?.with_context(|| format!("job {job} has no Workload {name}"))
    }

    async fn pods(&self, job: &str) -> Result<Vec<String>> {
        let mut pods = POD.list(&self.client, TEAM).await?;
        pods.retain(|pod| items(pod, "/metadata/ownerReferences").iter().any(|owner| text(owner, "/name") == job));
        Ok(pods.iter().map(|pod| format!("{} {}", text(pod, "/metadata/uid"), text(pod, "/status/phase"))).collect())
    }

    async fn run_of(&self, job: &str) -> Result<Run> {
        let object = self.job(job).await?;
        Ok((object["spec"].clone(), object["status"]["startTime"].clone(), self.pods(job).await?))
    }

    async fn until(&self, job: &str, what: &str, check: impl Fn(&Value, &Value) -> bool) -> Result<()> {
        wait::until(STEP, &format!("{job}: {what}"), || async {
            let (object, workload) = (self.job(job).await?, self.workload(job).await?);
            Ok(Seen::when(check(&object, &workload), || format!("{} {}", object["status"], workload["status"])))
        })
        .await
    }

    /// Versions of all that an operator writes.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for kind in [WORKLOAD, JOB, CLUSTER_QUEUE, LOCAL_QUEUE, FLAVOR] {
            for object in kind.all(&self.client).list(&Default::default()).await?.items {
                let object = serde_json::to_value(object)?;
                found.insert(
                    format!("{} {}", kind.kind, kinds::key(&object)),
                    text(&object, "/metadata/resourceVersion").to_owned(),
                );
            }
        }
        Ok(found)
    }

    /// Whoever follows writes nothing.
    async fn only_follows(&self, manager: &Manager) -> Result<()> {
        let before = self.versions().await?;
        let log = || format!("it follows, and something was written; log:\n{}", manager.log_tail(5));
        wait::stays(Duration::from_secs(2), "nothing is written", || async {
            Ok(Seen::when(self.versions().await? == before, log))
        })
        .await?;
        ensure!(kueue::leader(&self.client).await?.starts_with("kueue-"), "the lease is Kueue's");
        Ok(())
    }

    /// The queue's status says what its Workloads hold, and the view what a fresh list says.
    async fn books_are_right(&self, manager: &Manager) -> Result<()> {
        wait::until(STEP, "the queue's reservation is the sum of its Workloads'", || async {
            let mut sum = 0;
            for workload in WORKLOAD.list(&self.client, TEAM).await? {
                if condition(&workload, "QuotaReserved") != "True" || condition(&workload, "Finished") == "True" {
                    continue;
                }
                let sets = items(&workload, "/status/admission/podSetAssignments");
                sum += sets.iter().filter_map(|set| thousandths(&set["resourceUsage"]["cpu"])).sum::<i128>();
            }
            let queue = CLUSTER_QUEUE.get(&self.client, "", QUEUE).await?.context("no queue")?;
            let told = reserved(&queue, "total");
            Ok(Seen::when(told == sum && sum <= 5_000, || format!("told {told}, held {sum}")))
        })
        .await?;
        manager.recomputes().await
    }
}

/// Kueue's release, queues, and Workloads in each state.
async fn as_kueue_leaves_it(world: &World) -> Result<()> {
    let chart = world.plane.folder().join("kueue-chart");
    kueue::write_chart(&chart)?;
    let chart = chart.display().to_string();
    world.helm.ok(&["install", "kueue", &chart, "--namespace", kueue::NAMESPACE, "--create-namespace"]).await?;
    kueue::lead(&world.client, true).await?;
    create_namespace(&world.client, TEAM, &[]).await?;
    for kind in [WORKLOAD, CLUSTER_QUEUE] {
        wait::until(STEP, "the kinds are served", || async {
            kind.all(&world.client).list(&Default::default()).await?;
            Ok(Seen::Yes(()))
        })
        .await?;
    }
    let groups = [group(&[("flavor", &[quota("cpu", "5")])])];
    let mut flavor = manifest::flavor("flavor", &[("e2e/pool", "cpu")]);
    let mut queue = manifest::cluster_queue(QUEUE, &groups, &json!({}));
    for object in [&mut flavor, &mut queue] {
        object["metadata"]["finalizers"] = json!([kueue::IN_USE]);
        kinds::apply(&world.client, object).await?;
    }
    kinds::apply(&world.client, &manifest::local_queue(TEAM, "queue", QUEUE)).await?;
    let kueue = world.kueue();
    let job = |name: &str, cpu: &str| Job::new(TEAM, name, "queue").cpu(cpu);
    // Runs on and on; runs and ends while Berth leads.
    for (name, cpu, object) in
        [("keeps", "2", job("keeps", "2").endless()), ("ends", "1", job("ends", "1").run_ms(12_000))]
    {
        let workload = kueue.run(object, cpu).await.context(name)?;
        world.until(name, "its pods are ready", |job, _| job["status"]["ready"] == json!(1)).await?;
        kueue.ready(&workload).await?;
    }
    // Admitted, and Kueue ended before it could start the Job.
    let (_, workload) = kueue.queue(job("begins", "1").endless()).await?;
    kueue.status(&workload, "kueue-admission", &kueue.admission("1")).await?;
    // Being evicted, and Kueue ended before it could stop the Job.
    let workload = kueue.run(job("leaves", "1").endless(), "1").await?;
    let mut status = kueue.admission("1");
    let message = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue";
    for (kind, reason) in [("Evicted", "Preempted"), ("Preempted", "InClusterQueue")] {
        status["conditions"].as_array_mut().context("conditions")?.push(kueue::is(kind, true, reason, message));
    }
    let eviction = json!({"reason": "Preempted", "underlyingCause": "", "count": 1});
    status["schedulingStats"] = json!({"evictions": [eviction]});
    kueue.status(&workload, "kueue-admission", &status).await?;
    // Waits, for it asks for more than is left.
    let (_, workload) = kueue.queue(job("waits", "4").endless()).await?;
    let message =
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor flavor, 4 more needed";
    let conditions = json!([kueue::is("QuotaReserved", false, "WaitingForQuota", message)]);
    kueue.status(&workload, "kueue-admission", &json!({"conditions": conditions})).await?;
    // Evicted because its pods were not ready in time; may come back in a second.
    let (_, workload) = kueue.queue(job("returns", "1").endless()).await?;
    let message = "Exceeded the PodsReady timeout team/returns";
    let later = jiff::Timestamp::now() + Duration::from_secs(1);
    let status = json!({
        "conditions": [kueue::is("QuotaReserved", false, "PendingEvaluation", message), kueue::is("Evicted", true, "PodsReadyTimeout", message),
            kueue::is("Admitted", false, "NoReservation", "The workload has no reservation"),
            kueue::is("Requeued", false, "PodsReadyTimeout", message)],
        "requeueState": {"count": 1, "requeueAt": later.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
        "schedulingStats": {"evictions": [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}]},
    });
    kueue.status(&workload, "kueue-admission", &status).await
}

/// What Berth's release takes over, and that nothing of Kueue's own is touched by it.
async fn installed_beside_kueue(world: &World) -> Result<()> {
    let chart = helm::chart().display().to_string();
    let mut args = vec!["install", "berth", &*chart, "--namespace", helm::NAMESPACE, "--create-namespace"];
    // No kubelet: the pods of the release run nothing, and nobody serves its webhooks.
    args.extend(["--set", "webhook.enabled=false"]);
    let said = world.helm.run(&args).await?;
    ensure!(
        !said.ok && said.err.contains("invalid ownership metadata"),
        "Helm takes nothing over unasked: {}",
        said.err
    );
    world.helm.ok(&[&args[..], &["--take-ownership", "--force-conflicts"]].concat()).await?;
    let definition = CRD.get(&world.client, "", "workloads.kueue.x-k8s.io").await?.context("no CRD")?;
    let release = text(&definition, "/metadata/annotations/meta.helm.sh~1release-name");
    ensure!(release == "berth", "the CRD belongs to {release:?}");
    ensure!(text(&definition, "/metadata/annotations/helm.sh~1resource-policy") == "keep", "it stays");
    ensure!(
        DEPLOYMENT.get(&world.client, kueue::NAMESPACE, "kueue-controller-manager").await?.is_some(),
        "Kueue is there"
    );
    Ok(())
}

/// Kueue ends, and Berth goes on where it stopped.
async fn taken_over(world: &World, manager: &Manager) -> Result<()> {
    let keeps = world.run_of("keeps").await?;
    let ends = world.pods("ends").await?;
    let names = ["kueue-mutating-webhook-configuration"];
    MUTATING.delete(&world.client, "", names[0]).await?;
    let scale = ["scale", "deployment", "kueue-controller-manager", "--replicas=0", "--namespace", kueue::NAMESPACE];
    world.plane.kubectl(&scale).await?;
    kueue::lead(&world.client, false).await?;
    world.until("begins", "started", |job, _| job["status"]["ready"] == json!(1)).await?;
    world
        .until("leaves", "stopped and its quota released", |job, workload| {
            let history = items(workload, "/status/schedulingStats/evictions");
            job["metadata"]["generation"].as_i64() > Some(2) && history.iter().all(|e| e["count"] == json!(1))
        })
        .await?;
    world
        .until("returns", "back in its queue", |_, workload| {
            condition(workload, "Requeued") == "True" || condition(workload, "QuotaReserved") == "True"
        })
        .await?;
    ensure!(condition(&world.workload("waits").await?, "QuotaReserved") == "False", "there is no room for 4 more");
    world.books_are_right(manager).await?;
    world.until("ends", "finished", |_, workload| condition(workload, "Finished") == "True").await?;
    ensure!(
        ends.first().map(|pod| pod.split(' ').next())
            == world.pods("ends").await?.first().map(|pod| pod.split(' ').next()),
        "job ends was restarted"
    );
    ensure!(world.run_of("keeps").await? == keeps, "job keeps was touched");
    world.books_are_right(manager).await
}

/// Kueue's release goes, and takes nothing along.
async fn kueue_is_uninstalled(world: &World) -> Result<()> {
    let before = world.versions().await?.into_keys().collect::<Vec<_>>();
    world.helm.ok(&["uninstall", "kueue", "--namespace", kueue::NAMESPACE]).await?;
    ensure!(
        DEPLOYMENT.get(&world.client, kueue::NAMESPACE, "kueue-controller-manager").await?.is_none(),
        "Kueue is gone"
    );
    ensure!(world.versions().await?.into_keys().collect::<Vec<_>>() == before, "something went with Kueue's release");
    Ok(())
}

/// Everything that Berth wrote is as Kueue would have written it, and Kueue takes back.
async fn given_back(world: &World, mut manager: Manager) -> Result<()> {
    kinds::apply(&world.client, &Job::new(TEAM, "new", "queue").cpu("1").endless().manifest()).await?;
    world
        .until("new", "has a Workload of Berth's", |_, workload| !condition(workload, "QuotaReserved").is_empty())
        .await?;
    let keeps = world.run_of("keeps").await?;
    manager.terminate(Duration::from_secs(15));
    ensure!(kueue::leader(&world.client).await?.is_empty(), "Berth gives the lease up when it ends");
    for job in JOB.list(&world.client, TEAM).await? {
        let name = text(&job, "/metadata/name");
        let strange = kueue::strange(&world.workload(name).await?, &job);
        ensure!(strange.is_empty(), "job {name}: {}", strange.join("; "));
    }
    let chart = world.plane.folder().join("kueue-chart").display().to_string();
    let args = ["install", "kueue", &*chart, "--namespace", kueue::NAMESPACE, "--take-ownership", "--force-conflicts"];
    world.helm.ok(&args).await?;
    kueue::lead(&world.client, true).await?;
    let manager = world.manager("again").await?;
    world.only_follows(&manager).await?;
    drop(manager);
    world.helm.ok(&["uninstall", "berth", "--namespace", helm::NAMESPACE]).await?;
    ensure!(CRD.get(&world.client, "", "workloads.kueue.x-k8s.io").await?.is_some(), "the CRDs stay");
    ensure!(world.run_of("keeps").await? == keeps, "job keeps was touched");
    let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
    for (kind, name) in [(CLUSTER_QUEUE, QUEUE), (FLAVOR, "flavor")] {
        let object = Kind::get(kind, &world.client, "", name).await?.with_context(|| format!("{name} is gone"))?;
        ensure!(finalizers(&object) == json!([kueue::IN_USE]), "{name} lost Kueue's finalizer");
    }
    Ok(())
}

async fn story(world: &World) -> Result<()> {
    as_kueue_leaves_it(world).await.context("what Kueue leaves")?;
    installed_beside_kueue(world).await.context("installed beside Kueue")?;
    let manager = world.manager("berth").await?;
    world.only_follows(&manager).await.context("Berth follows")?;
    taken_over(world, &manager).await.context("Berth takes over")?;
    kueue_is_uninstalled(world).await.context("Kueue is uninstalled")?;
    given_back(world, manager).await.context("Kueue takes back")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_and_back() -> Result<()> {
    let plane = ControlPlane::start(Options { name: "migration".to_owned(), ..Options::default() }).await?;
    let client = plane.client();
    let _ = manager::binary()?;
    nodes::create(&client, &[Pool::cpu("cpu", 2, Tier::OnDemand).label("e2e/pool", "cpu")]).await?;
    let helm = Helm::new(Some(&plane)).await?;
    let world = World { plane, client, helm };
    let mut outcome = story(&world).await;
    if let Err(error) = outcome {
        world.plane.keep_files();
        outcome = Err(anyhow::anyhow!("{error:#}\n{}", berth_e2e::world::dump(&world.client, TEAM).await));
    }
    world.plane.stop().await;
    outcome
}
