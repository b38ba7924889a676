//! The steps of docs/migrate-from-kueue.md with Helm, from Kueue's own chart: its CRDs, roles, webhooks and configuration. No kubelet runs the pods
//! of the two releases; the test runs each manager beside its Deployment, with the rights of its release.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use berth_e2e::adoption;
use berth_e2e::control_plane::{ControlPlane, Options, write_kubeconfig};
use berth_e2e::helm::{self, Helm};
use berth_e2e::jobset::{self, JOBSET};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, CRD, DEPLOYMENT, JOB, POD, WORKLOAD, text};
use berth_e2e::manager::{Manager, ManagerOptions};
use berth_e2e::manifest::{Job, merge};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::process::Guarded;
use berth_e2e::shipped;
use berth_e2e::wait::{self, STEP, Seen};
use berth_e2e::webhooks::{self, MUTATING, VALIDATING};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::kueue::{ALONE, SYSTEM, TEAM, WEBHOOKS, World, asked, configuration, quiet, under_kueue, written};

/// Annotations for the pods of the two Deployments, so that these run until they are deleted.
const ENDLESS: &str = r#"{"e2e.berth.dev/outcome": "never"}"#;

/// A cluster with Kueue's Helm release.
struct Story {
    world: World,
    helm: Helm,
    /// The certificate authority of Kueue's webhooks, in base64.
    authority: String,
}

impl Story {
    /// The configuration file that Kueue's chart has made.
    async fn configuration(&self) -> Result<String> {
        let path = r"jsonpath={.data.controller_manager_config\.yaml}";
        let args = ["get", "configmap", "kueue-manager-config", "--namespace", SYSTEM, "--output", path];
        self.world.plane.kubectl(&args).await
    }

