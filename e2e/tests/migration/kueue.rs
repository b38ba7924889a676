//! A cluster as Kueue 0.19 leaves it, that is, with Kueue's release, lease and objects in the form in which Kueue writes them, under its field managers. The
//! test writes these objects itself, because Kueue 0.19 does not exist as a Go module, and so that `make test` need not build a Kueue. The suite
//! `e2e/tests/kueue` runs the real Kueue, in `make night`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use berth_e2e::binaries::repository;
use berth_e2e::kinds::{self, JOB, Kind, WORKLOAD, items, text};
use berth_e2e::manifest::Job;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

/// Namespace of Kueue.
pub(crate) const NAMESPACE: &str = "kueue-system";
/// Field managers of the Kueue that wrote the objects of this test.
pub(crate) const MANAGERS: [&str; 5] =
    ["kueue", "kueue-admission", "kueue-job-controller-PodsReady", "kueue-reclaimable-pods", "kueue-pod-controller"];
/// Name of Kueue's lease.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// The finalizer that Kueue puts on all objects in use.
pub(crate) const IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
/// Names of Kueue's webhook configurations: the mutating one and the validating one.
pub(crate) const WEBHOOKS: [&str; 2] =
    ["kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"];
/// The Service of Kueue's webhooks and of its conversion.
pub(crate) const SERVICE: &str = "kueue-webhook-service";

/// The configuration file as Kueue's chart renders it, with the namespace selector that Kueue gives as an example. The namespace selector in Kueue's
/// configuration names Kueue's namespace and not Berth's, and the names of the certificates are Kueue's.
const CONFIGURATION: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
clientConnection:
  burst: 500
  qps: 300
controller:
  groupKindConcurrency:
    ClusterQueue.kueue.x-k8s.io: 5
    Job.batch: 5
    LocalQueue.kueue.x-k8s.io: 5
    Pod: 5
    ResourceFlavor.kueue.x-k8s.io: 1
    Workload.kueue.x-k8s.io: 10
health:
  healthProbeBindAddress: :8081
integrations:
  frameworks:
  - batch/job
  - ray.io/rayjob
  - jobset.x-k8s.io/jobset
  - pod
  - deployment
  - statefulset
internalCertManagement:
  enable: true
  webhookSecretName: kueue-webhook-server-cert
  webhookServiceName: kueue-webhook-service
kind: Configuration
leaderElection:
  leaderElect: true
  resourceName: c1f6bfd2.kueue.x-k8s.io
managedJobsNamespaceSelector:
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
    - kube-system
    - kueue-system
metrics:
  bindAddress: :8443
webhook:
  port: 9443
";

/// Writes a chart like Kueue's, with CRDs among the templates (without a policy that keeps them), a Deployment with its configuration, roles for people, and
/// webhooks.
pub(crate) fn write_chart(folder: &Path) -> Result<()> {
    let (templates, files) = (folder.join("templates"), folder.join("files"));
    for place in [&templates, &files] {
        fs::create_dir_all(place)?;
    }
    fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: kueue\nversion: 0.19.0\nappVersion: v0.19.0\n")?;
    for entry in fs::read_dir(repository().join("crds"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
        if name.ends_with(".kueue.x-k8s.io.yaml") {
            fs::write(files.join(name), definition(&fs::read_to_string(&path)?)?.to_string())?;
        }
    }
    let crds = "{{ range $path, $_ := .Files.Glob \"files/*.yaml\" }}\n---\n{{ $.Files.Get $path }}\n{{ end }}\n";
    fs::write(templates.join("crds.yaml"), crds)?;
    let labels = json!({"control-plane": "controller-manager", "app.kubernetes.io/name": "kueue"});
    let container = json!({"name": "manager", "image": "registry.k8s.io/kueue/kueue:v0.19.0"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kueue-controller-manager", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    let configuration = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kueue-manager-config"},
        "data": {"controller_manager_config.yaml": CONFIGURATION}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "kueue-batch-user-role"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"rbac.kueue.x-k8s.io/batch-user": "true"}}]}});
    let [mutating, validating] = WEBHOOKS;
    for (name, object) in [
        ("deployment", deployment),
        ("configuration", configuration),
        ("role", role),
        ("mutating", webhooks("MutatingWebhookConfiguration", mutating, "mjob.kb.io", "/mutate-batch-v1-job")),
        ("validating", webhooks("ValidatingWebhookConfiguration", validating, "vjob.kb.io", "/validate-batch-v1-job")),
    ] {
        fs::write(templates.join(format!("{name}.yaml")), object.to_string())?;
    }
    Ok(())
}

