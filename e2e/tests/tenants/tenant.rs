//! A tenant with the built-in role `edit` and the chart's role for users in one namespace, and the checks that he gets no more than his quota by these rights.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{self, CLUSTER_QUEUE, JOB, Kind, POD, WORKLOAD, condition, items, text};
use berth_e2e::manifest::{self, Job, group, quota};
use berth_e2e::observer::Scope;
use berth_e2e::quota_tree::{reserved, thousandths};
use berth_e2e::scenario::{Scenario, Stage};
use berth_e2e::test_clock;
use berth_e2e::wait::{self, STEP, Seen};
use berth_invariants::Rule;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

/// User name of the tenant, in his client certificate.
pub(crate) const USER: &str = "alice";
/// Pause between two looks at a tenant's objects.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// Time after the tenant's write, or after Berth's return, within which pods must use no more than the quota that Workloads hold; and time after the
/// lender's request within which the lender must have its quota back.
const BOUND: Duration = Duration::from_secs(10);
/// Time for which pods must stay within the held quota.
const CALM: Duration = Duration::from_secs(3);
/// Quota of the lender's queue in thousandths of a cpu; the tenant's queue has no quota of its own and borrows this quota.
const QUOTA: i128 = 2_000;

/// Beginning of the names of namespaces with a LocalQueue `default`.
const WITH_DEFAULT: &str = "default-";

/// One tenant in a namespace with two LocalQueues: the LocalQueue `queue` borrows the quota of the LocalQueue `lender`, which takes it back.
pub(crate) struct Tenant<'a> {
    /// The scenario of the tenant's namespace, with an administrator's client.
    pub(crate) s: Scenario<'a>,
    /// A client with the tenant's certificate.
    pub(crate) client: Client,
    /// True if the webhooks are on and Berth answers them.
    pub(crate) reviewed: bool,
    /// Number of the tenant's writes that the API server has refused.
    refusals: AtomicUsize,
}

/// The kind SelfSubjectAccessReview, by which a client asks the API server about its own rights.
const REVIEW: Kind = Kind {
    api_version: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    namespaced: false,
};

/// Creates the chart's roles for people, from the plain manifests.
pub(crate) async fn roles(client: &Client) -> Result<()> {
    let manifests =
        fs::read_to_string(repository().join("charts/kustomize/berth.yaml")).context("the plain manifests")?;
    for object in kinds::parse(&manifests)? {
        let labels = object["metadata"]["labels"].to_string();
        let of_people = labels.contains("batch-user") || labels.contains("aggregate-to-edit");
        let name = text(&object, "/metadata/name");
        if text(&object, "/kind") == "ClusterRole" && (of_people || name == "kueue-batch-user-role") {
            kinds::apply(client, &object).await?;
        }
    }
    Ok(())
}

