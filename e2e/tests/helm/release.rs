//! The life of a Helm release: installed, upgraded while Berth writes into the same objects, rolled back, uninstalled, and installed again on the
//! remaining objects. No kubelet runs the pods of the release; the test runs the real binary as the manager, with the token of the installed account.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::batch_roles;
use berth_e2e::control_plane::{ControlPlane, Options, create_namespace, token, write_kubeconfig};
use berth_e2e::helm::{Helm, NAMESPACE, chart};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, CRD, DEPLOYMENT, JOB, LOCAL_QUEUE, WORKLOAD, condition, items, text};
use berth_e2e::manager::{self, Manager, ManagerOptions};
use berth_e2e::manifest::{self, Job, group, quota};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::observer::Observer;
use berth_e2e::shipped;
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{self, MUTATING};
use kube::Client;
use serde_json::{Value, json};

/// Namespace of the jobs.
const TEAM: &str = "team";
/// The webhook configuration into which Berth writes.
const CONFIGURATION: &str = webhooks::NAMES[0];

/// Kinds of objects that the chart creates, without CRDs.
const RELEASED: &str = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
                        poddisruptionbudgets,networkpolicies,flowschemas,prioritylevelconfigurations,namespaces,\
                        mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,\
                        validatingadmissionpolicybindings";

struct World {
    plane: ControlPlane,
    client: Client,
    helm: Helm,
}

impl World {
    async fn helm(&self, command: &str, more: &[&str]) -> Result<String> {
        let chart = chart().display().to_string();
        let mut args = vec![command, "berth", &*chart, "--namespace", NAMESPACE, "--wait", "--timeout=180s"];
        args.extend(more);
        self.helm.ok(&args).await
    }

    /// A manager with the arguments in the release's Deployment, apart from the addresses.
    async fn manager(&self, webhooks: Option<u16>) -> Result<Manager> {
        let deployment = self.deployment().await?;
        let given = items(&deployment, "/spec/template/spec/containers/0/args");
        let args =
            given.iter().filter_map(Value::as_str).filter(|arg| arg.starts_with("--leader-elect")).map(str::to_owned);
        let args: Vec<String> = args.collect();
        ensure!(args.len() == 2, "the Deployment names the lease: {given:?}");
        Manager::start(&self.plane, ManagerOptions { webhooks, args, ..ManagerOptions::default() }).await
    }

    async fn deployment(&self) -> Result<Value> {
        let found = DEPLOYMENT.get(&self.client, NAMESPACE, "berth-controller-manager").await?;
        found.context("no Deployment")
    }

    async fn mutating(&self) -> Result<Option<Value>> {
        MUTATING.get(&self.client, "", CONFIGURATION).await
    }

    async fn serves_v1beta1(&self) -> Result<bool> {
        let definition = CRD.get(&self.client, "", "workloads.kueue.x-k8s.io").await?.context("no CRD")?;
        Ok(items(&definition, "/spec/versions")
            .iter()
            .any(|v| text(v, "/name") == "v1beta1" && v["served"] == json!(true)))
    }

    /// Namespaces in which the webhook reviews jobs without a queue.
    async fn opted_in(&self) -> Result<Vec<Value>> {
        let configuration = self.mutating().await?.context("no webhooks")?;
        let webhook = items(&configuration, "/webhooks").iter().find(|w| text(w, "/name") == "mjob-opted-in.berth.dev");
        let selector = webhook.context("no webhook for jobs without a queue")?;
        Ok(items(selector, "/namespaceSelector/matchExpressions/0/values").to_vec())
    }
}