    /// Installs Kueue's chart with the test's configuration of Kueue, to which the addresses of the chart's default configuration are added.
    async fn installs_kueue(&self) -> Result<()> {
        let mut config = configuration();
        let addresses = json!({"health": {"healthProbeBindAddress": ":8081"}, "metrics": {"bindAddress": ":8443"},
            "webhook": {"port": 9443}});
        merge(&mut config, &addresses);
        let pods: Value = serde_json::from_str(ENDLESS)?;
        let values = json!({"managerConfig": {"controllerManagerConfigYaml": config.to_string()},
            "controllerManager": {"manager": {"podAnnotations": pods}}});
        let file = self.world.plane.folder().join("kueue-values.json");
        fs::write(&file, values.to_string())?;
        let chart = self.world.kueue.sources().join("charts/kueue").display().to_string();
        let file = file.display().to_string();
        let args = ["install", "kueue", &*chart, "--namespace", SYSTEM, "--create-namespace", "--values", &*file];
        self.helm.ok(&args).await?;
        adoption::belong_to(&self.world.client, "kueue").await?;
        for kind in [WORKLOAD, CLUSTER_QUEUE] {
            wait::until(STEP, "the kinds are served", || async {
                kind.all(&self.world.client).list(&ListParams::default()).await?;
                Ok(Seen::Yes(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Writes the address of the test's Kueue process into the webhooks of Kueue's release, because the API server has no cluster network. The API
    /// server trusts the certificate of the process as it would trust Kueue's own.
    async fn leads_webhooks_to_the_process(&self) -> Result<()> {
        let client = &self.world.client;
        for (kind, name) in [MUTATING, VALIDATING].into_iter().zip(WEBHOOKS) {
            let object = kind.get(client, "", name).await?.with_context(|| format!("the chart has no {name}"))?;
            let mut list = object["webhooks"].clone();
            for webhook in list.as_array_mut().context("webhooks")? {
                let path = text(webhook, "/clientConfig/service/path").to_owned();
                let url = format!("https://127.0.0.1:{}{path}", self.world.port);
                webhook["clientConfig"] = json!({"url": url, "caBundle": self.authority});
            }
            kind.patch(client, "", name, &json!({"webhooks": list})).await?;
        }
        let trust = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": self.authority}}}}});
        for (name, definition) in adoption::definitions(client).await? {
            if text(&definition, "/spec/conversion/strategy") == "Webhook" {
                CRD.patch(client, "", &name, &trust).await?;
            }
        }
        Ok(())
    }

    /// Starts Kueue with the configuration and the rights of its release.
    async fn starts_kueue(&self) -> Result<Guarded> {
        let config = kinds::parse(&self.configuration().await?)?.into_iter().next().context("no configuration")?;
        let plane = &self.world.plane;
        let token = plane.token_for_service_account(SYSTEM, "kueue-controller-manager").await?;
        let path = plane.folder().join("kueue.kubeconfig");
        write_kubeconfig(&path, plane.url(), &plane.authority(), "kueue", &json!({"token": token}))?;
        self.world.start_with("kueue", config, &path)
    }

    /// Runs steps 1 and 2 of docs/migrate-from-kueue.md: checks that each CRD has one stored version, hands the CRDs over to Berth's release, which does not
    /// exist yet, and checks that Kueue goes on converting their objects.
    async fn adopts(&self) -> Result<()> {
        let client = &self.world.client;
        for (name, definition) in adoption::definitions(client).await? {
            let stored = &definition["status"]["storedVersions"];
            ensure!(*stored == json!(["v1beta2"]), "{name} is stored in {stored}");
        }
        adoption::adopt(&self.world.plane).await?;
        self.are_converted_by_kueue().await
    }

    /// Checks that Kueue's Service converts the objects, and that only Kueue's certificate authority is trusted with the conversion.
    async fn are_converted_by_kueue(&self) -> Result<()> {
        for (name, trusted) in adoption::converted_by(&self.world.client, "kueue-webhook-service").await? {
            ensure!(trusted == self.authority, "{name}: trusted with its conversion is {trusted}");
        }
        Ok(())
    }

    /// Runs step 3 of docs/migrate-from-kueue.md: installs Berth's release beside Kueue's, with Kueue's configuration, and starts Berth's manager, which
    /// follows.
    async fn installs_berth(&self) -> Result<Manager> {
        let config = self.configuration().await?;
        let file = self.world.plane.folder().join("config.yaml");
        fs::write(&file, &config)?;
        let chart = helm::chart().display().to_string();
        let given = format!("managerConfig.controllerManagerConfigYaml={}", file.display());
        let pods = format!("podAnnotations={ENDLESS}");
        let mut args = vec!["install", "berth", &*chart, "--namespace", helm::NAMESPACE, "--create-namespace"];
        args.extend(["--set", "crds.install=false,batchRoles=false", "--set-file", &*given]);
        // The Service of Berth's release leads to no process, so the test installs the webhooks with the address of the manager.
        args.extend(["--set", "webhook.enabled=false", "--set-json", &*pods]);
        self.helm.ok(&args).await?;
        adoption::are_berths(&self.world.client).await?;
        let port = webhooks::port()?;
        let options = ManagerOptions {
            config: Some(config),
            webhooks: Some(port),
            args: vec![format!("--leader-elect-resource-namespace={SYSTEM}")],
            ..ManagerOptions::default()
        };
        let manager = Manager::start(&self.world.plane, options).await?;
        webhooks::install(&self.world.client, port, "Fail").await?;
        Ok(manager)
    }

    /// Runs steps 4 and 5 of docs/migrate-from-kueue.md: deletes Kueue's webhooks, ends Kueue, and waits until Berth leads.
    async fn stops_kueue(&self, mut kueue: Guarded, was: &str) -> Result<()> {
        self.are_converted_by_kueue().await?;
        self.world.delete_webhooks(WEBHOOKS).await?;
        let scale = ["scale", "deployment", "kueue-controller-manager", "--replicas=0", "--namespace", SYSTEM];
        self.world.plane.kubectl(&scale).await?;
        kueue.stop(Duration::from_secs(20));
        self.world.leader_is("Berth leads", |holder| !holder.is_empty() && holder != was).await
    }

    /// Runs step 6 of docs/migrate-from-kueue.md: hands the conversion in the CRDs and the roles for people over to Berth's release.
    async fn converts(&self) -> Result<()> {
        let chart = helm::chart().display().to_string();
        let mut args = vec!["upgrade", "berth", &*chart, "--namespace", helm::NAMESPACE, "--reuse-values"];
        args.extend(["--set", "crds.install=true,batchRoles=true", "--take-ownership", "--force-conflicts"]);
        self.helm.ok(&args).await?;
        adoption::are_berths(&self.world.client).await?;
        adoption::until_berth_converts(&self.world.client, &self.authority).await
    }

    /// Runs step 7 of docs/migrate-from-kueue.md: uninstalls Kueue's release, and checks that no object of Berth's goes with it.
    async fn uninstalls_kueue(&self) -> Result<()> {
        let before = quiet(&self.world).await?;
        self.helm.ok(&["uninstall", "kueue", "--namespace", SYSTEM]).await?;
        let after = quiet(&self.world).await?;
        ensure!(after == before, "the end of Kueue's release changed {:?}", written(&before, &after));
        adoption::are_berths(&self.world.client).await?;
        let deployment = DEPLOYMENT.get(&self.world.client, SYSTEM, "kueue-controller-manager").await?;
        ensure!(deployment.is_none(), "Kueue is still there");
        let left = self.world.plane.kubectl(&["get", "apiservice", "--output", "name"]).await?;
        ensure!(!left.contains("visibility.kueue.x-k8s.io"), "nobody answers for {left}");
        wait::until(STEP, "the roles for people still give something", || async {
            let role = ["get", "clusterrole", "kueue-batch-user-role", "--output", "jsonpath={.rules}"];
            let rules = self.world.plane.kubectl(&role).await?;
            Ok(Seen::when(rules.contains("localqueues") && rules.contains("workloads"), || rules.clone()))
        })
        .await
    }

    /// Berth works without Kueue: after a job has ended, a job that Kueue left waiting and a new job start.
    async fn goes_on(&self, manager: &Manager) -> Result<()> {
        let (world, client) = (&self.world, &self.world.client);
        world.create(&Job::new(TEAM, "fresh", "queue").cpu("1").endless().manifest()).await?;
        world.is(JOB, "fresh", "suspended by Berth", |job| job["spec"]["suspend"] == json!(true)).await?;
        JOB.delete(client, TEAM, "keeps").await?;
        world.starts("waits").await?;
        POD.delete(client, TEAM, "alone").await?;
        world.is(POD, "gated", "runs", |pod| text(pod, "/status/phase") == "Running").await?;
        JOBSET.delete(client, TEAM, "set").await?;
        world.is(JOBSET, "set-waits", "resumed", |set| set["spec"]["suspend"] == json!(false)).await?;
        JOB.delete(client, TEAM, "ends").await?;
        world.starts("fresh").await?;
        world.holds(8_000).await?;
        manager.recomputes().await?;
        let log = fs::read_to_string(manager.log())?;
        ensure!(!log.contains("Forbidden"), "something is forbidden: {}", manager.log_tail(20));
        Ok(())
    }

    async fn run(&self) -> Result<()> {
        let world = &self.world;
        let _jobsets = controller_of_job_sets(world).await.context("the controller of JobSets")?;
        self.installs_kueue().await.context("Kueue's chart")?;
        self.leads_webhooks_to_the_process().await.context("Kueue's webhooks")?;
        let kueue = self.starts_kueue().await?;
        world.leader_is("Kueue leads", |holder| !holder.is_empty()).await?;
        under_kueue(world).await.context("jobs under Kueue")?;
        let (before, runs, holder) = (quiet(world).await?, world.running().await?, world.leader().await?);
        let same = |now: BTreeMap<String, String>, step: &str| {
            ensure!(now == runs, "{step}: something restarted: {now:?}\nwas {runs:?}");
            Ok(())
        };
        self.adopts().await.context("the CRDs are adopted")?;
        let manager = self.installs_berth().await.context("Berth's release beside Kueue's")?;
        let changed = written(&before, &quiet(world).await?);
        ensure!(changed.is_empty() && world.leader().await? == holder, "Berth follows, and {changed:?} changed");
        self.stops_kueue(kueue, &holder).await.context("Kueue ends")?;
        let changed = written(&before, &quiet(world).await?);
        println!("Berth took over; it wrote: {changed:?}");
        same(world.running().await?, "Berth leads")?;
        world.holds(8_000).await?;
        manager.recomputes().await?;
        self.converts().await.context("Berth converts")?;
        self.uninstalls_kueue().await.context("Kueue is uninstalled")?;
        same(world.running().await?, "Kueue is uninstalled")?;
        world.holds(8_000).await?;
        manager.recomputes().await?;
        self.goes_on(&manager).await.context("Berth goes on")
    }
}

/// Applies the CRD of JobSets and starts the controller of JobSets.
async fn controller_of_job_sets(world: &World) -> Result<Guarded> {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_migration_steps_work_with_chart_of_kueue() -> Result<()> {
    let Some(kueue) = asked().await? else { return Ok(()) };
    let _alone = ALONE.lock().await;
    let plane = ControlPlane::start(Options { name: "kueue-chart".to_owned(), ..Options::default() }).await?;
    let client = plane.client();
    let _ = shipped::binary()?;
    let helm = Helm::new(Some(&plane)).await?;
    if helm.is_3() {
        println!(
            "skipped: Kueue's chart; Helm 3 deletes what a release once listed (docs/migrate-from-kueue.md, step 7)"
        );
        plane.stop().await;
        return Ok(());
    }
    nodes::create(&client, &[Pool::cpu("cpu", 4, Tier::OnDemand).label("e2e/pool", "cpu")]).await?;
    let authority = base64::engine::general_purpose::STANDARD.encode(fs::read(plane.authority())?);
    let story = Story { world: World { plane, client, kueue, port: webhooks::port()? }, helm, authority };
    let reported = story.run().await;
    if reported.is_err() {
        story.world.plane.keep_files();
        println!("{}", berth_e2e::world::dump(&story.world.client, TEAM).await);
    }
    story.world.plane.stop().await;
    reported
}
