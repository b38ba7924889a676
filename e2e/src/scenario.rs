//! The parts that every scenario needs: a control plane with CRDs, nodes and Berth, an observer, a namespace, and short functions for waits such as
//! "this job is admitted".

mod clean;

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use kube::Client;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Options, create_namespace};
use crate::kinds::{self, CLUSTER_QUEUE, EVENT, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD, condition, text};
use crate::manager::{self, Manager, ManagerOptions};
use crate::manifest;
use crate::nodes::{self, Pool};
use crate::observer::{Observer, Scope};
use crate::test_clock;
use crate::wait::{self, STEP, Seen};
use crate::webhooks;
use crate::world;

/// Time for which no object may change at the end of a scenario.
const REST: Duration = Duration::from_secs(2);

/// A control plane with Berth on it, on which scenarios run.
pub struct Stage {
    /// The control plane.
    pub plane: ControlPlane,
    /// An administrator's client.
    pub client: Client,
    /// The manager that runs on the control plane.
    pub manager: Manager,
    /// The observer.
    pub observer: Observer,
}

impl Stage {
    /// Starts a control plane, applies the CRDs, creates nodes, and starts Berth and the observer.
    ///
    /// # Errors
    /// Fails if the control plane, the nodes, Berth or the observer cannot be created or started.
    pub async fn start(name: &str, pools: &[Pool], options: ManagerOptions) -> Result<Stage> {
        Self::on(ControlPlane::start(Options::with_crds(name)).await?, pools, options).await
    }

    /// Does the same as [`Stage::start`], on a control plane that has the CRDs already.
    ///
    /// # Errors
    /// Fails if the nodes, Berth or the observer cannot be created or started.
    pub async fn on(plane: ControlPlane, pools: &[Pool], options: ManagerOptions) -> Result<Stage> {
        let client = plane.client();
        let ready = async {
            manager::install(&client).await?;
            nodes::create(&client, pools).await?;
            let observer = Observer::start(client.clone()).await?;
            let reviews = options.webhooks.is_some();
            let manager = Manager::start(&plane, options).await?;
            if reviews {
                wait::until(STEP, "Berth is asked", || webhooks::asked(&client)).await?;
            }
            anyhow::Ok((observer, manager))
        };
        match ready.await {
            Ok((observer, manager)) => Ok(Stage { client, manager, observer, plane }),
            Err(e) => {
                plane.keep_files();
                Err(e)
            }
        }
    }

    /// Starts a scenario in a new namespace with the scenario's name. The names of the scenario's cluster-scoped objects should begin with
    /// [`Scenario::name`].
    ///
    /// # Errors
    /// Fails if the namespace cannot be created.
    pub async fn scenario(&self, name: &str) -> Result<Scenario<'_>> {
        create_namespace(&self.client, name, &[]).await?;
        Ok(Scenario { stage: self, client: self.client.clone(), namespace: name.to_owned() })
    }

    /// The state of the cluster and the end of Berth's log, for the message of a failed test; the control plane's logs are kept.
    pub async fn failure(&self, namespace: &str, error: &anyhow::Error) -> String {
        self.plane.keep_files();
        let world = world::dump(&self.client, namespace).await;
        let (log, tail) = (self.manager.log().display().to_string(), self.manager.log_tail(25));
        // The cause of the failure comes last, because a reader of a long log sees its end before the rest.
        format!("{namespace} failed\n{world}berth's log ({log}):\n{tail}\n{namespace} failed: {error:#}")
    }

    /// Stops the observer, the manager and the control plane, in this order.
    pub async fn stop(self) {
        let Stage { plane, mut manager, observer, .. } = self;
        drop(observer);
        let _ = tokio::task::spawn_blocking(move || manager.kill()).await;
        plane.stop().await;
    }
}

/// One scenario: a namespace, and short functions for the steps of a test.
pub struct Scenario<'a> {
    /// The control plane with Berth on which the scenario runs.
    pub stage: &'a Stage,
    /// An administrator's client.
    pub client: Client,
    /// Namespace of the scenario.
    pub namespace: String,
}

