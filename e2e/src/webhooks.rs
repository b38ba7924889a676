//! The chart's webhook configurations with the manager's address written out in place of the manager's Service, because the API server of a test has
//! no cluster network.

use std::fs;

use anyhow::{Context, Result, anyhow};
use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::binaries::repository;
use crate::kinds::{self, CRD, FLAVOR, Kind};
use crate::manager::{NAMESPACE, SERVICE_ACCOUNT};
use crate::manifest;
use crate::process::free_ports;
use crate::wait::Seen;

pub use crate::kinds::{MUTATING, SECRET, VALIDATING};

/// Name of the Secret with the certificates of Berth's webhooks.
pub const SECRET_NAME: &str = "berth-webhook-server-cert";
/// User name of the account of a Kueue beside Berth; the chart's values name this account as one that starts and stops jobs.
pub const KUEUE: &str = "system:serviceaccount:kueue-system:kueue-controller-manager";
/// Names of the chart's two webhook configurations.
pub const NAMES: [&str; 2] = ["berth-mutating-webhook-configuration", "berth-validating-webhook-configuration"];

/// A free port for the webhooks of one manager.
///
/// # Errors
/// Fails when the machine has no free port.
pub fn port() -> Result<u16> {
    let [port] = free_ports()?;
    Ok(port)
}

/// Applies both webhook configurations of the chart, for a manager that serves its webhooks on the port `port`.
///
/// # Errors
/// Fails if a file of the chart cannot be read or the API server refuses a configuration.
pub async fn install(client: &Client, port: u16, failure_policy: &str) -> Result<()> {
    for (kind, name, file) in
        [(MUTATING, NAMES[0], "mutating-webhooks.yaml"), (VALIDATING, NAMES[1], "validating-webhooks.yaml")]
    {
        let object = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name},
            "webhooks": webhooks(file, port, failure_policy)?});
        kinds::apply(client, &object).await?;
    }
    Ok(())
}

/// True if the API server calls Berth's webhooks. The function sends a ResourceFlavor that nothing but Berth refuses. The check is needed although the manager
/// is ready: a ready manager has written its certificate authority into the webhook configurations, which the API server reads later.
///
/// # Errors
/// Never fails because of the API server: the result contains the API server's message.
pub async fn asked(client: &Client) -> Result<Seen<()>> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let flavor = serde_json::from_value(manifest::flavor("asked", &[("no label", "x")]))?;
    let message = FLAVOR.api(client, "").create(&params, &flavor).await.err().map(|error| error.to_string());
    let message = message.unwrap_or_default();
    Ok(Seen::when(message.contains("vresourceflavor.berth.dev") && message.contains("denied"), || {
        format!("said {message:?}")
    }))
}

/// Serves v1beta1 for the kinds whose fields differ from v1beta2, as the chart does. A manager that serves its webhooks on the port `port` converts
/// the objects.
///
/// # Errors
/// Fails if a CRD does not exist or the API server refuses the change.
pub async fn convert(client: &Client, port: u16) -> Result<()> {
    for kind in ["clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"] {
        let name = format!("{kind}.kueue.x-k8s.io");
        let definition = CRD.get(client, "", &name).await?.with_context(|| format!("no CRD {name}"))?;
        let mut versions = definition["spec"]["versions"].clone();
        for version in versions.as_array_mut().context("versions")?.iter_mut() {
            version["served"] = json!(true);
        }
        let url = format!("https://127.0.0.1:{port}/convert");
        let webhook = json!({"clientConfig": {"url": url}, "conversionReviewVersions": ["v1"]});
        let spec = json!({"conversion": {"strategy": "Webhook", "webhook": webhook}, "versions": versions});
        CRD.patch(client, "", &name, &json!({"spec": spec})).await?;
    }
    Ok(())
}

/// The list of webhooks in a file of the chart, with the values that Helm would fill in.
fn webhooks(file: &str, port: u16, failure_policy: &str) -> Result<Value> {
    let path = repository().join("charts/berth/files").join(file);
    let mut text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let managers = json!([KUEUE]).to_string();
    for (expression, value) in [
        (".Release.Namespace", NAMESPACE),
        (".Values.serviceAccount.name", SERVICE_ACCOUNT),
        (".Values.webhook.failurePolicy", failure_policy),
        (".Values.webhook.timeoutSeconds", "5"),
        (".Values.webhook.otherManagers | toJson", &*managers),
        (".Values.webhook.podControllers | toJson", "[]"),
    ] {
        text = text.replace(&format!("{{{{ {expression} }}}}"), value);
    }
    let mut list: Value = serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    for webhook in list.as_array_mut().context("a list of webhooks")? {
        let path = kinds::text(webhook, "/clientConfig/service/path").to_owned();
        webhook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}{path}")});
    }
    Ok(list)
}