/// A CRD as Kueue's chart has it, with Kueue's Service as conversion webhook if the kind's versions differ. No server runs behind Kueue's Service in this test,
/// so v1beta1 is not served for the kinds that need a conversion, as in the files of the folder `crds`.
fn definition(text: &str) -> Result<Value> {
    let mut definition = kinds::parse(text)?.into_iter().next().context("a CRD")?;
    if items(&definition, "/spec/versions").iter().any(|version| version["served"] == json!(false)) {
        let service = json!({"namespace": NAMESPACE, "name": SERVICE, "path": "/convert"});
        definition["spec"]["conversion"] = json!({"strategy": "Webhook",
            "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}});
    }
    Ok(definition)
}

/// A webhook configuration with a webhook for Jobs.
fn webhooks(kind: &str, name: &str, webhook: &str, path: &str) -> Value {
    let service = json!({"namespace": NAMESPACE, "name": SERVICE, "path": path});
    // No server answers the webhook in this test, so its policy is Ignore in place of Kueue's Fail: with Fail no job could be created.
    let webhook = json!({"name": webhook, "clientConfig": {"service": service}, "failurePolicy": "Ignore",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [webhook]})
}

/// Takes the lease as a Kueue does that leads, or gives it up as a Kueue does that ends. No process renews the lease in this test, so its duration is
/// longer than any step of the test.
pub(crate) async fn lead(client: &Client, leads: bool) -> Result<()> {
    let leases = Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
    let (holder, seconds) = if leads { ("kueue-controller-manager-0_k", 600) } else { ("", 1) };
    let now = micro_now();
    let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": NAMESPACE, "name": LEASE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": now, "renewTime": now,
            "leaseTransitions": 3}});
    let params = PatchParams::apply("kueue").force();
    leases.api(client, NAMESPACE).patch(LEASE, &params, &Patch::Apply(&object)).await?;
    Ok(())
}

/// Holder of Kueue's lease.
pub(crate) async fn leader(client: &Client) -> Result<String> {
    let leases = Kind::of(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}))?;
    let found = leases.get(client, NAMESPACE, LEASE).await?;
    Ok(found.map(|lease| text(&lease, "/spec/holderIdentity").to_owned()).unwrap_or_default())
}

fn micro_now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The name that Kueue gives the Workload of a Job.
pub(crate) fn workload_name(job: &Value) -> String {
    name_of(JOB, job)
}

/// The name that Kueue gives the Workload of an object.
pub(crate) fn name_of(kind: Kind, object: &Value) -> String {
    let name = text(object, "/metadata/name");
    let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
    let digest = Sha1::digest(format!("{}\n{group}\n{name}\n{}", kind.kind, text(object, "/metadata/uid")));
    let hash: String = digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{name}-{}", kind.kind.to_lowercase(), &hash[..5])
}

/// The Workload that Kueue makes for a Job.
pub(crate) fn workload_of(job: &Value) -> Value {
    let mut template = job["spec"]["template"].clone();
    template["metadata"] = json!({"annotations": template["metadata"]["annotations"]});
    // Topology-aware scheduling is on by default in Kueue, so every Workload names the label that numbers its pods. A field `topologyRequest` with nothing but
    // `podIndexLabel` does not make a Workload request a topology.
    let place = json!({"podIndexLabel": "batch.kubernetes.io/job-completion-index"});
    let count = &job["spec"]["parallelism"];
    let set = json!({"name": "main", "count": count, "template": template, "topologyRequest": place});
    workload_with(JOB, job, json!([set]))
}