impl<'a> Tenant<'a> {
    /// Creates a namespace, the bindings of the tenant's two roles in it, and its queues.
    pub(crate) async fn new(stage: &'a Stage, name: &str, client: &Client, reviewed: bool) -> Result<Tenant<'a>> {
        let s = stage.scenario(name).await?;
        for role in ["edit", "kueue-batch-user-role"] {
            let rbac = "rbac.authorization.k8s.io";
            s.apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
                "metadata": {"namespace": name, "name": role},
                "subjects": [{"kind": "User", "apiGroup": rbac, "name": USER}],
                "roleRef": {"kind": "ClusterRole", "apiGroup": rbac, "name": role}}))
                .await?;
        }
        let flavor = s.name("flavor");
        s.apply(&manifest::flavor(&flavor, &[])).await?;
        let with = |cpu| group(&[(&flavor, &[quota("cpu", cpu)])]);
        let preemption = json!({"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"});
        let more = json!({"cohortName": s.name("pool"), "preemption": preemption});
        for (queue, own, cpu) in [("queue", "borrower", "0"), ("lender", "lender", "2")] {
            s.apply(&manifest::cluster_queue(&s.name(own), &[with(cpu)], &more)).await?;
            s.apply(&manifest::local_queue(name, queue, &s.name(own))).await?;
        }
        if name.starts_with(WITH_DEFAULT) {
            s.apply(&manifest::local_queue(name, "default", &s.name("borrower"))).await?;
        }
        let tenant = Tenant { s, client: client.clone(), reviewed, refusals: AtomicUsize::new(0) };
        wait::until(STEP, "the tenant has his roles", || async {
            let lists = JOB.list(client, name).await.is_ok() && WORKLOAD.list(client, name).await.is_ok();
            Ok(Seen::when(lists, || "refused".to_owned()))
        })
        .await?;
        Ok(tenant)
    }

    /// A tenant in an existing namespace, for attacks while Berth is down and for the checks after Berth is back.
    pub(crate) fn again(stage: &'a Stage, name: &str, client: &Client) -> Tenant<'a> {
        let s = Scenario { stage, client: stage.client.clone(), namespace: name.to_owned() };
        Tenant { s, client: client.clone(), reviewed: false, refusals: AtomicUsize::new(0) }
    }

    /// A Job of the tenant in the LocalQueue that borrows; its pods run until they are deleted.
    pub(crate) fn job(&self, name: &str, cpu: &str) -> Job {
        self.s
            .job(name)
            .cpu(cpu)
            .endless()
            .spec(&json!({"backoffLimit": 6}))
            .pod_spec(&json!({"terminationGracePeriodSeconds": 1}))
    }

    /// A JobSet of the tenant with one Job of one pod.
    pub(crate) fn job_set(&self, name: &str, cpu: &str) -> Value {
        let job = self.job("any", cpu).manifest();
        let spec = json!({"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": job["spec"]["template"]});
        let jobs = json!([{"name": "w", "replicas": 1, "template": {"spec": spec}}]);
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"namespace": self.s.namespace, "name": name,
                "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": {"suspend": true, "replicatedJobs": jobs}})
    }

    /// Creates an object as the tenant; `false` if the API server refuses it.
    pub(crate) async fn create(&self, object: &Value) -> Result<bool> {
        self.was_let("create", kinds::apply(&self.client, object).await)
    }

    /// Patches an object as the tenant by a merge patch; `false` if the API server refuses the patch.
    pub(crate) async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> Result<bool> {
        self.was_let("patch", kind.patch(&self.client, &self.s.namespace, name, patch).await)
    }

    /// Suspends a job and removes its queue's name, in one write.
    pub(crate) async fn leave_queue(&self, kind: Kind, name: &str) -> Result<bool> {
        let labels = json!({"kueue.x-k8s.io/queue-name": null});
        self.patch(kind, name, &json!({"spec": {"suspend": true}, "metadata": {"labels": labels}})).await
    }

    /// Makes an object of the tenant name the object `controller` as its controller.
    pub(crate) async fn put_below(
        &self,
        (kind, name): (Kind, &str),
        (above, controller): (Kind, &str),
    ) -> Result<bool> {
        let owners = self.controlled_by(above, controller).await?;
        self.patch(kind, name, &json!({"metadata": {"ownerReferences": owners}})).await
    }

    /// An owner reference that names an object of the tenant as the controller.
    pub(crate) async fn controlled_by(&self, kind: Kind, name: &str) -> Result<Value> {
        let uid = self.uid(kind, name).await?;
        Ok(json!([{"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid, "controller": true}]))
    }

    /// Deletes an object as the tenant, and leaves its dependants behind.
    pub(crate) async fn orphan(&self, kind: Kind, name: &str) -> Result<bool> {
        let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        let api = kind.api(&self.client, &self.s.namespace);
        self.was_let("delete", api.delete(name, &params).await.map(|_| Value::Null).map_err(Into::into))
    }

    /// Scales a StatefulSet or Deployment as the tenant, by the subresource.
    pub(crate) async fn scale(&self, kind: Kind, name: &str, replicas: u32) -> Result<bool> {
        let api = kind.api(&self.client, &self.s.namespace);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let scaled = api.patch_scale(name, &PatchParams::default(), &patch).await;
        self.was_let("scale", scaled.map(|_| Value::Null).map_err(Into::into))
    }

    /// Changes the cpu request of a pod in place, by the subresource `resize`.
    pub(crate) async fn resize(&self, pod: &str, cpu: &str) -> Result<bool> {
        let patch = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}});
        let api = POD.api(&self.client, &self.s.namespace);
        let resized = api.patch_subresource("resize", pod, &PatchParams::default(), &Patch::Strategic(patch)).await;
        self.was_let("resize", resized.map(|_| Value::Null).map_err(Into::into))
    }

    /// Gives the tenant the right to use `verbs` on `resource` in his namespace, as an administrator could.
    pub(crate) async fn may(&self, resource: &str, verbs: &[&str]) -> Result<()> {
        let (rbac, name) = ("rbac.authorization.k8s.io", "more");
        let version = format!("{rbac}/v1");
        let metadata = json!({"namespace": self.s.namespace, "name": name});
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": verbs}]);
        self.s.apply(&json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules})).await?;
        let binding = json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"kind": "User", "apiGroup": rbac, "name": USER}],
            "roleRef": {"kind": "Role", "apiGroup": rbac, "name": name}});
        self.s.apply(&binding).await?;
        let asked = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {"resourceAttributes":
            {"namespace": self.s.namespace, "verb": "patch", "resource": resource.split('/').next(), "subresource": resource.split('/').nth(1)}}});
        wait::until(STEP, "the tenant has the right", || async {
            let answer = REVIEW
                .api(&self.client, "")
                .create(&PostParams::default(), &serde_json::from_value(asked.clone())?)
                .await?;
            let allowed = answer.data["status"]["allowed"] == json!(true);
            Ok(Seen::when(allowed, || answer.data["status"].to_string()))
        })
        .await
    }

    fn was_let(&self, what: &str, outcome: Result<Value>) -> Result<bool> {
        let Err(error) = outcome else { return Ok(true) };
        let refused = error.chain().filter_map(|cause| cause.downcast_ref::<kube::Error>()).any(|cause| {
            matches!(cause, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 404 && status.code != 409)
        });
        ensure!(refused, "{:?}", error.context(format!("the tenant's {what}")));
        self.refusals.fetch_add(1, Ordering::Relaxed);
        println!("{}: refused: {}", self.s.namespace, format!("{error:#}").chars().take(300).collect::<String>());
        Ok(false)
    }

    /// Number of the tenant's writes that the API server has refused so far.
    pub(crate) fn refusals(&self) -> usize {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Checks that the observer has found no revision at which Berth broke the invariants Q7 (pods run only by quota) and Q8 (quota comes back), which must
    /// hold whatever a tenant writes.
    async fn keeps_quota(&self) -> Result<()> {
        let broken = self.s.stage.observer.violations(&Scope::of(&self.s.namespace)).await?;
        let of_quota = broken.iter().filter(|one| [Rule::Excess, Rule::Eviction].contains(&one.rule));
        let broken: Vec<String> = of_quota.map(ToString::to_string).collect();
        ensure!(broken.is_empty(), "{}", broken.join("\n"));
        Ok(())
    }

    /// Waits until a Job of the tenant is admitted and `pods` of its pods have a node.
    pub(crate) async fn runs(&self, job: &str, pods: usize) -> Result<()> {
        self.s.admitted(job).await?;
        self.s.nodes_of(job, pods).await.map(drop)
    }

    /// Waits until at least `count` pods of the namespace have a node.
    pub(crate) async fn pods_run(&self, count: usize) -> Result<()> {
        wait::until(STEP, &format!("{count} pods run"), || async {
            let pods = self.running().await?;
            Ok(Seen::when(pods.len() >= count, || format!("{} run", pods.len())))
        })
        .await
    }

    /// The pods of the namespace that have a node and have not ended.
    pub(crate) async fn running(&self) -> Result<Vec<Value>> {
        let mut pods = POD.list(&self.s.client, &self.s.namespace).await?;
        pods.retain(|pod| !text(pod, "/spec/nodeName").is_empty());
        pods.retain(|pod| !["Succeeded", "Failed"].contains(&text(pod, "/status/phase")));
        Ok(pods)
    }

    /// The uid of an object of the tenant.
    async fn uid(&self, kind: Kind, name: &str) -> Result<String> {
        let object = kind.get(&self.s.client, &self.s.namespace, name).await?;
        Ok(text(&object.with_context(|| format!("no {name}"))?, "/metadata/uid").to_owned())
    }

    /// Four amounts in thousandths of a cpu: the requests of running pods, the requests of those pods that are not ending, the quota that Workloads
    /// hold, and the usage that the queues are charged.
    async fn usage_sums(&self) -> Result<[i128; 4]> {
        let (mut running, mut staying) = (0, 0);
        for pod in self.running().await? {
            let cpus = items(&pod, "/spec/containers");
            let cpus = cpus.iter().filter_map(|one| one.pointer("/resources/requests/cpu").and_then(thousandths));
            let cpus = cpus.sum::<i128>();
            running += cpus;
            if pod.pointer("/metadata/deletionTimestamp").is_none() {
                staying += cpus;
            }
        }
        let mut held = 0;
        for workload in WORKLOAD.list(&self.s.client, &self.s.namespace).await? {
            if condition(&workload, "QuotaReserved") == "True" && condition(&workload, "Finished") != "True" {
                for set in items(&workload, "/status/admission/podSetAssignments") {
                    held += set.pointer("/resourceUsage/cpu").and_then(thousandths).unwrap_or(0);
                }
            }
        }
        let mut charged = 0;
        for queue in ["borrower", "lender"] {
            let queue = CLUSTER_QUEUE.get(&self.s.client, "", &self.s.name(queue)).await?;
            charged += queue.map_or(0, |queue| reserved(&queue, "total"));
        }
        Ok([running, staying, held, charged])
    }

    async fn in_bounds(&self) -> Result<Seen<()>> {
        let [running, staying, held, charged] = self.usage_sums().await?;
        Ok(Seen::when(staying <= held && running <= held.max(charged) && held <= QUOTA, || {
            format!(
                "{running} run, {staying} of them to go on, {held} are held of {QUOTA}, and the queues are charged {charged}"
            )
        }))
    }

    /// The time after `begun` until which pods used more than the quota that Workloads hold, without ending pods that are charged separately. After
    /// that time the pods must stay within the quota for the time `CALM`.
    async fn comes_into_bounds(&self, begun: Duration, pause: Duration) -> Result<Duration> {
        // The variable `last` is the last moment at which pods used more than the quota that Workloads hold; the time `CALM` begins with the first look at the
        // earliest.
        let (first, mut last, mut seen) = (test_clock::now() - begun, Duration::ZERO, String::new());
        while test_clock::now() - begun < last.max(first) + CALM {
            if let Seen::NotYet(found) = self.in_bounds().await? {
                (last, seen) = (test_clock::now() - begun, found);
            }
            ensure!(last <= BOUND, "after {:.1} s more runs than holds quota: {seen}", last.as_secs_f64());
            tokio::time::sleep(pause).await;
        }
        Ok(last)
    }

    /// Checks that pods use no more than the held quota from the bound after `begun` on; ending pods that are charged separately do not count.
    pub(crate) async fn settles(&self, begun: Duration, pause: Duration) -> Result<()> {
        let took = self.comes_into_bounds(begun, pause).await?;
        println!("{}: in bounds after {:.1} s", self.s.namespace, took.as_secs_f64());
        Ok(())
    }

    /// Checks that the lender gets a reason why it waits, and has its quota back within the bound, or within the time `slow` in addition.
    pub(crate) async fn lender_is_served(&self, slow: Duration) -> Result<()> {
        let waits = Job::new(&self.s.namespace, "asks-too-much", "lender").cpu("99").manifest();
        let asked = test_clock::now();
        self.s.apply(&waits).await?;
        self.s.pending("asks-too-much").await.context("others are told why they wait")?;
        let reported = test_clock::now() - asked;
        let lender = Job::new(&self.s.namespace, "of-the-lender", "lender").cpu("2").endless().manifest();
        let asked = test_clock::now();
        self.s.apply(&lender).await?;
        self.s.admitted("of-the-lender").await.context("what was lent comes back")?;
        let back = test_clock::now() - asked;
        self.s.nodes_of("of-the-lender", 1).await?;
        self.comes_into_bounds(test_clock::now(), LOOK).await.context("once it was taken back")?;
        println!(
            "{}: others told after {:.1} s, quota back after {:.1} s",
            self.s.namespace,
            reported.as_secs_f64(),
            back.as_secs_f64()
        );
        ensure!(reported <= BOUND, "the lender is told after {reported:?} why it waits");
        ensure!(back <= BOUND + slow, "the lender has its quota back after {back:?}");
        self.keeps_quota().await?;
        // The control plane ends soon; the jobs and pods are deleted now, because they would use the machine until then.
        self.s.delete_all(&[JOB, POD]).await?;
        CLUSTER_QUEUE.delete(&self.s.client, "", &self.s.name("borrower")).await
    }
}
