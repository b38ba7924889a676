//! A cluster is migrated from Kueue to Berth and back by the steps of docs/migrate-from-kueue.md, in their order and under the real Helm. No job is
//! restarted, the usage is right, and every queue and Workload exists at the end. This module tests the migration of Jobs, the module `others` that
//! of other kinds, and the module `definitions` that of the CRDs.

mod definitions;
mod forms;
mod kueue;
mod others;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::adoption;
use berth_e2e::batch_roles;
use berth_e2e::control_plane::{ControlPlane, Options, create_namespace};
use berth_e2e::helm::{self, Helm};
use berth_e2e::jobset::JOBSET;
use berth_e2e::kinds::{
    self, CLUSTER_QUEUE, CRD, DEPLOYMENT, FLAVOR, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD, condition, items, text,
};
use berth_e2e::manager::{Manager, ManagerOptions};
use berth_e2e::manifest::{self, Job, group, quota};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::observer::Observer;
use berth_e2e::quota_tree::{reserved, thousandths};
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{self, MUTATING, NAMES, VALIDATING};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};

use kueue::Kueue;

const TEAM: &str = "team";
const QUEUE: &str = "cq";
/// Name of the CRD that the test uses as an example for all CRDs.
const WORKLOADS: &str = "workloads.kueue.x-k8s.io";

struct World {
    plane: ControlPlane,
    client: Client,
    /// A client with the user name of Kueue's account.
    as_kueue: Client,
    helm: Helm,
}

/// Parts of a Job that must not change while the Job runs: its spec, its start time, and its pods.
type Run = (Value, Value, Vec<String>);

impl World {
    fn kueue(&self) -> Kueue<'_> {
        let (client, manager) = (&self.client, &self.as_kueue);
        Kueue { client, manager, namespace: TEAM, cluster_queue: QUEUE, flavor: "flavor" }
    }

    async fn manager(&self, name: &str, config: &str, webhooks: Option<u16>) -> Result<Manager> {
        let args = vec![format!("--leader-elect-resource-namespace={}", kueue::NAMESPACE)];
        let (name, config) = (name.to_owned(), Some(config.to_owned()));
        let options = ManagerOptions { name, config, webhooks, args, ..ManagerOptions::default() };
        Manager::start(&self.plane, options).await
    }

    /// The text of Kueue's configuration file in a ConfigMap.
    async fn configuration(&self, namespace: &str, name: &str) -> Result<String> {
        let path = r"jsonpath={.data.controller_manager_config\.yaml}";
        self.plane.kubectl(&["get", "configmap", name, "--namespace", namespace, "--output", path]).await
    }

    /// Deletes the mutating and the validating webhook configuration with the names `names`; returns the names of the remaining configurations.
    async fn delete_webhooks(&self, names: [&str; 2]) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for (kind, name) in [MUTATING, VALIDATING].into_iter().zip(names) {
            self.plane.kubectl(&["delete", kind.plural, name]).await?;
            let others = kind.list(&self.client, "").await?;
            let names = others.iter().map(|object| text(object, "/metadata/name").to_owned());
            // The webhook configurations of the JobSet controller are not counted, because they stay.
            left.extend(names.filter(|name| !name.starts_with("jobset-")));
        }
        Ok(left)
    }

    /// Waits until the API server calls Berth's webhooks and Berth answers: a job is suspended before it is stored, and a fault is reported by its
    /// field.
    async fn reviews(&self) -> Result<()> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        wait::until(STEP, "Berth answers reviews", || async {
            let job = Job::new(TEAM, "reviewed", "queue").spec(&json!({"suspend": false})).manifest();
            let job = JOB.api(&self.client, TEAM).create(&params, &serde_json::from_value(job)?).await?;
            if job.data["spec"]["suspend"] != json!(true) {
                return Ok(Seen::NotYet("a job is not suspended".to_owned()));
            }
            webhooks::asked(&self.client).await
        })
        .await
    }

    async fn job(&self, name: &str) -> Result<Value> {
        JOB.get(&self.client, TEAM, name).await?.with_context(|| format!("job {name} is gone"))
    }

    async fn workload(&self, job: &str) -> Result<Value> {
        let name = kueue::workload_name(&self.job(job).await?);
        WORKLOAD.get(&self.client, TEAM, &name).await?.with_context(|| format!("job {job} has no Workload {name}"))
    }

    async fn pods_of(&self, job: &str) -> Result<Vec<Value>> {
        let mut pods = POD.list(&self.client, TEAM).await?;
        pods.retain(|pod| items(pod, "/metadata/ownerReferences").iter().any(|owner| text(owner, "/name") == job));
        Ok(pods)
    }

    async fn pods(&self, job: &str) -> Result<Vec<String>> {
        let pods = self.pods_of(job).await?;
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

    /// Versions of all objects that an operator writes, by kind and key.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let mut add = |kind: Kind, object: &Value| {
            let name = format!("{} {}", kind.kind, kinds::key(object));
            found.insert(name, text(object, "/metadata/resourceVersion").to_owned());
        };
        for kind in [WORKLOAD, JOB, JOBSET, CLUSTER_QUEUE, LOCAL_QUEUE, FLAVOR] {
            for object in kind.all(&self.client).list(&Default::default()).await?.items {
                add(kind, &serde_json::to_value(object)?);
            }
        }
        for pod in POD.list(&self.client, others::NAMESPACE).await? {
            add(POD, &pod);
        }
        Ok(found)
    }

    /// Checks that a manager that follows writes nothing.
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

    /// Waits until the queue's status agrees with its Workloads, and Berth's view agrees with a fresh list.
    async fn usage_is_right(&self, manager: &Manager) -> Result<()> {
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
            let reported = reserved(&queue, "total");
            Ok(Seen::when(reported == sum && sum <= 5_000, || format!("told {reported}, held {sum}")))
        })
        .await?;
        manager.recomputes().await
    }
}