/// A path of Berth's webhooks that the API server calls, and the kind for which the API server calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reviewed {
    /// The path.
    pub path: String,
    /// The plural of the kind whose objects are reviewed at the path.
    pub resource: String,
}

/// Every path that the chart's webhook configurations name, once.
///
/// # Errors
/// Fails if a file of the chart cannot be read.
pub fn reviewed() -> Result<Vec<Reviewed>> {
    const HOST: &str = "https://127.0.0.1:0";
    let mut all = std::collections::BTreeSet::new();
    for file in ["mutating-webhooks.yaml", "validating-webhooks.yaml"] {
        for webhook in webhooks(file, 0, "Fail")?.as_array().into_iter().flatten() {
            let path = kinds::text(webhook, "/clientConfig/url").trim_start_matches(HOST).to_owned();
            all.insert(Reviewed { path, resource: kinds::text(webhook, "/rules/0/resources/0").to_owned() });
        }
    }
    Ok(all.into_iter().collect())
}

/// The job kinds for which `cases/reviews` has a table of their webhooks' answers. The tests in `crates/jobs/tests/kinds` require a table of each
/// kind that can be suspended.
///
/// # Errors
/// Fails if a table cannot be read.
pub fn kinds_with_tables() -> Result<Vec<Kind>> {
    let mut kinds = Vec::new();
    for entry in fs::read_dir(repository().join("e2e/cases/reviews"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let table: Value = serde_saphyr::from_str(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?;
        kinds.push(Kind::of(&table["good"]).with_context(|| path.display().to_string())?);
    }
    kinds.sort_by_key(|kind| kind.kind);
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn chart_webhook_templates_need_no_other_values() {
        for file in ["mutating-webhooks.yaml", "validating-webhooks.yaml"] {
            let list = webhooks(file, 1, "Fail").unwrap();
            assert!(!list.to_string().contains("{{"), "{list}");
            for webhook in list.as_array().unwrap() {
                assert!(kinds::text(webhook, "/clientConfig/url").starts_with("https://127.0.0.1:1/"), "{webhook}");
                assert!(kinds::text(webhook, "/name").ends_with(".berth.dev"), "{webhook}");
            }
        }
    }

    /// The test names Kueue's webhooks for kinds that Berth knows without the ending `.kb.io`. Berth has no counterpart of two of Kueue's webhooks, which
    /// `docs/migrate-from-kueue.md` names, because Berth's leader adds the finalizers of these two kinds.
    #[test]
    fn kueue_webhooks_have_counterparts_except_two_documented_ones() {
        let absent = ["mclusterqueue", "mresourceflavor"];
        let kueues = [
            ("mutating-webhooks.yaml", "m", &["job", "jobset", "pod", "deployment", "statefulset", "workload"][..]),
            ("mutating-webhooks.yaml", "m", &["clusterqueue", "resourceflavor"][..]),
            ("validating-webhooks.yaml", "v", &["job", "jobset", "pod", "deployment", "statefulset", "workload"][..]),
            ("validating-webhooks.yaml", "v", &["clusterqueue", "resourceflavor", "cohort"][..]),
        ];
        let page = fs::read_to_string(repository().join("docs/migrate-from-kueue.md")).unwrap();
        for (file, verb, names) in kueues {
            let list = webhooks(file, 1, "Fail").unwrap();
            for name in names.iter().map(|name| format!("{verb}{name}")) {
                let ours = format!("{name}.berth.dev");
                let is_there = list.as_array().unwrap().iter().any(|one| kinds::text(one, "/name") == ours);
                assert_eq!(is_there, !absent.contains(&name.as_str()), "{ours}");
                assert!(is_there || page.contains(&format!("`{name}.kb.io`")), "the page names {name}");
            }
        }
    }

    #[test]
    fn review_paths_of_chart_and_server_are_the_same() {
        let paths: Vec<String> = reviewed().unwrap().into_iter().map(|reviewed| reviewed.path).collect();
        let routes = fs::read_to_string(repository().join("crates/webhook/src/routes.rs")).unwrap();
        let known = routes.lines().filter_map(|line| line.split_once("path: Cow::Borrowed(\"/")).map(|(_, rest)| rest);
        let mut known: BTreeSet<String> =
            known.filter_map(|rest| Some(format!("/{}", rest.split_once('"')?.0))).collect();
        let written = known.len();
        // The paths for jobs that can be suspended are made from the names of their kinds.
        for kind in kinds_with_tables().unwrap() {
            let (group, version) = kind.api_version.split_once('/').unwrap_or(("", kind.api_version));
            let name = format!("{}-{version}-{}", group.replace('.', "-"), kind.kind.to_lowercase());
            known.extend(["mutate", "validate"].map(|verb| format!("/{verb}-{name}")));
        }
        assert!(written > 10 && known.len() >= written + 4, "two kinds of job have paths of their own: {known:?}");
        assert_eq!(paths, Vec::from_iter(known), "what Berth serves and what the chart has the API server ask");
    }

    #[test]
    fn kube_system_and_berth_namespace_are_excluded_from_webhooks() {
        for file in ["mutating-webhooks.yaml", "validating-webhooks.yaml"] {
            let list = webhooks(file, 1, "Fail").unwrap();
            for webhook in list.as_array().unwrap() {
                let resource = kinds::text(webhook, "/rules/0/resources/0");
                if ["clusterqueues", "cohorts", "resourceflavors"].contains(&resource) {
                    assert!(webhook.get("namespaceSelector").is_none(), "they live in no namespace: {webhook}");
                    continue;
                }
                // The chart's webhooks for namespaces in which Berth manages all jobs (`-opted-in`) select a namespace that does not exist, until Berth writes
                // the namespaces of its configuration into them.
                let (operator, names) = if kinds::text(webhook, "/name").contains("-opted-in.") {
                    ("In", json!(["none.berth.dev"]))
                } else {
                    ("NotIn", json!(["kube-system", NAMESPACE]))
                };
                let wanted = json!({"key": "kubernetes.io/metadata.name", "operator": operator, "values": names});
                assert_eq!(webhook["namespaceSelector"], json!({"matchExpressions": [wanted]}), "{webhook}");
            }
        }
    }

    #[test]
    fn opted_in_job_review_skips_labelled_jobs_of_job_sets() {
        let list = webhooks("mutating-webhooks.yaml", 1, "Fail").unwrap();
        let of = |name: &str| conditions(&list, name);
        let opted_in = of("mjob-opted-in.berth.dev");
        let of_job_sets = &opted_in["not-of-a-job-set"];
        // The match condition also checks the labels of a Job: its author can write the kind JobSet into an owner reference, and an owner that does not control
        // the Job proves nothing.
        for part in [
            "owner.kind == 'JobSet'",
            "'jobset.x-k8s.io/'",
            "has(owner.controller) && owner.controller",
            "startsWith(owner.name + '-')",
            "labels[?'jobset.sigs.k8s.io/jobset-uid'].orValue('') == owner.uid",
        ] {
            assert!(of_job_sets.contains(part), "{of_job_sets}");
        }
        assert!(!of("mjob.berth.dev").contains_key("not-of-a-job-set"), "what names a queue is always asked about");
    }

    /// The match conditions of the webhook `name`: each condition's expression by its name.
    fn conditions(list: &Value, name: &str) -> std::collections::BTreeMap<String, String> {
        let webhook = list.as_array().unwrap().iter().find(|webhook| kinds::text(webhook, "/name") == name).unwrap();
        let all = kinds::items(webhook, "/matchConditions").iter();
        let text = |condition: &Value, key: &str| kinds::text(condition, key).to_owned();
        all.map(|condition| (text(condition, "/name"), text(condition, "/expression"))).collect()
    }

    /// The API server does not ask the webhooks of Jobs and JobSets about a change by Berth, or by a Kueue that runs beside Berth, because both start and stop
    /// jobs themselves. A change of a job that waits and goes on waiting, or of a job that is being deleted, is not reviewed either.
    #[test]
    fn job_changes_are_reviewed_where_they_may_start_or_stop() {
        let list = webhooks("mutating-webhooks.yaml", 1, "Fail").unwrap();
        for name in ["mjob", "mjob-opted-in", "mjobset", "mjobset-opted-in"] {
            let all = conditions(&list, &format!("{name}.berth.dev"));
            for (condition, part) in [
                ("created-started-or-running", "request.operation == 'CREATE' || object.?spec"),
                ("not-berth-itself", "system:serviceaccount:berth-system:"),
                ("not-another-manager", KUEUE),
                ("not-being-deleted", "deletionTimestamp"),
            ] {
                assert!(all.get(condition).is_some_and(|expression| expression.contains(part)), "{name}: {all:?}");
            }
        }
    }

    /// The job controller creates pods of Jobs even while Berth is down; a pod from any other user that names a Job as its controller is reviewed.
    #[test]
    fn new_job_pods_of_kubernetes_controllers_are_not_reviewed() {
        let list = webhooks("mutating-webhooks.yaml", 1, "Fail").unwrap();
        for (name, condition) in [("mpod", "not-admitted-with-its-owner"), ("mpod-opted-in", "not-left-to-its-owner")] {
            let all = conditions(&list, &format!("{name}.berth.dev"));
            for part in ["'system:kube-controller-manager'", "startsWith('system:serviceaccount:kube-system:')"] {
                assert!(all[condition].contains(part), "{all:?}");
            }
        }
    }

    /// Pods of Jobs are released, adopted and ended even while Berth is down: a review is needed only if a user removes the labels by which Berth
    /// charges a running pod.
    #[test]
    fn job_pod_changes_are_reviewed_where_accounting_labels_change() {
        let list = webhooks("validating-webhooks.yaml", 1, "Fail").unwrap();
        let all = conditions(&list, "vpod-of-job.berth.dev");
        for (condition, parts) in [
            ("of-a-started-job", &["'kueue.x-k8s.io/podset' in oldObject", "owner.kind == 'TrainingJob'"][..]),
            ("has-not-ended", &["!(oldObject.?status.?phase.orValue('') in ['Succeeded', 'Failed'])"][..]),
            (
                "changes-what-it-is-counted-by",
                &[
                    "'batch.kubernetes.io/controller-uid'",
                    "'kueue.x-k8s.io/managed'",
                    "'kueue.x-k8s.io/workload'",
                    "'batch.kubernetes.io/job-tracking'",
                    "'jobset.sigs.k8s.io/jobset-uid'",
                ][..],
            ),
            (
                "not-the-controllers",
                &["'system:kube-controller-manager'", "startsWith('system:serviceaccount:kube-system:')"][..],
            ),
            ("not-berth-itself", &["system:serviceaccount:berth-system:"][..]),
        ] {
            for part in parts {
                assert!(all.get(condition).is_some_and(|expression| expression.contains(part)), "{part}: {all:?}");
            }
        }
        let webhook =
            list.as_array().unwrap().iter().find(|one| one["name"] == json!("vpod-of-job.berth.dev")).unwrap();
        assert_eq!(webhook["rules"][0]["operations"], json!(["UPDATE"]));
        let selector = json!({"matchExpressions": [{"key": "kueue.x-k8s.io/podset", "operator": "Exists"}]});
        assert_eq!(webhook["objectSelector"], selector);
    }

    #[test]
    fn pod_review_skips_only_owners_of_the_admitted_api_groups() {
        for (file, name) in [
            ("mutating-webhooks.yaml", "mpod.berth.dev"),
            ("mutating-webhooks.yaml", "mpod-opted-in.berth.dev"),
            ("mutating-webhooks.yaml", "mpod-of-parent.berth.dev"),
            ("validating-webhooks.yaml", "vpod.berth.dev"),
        ] {
            let list = webhooks(file, 1, "Fail").unwrap();
            let webhook =
                list.as_array().unwrap().iter().find(|webhook| kinds::text(webhook, "/name") == name).unwrap();
            let by_owner = |one: &&Value| kinds::text(one, "/name").ends_with("-its-owner");
            let condition = kinds::items(webhook, "/matchConditions").iter().find(by_owner).unwrap();
            let expression = kinds::text(condition, "/expression");
            // Any user may give the name JobSet to a kind of his own, whose pods would then lack Berth's scheduling gate; so the condition also
            // checks the API group.
            for (kind, group) in [("Job", "batch/"), ("JobSet", "jobset.x-k8s.io/"), ("TrainingJob", "berth.dev/")] {
                let part = format!("owner.kind == '{kind}' && owner.apiVersion.startsWith('{group}')");
                assert!(expression.split_whitespace().collect::<Vec<_>>().join(" ").contains(&part), "{expression}");
            }
        }
    }

    #[test]
    fn pods_without_queue_are_reviewed_for_stateful_sets_or_defaults() {
        let list = webhooks("mutating-webhooks.yaml", 1, "Fail").unwrap();
        let about_pods = list.as_array().unwrap().iter();
        let about_pods = about_pods.filter(|webhook| kinds::text(webhook, "/rules/0/resources/0") == "pods");
        let others: Vec<&Value> = about_pods.filter(|webhook| webhook["name"] != json!("mpod.berth.dev")).collect();
        let [webhook, of_parent, opted_in] = others[..] else { panic!("{others:?}") };
        let selector = json!({"matchExpressions": [{"key": "kueue.x-k8s.io/queue-name", "operator": "DoesNotExist"}]});
        for webhook in [webhook, of_parent, opted_in] {
            assert_eq!(webhook["objectSelector"], selector, "no pod is asked about twice");
        }
        let url = kinds::text(of_parent, "/clientConfig/url");
        assert!(url.ends_with("/mutate--v1-pod-of-parent"), "a replica that lets such pods by does not answer: {url}");
        let url = kinds::text(webhook, "/clientConfig/url");
        assert!(url.ends_with("/mutate--v1-pod-of-set"), "a replica that lets such pods by does not answer: {url}");
        let [condition] = kinds::items(webhook, "/matchConditions") else { panic!("{webhook}") };
        let expression = kinds::text(condition, "/expression");
        for part in [
            "[?'kueue.x-k8s.io/pod-suspending-parent'].orValue('') == 'statefulset' &&",
            "owner.kind == 'StatefulSet' && owner.apiVersion.startsWith('apps/')",
        ] {
            assert!(expression.contains(part), "{expression}");
        }
        assert_eq!(kinds::text(opted_in, "/name"), "mpod-opted-in.berth.dev");
        let [waits, _, of_no_set, _] = kinds::items(of_parent, "/matchConditions") else { panic!("{of_parent}") };
        assert_eq!(kinds::text(of_no_set, "/expression"), format!("!({expression})"));
        let [_, owners, of_no_parent, no_mirror] = kinds::items(opted_in, "/matchConditions") else {
            panic!("{opted_in}")
        };
        assert_eq!(kinds::text(of_no_parent, "/expression"), format!("!({})", kinds::text(waits, "/expression")));
        // Pods of a DaemonSet and mirror pods are not reviewed: such a pod is made for one node and cannot wait for another node.
        let part = "owner.kind == 'DaemonSet' && owner.apiVersion.startsWith('apps/')";
        assert!(kinds::text(owners, "/expression").contains(part), "{owners}");
        assert!(kinds::text(no_mirror, "/expression").contains("'kubernetes.io/config.mirror'"), "{no_mirror}");
    }

    #[test]
    fn opted_in_webhooks_give_no_queue_to_existing_objects() {
        let list = webhooks("mutating-webhooks.yaml", 1, "Fail").unwrap();
        let opted_in = list.as_array().unwrap().iter();
        let opted_in = opted_in.filter(|webhook| kinds::text(webhook, "/name").contains("-opted-in."));
        let mut resources: Vec<&str> = opted_in
            .map(|webhook| {
                let resource = kinds::text(webhook, "/rules/0/resources/0");
                // For kinds that can be suspended, the only update that is reviewed is a change of the suspension.
                let looked_at = if ["jobs", "jobsets"].contains(&resource) {
                    json!(["CREATE", "UPDATE"])
                } else {
                    json!(["CREATE"])
                };
                assert_eq!(webhook["rules"][0]["operations"], looked_at, "{webhook}");
                resource
            })
            .collect();
        resources.sort_unstable();
        assert_eq!(resources, ["deployments", "jobs", "jobsets", "pods", "statefulsets"]);
    }

    #[test]
    fn webhook_condition_on_queue_or_owner_reads_the_old_object() {
        let list = webhooks("validating-webhooks.yaml", 1, "Fail").unwrap();
        for webhook in list.as_array().unwrap() {
            for condition in kinds::items(webhook, "/matchConditions") {
                let expression = kinds::text(condition, "/expression");
                let before = expression.contains("oldObject");
                let asks_for_both = expression.contains("queue-name") || expression.contains("ownerReferences");
                assert!(before || !asks_for_both, "{}: {expression}", webhook["name"]);
            }
        }
    }
}