impl Scenario<'_> {
    /// A name for a cluster-scoped object that belongs to this scenario alone.
    pub fn name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.namespace)
    }

    /// Applies a manifest.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn apply(&self, object: &Value) -> Result<Value> {
        kinds::apply(&self.client, object).await
    }

    /// Creates a flavor, a ClusterQueue with one resource group, and a LocalQueue `queue` for the ClusterQueue.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn simple_queue(&self, cpu: &str, more: &Value) -> Result<()> {
        let (flavor, queue) = (self.name("flavor"), self.name("cq"));
        self.apply(&manifest::flavor(&flavor, &[])).await?;
        let group = manifest::group(&[(&flavor, &[manifest::quota("cpu", cpu)])]);
        self.apply(&manifest::cluster_queue(&queue, &[group], more)).await?;
        self.apply(&manifest::local_queue(&self.namespace, "queue", &queue)).await?;
        Ok(())
    }

    /// A Job in this scenario's namespace, for the LocalQueue `queue`.
    pub fn job(&self, name: &str) -> manifest::Job {
        manifest::Job::new(&self.namespace, name, "queue")
    }

    /// Creates a Job.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn create(&self, job: manifest::Job) -> Result<Value> {
        self.apply(&job.manifest()).await
    }

    /// The Job `name`, which must exist.
    ///
    /// # Errors
    /// Fails if the Job does not exist.
    pub async fn get_job(&self, name: &str) -> Result<Value> {
        JOB.get(&self.client, &self.namespace, name).await?.with_context(|| format!("job {name} is gone"))
    }

    /// The Workload of a Job, found by the Job's name in the Workload's owner references.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn workload_of(&self, job: &str) -> Result<Option<Value>> {
        let workloads = WORKLOAD.list(&self.client, &self.namespace).await?;
        Ok(workloads
            .into_iter()
            .find(|w| kinds::items(w, "/metadata/ownerReferences").iter().any(|o| text(o, "/name") == job)))
    }

    /// Waits until `check` holds for the Job's Workload; returns the Workload.
    ///
    /// # Errors
    /// Fails if `check` does not hold within the usual time.
    pub async fn workload(&self, job: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until(STEP, &format!("workload of job {job}: {what}"), || async {
            Ok(match self.workload_of(job).await? {
                None => Seen::NotYet("no workload".to_owned()),
                Some(w) if check(&w) => Seen::Yes(w),
                Some(w) => Seen::NotYet(w["status"].to_string()),
            })
        })
        .await
    }

    /// Waits until the Job is admitted and unsuspended; returns its Workload.
    ///
    /// # Errors
    /// Fails if the Job does not get there within the usual time.
    pub async fn admitted(&self, job: &str) -> Result<Value> {
        let workload = self.workload(job, "Admitted", |w| condition(w, "Admitted") == "True").await?;
        self.job_is(job, "unsuspended", |j| j["spec"]["suspend"] == json!(false)).await?;
        Ok(workload)
    }

    /// Waits until the Job's Workload has QuotaReserved=False and the Job is suspended; returns the Workload.
    ///
    /// # Errors
    /// Fails if the Workload or the Job does not get there within the usual time.
    pub async fn pending(&self, job: &str) -> Result<Value> {
        let workload = self
            .workload(job, "QuotaReserved=False with a reason", |w| condition(w, "QuotaReserved") == "False")
            .await?;
        self.job_is(job, "suspended", |j| j["spec"]["suspend"] == json!(true)).await?;
        Ok(workload)
    }

    /// Waits for the next second, because creation times are in whole seconds, and of two equal Workloads of one second Berth admits the one with the
    /// smaller name before the other.
    pub async fn next_second(&self) {
        let into = jiff::Timestamp::now().subsec_millisecond();
        tokio::time::sleep(std::time::Duration::from_millis(u64::try_from(1_020 - into).unwrap_or(1_020))).await;
    }

    /// Checks for one and a half seconds that the Job stays suspended and without quota.
    ///
    /// # Errors
    /// Fails if the Job is admitted.
    pub async fn stays_pending(&self, job: &str) -> Result<()> {
        wait::stays(Duration::from_millis(1500), &format!("job {job} waits"), || async {
            let workload = self.workload_of(job).await?;
            let reserved = workload.as_ref().is_some_and(|w| condition(w, "QuotaReserved") == "True");
            let suspended = self.get_job(job).await?["spec"]["suspend"] == json!(true);
            Ok(Seen::when(!reserved && suspended, || format!("reserved={reserved} suspended={suspended}")))
        })
        .await
    }

    /// Waits until `check` holds for the Job; returns the Job.
    ///
    /// # Errors
    /// Fails if `check` does not hold within the usual time.
    pub async fn job_is(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until(STEP, &format!("job {name} is {what}"), || async {
            let job = self.get_job(name).await?;
            Ok(if check(&job) {
                Seen::Yes(job)
            } else {
                Seen::NotYet(format!("{} {}", job["spec"]["suspend"], job["status"]))
            })
        })
        .await
    }

    /// Waits until the Job is Complete and its Workload is Finished.
    ///
    /// # Errors
    /// Fails if the Job does not get there within the usual time.
    pub async fn finished(&self, job: &str) -> Result<()> {
        self.job_is(job, "Complete", |j| condition(j, "Complete") == "True").await?;
        self.workload(job, "Finished", |w| condition(w, "Finished") == "True").await?;
        Ok(())
    }

    /// Deletes a Job and waits until the Job, its pods and its Workload are gone.
    ///
    /// # Errors
    /// Fails if the Job, a pod of it or its Workload remains.
    pub async fn remove(&self, job: &str) -> Result<()> {
        JOB.delete(&self.client, &self.namespace, job).await?;
        wait::until(STEP, &format!("job {job}, its pods and its workload are gone"), || async {
            let there = JOB.get(&self.client, &self.namespace, job).await?.is_some();
            let workload = self.workload_of(job).await?.map(|w| kinds::key(&w));
            let pods = self.pods_of(job).await?.len();
            let gone = !there && workload.is_none() && pods == 0;
            Ok(Seen::when(gone, || format!("job: {there}, workload: {workload:?}, pods: {pods}")))
        })
        .await
    }

    /// Pods of a Job.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn pods_of(&self, job: &str) -> Result<Vec<Value>> {
        let mut pods = POD.list(&self.client, &self.namespace).await?;
        pods.retain(|p| kinds::items(p, "/metadata/ownerReferences").iter().any(|o| text(o, "/name") == job));
        Ok(pods)
    }

    /// Waits until `count` pods of a Job are bound to nodes; returns the names of the nodes.
    ///
    /// # Errors
    /// Fails if fewer pods than `count` have a node within the usual time.
    pub async fn nodes_of(&self, job: &str, count: usize) -> Result<Vec<String>> {
        wait::until(STEP, &format!("{count} pods of job {job} are bound"), || async {
            let pods = self.pods_of(job).await?;
            let bound: Vec<String> =
                pods.iter().map(|p| text(p, "/spec/nodeName").to_owned()).filter(|n| !n.is_empty()).collect();
            Ok(if bound.len() >= count { Seen::Yes(bound) } else { Seen::NotYet(format!("bound: {bound:?}")) })
        })
        .await
    }

    /// Waits until `check` holds for an object of the kind `kind`; returns the object.
    ///
    /// # Errors
    /// Fails if `check` does not hold within the usual time.
    pub async fn object_is(&self, kind: Kind, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        wait::until(STEP, &format!("{} {name}: {what}", kind.kind), || async {
            Ok(match kind.get(&self.client, &self.namespace, name).await? {
                None => Seen::NotYet("absent".to_owned()),
                Some(o) if check(&o) => Seen::Yes(o),
                Some(o) => Seen::NotYet(o["status"].to_string()),
            })
        })
        .await
    }

    /// Waits until an object of the namespace has a warning event with the reason `reason` whose message contains all of `words`.
    ///
    /// # Errors
    /// Fails if no such event exists within the usual time; the message has the existing warnings.
    pub async fn warned(&self, about: &str, reason: &str, words: &[&str]) -> Result<()> {
        let head = format!("{reason}: ");
        wait::until(STEP, &format!("a warning {reason} about {about}, with {words:?}"), || async {
            let mut events = EVENT.list(&self.client, &self.namespace).await?;
            events.retain(|e| text(e, "/involvedObject/name") == about && text(e, "/type") == "Warning");
            let message: Vec<String> =
                events.iter().map(|e| format!("{}: {}", text(e, "/reason"), text(e, "/message"))).collect();
            let given =
                message.iter().any(|one| one.starts_with(&head) && words.iter().all(|word| one.contains(*word)));
            Ok(Seen::when(given, || format!("{message:?}")))
        })
        .await
    }

    /// Patches the spec of a ClusterQueue by a merge patch.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn edit_queue(&self, name: &str, spec: &Value) -> Result<()> {
        CLUSTER_QUEUE.patch(&self.client, "", name, &json!({"spec": spec})).await.map(drop)
    }

    /// Ends the scenario: deletes the objects that the scenario left, and checks that the usage of its queues is zero and no invariant was broken.
    ///
    /// # Errors
    /// Fails with the broken invariants, or with the objects or the usage that remain.
    pub async fn conclude(self) -> Result<()> {
        let scope = Scope::of(&self.namespace);
        self.stage.observer.conclude_in(&scope, REST).await.context("before cleaning up")?;
        // A test that has killed the manager in [`Stage`] must call [`Manager::recomputes`] on its other managers itself.
        if self.stage.manager.is_there().await {
            self.stage.manager.recomputes_in(&scope).await.context("R2, before cleaning up")?;
        }
        self.delete_all(&[kinds::TRAINING_JOB, JOB]).await?;
        wait::until(STEP, "no workloads are left", || async {
            let left = WORKLOAD.list(&self.client, &self.namespace).await?;
            Ok(Seen::when(left.is_empty(), || format!("{:?}", left.iter().map(kinds::key).collect::<Vec<_>>())))
        })
        .await?;
        self.stage.observer.conclude_in(&scope, REST).await.context("after cleaning up")?;
        for queue in CLUSTER_QUEUE.list(&self.client, "").await? {
            let name = text(&queue, "/metadata/name");
            if !scope.holds(name) {
                continue;
            }
            for list in ["flavorsReservation", "flavorsUsage"] {
                for flavor in kinds::items(&queue, &format!("/status/{list}")) {
                    for resource in kinds::items(flavor, "/resources") {
                        let total = resource.get("total").and_then(crate::quota_tree::thousandths).unwrap_or(0);
                        ensure!(total == 0, "ClusterQueue {name} has no workloads, but {list} says {flavor}");
                    }
                }
            }
        }
        self.delete_all(&[LOCAL_QUEUE]).await?;
        let kinds = [kinds::QUEUE_POLICY, CLUSTER_QUEUE, kinds::COHORT, kinds::FLAVOR, kinds::WORKLOAD_PRIORITY_CLASS];
        for kind in kinds {
            for object in kind.list(&self.client, "").await? {
                let name = text(&object, "/metadata/name");
                if scope.holds(name) {
                    kind.delete(&self.client, "", name).await?;
                }
            }
        }
        wait::until(STEP, "the scenario's queues and flavors are gone", || async {
            let mut left = Vec::new();
            for kind in [CLUSTER_QUEUE, kinds::COHORT, kinds::FLAVOR] {
                let names = kind.list(&self.client, "").await?;
                left.extend(names.iter().map(|o| text(o, "/metadata/name").to_owned()).filter(|n| scope.holds(n)));
            }
            Ok(Seen::when(left.is_empty(), || format!("left: {}", left.join(", "))))
        })
        .await
    }
}

