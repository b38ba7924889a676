//! The real Kueue hands a cluster over to Berth and takes it back, with every job kind that Kueue and Berth have in common: no job restarts, the
//! usage is right, and each of the two frees the quota that the other admitted. The module `chart` follows the documented steps, with Kueue's own
//! chart and Helm. With `KUEUE=1` (`make night PART=kueue`) the Kueue that `e2e/kueue/go.mod` requires is built from its Go module: 0.17, the newest
//! version that exists as a Go module. `KUEUE=folder` names a checkout of a version such as 0.19 in which `bin/manager` is built. Without the
//! variable `KUEUE` a test prints that it was skipped.
//!
//! Kueue 0.17 lacks some behaviour of 0.19, which docs/migrate-from-kueue.md describes; a test that checks less because of that says so.

mod chart;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use berth_e2e::control_plane::{ControlPlane, Options, create_namespace};
use berth_e2e::jobset::{self, JOBSET};
use berth_e2e::kinds::{
    self, CLUSTER_QUEUE, DEPLOYMENT, FLAVOR, JOB, Kind, LOCAL_QUEUE, POD, STATEFUL_SET, WORKLOAD, condition, items,
    text,
};
use berth_e2e::kueue::{Kueue, NAMESPACE as SYSTEM, SKIPPED, Start};
use berth_e2e::manager::{self, Manager, ManagerOptions};
use berth_e2e::manifest::{self, Job, group, merge, quota};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::process::{Guarded, free_ports};
use berth_e2e::quota_tree::reserved;
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{self, MUTATING, NAMES, VALIDATING};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};

const TEAM: &str = "team";
const QUEUE: &str = "cq";
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
const WEBHOOKS: [&str; 2] = ["kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"];
const FRAMEWORKS: [&str; 5] = ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset"];
/// Time limit for a handover, which is longer than a lease.
const HANDOVER: Duration = Duration::from_secs(60);
/// Only one story runs at a time, because two control planes, each with a Kueue and a Berth, are too much for a small machine.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

struct World {
    plane: ControlPlane,
    client: Client,
    kueue: Kueue,
    port: u16,
}

impl World {
    /// Starts Kueue's manager, which leads or follows.
    fn start(&self, name: &'static str) -> Result<Guarded> {
        self.start_with(name, configuration(), &self.plane.kubeconfig_as(webhooks::KUEUE)?)
    }

    /// Starts Kueue's manager as [`World::start`] does, with the configuration `config`, apart from addresses and certificates, and a kubeconfig.
    fn start_with(&self, name: &'static str, config: Value, kubeconfig: &Path) -> Result<Guarded> {
        let [health] = free_ports()?;
        self.kueue.start(&self.plane, Start { name, config, kubeconfig, webhooks: self.port, health })
    }

