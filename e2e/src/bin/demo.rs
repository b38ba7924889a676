//! The command of `make demo`: the quickstart on a control plane of its own, which runs until Ctrl-C.
//!
//! With `DEMO_ONCE=1` the demo ends after its jobs have finished, with code 0 if every check has passed. With `DEMO_KUBECONFIG=path` the demo uses a
//! real cluster, after it has asked the user. The demo never reads the environment variable KUBECONFIG.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::control_plane::{ControlPlane, Options, client_from, token};
use berth_e2e::foreign_cluster::{self, Target};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, NODE, POD, WORKLOAD, condition, text};
use berth_e2e::manager::{self, Manager, ManagerOptions};
use berth_e2e::nodes::{self, Pool, Tier};
use berth_e2e::observer::Observer;
use berth_e2e::own_folder::{OwnFolder, write_secret};
use berth_e2e::quickstart::{self, NAMESPACE};
use berth_e2e::wait::{self, STEP};
use berth_e2e::{binaries, story, tour, webhooks};
use kube::Client;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

/// Time limit of the demo's six jobs, which run for about 12 s in total; without Berth the jobs would never start.
const DEMO_LIMIT: Duration = Duration::from_secs(300);

/// The cluster on which the demo runs, with its files.
struct Place {
    client: Client,
    folder: PathBuf,
    kubeconfig: PathBuf,
    manager_kubeconfig: PathBuf,
    /// The demo's own control plane; `None` on a real cluster.
    plane: Option<ControlPlane>,
    /// On a real cluster: a folder that is removed at the end, and the message about the objects that stay in the cluster.
    _left: Option<(OwnFolder, ReportAtExit)>,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(run_until_signal());
    // The task that waits for the user's answer must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

async fn run_until_signal() -> Result<()> {
    let once = std::env::var("DEMO_ONCE").is_ok_and(|v| v == "1");
    let mut asked_to_end = signal(SignalKind::terminate())?;
    // A signal ends the demo by dropping the future `run`, which removes the demo's files, also those with keys, and ends its processes.
    tokio::select! {
        outcome = run(once) => outcome,
        _ = tokio::signal::ctrl_c() => stopping(),
        _ = asked_to_end.recv() => stopping(),
    }
}

fn stopping() -> Result<()> {
    println!("\ndemo: stopping");
    Ok(())
}

async fn run(once: bool) -> Result<()> {
    let place = match std::env::var_os("DEMO_KUBECONFIG").filter(|p| !p.is_empty()) {
        Some(path) => real_cluster(PathBuf::from(path)).await?,
        None => own_cluster().await?,
    };
    let outcome = show(&place, once).await;
    if let Some(plane) = place.plane {
        if outcome.is_err() {
            plane.keep_files();
        }
        plane.stop().await;
    }
    outcome
}

/// Prints which objects stay in a real cluster when it is dropped, also if the demo fails there.
struct ReportAtExit;

impl Drop for ReportAtExit {
    fn drop(&mut self) {
        println!("\ndemo: Berth runs no more. {}", foreign_cluster::what_stays());
    }
}

async fn own_cluster() -> Result<Place> {
    tokio::task::spawn_blocking(binaries::ensure).await??;
    println!("demo: starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on 127.0.0.1");
    let plane = ControlPlane::start(Options::with_crds("demo")).await?;
    let client = plane.client();
    manager::install(&client).await?;
    println!("demo: creating 8 TPU nodes: 2 reserved, 2 on demand, 4 spot, 4 chips each");
    nodes::create(&client, &quickstart::pools()).await?;
    println!("demo: and 12 GPU nodes for the story of a training: 4 in each tier, 8 GPUs each");
    nodes::create(&client, &story::pools()).await?;
    // Nodes for examples/two-teams-borrowing, and for other objects that request only cpu.
    nodes::create(&client, &[Pool::cpu("cpu", 2, Tier::OnDemand)]).await?;
    let manager_kubeconfig = plane.folder().join("berth.kubeconfig");
    manager::kubeconfig(&plane, None, &manager_kubeconfig).await?;
    let (folder, kubeconfig) = (plane.folder().to_path_buf(), plane.kubeconfig().to_path_buf());
    println!("demo: to look on from another terminal: export KUBECONFIG={}", kubeconfig.display());
    Ok(Place { client, folder, kubeconfig, manager_kubeconfig, plane: Some(plane), _left: None })
}

async fn real_cluster(kubeconfig: PathBuf) -> Result<Place> {
    let target = Target::read(&kubeconfig)?;
    println!("demo: context {:?} of {}, server {}", target.context, kubeconfig.display(), target.server());
    println!(
        "demo: this applies Berth's CRDs, roles and the quickstart there, and runs Berth from here. Its jobs need TPU nodes."
    );
    print!("demo: continue? Type yes: ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    // A separate thread reads the answer, so that a user can press Ctrl-C instead of answering.
    let answered =
        tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut answer).map(|_| answer)).await??;
    if answered.trim() != "yes" {
        bail!("not confirmed; nothing was done");
    }
    let reported = ReportAtExit;
    let client = client_from(&kubeconfig).await?;
    kinds::apply_crds(&client, &repository().join("crds")).await?;
    manager::install(&client).await?;
    let own = OwnFolder::make(std::env::temp_dir().join(format!("berth-demo-{}", std::process::id())))?;
    let folder = own.path().to_path_buf();
    let manager_kubeconfig = folder.join("berth.kubeconfig");
    let token = token(&client, manager::NAMESPACE, manager::SERVICE_ACCOUNT).await?;
    write_secret(&manager_kubeconfig, &serde_json::to_string_pretty(&target.kubeconfig_for(&token))?)?;
    Ok(Place { client, folder, kubeconfig, manager_kubeconfig, plane: None, _left: Some((own, reported)) })
}

