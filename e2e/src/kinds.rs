//! The kinds of objects that tests use, as untyped objects: users write YAML, and a test must see fields that Berth's types do not have.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, Request};
use kube::{Api, Client};
use serde_json::Value;

use crate::wait::{self, Seen};

pub use berth_invariants::kinds::{USER, condition, condition_object, items, key, text};

/// A kind of Kubernetes objects: its API version, its name, the plural name of its resource, and whether its objects are namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group and version of the kind, as in the field `apiVersion`.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name of the kind's resource, as in the paths of requests.
    pub plural: &'static str,
    /// True if objects of the kind are in namespaces.
    pub namespaced: bool,
}

const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { api_version, kind, plural, namespaced }
}

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const BERTH: &str = "berth.dev/v1alpha1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
/// ResourceFlavor.
pub const FLAVOR: Kind = kind(KUEUE, "ResourceFlavor", "resourceflavors", false);
/// ClusterQueue.
pub const CLUSTER_QUEUE: Kind = kind(KUEUE, "ClusterQueue", "clusterqueues", false);
/// Cohort.
pub const COHORT: Kind = kind(KUEUE, "Cohort", "cohorts", false);
/// LocalQueue.
pub const LOCAL_QUEUE: Kind = kind(KUEUE, "LocalQueue", "localqueues", true);
/// Workload.
pub const WORKLOAD: Kind = kind(KUEUE, "Workload", "workloads", true);
/// WorkloadPriorityClass.
pub const WORKLOAD_PRIORITY_CLASS: Kind = kind(KUEUE, "WorkloadPriorityClass", "workloadpriorityclasses", false);
/// CheckpointStore.
pub const CHECKPOINT_STORE: Kind = kind(BERTH, "CheckpointStore", "checkpointstores", false);
/// QueuePolicy.
pub const QUEUE_POLICY: Kind = kind(BERTH, "QueuePolicy", "queuepolicies", false);
/// Job.
pub const JOB: Kind = kind("batch/v1", "Job", "jobs", true);
/// TrainingJob.
pub const TRAINING_JOB: Kind = kind(BERTH, "TrainingJob", "trainingjobs", true);
/// Pod.
pub const POD: Kind = kind("v1", "Pod", "pods", true);
/// Event.
pub const EVENT: Kind = kind("v1", "Event", "events", true);
/// StatefulSet.
pub const STATEFUL_SET: Kind = kind("apps/v1", "StatefulSet", "statefulsets", true);
/// Node.
pub const NODE: Kind = kind("v1", "Node", "nodes", false);
/// HorizontalPodAutoscaler.
pub const AUTOSCALER: Kind = kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true);
/// ConfigMap.
pub const CONFIG_MAP: Kind = kind("v1", "ConfigMap", "configmaps", true);
/// Deployment.
pub const DEPLOYMENT: Kind = kind("apps/v1", "Deployment", "deployments", true);
/// The kind ValidatingAdmissionPolicy, by which the API server itself refuses objects.
pub const VALIDATING_ADMISSION_POLICY: Kind =
    kind(ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false);
/// The kind ValidatingAdmissionPolicyBinding, which puts a ValidatingAdmissionPolicy into force.
pub const VALIDATING_ADMISSION_POLICY_BINDING: Kind =
    kind(ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false);
/// Namespace.
pub const NAMESPACE: Kind = kind("v1", "Namespace", "namespaces", false);
/// The kind MutatingWebhookConfiguration of the API group admissionregistration.k8s.io.
pub const MUTATING: Kind = kind(ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false);
/// The kind ValidatingWebhookConfiguration of the API group admissionregistration.k8s.io.
pub const VALIDATING: Kind =
    kind(ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false);
/// Secret.
pub const SECRET: Kind = kind("v1", "Secret", "secrets", true);
/// JobSet.
pub const JOBSET: Kind = kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", true);
/// ProvisioningRequest.
pub const PROVISIONING_REQUEST: Kind =
    kind("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "provisioningrequests", true);
/// PodTemplate.
pub const POD_TEMPLATE: Kind = kind("v1", "PodTemplate", "podtemplates", true);
/// CustomResourceDefinition.
pub const CRD: Kind = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false);