    /// Installs Kueue's webhooks, for the kinds that the cluster has, under Kueue's names.
    async fn install_kueues_webhooks(&self) -> Result<()> {
        let text = fs::read_to_string(self.kueue.sources().join("config/components/webhook/manifests.yaml"))?;
        let authority = base64::engine::general_purpose::STANDARD.encode(fs::read(self.plane.authority())?);
        let elsewhere = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn",
            "values": ["kube-system", SYSTEM, "berth-system"]});
        for (mut object, name) in kinds::parse(&text)?.into_iter().zip(WEBHOOKS) {
            object["metadata"]["name"] = json!(name);
            let list = object["webhooks"].as_array_mut().context("webhooks")?;
            list.retain(|webhook| {
                let group = kinds::text(webhook, "/rules/0/apiGroups/0");
                ["", "apps", "batch", "kueue.x-k8s.io", "jobset.x-k8s.io"].contains(&group)
            });
            for webhook in list {
                let path = kinds::text(webhook, "/clientConfig/service/path").to_owned();
                let url = format!("https://127.0.0.1:{}{path}", self.port);
                webhook["clientConfig"] = json!({"url": url, "caBundle": authority});
                webhook["namespaceSelector"] = json!({"matchExpressions": [elsewhere]});
            }
            kinds::apply(&self.client, &object).await?;
        }
        Ok(())
    }

    async fn delete_webhooks(&self, names: [&str; 2]) -> Result<()> {
        for (kind, name) in [MUTATING, VALIDATING].into_iter().zip(names) {
            kind.delete(&self.client, "", name).await?;
        }
        Ok(())
    }

    /// Waits until Kueue's webhooks accept connections.
    async fn kueue_serves(&self) -> Result<()> {
        wait::until(HANDOVER, "Kueue's webhooks serve", || async {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await;
            Ok(Seen::when(connected.is_ok(), || format!("{connected:?}")))
        })
        .await
    }

    /// Holder of Kueue's lease; empty if there is no lease.
    async fn leader(&self) -> Result<String> {
        let leases = Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
        let lease = leases.get(&self.client, SYSTEM, LEASE).await?.unwrap_or_default();
        Ok(text(&lease, "/spec/holderIdentity").to_owned())
    }

    async fn leader_is(&self, what: &str, check: impl Fn(&str) -> bool) -> Result<()> {
        wait::until(HANDOVER, what, || async {
            let holder = self.leader().await?;
            Ok(Seen::when(check(&holder), || format!("the lease is {holder:?}'s")))
        })
        .await
    }

    async fn create(&self, object: &Value) -> Result<()> {
        kinds::apply(&self.client, object)
            .await
            .map(drop)
            .with_context(|| format!("{} {}", object["kind"], kinds::key(object)))
    }

    /// Running objects by name, with the fields that must not change: the uid, node, gates and phase of a pod; the uid, spec, start time and restarts
    /// of a job.
    async fn running(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for kind in [JOB, JOBSET, STATEFUL_SET, DEPLOYMENT, POD] {
            for object in kind.list(&self.client, TEAM).await? {
                let what = if kind == POD {
                    json!([object["spec"]["nodeName"], object["spec"]["schedulingGates"], object["status"]["phase"]])
                } else {
                    json!([object["spec"], object["status"]["startTime"], object["status"]["restarts"]])
                };
                let uid = text(&object, "/metadata/uid");
                found.insert(format!("{} {}", kind.kind, kinds::key(&object)), format!("{uid} {what}"));
            }
        }
        Ok(found)
    }

    /// Versions of all objects that an operator writes, without the objects in the namespaces of the two operators.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for kind in [WORKLOAD, JOB, JOBSET, STATEFUL_SET, DEPLOYMENT, POD, CLUSTER_QUEUE, LOCAL_QUEUE, FLAVOR] {
            for object in kind.all(&self.client).list(&Default::default()).await?.items {
                let object = serde_json::to_value(object)?;
                if [SYSTEM, manager::NAMESPACE].contains(&text(&object, "/metadata/namespace")) {
                    continue;
                }
                let version = text(&object, "/metadata/resourceVersion").to_owned();
                found.insert(format!("{} {}", kind.kind, kinds::key(&object)), version);
            }
        }
        Ok(found)
    }

    /// Waits until the ClusterQueue's status has `wanted` thousandths of a cpu reserved, and its Workloads hold the same amount.
    async fn holds(&self, wanted: i128) -> Result<()> {
        wait::until(STEP, &format!("{wanted} thousandths of a cpu are held"), || async {
            let queue = CLUSTER_QUEUE.get(&self.client, "", QUEUE).await?.context("no queue")?;
            let workloads = WORKLOAD.list(&self.client, TEAM).await?;
            let holds = |w: &&Value| condition(w, "QuotaReserved") == "True" && condition(w, "Finished") != "True";
            let names: Vec<&str> = workloads.iter().filter(holds).map(|w| text(w, "/metadata/name")).collect();
            let reported = reserved(&queue, "total");
            Ok(Seen::when(reported == wanted, || format!("told {reported}, held by {names:?}")))
        })
        .await
    }

    async fn is(&self, kind: Kind, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
        wait::until(STEP, &format!("{} {name}: {what}", kind.kind), || async {
            let object = kind.get(&self.client, TEAM, name).await?.unwrap_or_default();
            Ok(Seen::when(check(&object), || object.to_string()))
        })
        .await
    }

    async fn starts(&self, job: &str) -> Result<()> {
        self.is(JOB, job, "runs", |job| job["status"]["ready"] == json!(1)).await
    }
}

/// Kueue's configuration, without addresses.
fn configuration() -> Value {
    json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "leaderElection": {"leaderElect": true, "resourceName": LEASE},
        "integrations": {"frameworks": FRAMEWORKS}})
}

/// The real Kueue, if the environment asks for it; otherwise the test prints that it was skipped.
async fn asked() -> Result<Option<Kueue>> {
    let kueue = tokio::task::spawn_blocking(Kueue::asked).await??;
    if kueue.is_none() {
        println!("{SKIPPED}");
    }
    Ok(kueue)
}

fn pod(name: &str, cpu: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": TEAM, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"},
            "annotations": {"e2e.berth.dev/outcome": "never"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "work", "resources": {"requests": {"cpu": cpu}}}]}});
    merge(&mut object, more);
    object
}

/// A pod of a group of two pods.
fn member(name: &str) -> Value {
    pod(
        name,
        "500m",
        &json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}}),
    )
}

fn job_set(name: &str, cpu: &str) -> Value {
    let pods = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": "never"}}, "spec": {"restartPolicy": "Never",
        "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}]}});
    let jobs = json!([{"name": "job", "replicas": 2,
        "template": {"spec": {"parallelism": 1, "completions": 1, "template": pods}}}]);
    json!({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind,
        "metadata": {"namespace": TEAM, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"replicatedJobs": jobs}})
}