async fn show(place: &Place, once: bool) -> Result<()> {
    println!("demo: starting Berth as service account {}/{}", manager::NAMESPACE, manager::SERVICE_ACCOUNT);
    // The observer judges only a run with `DEMO_ONCE`. In a demo that runs on, the memory of the observer would only grow; and objects of a real
    // cluster are not the demo's to judge.
    let observer = match (&place.plane, once) {
        (Some(_), true) => Some(Observer::start(place.client.clone()).await?),
        _ => None,
    };
    let mut options = ManagerOptions::default();
    if place.plane.is_some() {
        let port = webhooks::port()?;
        webhooks::install(&place.client, port, "Fail").await?;
        options = ManagerOptions { config: Some(tour::CONFIG.to_owned()), webhooks: Some(port), ..options };
    }
    let manager = Manager::start_with(&place.folder, &place.manager_kubeconfig, options).await?;
    if place.plane.is_some() {
        wait::until(STEP, "Berth's webhooks are asked", || webhooks::asked(&place.client)).await?;
    }
    println!(
        "demo: applying examples/quickstart: three flavors, one ClusterQueue of 8 + 8 + 16 chips, six jobs of 8 chips"
    );
    quickstart::apply_queues(&place.client).await?;
    for job in quickstart::manifests("03-jobs.yaml")? {
        kinds::apply(&place.client, &job).await?;
    }
    println!();
    let seen = follow(&place.client).await.with_context(|| format!("berth's log:\n{}", manager.log_tail(20)))?;
    verify(&seen)?;
    println!("\ndemo: all jobs finished; the quota is free again");
    say_how_long()?;
    let (mut props, mut controller) = (None, None);
    if let Some(plane) = &place.plane {
        tour::define_job_sets(&place.client).await?;
        println!("\ndemo: examples/training-story: a training of 32 GPUs, with short waits (about a minute)");
        let begun = Instant::now();
        let say = |turn: &str| println!("  {:>5.1} s  {turn}", begun.elapsed().as_secs_f64());
        let reported = story::run(&place.client, &say).await;
        props = Some(reported.with_context(|| format!("berth's log:\n{}", manager.log_tail(20)))?);
        println!("\ndemo: and what else there is: webhooks, a pod, a JobSet, and a training that grows");
        let reported = tour::run(plane, &say).await;
        controller = Some(reported.with_context(|| format!("berth's log:\n{}", manager.log_tail(20)))?);
    }
    if let Some(observer) = observer {
        let judged = observer.conclude(Duration::from_secs(6)).await;
        judged.with_context(|| format!("berth's log:\n{}", manager.log_tail(20)))?;
        manager.recomputes().await?;
        println!("\ndemo: the observer saw {} changes, and no promise was broken", observer.changes());
    }
    if once {
        return Ok(());
    }
    print_hints(place, &manager);
    std::future::pending::<()>().await;
    drop((props, controller));
    Ok(())
}