/// The name of a scenario, and the future that runs it.
pub type Run<'a> = (&'static str, futures::future::BoxFuture<'a, Result<()>>);

/// Number of scenarios that run at the same time: most of a scenario's time is waiting.
const AT_ONCE: usize = 12;

/// Fails if the cluster-scoped objects of one scenario are in the scope of another scenario: the scenario that ends before the other would delete the
/// other's objects.
fn are_apart(names: &[&str]) -> Result<()> {
    for name in names {
        let inside = names.iter().filter(|other| **other != *name).find(|other| Scope::of(name).holds(other));
        ensure!(
            inside.is_none(),
            "scenario {} is in the scope of {name}: call one of them otherwise",
            inside.unwrap_or(&"")
        );
        ensure!(names.iter().filter(|other| *other == name).count() == 1, "two scenarios are called {name}");
    }
    Ok(())
}

/// Writes the name of a scenario that ran into the file that `make scenario` reads.
fn note_run(name: &str) {
    let Some(path) = std::env::var_os("SCENARIO_RAN") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{name}")) {
        println!("scenario {name} cannot be noted: {error}");
    }
}

/// Runs scenarios, some of them at the same time, and prints the verdict of each scenario on one line; `SCENARIO=text` selects scenarios by a part of
/// their name. The name of each scenario must be the name of its namespace.
///
/// A suite may have several sets of scenarios, and only one set has a scenario of a given name. Therefore a set of scenarios passes if none of its
/// scenarios is selected. The names of the scenarios that run are written into the file `SCENARIO_RAN`, from which `make scenario` learns whether any
/// scenario ran.
///
/// # Errors
/// Fails with the failures of all failed scenarios.
pub async fn run_all(stage: &Stage, runs: Vec<Run<'_>>) -> Result<()> {
    if run_each(stage, AT_ONCE, runs).await? == 0 {
        return Ok(());
    }
    // At the end of the run the observer judges also the objects that belong to no scenario.
    stage.observer.conclude(REST).await?;
    stage.manager.recomputes().await?;
    // If only the periodic sweep found that a parked Workload can be admitted, the engine has missed a wake-up.
    let found = stage.manager.metric("berth_sweep_found_total", &[]).await?;
    ensure!(found.unwrap_or(0.0) == 0.0, "the sweep found {found:?} parked workloads");
    Ok(())
}