/// Creates Kueue's release, its queues, and Workloads in each state.
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
    // The job `keeps` runs until the end of the test; the job `ends` runs until Berth leads.
    for (name, cpu) in [("keeps", "2"), ("ends", "1")] {
        let workload = kueue.run(job(name, cpu).endless(), cpu).await.context(name)?;
        world.until(name, "its pods are ready", |job, _| job["status"]["ready"] == json!(1)).await?;
        kueue.ready(&workload).await?;
    }
    // The job `begins` is admitted, and Kueue ended before it could start the Job.
    let (_, workload) = kueue.queue(job("begins", "1").endless()).await?;
    kueue.status(&workload, "kueue-admission", &kueue.admission("1")).await?;
    // The job `leaves` is being evicted, and Kueue ended before it could stop the Job.
    let workload = kueue.run(job("leaves", "1").endless(), "1").await?;
    let mut status = kueue.admission("1");
    let message = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue";
    for (kind, reason) in [("Evicted", "Preempted"), ("Preempted", "InClusterQueue")] {
        status["conditions"].as_array_mut().context("conditions")?.push(kueue::is(kind, true, reason, message));
    }
    let eviction = json!({"reason": "Preempted", "underlyingCause": "", "count": 1});
    status["schedulingStats"] = json!({"evictions": [eviction]});
    kueue.status(&workload, "kueue-admission", &status).await?;
    // The job `waits` waits, because it requests more than is left of the quota.
    let (_, workload) = kueue.queue(job("waits", "4").endless()).await?;
    let message =
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor flavor, 4 more needed";
    let conditions = json!([kueue::is("QuotaReserved", false, "WaitingForQuota", message)]);
    kueue.status(&workload, "kueue-admission", &json!({"conditions": conditions})).await?;
    // The job `returns` was evicted because its pods were not ready in time, and may be admitted again in a second.
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

/// Installs Berth's release beside Kueue's, with Kueue's configuration: no object of Kueue's is changed.
async fn installed_beside_kueue(world: &World, config: &str) -> Result<()> {
    let file = world.plane.folder().join("config.yaml");
    std::fs::write(&file, config)?;
    let chart = helm::chart().display().to_string();
    let given = format!("managerConfig.controllerManagerConfigYaml={}", file.display());
    let mut args = vec!["install", "berth", &*chart, "--namespace", helm::NAMESPACE, "--create-namespace"];
    args.extend(["--set-file", &*given]);
    // Without a kubelet the pods of the release run nothing and its Service leads to no process, so the test installs the webhooks with the address
    // of the manager.
    args.extend(["--set", "webhook.enabled=false"]);
    let output = world.helm.run(&args).await?;
    ensure!(
        !output.ok && output.err.contains("kueue-batch-user-role") && output.err.contains("invalid ownership metadata"),
        "Helm takes nothing over unasked: {}",
        output.err
    );
    world.helm.ok(&[&args[..], &["--set", "crds.install=false,batchRoles=false"]].concat()).await?;
    definitions::are_converted_by_kueue(world).await?;
    let kept = world.configuration(helm::NAMESPACE, "berth-manager-config").await?;
    ensure!(kept.trim() == config.trim(), "Berth is not given Kueue's configuration:\n{kept}");
    ensure!(
        DEPLOYMENT.get(&world.client, kueue::NAMESPACE, "kueue-controller-manager").await?.is_some(),
        "Kueue is there"
    );
    Ok(())
}