/// A StatefulSet or Deployment of one pod.
fn server(kind: Kind, name: &str) -> Value {
    let container = json!({"name": "main", "image": "serve", "resources": {"requests": {"cpu": "500m"}}});
    json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"namespace": TEAM, "name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}, "annotations": {"e2e.berth.dev/outcome": "never"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}}})
}

/// Creates jobs that run or wait under Kueue: the running ones use all 8 cpus of the quota.
async fn under_kueue(world: &World) -> Result<()> {
    create_namespace(&world.client, TEAM, &[]).await?;
    world.create(&manifest::flavor("flavor", &[("e2e/pool", "cpu")])).await?;
    let groups = [group(&[("flavor", &[quota("cpu", "8")])])];
    world.create(&manifest::cluster_queue(QUEUE, &groups, &json!({}))).await?;
    world.create(&manifest::local_queue(TEAM, "queue", QUEUE)).await?;
    let job = |name: &str, cpu: &str| Job::new(TEAM, name, "queue").cpu(cpu).endless().manifest();
    for object in [
        job("keeps", "2"),
        job("ends", "1"),
        pod("alone", "1", &json!({})),
        member("member-0"),
        member("member-1"),
        job_set("set", "1"),
        server(STATEFUL_SET, "state"),
        server(DEPLOYMENT, "web"),
    ] {
        world.create(&object).await?;
    }
    world.holds(8_000).await?;
    wait::until(STEP, "nine pods run", || async {
        let pods = POD.list(&world.client, TEAM).await?;
        let run = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running").count();
        Ok(Seen::when(run == 9, || format!("{run} run of {}", pods.len())))
    })
    .await?;
    for object in [job("waits", "2"), pod("gated", "1", &json!({})), job_set("set-waits", "1")] {
        world.create(&object).await?;
        // Creation times are in whole seconds, so the waiting jobs are created in different seconds.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    wait::until(STEP, "three wait", || async {
        let all = WORKLOAD.list(&world.client, TEAM).await?;
        let waiting = all.iter().filter(|w| condition(w, "QuotaReserved") == "False").count();
        Ok(Seen::when(waiting == 3, || format!("{waiting} of {} wait", all.len())))
    })
    .await
}

/// Objects whose versions differ between two states of the cluster, because an operator has written them.
fn written(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(version));
    changed.map(|(name, _)| name.clone()).collect()
}

/// Waits until no object has changed for three seconds; returns the objects' versions.
async fn quiet(world: &World) -> Result<BTreeMap<String, String>> {
    let (mut last, mut calm) = (world.versions().await?, 0);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = world.versions().await?;
        calm = if now == last { calm + 1 } else { 0 };
        if calm == 3 {
            return Ok(now);
        }
        last = now;
    }
    anyhow::bail!("objects change without end")
}

/// Berth follows, then leads; running jobs are left alone, and a job that Kueue left waiting starts after another job has ended.
async fn to_berth(world: &World, mut kueue: Guarded) -> Result<Manager> {
    let before = quiet(world).await?;
    let runs = world.running().await?;
    let port = webhooks::port()?;
    let config = json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"frameworks": FRAMEWORKS}});
    let options = ManagerOptions {
        config: Some(config.to_string()),
        webhooks: Some(port),
        args: vec![format!("--leader-elect-resource-namespace={SYSTEM}")],
        ..ManagerOptions::default()
    };
    let manager = Manager::start(&world.plane, options).await?;
    webhooks::install(&world.client, port, "Fail").await?;
    let changed = written(&before, &quiet(world).await?);
    ensure!(changed.is_empty(), "Berth follows, and {changed:?} changed");
    world.delete_webhooks(WEBHOOKS).await?;
    kueue.stop(Duration::from_secs(20));
    world.leader_is("Berth leads", |holder| !holder.is_empty() && !holder.starts_with("kueue")).await?;
    let changed = written(&before, &quiet(world).await?);
    println!("Berth took over; it wrote: {changed:?}");
    ensure!(world.running().await? == runs, "something restarted: {:?}\nwas {runs:?}", world.running().await?);
    world.holds(8_000).await?;
    manager.recomputes().await?;
    // After a Job has ended the waiting Job starts, and after a pod has ended the waiting pod starts.
    JOB.delete(&world.client, TEAM, "keeps").await?;
    world.starts("waits").await?;
    let ends = json!({"metadata": {"annotations": {"e2e.berth.dev/outcome": null, "e2e.berth.dev/run-ms": "100"}}});
    for pod in POD.list(&world.client, TEAM).await? {
        if text(&pod, "/metadata/labels/job-name") == "ends" {
            POD.patch(&world.client, TEAM, text(&pod, "/metadata/name"), &ends).await?;
        }
    }
    world.is(JOB, "ends", "done", |job| condition(job, "Complete") == "True").await?;
    world.is(POD, "gated", "runs", |pod| text(pod, "/status/phase") == "Running").await?;
    // The pods of the pod group end together; and after the running JobSet is deleted, the waiting JobSet starts.
    for name in ["member-0", "member-1"] {
        POD.patch(&world.client, TEAM, name, &ends).await?;
    }
    world.is(WORKLOAD, "group", "finished", |w| condition(w, "Finished") == "True").await?;
    for name in ["member-0", "member-1"] {
        world.is(POD, name, "let go", |pod| items(pod, "/metadata/finalizers").is_empty()).await?;
    }
    JOBSET.delete(&world.client, TEAM, "set").await?;
    let resumed = |set: &Value| set["spec"]["suspend"] == json!(false);
    world.is(JOBSET, "set-waits", "resumed", resumed).await?;
    world.holds(7_000).await?;
    manager.recomputes().await?;
    Ok(manager)
}