/// Prints the duration of each step of `make demo` so far; the program that runs the steps has measured them and left them in a file.
fn say_how_long() -> Result<()> {
    let Some(path) = std::env::var_os("DEMO_STEPS") else { return Ok(()) };
    let steps = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    println!("\n{steps}");
    let began = std::env::var("TESTRUN_BEGAN").ok().and_then(|text| text.parse::<f64>().ok());
    if let Some(began) = began {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        println!("demo: {:.0} s from the command to the six jobs", now.as_secs_f64() - began);
    }
    Ok(())
}

/// State of one job in the demo's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    state: &'static str,
    flavor: String,
    nodes: Vec<String>,
    tiers: Vec<&'static str>,
}

/// Prints the table until all jobs have finished and the queue has no reservation.
async fn follow(client: &Client) -> Result<BTreeMap<String, Row>> {
    let begun = Instant::now();
    let terminal = std::io::stdout().is_terminal();
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut shown: Vec<String> = Vec::new();
    loop {
        look(client, &mut rows).await?;
        let queue = CLUSTER_QUEUE.get(client, "", quickstart::CLUSTER_QUEUE).await?.unwrap_or_default();
        let lines = table(&rows, &queue);
        if lines != shown {
            if terminal && !shown.is_empty() {
                // The escape sequence moves the cursor to the first line of the table and clears the lines below.
                print!("\x1b[{}A\x1b[J", shown.len());
            } else if !shown.is_empty() {
                println!("--- after {:.1} s", begun.elapsed().as_secs_f64());
            }
            println!("{}", lines.join("\n"));
            shown = lines;
        }
        let used: i128 = usage(&queue).values().sum();
        if !rows.is_empty() && rows.values().all(|r| r.state == "finished") && used == 0 {
            return Ok(rows);
        }
        ensure!(begun.elapsed() < DEMO_LIMIT, "the jobs did not finish within {} s", DEMO_LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn look(client: &Client, rows: &mut BTreeMap<String, Row>) -> Result<()> {
    let workloads = WORKLOAD.list(client, NAMESPACE).await?;
    let pods = POD.list(client, NAMESPACE).await?;
    let hosts = NODE.list(client, "").await?;
    for job in JOB.list(client, NAMESPACE).await? {
        let name = text(&job, "/metadata/name").to_owned();
        let owned = |o: &&Value| kinds::items(o, "/metadata/ownerReferences").iter().any(|r| text(r, "/name") == name);
        let workload = workloads.iter().find(owned).cloned().unwrap_or_default();
        let row = rows.entry(name.clone()).or_default();
        row.state = match () {
            () if condition(&workload, "Finished") == "True" => "finished",
            () if condition(&job, "Complete") == "True" => "ending",
            () if condition(&workload, "Admitted") == "True" => "admitted",
            () => "waiting",
        };
        let flavor = quickstart::flavor_of(&workload);
        if !flavor.is_empty() {
            row.flavor = flavor.to_owned();
        }
        for pod in pods.iter().filter(owned) {
            let node = text(pod, "/spec/nodeName").to_owned();
            if node.is_empty() || row.nodes.contains(&node) {
                continue;
            }
            if let Some(host) = hosts.iter().find(|h| text(h, "/metadata/name") == node) {
                row.tiers.push(quickstart::tier_of(host));
            }
            row.nodes.push(node);
        }
    }
    Ok(())
}

/// Chips that are reserved in the ClusterQueue, by flavor.
fn usage(queue: &Value) -> BTreeMap<String, i128> {
    let mut total = BTreeMap::new();
    for flavor in kinds::items(queue, "/status/flavorsReservation") {
        let sum = kinds::items(flavor, "/resources")
            .iter()
            .filter_map(|r| r.get("total").and_then(berth_e2e::quota_tree::thousandths))
            .sum::<i128>();
        total.insert(text(flavor, "/name").to_owned(), sum / 1000);
    }
    total
}

fn table(rows: &BTreeMap<String, Row>, queue: &Value) -> Vec<String> {
    let used = usage(queue);
    let chips = |flavor: &str| used.get(flavor).copied().unwrap_or(0);
    let count = |state: &str| rows.values().filter(|r| r.state == state).count();
    let mut lines = vec![format!("{:<10} {:<9} {:<10} NODES", "JOB", "STATE", "TIER")];
    for (name, row) in rows {
        lines.push(format!("{name:<10} {:<9} {:<10} {}", row.state, row.flavor, row.nodes.join(" ")));
    }
    lines.push(format!(
        "{} waiting, {} admitted, {} finished;  chips in the status of the ClusterQueue, a second behind: reserved {}/8  on-demand {}/8  spot {}/16",
        count("waiting"),
        count("admitted") + count("ending"),
        count("finished"),
        chips("reserved"),
        chips("on-demand"),
        chips("spot")
    ));
    lines
}

/// Checks the demo's result: the jobs used the tiers in their order, and pods ran in the tier of their admission.
fn verify(rows: &BTreeMap<String, Row>) -> Result<()> {
    ensure!(rows.len() == 6, "expected 6 jobs, saw {}", rows.len());
    for (name, row) in rows {
        ensure!(!row.flavor.is_empty(), "{name} finished without having been admitted");
        let astray = row.tiers.iter().any(|t| !t.is_empty() && *t != row.flavor);
        ensure!(!astray, "{name} was admitted to {} and ran on {:?}", row.flavor, row.nodes);
    }
    // The map `rows` has the jobs in the order of their names, in which Berth admits jobs of equal creation time.
    let first = rows.values().next().map_or("", |row| row.flavor.as_str());
    ensure!(first == "reserved", "the first of the equal jobs was admitted to {first}, and not to reserved");
    for tier in ["reserved", "on-demand", "spot"] {
        ensure!(rows.values().any(|r| r.flavor == tier), "no job was admitted to {tier}");
    }
    Ok(())
}

fn print_hints(place: &Place, manager: &Manager) {
    println!("\nTry it yourself in another terminal:\n");
    println!("  export KUBECONFIG={}", place.kubeconfig.display());
    println!("  kubectl get clusterqueues,resourceflavors,localqueues -A");
    println!("  kubectl -n {NAMESPACE} get jobs,workloads");
    println!("  kubectl -n {NAMESPACE} get pods -o wide");
    println!("  kubectl -n {NAMESPACE} delete jobs --all && kubectl create -f examples/quickstart/03-jobs.yaml");
    println!(
        "  kubectl patch clusterqueue tpu --type merge -p '{{\"spec\":{{\"stopPolicy\":\"Hold\"}}}}'   # and None, to go on"
    );
    println!("  kubectl -n {} get tj; kubectl -n {} describe tj {}", story::NAMESPACE, story::NAMESPACE, story::HERO);
    println!("  kubectl apply -f examples/two-teams-borrowing/queues.yaml");
    println!("  kubectl create -f examples/two-teams-borrowing/jobs.yaml && kubectl get workloads -A\n");
    println!("Berth's log: {}", manager.log().display());
    match place.plane {
        Some(_) => println!("Ctrl-C stops everything and removes it."),
        None => println!(
            "Ctrl-C stops Berth, and removes its log and its token from this machine. {}",
            foreign_cluster::what_stays()
        ),
    }
}