/// The Workload that Kueue makes for an object with the pod sets `sets`.
pub(crate) fn workload_with(kind: Kind, object: &Value, sets: Value) -> Value {
    let uid = text(object, "/metadata/uid");
    let metadata = &object["metadata"];
    let owner = json!({"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": uid,
        "controller": true, "blockOwnerDeletion": true});
    json!({"apiVersion": WORKLOAD.api_version, "kind": "Workload",
        "metadata": {"namespace": metadata["namespace"], "name": name_of(kind, object), "finalizers": [IN_USE],
            "labels": {"kueue.x-k8s.io/job-uid": uid}, "ownerReferences": [owner]},
        "spec": {"active": true, "priority": 0, "queueName": "queue", "podSets": sets}})
}

/// A condition with the present time as its transition time.
pub(crate) fn is(kind: &str, status: bool, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": now(), "observedGeneration": 1})
}

/// Functions that write into a cluster as Kueue does.
pub(crate) struct Kueue<'a> {
    pub(crate) client: &'a Client,
    /// A client with the user name of Kueue's account, which starts and stops jobs.
    pub(crate) manager: &'a Client,
    /// Namespace of the jobs.
    pub(crate) namespace: &'a str,
    pub(crate) cluster_queue: &'a str,
    pub(crate) flavor: &'a str,
}

impl Kueue<'_> {
    /// Creates a suspended Job and its Workload; returns the Job and the name of the Workload.
    pub(crate) async fn queue(&self, job: Job) -> Result<(Value, String)> {
        let job = kinds::apply(self.client, &job.manifest()).await?;
        let workload = self.record(workload_of(&job)).await?;
        Ok((job, workload))
    }

    /// Creates a Workload and returns its name.
    pub(crate) async fn record(&self, workload: Value) -> Result<String> {
        let name = text(&workload, "/metadata/name").to_owned();
        let params = PostParams { field_manager: Some("kueue".to_owned()), ..PostParams::default() };
        let api = WORKLOAD.api(self.client, self.namespace);
        api.create(&params, &serde_json::from_value(workload)?).await.context("creating a Workload")?;
        Ok(name)
    }

    /// Applies a part of a Workload's status under the field manager `manager` of Kueue.
    pub(crate) async fn status(&self, workload: &str, manager: &str, status: &Value) -> Result<()> {
        let object = json!({"apiVersion": WORKLOAD.api_version, "kind": "Workload",
            "metadata": {"namespace": self.namespace, "name": workload}, "status": status});
        let api = WORKLOAD.api(self.client, self.namespace);
        let params = PatchParams::apply(manager).force();
        api.patch_status(workload, &params, &Patch::Apply(&object)).await.context("applying a status")?;
        Ok(())
    }

    /// The status of an admitted Workload with one pod set of one pod.
    pub(crate) fn admission(&self, cpu: &str) -> Value {
        self.admission_of("main", 1, cpu)
    }

    /// The status of an admitted Workload of one pod set; the parameters are the pod set's name, the number of its pods, and the cpu of all of them.
    pub(crate) fn admission_of(&self, set: &str, count: usize, cpu: &str) -> Value {
        let set = json!({"name": set, "count": count, "flavors": {"cpu": self.flavor}, "resourceUsage": {"cpu": cpu}});
        json!({"admission": {"clusterQueue": self.cluster_queue, "podSetAssignments": [set]}, "conditions": [
            is("QuotaReserved", true, "QuotaReserved", &format!("Quota reserved in ClusterQueue {}", self.cluster_queue)),
            is("Admitted", true, "Admitted", "The workload is admitted")]})
    }

    /// Metadata that Kueue's start adds to the pods of a pod set.
    pub(crate) fn marks(&self, set: &str, workload: &str) -> Value {
        let labels = json!({"kueue.x-k8s.io/podset": set, "kueue.x-k8s.io/cluster-queue-name": self.cluster_queue,
            "kueue.x-k8s.io/local-queue-name": "queue"});
        json!({"labels": labels, "annotations": {"kueue.x-k8s.io/workload": workload}})
    }

    /// Patches an object by a merge patch, as Kueue starts an admitted job.
    pub(crate) async fn merge(&self, kind: Kind, name: &str, patch: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some("kueue".to_owned()), ..PatchParams::default() };
        let api = kind.api(self.manager, self.namespace);
        api.patch(name, &params, &Patch::Merge(patch))
            .await
            .with_context(|| format!("starting {} {name}", kind.kind))?;
        Ok(())
    }

    /// Starts a Job in one write, which unsuspends it and adds the fields of its flavor and its Workload to the pod template.
    pub(crate) async fn start(&self, name: &str, workload: &str) -> Result<()> {
        let template = json!({"metadata": self.marks("main", workload), "spec": {"nodeSelector": {"e2e/pool": "cpu"}}});
        self.merge(JOB, name, &json!({"spec": {"suspend": false, "template": template}})).await
    }

    /// Creates a Job that Kueue has admitted and started; returns the name of its Workload.
    pub(crate) async fn run(&self, job: Job, cpu: &str) -> Result<String> {
        let (job, workload) = self.queue(job).await?;
        self.status(&workload, "kueue-admission", &self.admission(cpu)).await?;
        self.start(text(&job, "/metadata/name"), &workload).await?;
        Ok(workload)
    }

    /// Writes that the pods of a Workload are ready.
    pub(crate) async fn ready(&self, workload: &str) -> Result<()> {
        let ready = is("PodsReady", true, "Started", "All pods reached readiness and the workload is running");
        self.status(workload, "kueue-job-controller-PodsReady", &json!({"conditions": [ready]})).await
    }
}