/// Kueue follows, then leads again after Berth has ended.
async fn back_to_kueue(world: &World, mut manager: Manager) -> Result<Guarded> {
    world.create(&Job::new(TEAM, "larger", "queue").cpu("2").endless().manifest()).await?;
    world.is(JOB, "larger", "suspended", |job| job["spec"]["suspend"] == json!(true)).await?;
    let before = quiet(world).await?;
    let runs = world.running().await?;
    // The order of the steps is that of docs/migrate-from-kueue.md: Kueue follows and its webhooks serve, then Berth's webhooks are deleted, and then Berth
    // ends.
    let kueue = world.start("kueue-again")?;
    world.kueue_serves().await?;
    world.install_kueues_webhooks().await?;
    let asked = Job::new(TEAM, "asked", "queue").spec(&json!({"suspend": false})).manifest();
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let created = JOB.api(&world.client, TEAM).create(&params, &serde_json::from_value(asked)?).await;
    let created = created.context("with the webhooks of both")?;
    ensure!(created.data["spec"]["suspend"] == json!(true), "not suspended by either: {}", created.data["spec"]);
    world.delete_webhooks(NAMES).await?;
    manager.terminate(Duration::from_secs(60));
    world.leader_is("Kueue leads", |holder| holder.contains('_') && !holder.contains("berth")).await?;
    let changed = written(&before, &quiet(world).await?);
    println!("Kueue took over; it wrote: {changed:?}");
    ensure!(world.running().await? == runs, "something restarted: {:?}\nwas {runs:?}", world.running().await?);
    world.holds(7_000).await?;
    POD.delete(&world.client, TEAM, "alone").await?;
    world.starts("larger").await?;
    for (kind, name) in [
        (JOB, "larger"),
        (JOB, "waits"),
        (JOB, "ends"),
        (JOBSET, "set-waits"),
        (POD, "gated"),
        (STATEFUL_SET, "state"),
        (DEPLOYMENT, "web"),
    ] {
        kind.delete(&world.client, TEAM, name).await.with_context(|| format!("{} {name}", kind.kind))?;
    }
    world.holds(0).await?;
    Ok(kueue)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_kueue_hands_cluster_over_and_takes_it_back() -> Result<()> {
    let Some(kueue) = asked().await? else { return Ok(()) };
    let _alone = ALONE.lock().await;
    let definitions = kueue.definitions()?;
    let crds = vec![definitions.path().to_owned(), jobset::definitions().await?];
    let plane = ControlPlane::start(Options { name: "kueue".to_owned(), crds, ..Options::default() }).await?;
    drop(definitions);
    let client = plane.client();
    nodes::create(&client, &[Pool::cpu("cpu", 3, Tier::OnDemand).label("e2e/pool", "cpu")]).await?;
    create_namespace(&client, SYSTEM, &[]).await?;
    manager::install(&client).await?;
    manager::grant_lease(&client, SYSTEM, LEASE).await?;
    let jobsets = jobset::start(&plane).await?;
    let world = World { plane, client, kueue, port: webhooks::port()? };
    let kueue = world.start("kueue")?;
    world.leader_is("Kueue leads", |holder| !holder.is_empty()).await?;
    world.install_kueues_webhooks().await?;
    let reported = async {
        under_kueue(&world).await?;
        let manager = to_berth(&world, kueue).await?;
        back_to_kueue(&world, manager).await
    }
    .await;
    if reported.is_err() {
        world.plane.keep_files();
        println!("{}", berth_e2e::world::dump(&world.client, TEAM).await);
    }
    drop(jobsets);
    let kueue = reported?;
    drop(kueue);
    world.plane.stop().await;
    Ok(())
}