/// Checks that Berth warns about the parts of Kueue's configuration that it interprets in another way.
fn reported_at_the_start(manager: &Manager) -> Result<()> {
    let log = std::fs::read_to_string(manager.log())?;
    for part in ["kueue-webhook-server-cert", "kueue-webhook-service", "managedJobsNamespaceSelector", "ray.io/rayjob"]
    {
        ensure!(log.contains(part), "nothing is said of {part}: {log}");
    }
    Ok(())
}

/// Kueue and Berth serve reviews until Kueue's webhooks are deleted; after that only Berth does, although it does not lead yet.
async fn webhooks_change_hands(world: &World) -> Result<()> {
    // The test takes Kueue's lease again, so that the lease does not expire during this step.
    kueue::lead(&world.client, true).await?;
    world.reviews().await?;
    definitions::are_converted_by_kueue(world).await?;
    let left = world.delete_webhooks(kueue::WEBHOOKS).await?;
    ensure!(left == NAMES, "{left:?} are left");
    world.reviews().await
}

/// Kueue ends, and Berth continues from the state that Kueue left.
async fn taken_over(world: &World, manager: &Manager) -> Result<()> {
    let keeps = world.run_of("keeps").await?;
    let ends = world.pods("ends").await?;
    let scale = ["scale", "deployment", "kueue-controller-manager", "--replicas=0", "--namespace", kueue::NAMESPACE];
    world.plane.kubectl(&scale).await?;
    kueue::lead(&world.client, false).await?;
    world.until("begins", "started", |job, _| job["status"]["ready"] == json!(1)).await?;
    world
        .until("leaves", "stopped and its quota released", |job, workload| {
            let history = items(workload, "/status/schedulingStats/evictions");
            let evicted_once = !history.is_empty() && history.iter().all(|e| e["count"] == json!(1));
            job["metadata"]["generation"].as_i64() > Some(2) && evicted_once
        })
        .await?;
    world
        .until("returns", "back in its queue", |_, workload| {
            condition(workload, "Requeued") == "True" || condition(workload, "QuotaReserved") == "True"
        })
        .await?;
    ensure!(condition(&world.workload("waits").await?, "QuotaReserved") == "False", "there is no room for 4 more");
    world.usage_is_right(manager).await?;
    for pod in world.pods_of("ends").await? {
        let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": null}}});
        POD.patch(&world.client, TEAM, text(&pod, "/metadata/name"), &ends).await?;
    }
    world.until("ends", "finished", |_, workload| condition(workload, "Finished") == "True").await?;
    ensure!(
        ends.first().map(|pod| pod.split(' ').next())
            == world.pods("ends").await?.first().map(|pod| pod.split(' ').next()),
        "job ends was restarted"
    );
    ensure!(world.run_of("keeps").await? == keeps, "job keeps was touched");
    world.usage_is_right(manager).await
}

/// Kueue's release is uninstalled, and no object of Berth's goes with it.
async fn kueue_is_uninstalled(world: &World) -> Result<()> {
    let before = world.versions().await?.into_keys().collect::<Vec<_>>();
    world.helm.ok(&["uninstall", "kueue", "--namespace", kueue::NAMESPACE]).await?;
    ensure!(
        DEPLOYMENT.get(&world.client, kueue::NAMESPACE, "kueue-controller-manager").await?.is_none(),
        "Kueue is gone"
    );
    ensure!(world.versions().await?.into_keys().collect::<Vec<_>>() == before, "something went with Kueue's release");
    adoption::are_berths(&world.client).await?;
    batch_roles::hold(&world.client).await
}