const KINDS: &[Kind] = &[
    FLAVOR,
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    WORKLOAD,
    WORKLOAD_PRIORITY_CLASS,
    CHECKPOINT_STORE,
    QUEUE_POLICY,
    JOB,
    TRAINING_JOB,
    POD,
    EVENT,
    STATEFUL_SET,
    NODE,
    kind(KUEUE, "AdmissionCheck", "admissionchecks", false),
    kind(KUEUE, "Topology", "topologies", false),
    kind(KUEUE, "ProvisioningRequestConfig", "provisioningrequestconfigs", false),
    kind(KUEUE, "MultiKueueConfig", "multikueueconfigs", false),
    kind(KUEUE, "MultiKueueCluster", "multikueueclusters", false),
    JOBSET,
    PROVISIONING_REQUEST,
    POD_TEMPLATE,
    MUTATING,
    VALIDATING,
    SECRET,
    kind("v1", "ServiceAccount", "serviceaccounts", true),
    kind("v1", "LimitRange", "limitranges", true),
    kind("v1", "ResourceQuota", "resourcequotas", true),
    CONFIG_MAP,
    AUTOSCALER,
    kind("v1", "Service", "services", true),
    kind("batch/v1", "CronJob", "cronjobs", true),
    kind("coordination.k8s.io/v1", "Lease", "leases", true),
    kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false),
    DEPLOYMENT,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    NAMESPACE,
    kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false),
    kind("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    CRD,
];

impl Kind {
    /// The kind of a manifest, by its API version and kind.
    ///
    /// # Errors
    /// Fails if the list `KINDS` does not have the kind.
    pub fn of(object: &Value) -> Result<Kind> {
        let (version, name) = (text(object, "/apiVersion"), text(object, "/kind"));
        let found = KINDS.iter().find(|k| k.api_version == version && k.kind == name);
        found
            .copied()
            .ok_or_else(|| anyhow!("the harness does not know kind {name} of {version:?}: add it to kinds.rs"))
    }

    /// Name of the kind for the judge in crate `invariants`.
    pub(crate) fn judged(self) -> berth_invariants::kinds::Kind {
        berth_invariants::kinds::Kind { api_version: self.api_version, kind: self.kind }
    }

    /// The kind as the client library kube describes it, from which kube builds the paths of requests.
    pub fn resource(self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, self.kind), self.plural)
    }

    /// Client for objects of the kind in one namespace; the namespace is ignored for cluster-scoped kinds.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource())
        } else {
            Api::all_with(client.clone(), &self.resource())
        }
    }

    /// Client for objects of the kind in all namespaces.
    pub fn all(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// True if the API server serves the kind: kinds of other projects are served only if a test has installed them.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn is_served(self, client: &Client) -> Result<bool> {
        match self.all(client).list(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(true),
            // The API server's answer about an unknown group is plain text, and not a status.
            Err(kube::Error::Api(s)) if s.code == 404 => Ok(false),
            Err(e) => Err(e).with_context(|| format!("asking for {}", self.plural)),
        }
    }

    /// Reads an object of the kind as JSON; `None` if the object does not exist.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn get(self, client: &Client, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found =
            self.api(client, namespace).get_opt(name).await.with_context(|| format!("reading {} {name}", self.kind))?;
        found.map(|o| serde_json::to_value(o).map_err(Into::into)).transpose()
    }

    /// Lists the objects of the kind in a namespace as JSON, sorted by name.
    ///
    /// # Errors
    /// Fails when the API server does not answer.
    pub async fn list(self, client: &Client, namespace: &str) -> Result<Vec<Value>> {
        let request = Request::new(self.api(client, namespace).resource_url()).list(&ListParams::default())?;
        // The answer is decoded to JSON directly: a typed list would be decoded to its type, and then be converted to JSON.
        let mut list: Value = client.request(request).await.with_context(|| format!("listing {}", self.plural))?;
        let mut items = match list["items"].take() {
            Value::Array(items) => items,
            other => bail!("listing {}: items are {other}", self.plural),
        };
        items.sort_by_key(|o| text(o, "/metadata/name").to_owned());
        Ok(items)
    }

    /// Patches an object as a user, by a merge patch.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn patch(self, client: &Client, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        let params = PatchParams { field_manager: Some(USER.to_owned()), ..Default::default() };
        let object = self
            .api(client, namespace)
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .with_context(|| format!("patching {} {namespace}/{name} with {patch}", self.kind))?;
        Ok(serde_json::to_value(object)?)
    }

    /// Deletes an object, and its dependants in the background; an object that does not exist counts as deleted.
    ///
    /// # Errors
    /// Fails when the API server refuses the request.
    pub async fn delete(self, client: &Client, namespace: &str, name: &str) -> Result<()> {
        match self.api(client, namespace).delete(name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
            Err(e) => Err(e).with_context(|| format!("deleting {} {namespace}/{name}", self.kind)),
        }
    }
}