async fn installed(world: &World) -> Result<()> {
    let pods = r#"{"e2e.berth.dev/outcome": "never"}"#;
    world.helm("install", &["--create-namespace", "--set-json", &format!("podAnnotations={pods}")]).await?;
    let deployment = world.deployment().await?;
    ensure!(deployment["status"]["readyReplicas"] == json!(2), "{}", deployment["status"]);
    for file in std::fs::read_dir(berth_e2e::binaries::repository().join("crds"))? {
        let name = file?.file_name().into_string().ok().and_then(|n| n.strip_suffix(".yaml").map(str::to_owned));
        let Some(name) = name else { continue };
        let definition = CRD.get(&world.client, "", &name).await?.with_context(|| format!("no CRD {name}"))?;
        ensure!(condition(&definition, "Established") == "True", "{name}");
    }
    for (kind, namespace, name) in [
        ("poddisruptionbudget", NAMESPACE, "berth-controller-manager"),
        ("networkpolicy", NAMESPACE, "berth-controller-manager"),
        ("flowschema", "", "berth-controller-manager"),
        ("flowschema", "", "berth-leader-election"),
        ("prioritylevelconfiguration", "", "berth-controller-manager"),
        ("validatingadmissionpolicy", "", "berth-controller-manager"),
        ("validatingadmissionpolicybinding", "", "berth-controller-manager"),
        ("clusterrole", "", "kueue-batch-admin-role"),
        ("clusterrole", "", "kueue-batch-user-role"),
        ("role", "kueue-system", "berth-leader-election-role"),
    ] {
        world.plane.kubectl(&["get", kind, name, "--namespace", namespace]).await?;
    }
    let dangling = r#"jsonpath={.status.conditions[?(@.type=="Dangling")].status}"#;
    for name in ["berth-controller-manager", "berth-leader-election"] {
        wait::until(STEP, "the flow schema has its priority level", || async {
            let output = world.plane.kubectl(&["get", "flowschema", name, "-o", dangling]).await?;
            Ok(Seen::when(output.trim() == "False", || format!("{name}: Dangling {output:?}")))
        })
        .await?;
    }
    batch_roles::hold(&world.client).await
}

/// Berth has written a certificate authority and namespaces into its webhook configurations; an upgrade of the release neither conflicts with these
/// fields nor removes them.
async fn upgraded_beside_a_running_berth(world: &World) -> Result<()> {
    create_namespace(&world.client, TEAM, &[]).await?;
    kinds::apply(&world.client, &manifest::local_queue(TEAM, "default", "cq")).await?;
    let mut manager = world.manager(Some(webhooks::port()?)).await?;
    wait::until(STEP, "Berth opts the namespace in", || async {
        let namespaces = world.opted_in().await?;
        Ok(Seen::when(namespaces == [json!(TEAM)], || format!("{namespaces:?}")))
    })
    .await?;
    let lease = kinds::Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
    // Every replica writes into the webhook configurations, also before it leads, so the test waits for the lease as well.
    wait::until(STEP, "it leads by Kueue's lease", || async {
        let held = lease.get(&world.client, "kueue-system", "c1f6bfd2.kueue.x-k8s.io").await?.unwrap_or_default();
        Ok(Seen::when(!text(&held, "/spec/holderIdentity").is_empty(), || held["spec"].to_string()))
    })
    .await?;
    world.helm("upgrade", &["--reuse-values", "--set", "replicas=3"]).await?;
    ensure!(world.deployment().await?["spec"]["replicas"] == json!(3), "upgraded");
    ensure!(world.opted_in().await? == [json!(TEAM)], "the upgrade took the namespaces away");
    let configuration = world.mutating().await?.context("no webhooks")?;
    for webhook in items(&configuration, "/webhooks") {
        ensure!(!text(webhook, "/clientConfig/caBundle").is_empty(), "no authority in {}", text(webhook, "/name"));
    }
    manager.terminate(Duration::from_secs(60));
    Ok(())
}

/// A job runs while Berth's manager has the rights of the release's service account, and no others. The webhooks are switched off, because no kubelet serves
/// them in this test.
async fn runs_a_job(world: &World, observer: &Observer) -> Result<()> {
    world.helm("upgrade", &["--reuse-values", "--set", "webhook.enabled=false"]).await?;
    ensure!(world.mutating().await?.is_none(), "the webhooks are gone");
    ensure!(!world.serves_v1beta1().await?, "nobody converts, and v1beta1 is served");
    let manager = world.manager(None).await?;
    kinds::apply(&world.client, &manifest::flavor("flavor", &[])).await?;
    let groups = [group(&[("flavor", &[quota("cpu", "2")])])];
    kinds::apply(&world.client, &manifest::cluster_queue("cq", &groups, &json!({}))).await?;
    kinds::apply(&world.client, &Job::new(TEAM, "job", "default").manifest()).await?;
    let limit = STEP * 2;
    wait::until(limit, "the job is done", || async {
        let job = JOB.get(&world.client, TEAM, "job").await?.context("no job")?;
        Ok(Seen::when(condition(&job, "Complete") == "True", || format!("{}; {}", job["status"], manager.log_tail(3))))
    })
    .await?;
    let workloads = WORKLOAD.list(&world.client, TEAM).await?;
    ensure!(workloads.len() == 1, "{} workloads", workloads.len());
    let log = std::fs::read_to_string(manager.log())?;
    ensure!(!log.contains("Forbidden"), "something is forbidden: {}", manager.log_tail(20));
    let judged = observer.conclude(Duration::from_secs(2)).await;
    judged.with_context(|| format!("berth's log:\n{}", manager.log_tail(20)))?;
    manager.recomputes().await
}