/// Runs scenarios as [`run_all`] does, at most `at_once` of them at the same time, but without a verdict of the observer on the complete run; for control
/// planes whose observer is not asked. Returns the number of scenarios that ran.
///
/// # Errors
/// Fails with the failures of all failed scenarios.
pub async fn run_each(stage: &Stage, at_once: usize, runs: Vec<Run<'_>>) -> Result<usize> {
    are_apart(&runs.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let selected = runs.into_iter().filter(|(name, _)| name.contains(&wanted)).map(|(name, run)| async move {
        let begun = std::time::Instant::now();
        let outcome = stage.observer.changes_in(Scope::of(name)).notify(run).await;
        let seconds = begun.elapsed().as_secs_f64();
        note_run(name);
        let Err(error) = outcome else {
            println!("scenario {name}: ok ({seconds:.1} s; {})", test_clock::summary());
            return None;
        };
        println!("scenario {name}: FAILED ({seconds:.1} s): {error:#}");
        let mut report = format!("=== {name}\n{}", stage.failure(name, &error).await);
        // Other broken invariants of a failed scenario are reported together with its failure, and not at the end of the run.
        for violation in stage.observer.violations(&Scope::of(name)).await.unwrap_or_default() {
            report.push_str(&format!("\nalso {violation}"));
        }
        Some((report, format!("scenario {name}: {error:#}")))
    });
    let outcomes: Vec<Option<(String, String)>> =
        futures::stream::iter(selected).buffer_unordered(at_once).collect().await;
    let ran = outcomes.len();
    let (reports, failed): (Vec<String>, Vec<String>) = outcomes.into_iter().flatten().unzip();
    println!("{} scenarios passed, {} failed", ran - failed.len(), failed.len());
    if !failed.is_empty() {
        // The failures come last, because a reader of a log sees its end before the rest.
        bail!("{}\n{} scenario(s) failed\n{}", reports.join("\n"), failed.len(), failed.join("\n"));
    }
    if ran == 0 {
        ensure!(!wanted.is_empty(), "there is no scenario");
        println!("no scenario is called like {wanted:?} here");
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_names_within_the_scope_of_another_are_refused() {
        assert!(are_apart(&["queue-jobs", "queue-pods", "que"]).is_ok());
        for names in [["queue", "queue-pods"], ["queue-pods", "queue"], ["queue", "queue"]] {
            assert!(are_apart(&names).is_err(), "{names:?}");
        }
    }
}