/// Kueue is installed beside Berth again, and gets all objects back in the form in which it would have written them.
async fn given_back(
    world: &World,
    config: &str,
    (mut manager, observer): (Manager, &Observer),
    before: &others::Runs,
) -> Result<()> {
    let chart = world.plane.folder().join("kueue-chart").display().to_string();
    let args = ["install", "kueue", &*chart, "--namespace", kueue::NAMESPACE, "--take-ownership", "--force-conflicts"];
    world.helm.ok(&args).await?;
    adoption::belong_to(&world.client, "kueue").await?;
    let leader = kueue::leader(&world.client).await?;
    ensure!(!leader.is_empty() && !leader.starts_with("kueue-"), "Kueue follows, and {leader:?} leads");
    kinds::apply(&world.client, &Job::new(TEAM, "new", "queue").cpu("1").endless().manifest()).await?;
    world
        .until("new", "has a Workload of Berth's", |_, workload| !condition(workload, "QuotaReserved").is_empty())
        .await?;
    others::begun_by_berth(world, &manager).await.context("what Berth begins")?;
    let log = std::fs::read_to_string(manager.log())?;
    ensure!(!log.contains("Forbidden"), "something is forbidden: {}", manager.log_tail(20));
    let keeps = world.run_of("keeps").await?;
    // The observer gives its verdict on the time under Berth while Berth still leads, because no process updates the statuses after Berth has ended.
    observer.conclude(Duration::from_secs(6)).await.context("the promises")?;
    observer.nobody_leads();
    // Berth's webhooks are deleted, because no server would answer them after Berth has ended.
    let left = world.delete_webhooks(NAMES).await?;
    ensure!(left == kueue::WEBHOOKS, "{left:?} are left");
    let scale = ["scale", "deployment", "berth-controller-manager", "--replicas=0", "--namespace", helm::NAMESPACE];
    world.plane.kubectl(&scale).await?;
    manager.terminate(Duration::from_secs(60));
    ensure!(kueue::leader(&world.client).await?.is_empty(), "Berth gives the lease up when it ends");
    for job in JOB.list(&world.client, TEAM).await? {
        let name = text(&job, "/metadata/name");
        let strange = kueue::strange(&world.workload(name).await?, &kueue::workload_of(&job));
        ensure!(strange.is_empty(), "job {name}: {}", strange.join("; "));
    }
    others::as_kueue_writes_them(world, before).await.context("pods and JobSets for Kueue")?;
    kueue::lead(&world.client, true).await?;
    let manager = world.manager("again", config, None).await?;
    world.only_follows(&manager).await?;
    drop(manager);
    world.helm.ok(&["uninstall", "berth", "--namespace", helm::NAMESPACE]).await?;
    ensure!(CRD.get(&world.client, "", WORKLOADS).await?.is_some(), "the CRDs stay");
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
    let _controller = others::controller(world).await.context("the controller of JobSets")?;
    let before = others::as_kueue_leaves_them(world).await.context("what Kueue leaves of pods and JobSets")?;
    definitions::stored_in_one_version(world).await.context("what is stored as v1beta1")?;
    definitions::adopted(world).await.context("the CRDs are adopted")?;
    let config = world.configuration(kueue::NAMESPACE, "kueue-manager-config").await?;
    installed_beside_kueue(world, &config).await.context("installed beside Kueue")?;
    // After the installation of Berth's release the API server serves all kinds that the observer watches, so the observer starts. Until Kueue gives its lease
    // up, Berth need not act, and must not write.
    let observer = Observer::start(world.client.clone()).await?;
    observer.nobody_leads();
    let port = webhooks::port()?;
    webhooks::install(&world.client, port, "Fail").await?;
    kueue::lead(&world.client, true).await?;
    let manager = world.manager("berth", &config, Some(port)).await?;
    reported_at_the_start(&manager)?;
    world.only_follows(&manager).await.context("Berth follows")?;
    webhooks_change_hands(world).await.context("Kueue's webhooks go")?;
    observer.somebody_leads();
    taken_over(world, &manager).await.context("Berth takes over")?;
    others::taken_over(world, &manager, &before).await.context("Berth takes pods and JobSets over")?;
    definitions::kueue_could_come_back(world).await.context("the way back of step 5")?;
    definitions::converted_by_berth(world, &manager).await.context("Berth converts")?;
    kueue_is_uninstalled(world).await.context("Kueue is uninstalled")?;
    given_back(world, &config, (manager, &observer), &before).await.context("Kueue takes back")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_moves_from_kueue_to_berth_and_back() -> Result<()> {
    let plane = ControlPlane::start(Options { name: "migration".to_owned(), ..Options::default() }).await?;
    let client = plane.client();
    let _ = berth_e2e::shipped::binary()?;
    nodes::create(&client, &[Pool::cpu("cpu", 2, Tier::OnDemand).label("e2e/pool", "cpu")]).await?;
    let helm = Helm::new(Some(&plane)).await?;
    let as_kueue = plane.client_as(webhooks::KUEUE).await?;
    let world = World { plane, client, as_kueue, helm };
    let mut outcome = story(&world).await;
    if let Err(error) = outcome {
        world.plane.keep_files();
        let mut worlds = String::new();
        for namespace in [TEAM, others::NAMESPACE] {
            worlds.push_str(&berth_e2e::world::dump(&world.client, namespace).await);
        }
        // The cause of the failure comes last, because a reader of a long log sees its end before the rest.
        outcome = Err(anyhow::anyhow!("{worlds}\n{error:#}"));
    }
    world.plane.stop().await;
    outcome
}