async fn rolled_back(world: &World) -> Result<()> {
    world.helm.ok(&["rollback", "berth", "1", "--namespace", NAMESPACE, "--wait", "--timeout=180s"]).await?;
    ensure!(world.deployment().await?["spec"]["replicas"] == json!(2), "as it was");
    ensure!(world.mutating().await?.is_some(), "the webhooks are back");
    ensure!(world.serves_v1beta1().await?, "v1beta1 is served again");
    Ok(())
}

async fn uninstalled(world: &World) -> Result<()> {
    world.helm.ok(&["uninstall", "berth", "--namespace", NAMESPACE]).await?;
    let kept = "namespace/kueue-system clusterrole.rbac.authorization.k8s.io/kueue-batch-admin-role \
                clusterrole.rbac.authorization.k8s.io/kueue-batch-user-role";
    wait::until(STEP, "nothing of the release is left but what it keeps", || async {
        let args =
            ["get", RELEASED, "--all-namespaces", "--selector=app.kubernetes.io/instance=berth", "--output=name"];
        let left = world.plane.kubectl(&args).await?;
        let (mut is, mut should): (Vec<_>, Vec<_>) = (left.split_whitespace().collect(), kept.split(' ').collect());
        is.sort_unstable();
        should.sort_unstable();
        Ok(Seen::when(is == should, || is.join(" ")))
    })
    .await?;
    ensure!(world.mutating().await?.is_none(), "the webhooks are gone");
    ensure!(CLUSTER_QUEUE.get(&world.client, "", "cq").await?.is_some(), "queues survive");
    ensure!(LOCAL_QUEUE.get(&world.client, TEAM, "default").await?.is_some(), "queues survive");
    ensure!(WORKLOAD.list(&world.client, TEAM).await?.len() == 1, "workloads survive");
    ensure!(JOB.get(&world.client, TEAM, "job").await?.is_some(), "jobs survive");
    ensure!(kinds::NAMESPACE.get(&world.client, "", "kueue-system").await?.is_some(), "the lease's namespace stays");
    Ok(())
}

/// Objects that an older Kueue stored as v1beta1 are reported, by the chart before any change of the release and by Berth's binary before it leads.
async fn older_storage_is_refused(world: &World) -> Result<()> {
    let name = "cohorts.kueue.x-k8s.io";
    let stored = |versions: Value| {
        let patch = json!({"status": {"storedVersions": versions}}).to_string();
        async move {
            let args = ["patch", "crd", name, "--subresource=status", "--type=merge", "-p", &patch];
            world.plane.kubectl(&args).await.map(drop)
        }
    };
    stored(json!(["v1beta1", "v1beta2"])).await?;
    let chart = chart().display().to_string();
    let output = world.helm.run(&["install", "berth", &chart, "--namespace", NAMESPACE]).await?;
    for part in [name, r#"status.storedVersions is ["v1beta1","v1beta2"]"#, "kubectl patch crd", "v1beta2 alone"] {
        ensure!(!output.ok && output.err.contains(part), "the chart does not say {part:?}: {}", output.err);
    }
    let path = world.plane.kubeconfig().to_path_buf();
    let options = ManagerOptions { name: "refusing".to_owned(), ..ManagerOptions::default() };
    let mut manager = Manager::start_with(world.plane.folder(), &path, options).await?;
    let log = || std::fs::read_to_string(manager.log());
    wait::until(STEP, "the manager says why it does not lead", || async {
        let log = log()?;
        Ok(Seen::when(log.contains(name) && log.contains("kubectl patch crd"), || log))
    })
    .await?;
    wait::stays(Duration::from_secs(3), "it leaves the lease alone", || async {
        let leader = manager::leader(&world.client).await?;
        Ok(Seen::when(leader.is_empty(), || leader))
    })
    .await?;
    // The repair that the messages of the chart and of the binary name; the manager checks each minute whether it was done.
    stored(json!(["v1beta2"])).await?;
    wait::until(Duration::from_secs(60) + STEP, "the manager leads", || async {
        let leader = manager::leader(&world.client).await?;
        Ok(Seen::when(!leader.is_empty(), || manager.log_tail(3)))
    })
    .await?;
    manager.terminate(Duration::from_secs(60));
    Ok(())
}