/// Differences between a Workload and the Workload `wanted` that Kueue would have written; empty if Kueue could go on with the Workload.
pub(crate) fn strange(workload: &Value, wanted: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for pointer in [
        "/metadata/name",
        "/metadata/finalizers",
        "/metadata/labels",
        "/metadata/annotations/kueue.x-k8s.io~1is-group-workload",
        "/spec/queueName",
        "/spec/priority",
    ] {
        let finished = pointer == "/metadata/finalizers" && kinds::condition(workload, "Finished") == "True";
        if workload.pointer(pointer) != wanted.pointer(pointer) && !finished {
            wrong.push(format!(
                "{pointer} is {:?}, Kueue writes {:?}",
                workload.pointer(pointer),
                wanted.pointer(pointer)
            ));
        }
    }
    let [owners, all] = [workload, wanted].map(|object| sorted(object, "/metadata/ownerReferences"));
    if owners != all {
        wrong.push(format!("its owners are {owners:?}, Kueue writes {all:?}"));
    }
    // A start adds fields to the pod templates of a Workload, so only the parts that no start changes must be the same, such as the containers with their
    // resource requests.
    let [sets, all] = [workload, wanted].map(|object| sorted(object, "/spec/podSets"));
    if sets.len() != all.len() {
        wrong.push(format!("it has {} pod sets, Kueue writes {}", sets.len(), all.len()));
    }
    for (set, wanted) in sets.iter().zip(&all) {
        for pointer in [
            "/name",
            "/count",
            "/template/spec/containers",
            "/template/spec/restartPolicy",
            "/template/metadata/annotations/e2e.berth.dev~1outcome",
        ] {
            let (is, should) = (set.pointer(pointer), wanted.pointer(pointer));
            if is != should {
                wrong.push(format!("{pointer} of pod set {} is {is:?}, Kueue writes {should:?}", set["name"]));
            }
        }
    }
    for entry in items(workload, "/metadata/managedFields") {
        let manager = text(entry, "/manager");
        // Fields of `kubectl replace` are allowed, because the administrator stores all objects again before the migration.
        if !MANAGERS.contains(&manager) && ![kinds::USER, "kubectl-replace"].contains(&manager) {
            wrong.push(format!("field manager {manager} is none of Kueue's"));
        }
        if text(entry, "/subresource") == "status" && text(entry, "/operation") != "Apply" {
            wrong.push(format!("{manager} wrote the status by {}", text(entry, "/operation")));
        }
    }
    wrong
}

/// A list of named items, sorted by their names.
fn sorted(object: &Value, pointer: &str) -> Vec<Value> {
    let mut list = items(object, pointer).to_vec();
    list.sort_by_key(|item| text(item, "/name").to_owned());
    list
}
