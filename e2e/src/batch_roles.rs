//! What people may do who are bound to the two batch roles, or to Kubernetes' own `view`: asked of the API server, as
//! `kubectl auth can-i` does, but also of kinds that are not served.

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::kinds;
use crate::wait::{self, STEP, Seen};

/// A ClusterRole, verbs, an API group, a resource (with its subresource), and whether the role allows each of the verbs.
type Row = (&'static str, &'static [&'static str], &'static str, &'static str, bool);

const ADMIN: &str = "kueue-batch-admin-role";
const USER: &str = "kueue-batch-user-role";
const VIEW: &str = "view";
const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete"];
const QUEUES: &str = "kueue.x-k8s.io";

/// What holds of Berth's release, and what a Kueue that was there before it gave as well.
const TABLE: &[Row] = &[
    (ADMIN, ALL, "batch", "jobs", true),
    (ADMIN, &["get"], "batch", "jobs/status", true),
    (ADMIN, ALL, "jobset.x-k8s.io", "jobsets", true),
    (ADMIN, &["get"], "jobset.x-k8s.io", "jobsets/status", true),
    (ADMIN, ALL, "berth.dev", "trainingjobs", true),
    (ADMIN, &["get"], "berth.dev", "trainingjobs/status", true),
    (ADMIN, ALL, QUEUES, "clusterqueues", true),
    (ADMIN, ALL, QUEUES, "workloads", true),
    (ADMIN, &["update", "patch"], QUEUES, "workloads/status", false),
    (ADMIN, READ, "", "secrets", false),
    (USER, ALL, "batch", "jobs", true),
    (USER, &["get"], "batch", "jobs/status", true),
    (USER, ALL, "jobset.x-k8s.io", "jobsets", true),
    (USER, &["get"], "jobset.x-k8s.io", "jobsets/status", true),
    (USER, &["update", "patch"], "jobset.x-k8s.io", "jobsets/status", false),
    (USER, ALL, "berth.dev", "trainingjobs", true),
    (USER, &["get"], "berth.dev", "trainingjobs/status", true),
    (USER, &["update", "patch"], "berth.dev", "trainingjobs/status", false),
    (USER, READ, QUEUES, "localqueues", true),
    (USER, READ, QUEUES, "workloads", true),
    (USER, WRITE, QUEUES, "localqueues", false),
    (USER, WRITE, QUEUES, "workloads", false),
    (USER, ALL, QUEUES, "clusterqueues", false),
    (VIEW, READ, "jobset.x-k8s.io", "jobsets", true),
    (VIEW, WRITE, "jobset.x-k8s.io", "jobsets", false),
    (VIEW, READ, "berth.dev", "trainingjobs", true),
    (VIEW, WRITE, "berth.dev", "trainingjobs", false),
];

/// A user who is bound to that role and to nothing else.
fn bound_to(role: &str) -> String {
    format!("e2e-{role}")
}

async fn may(client: &Client, user: &str, verb: &str, group: &str, resource: &str) -> Result<bool> {
    let (resource, part) = resource.split_once('/').map_or((resource, None), |(whole, part)| (whole, Some(part)));
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

/// Binds a user to each of the roles and waits until each may do what it should and nothing else of the table: the rules of a
/// role come a moment after the roles that it is made of. A second call binds them again to what is there by then.
///
/// # Errors
/// When a role still allows too much or too little after [`STEP`], or the API server refuses.
pub async fn hold(client: &Client) -> Result<()> {
    for role in [ADMIN, USER, VIEW] {
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