/// Parses a file or text of one or more YAML documents.
///
/// # Errors
/// Fails if the text is no YAML.
pub fn parse(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(|e| anyhow!("{e}"))?;
    Ok(documents.into_iter().filter(|d| !d.is_null()).collect())
}

/// The objects in a file of the folder `examples`.
///
/// # Errors
/// Fails if the file is absent or is no YAML.
pub fn example(file: &str) -> Result<Vec<Value>> {
    let path = crate::binaries::repository().join("examples").join(file);
    let read = || parse(&std::fs::read_to_string(&path)?);
    read().with_context(|| path.display().to_string())
}

/// Applies a manifest as a user, that is, creates a Job or Pod, and applies an object of another kind server-side.
///
/// # Errors
/// Fails when the API server refuses the request.
pub async fn apply(client: &Client, object: &Value) -> Result<Value> {
    let kind = Kind::of(object)?;
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        bail!("a manifest of kind {} has no name", kind.kind);
    }
    let namespace = match text(object, "/metadata/namespace") {
        "" => "default",
        other => other,
    };
    let api = kind.api(client, namespace);
    let written = if kind == JOB || kind == POD {
        let params = PostParams { field_manager: Some(USER.to_owned()), ..Default::default() };
        api.create(&params, &serde_json::from_value(object.clone())?).await
    } else {
        api.patch(name, &PatchParams::apply(USER).force(), &Patch::Apply(object)).await
    };
    let written = written.with_context(|| format!("applying {} {namespace}/{name}", kind.kind))?;
    Ok(serde_json::to_value(written)?)
}

/// Applies all documents of a YAML text, in the order of the text.
///
/// # Errors
/// Fails at the first document that the API server refuses.
pub async fn apply_yaml(client: &Client, yaml: &str) -> Result<()> {
    for object in parse(yaml)? {
        apply(client, &object).await?;
    }
    Ok(())
}

/// Applies every CRD in a folder and waits until the API server serves each kind.
///
/// # Errors
/// Fails if the folder has no CRD, or if the API server refuses a CRD or does not serve it within the usual time.
pub async fn apply_crds(client: &Client, folder: &Path) -> Result<Vec<String>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    let mut names = Vec::new();
    for file in &files {
        for object in parse(&std::fs::read_to_string(file)?).with_context(|| format!("parsing {}", file.display()))? {
            apply(client, &object).await.with_context(|| format!("applying {}", file.display()))?;
            names.push(text(&object, "/metadata/name").to_owned());
        }
    }
    if names.is_empty() {
        bail!("{} holds no CRD: run `make crds`", folder.display());
    }
    for name in &names {
        wait::until(wait::STEP, &format!("{name} is Established"), || async {
            let Some(crd) = CRD.get(client, "", name).await? else { return Ok(Seen::NotYet("absent".to_owned())) };
            Ok(Seen::when(condition(&crd, "Established") == "True", || "not established".to_owned()))
        })
        .await?;
    }
    for kind in KINDS.iter().filter(|k| [KUEUE, BERTH].contains(&k.api_version)) {
        // The condition Established of a CRD becomes true a moment before the API server serves the kind.
        wait::until(wait::STEP, &format!("{} are served", kind.plural), || async {
            kind.all(client).list(&ListParams::default().limit(1)).await?;
            Ok(Seen::Yes(()))
        })
        .await?;
    }
    Ok(names)
}