async fn story(world: &World) -> Result<()> {
    installed(world).await.context("install")?;
    upgraded_beside_a_running_berth(world).await.context("upgrade")?;
    // The observer runs only while the release runs a job: earlier there are no CRDs, and the rollback afterwards takes Berth away again.
    let observer = Observer::start(world.client.clone()).await?;
    runs_a_job(world, &observer).await.context("a job")?;
    drop(observer);
    rolled_back(world).await.context("rollback")?;
    uninstalled(world).await.context("uninstall")?;
    older_storage_is_refused(world).await.context("v1beta1 in storage")?;
    // The release is installed on the remaining objects, and takes the CRDs over again.
    installed_under_kueues_names(world).await.context("install again")?;
    ensure!(CLUSTER_QUEUE.get(&world.client, "", "cq").await?.is_some(), "queues survive");
    Ok(())
}

/// With `kueueNames`, the Deployment has Kueue's name; its manager uses the Secret and the webhook configurations under Kueue's names, with the
/// rights of Kueue's account.
async fn installed_under_kueues_names(world: &World) -> Result<()> {
    const ACCOUNT: &str = "kueue-controller-manager";
    world.helm("install", &["--set", "kueueNames=true"]).await?;
    let deployment = DEPLOYMENT.get(&world.client, NAMESPACE, ACCOUNT).await?.context("no Deployment")?;
    let given = items(&deployment, "/spec/template/spec/containers/0/args").iter().filter_map(Value::as_str);
    let named: Vec<String> = given.filter(|arg| arg.starts_with("--object-names")).map(str::to_owned).collect();
    let path = world.plane.folder().join("kueue-names.kubeconfig");
    let token = token(&world.client, NAMESPACE, ACCOUNT).await?;
    write_kubeconfig(&path, world.plane.url(), &world.plane.authority(), ACCOUNT, &json!({"token": token}))?;
    let options = ManagerOptions {
        name: "kueue-names".to_owned(),
        webhooks: Some(webhooks::port()?),
        args: named,
        ..ManagerOptions::default()
    };
    let mut manager = Manager::start_with(world.plane.folder(), &path, options).await?;
    wait::until(STEP, "the webhooks trust the manager", || async {
        let kept = webhooks::SECRET.get(&world.client, NAMESPACE, "kueue-webhook-server-cert").await?.is_some();
        let found = MUTATING.get(&world.client, "", "kueue-mutating-webhook-configuration").await?.unwrap_or_default();
        let all = items(&found, "/webhooks");
        let number_found = all.iter().filter(|webhook| !text(webhook, "/clientConfig/caBundle").is_empty()).count();
        Ok(Seen::when(kept && number_found > 0 && number_found == all.len(), || {
            format!("Secret: {kept}, {number_found} of {} told", all.len())
        }))
    })
    .await?;
    ensure!(world.mutating().await?.is_none(), "nothing is called after Berth");
    manager.terminate(Duration::from_secs(60));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_release_survives_upgrade_rollback_and_reinstall() -> Result<()> {
    let plane = ControlPlane::start(Options { name: "helm".to_owned(), ..Options::default() }).await?;
    let client = plane.client();
    let _ = shipped::binary()?;
    nodes::create(&client, &[Pool::cpu("cpu", 2, Tier::OnDemand)]).await?;
    let helm = Helm::new(Some(&plane)).await?;
    let world = World { plane, client, helm };
    let outcome = story(&world).await;
    if outcome.is_err() {
        world.plane.keep_files();
    }
    world.plane.stop().await;
    outcome
}
