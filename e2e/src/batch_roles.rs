//! Rights of users that are bound to one of the two batch roles, or to Kubernetes' own `view`, `edit` or `admin`. The test asks the API server about
//! the rights as `kubectl auth can-i` does, but also about kinds that the API server does not serve.

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::kinds;
use crate::wait::{self, STEP, Seen};

/// An entry of the table of rights: a ClusterRole, verbs, an API group, a resource (with its subresource), and whether the role allows each of the verbs
/// (`true`) or none (`false`).
type Row = (&'static str, &'static [&'static str], &'static str, &'static str, bool);

const ADMIN: &str = "kueue-batch-admin-role";
const USER: &str = "kueue-batch-user-role";
const VIEW: &str = "view";
const EDIT: &str = "edit";
const NAMESPACE_ADMIN: &str = "admin";
const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete"];
const QUEUES: &str = "kueue.x-k8s.io";
const BERTH: &str = "berth.dev";
/// The ClusterRoles in the table of rights; the test binds a user of its own to each role.
const ROLES: [&str; 5] = [ADMIN, USER, VIEW, EDIT, NAMESPACE_ADMIN];

/// The table of rights: rights that the ClusterRoles have (`true`) and must not have (`false`) when Berth's release is installed.
const TABLE: &[Row] = &[
    (ADMIN, ALL, "batch", "jobs", true),
    (ADMIN, &["get"], "batch", "jobs/status", true),
    (ADMIN, ALL, "jobset.x-k8s.io", "jobsets", true),
    (ADMIN, &["get"], "jobset.x-k8s.io", "jobsets/status", true),
    (ADMIN, ALL, BERTH, "trainingjobs", true),
    (ADMIN, &["get"], BERTH, "trainingjobs/status", true),
    (ADMIN, ALL, QUEUES, "clusterqueues", true),
    (ADMIN, ALL, QUEUES, "workloads", true),
    (ADMIN, ALL, QUEUES, "provisioningrequestconfigs", true),
    (ADMIN, &["update", "patch"], QUEUES, "workloads/status", false),
    (ADMIN, ALL, BERTH, "queuepolicies", true),
    (ADMIN, READ, BERTH, "checkpointstores", true),
    (ADMIN, WRITE, BERTH, "checkpointstores", false),
    (ADMIN, READ, "", "secrets", false),
    (USER, ALL, "batch", "jobs", true),
    (USER, &["get"], "batch", "jobs/status", true),
    (USER, ALL, "jobset.x-k8s.io", "jobsets", true),
    (USER, &["get"], "jobset.x-k8s.io", "jobsets/status", true),
    (USER, &["update", "patch"], "jobset.x-k8s.io", "jobsets/status", false),
    (USER, ALL, BERTH, "trainingjobs", true),
    (USER, &["get"], BERTH, "trainingjobs/status", true),
    (USER, &["update", "patch"], BERTH, "trainingjobs/status", false),
    (USER, READ, QUEUES, "localqueues", true),
    (USER, READ, QUEUES, "workloads", true),
    (USER, WRITE, QUEUES, "localqueues", false),
    (USER, WRITE, QUEUES, "workloads", false),
    (USER, ALL, QUEUES, "clusterqueues", false),
    (USER, ALL, QUEUES, "provisioningrequestconfigs", false),
    (USER, READ, BERTH, "queuepolicies", false),
    (VIEW, READ, QUEUES, "localqueues", true),
    (VIEW, READ, QUEUES, "workloads", true),
    (VIEW, &["get"], QUEUES, "localqueues/status", true),
    (VIEW, &["get"], QUEUES, "workloads/status", true),
    (VIEW, WRITE, QUEUES, "localqueues", false),
    (VIEW, WRITE, QUEUES, "workloads", false),
    (VIEW, READ, QUEUES, "clusterqueues", false),
    (VIEW, READ, BERTH, "queuepolicies", false),
    (VIEW, READ, BERTH, "checkpointstores", false),
    (VIEW, READ, "jobset.x-k8s.io", "jobsets", true),
    (VIEW, WRITE, "jobset.x-k8s.io", "jobsets", false),
    (VIEW, READ, BERTH, "trainingjobs", true),
    (VIEW, WRITE, BERTH, "trainingjobs", false),
    (EDIT, READ, QUEUES, "localqueues", true),
    (EDIT, READ, QUEUES, "workloads", true),
    (EDIT, WRITE, QUEUES, "localqueues", false),
    (EDIT, WRITE, QUEUES, "workloads", false),
    (EDIT, READ, QUEUES, "clusterqueues", false),
    (EDIT, READ, "jobset.x-k8s.io", "jobsets", true),
    (EDIT, READ, BERTH, "trainingjobs", true),
    (EDIT, WRITE, BERTH, "trainingjobs", false),
    (NAMESPACE_ADMIN, READ, QUEUES, "localqueues", true),
    (NAMESPACE_ADMIN, READ, QUEUES, "workloads", true),
    (NAMESPACE_ADMIN, READ, QUEUES, "clusterqueues", true),
    (NAMESPACE_ADMIN, &["get"], QUEUES, "clusterqueues/status", true),
    (NAMESPACE_ADMIN, READ, QUEUES, "cohorts", true),
    (NAMESPACE_ADMIN, &["get"], QUEUES, "cohorts/status", true),
    (NAMESPACE_ADMIN, READ, QUEUES, "resourceflavors", true),
    (NAMESPACE_ADMIN, READ, QUEUES, "topologies", true),
    (NAMESPACE_ADMIN, READ, QUEUES, "provisioningrequestconfigs", true),
    (NAMESPACE_ADMIN, WRITE, QUEUES, "provisioningrequestconfigs", false),
    (NAMESPACE_ADMIN, WRITE, QUEUES, "localqueues", false),
    (NAMESPACE_ADMIN, WRITE, QUEUES, "workloads", false),
    (NAMESPACE_ADMIN, WRITE, QUEUES, "clusterqueues", false),
    (NAMESPACE_ADMIN, READ, BERTH, "trainingjobs", true),
    (NAMESPACE_ADMIN, READ, BERTH, "queuepolicies", true),
    (NAMESPACE_ADMIN, &["get"], BERTH, "queuepolicies/status", true),
    (NAMESPACE_ADMIN, READ, BERTH, "checkpointstores", true),
    (NAMESPACE_ADMIN, WRITE, BERTH, "queuepolicies", false),
    (NAMESPACE_ADMIN, WRITE, BERTH, "checkpointstores", false),
];

/// Name of the user that is bound to the role `role` alone.
fn bound_to(role: &str) -> String {
    format!("e2e-{role}")
}

async fn may(client: &Client, user: &str, verb: &str, group: &str, resource: &str) -> Result<bool> {
    let (resource, part) =
        resource.split_once('/').map_or((resource, None), |(resource_name, part)| (resource_name, Some(part)));
    let asked = ResourceAttributes {
        namespace: Some("default".to_owned()),
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: part.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        resource_attributes: Some(asked),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await.context("asking what a user may do")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Binds a user to each role, and waits until each user has exactly the rights that the table of rights gives to the user's role. The wait is needed because
/// Kubernetes computes the rules of an aggregated ClusterRole a moment after the ClusterRoles that it aggregates were created. A second call in one test
/// applies the same bindings again and checks the rights that the roles grant at that time.
///
/// # Errors
/// Fails if a role still allows too much or too little after [`STEP`], or if the API server refuses a binding.
pub async fn hold(client: &Client) -> Result<()> {
    for role in ROLES {
        let group = "rbac.authorization.k8s.io";
        let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": bound_to(role)},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": bound_to(role)}]});
        kinds::apply(client, &binding).await.with_context(|| format!("binding a user to {role}"))?;
    }
    wait::until(STEP, "the roles for people give what they should", || async {
        let mut wrong = Vec::new();
        for (role, verbs, group, resource, right) in TABLE {
            for verb in *verbs {
                if may(client, &bound_to(role), verb, group, resource).await? != *right {
                    let must = if *right { "cannot" } else { "can" };
                    wrong.push(format!("{role} {must} {verb} {resource}.{group}"));
                }
            }
        }
        Ok(Seen::when(wrong.is_empty(), || wrong.join("; ")))
    })
    .await
}
