//! Quota that is used and released, borrowed and lent, shared over three levels of cohorts, reduced and raised.

use anyhow::{Result, ensure};
use berth_e2e::kinds::{self, CLUSTER_QUEUE, condition, condition_object, text};
use berth_e2e::manifest::{cluster_queue, cohort, flavor, group, local_queue, quota};
use berth_e2e::quota_tree::reserved;
use berth_e2e::scenario::{Scenario, Stage};
use serde_json::{Value, json};

/// Reserved cpu of a ClusterQueue in thousandths: the total, and the borrowed part.
fn total_and_borrowed(queue: &Value) -> (i128, i128) {
    (reserved(queue, "total"), reserved(queue, "borrowed"))
}

fn message(workload: &Value) -> &str {
    condition_object(workload, "QuotaReserved").map(|c| text(c, "/message")).unwrap_or("")
}

/// Creates a LocalQueue and a ClusterQueue of the same short name, the ClusterQueue in a cohort and with one flavor.
async fn queue(s: &Scenario<'_>, name: &str, cohort: &str, cpu: berth_e2e::manifest::Quota<'_>) -> Result<()> {
    let (flavor, full) = (s.name("flavor"), s.name(name));
    let more = json!({"cohortName": s.name(cohort)});
    s.apply(&cluster_queue(&full, &[group(&[(&flavor, &[cpu])])], &more)).await?;
    s.apply(&local_queue(&s.namespace, name, &full)).await?;
    Ok(())
}

fn job(s: &Scenario<'_>, name: &str, queue: &str, cpu: &str) -> berth_e2e::manifest::Job {
    berth_e2e::manifest::Job::new(&s.namespace, name, queue).cpu(cpu).endless()
}

pub(crate) async fn fill_and_release(stage: &Stage) -> Result<()> {
    let s = stage.scenario("fill-and-release").await?;
    s.simple_queue("4", &json!({})).await?;
    s.create(s.job("first").cpu("1500m").pods(2).endless()).await?;
    s.admitted("first").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "3 cpu reserved", |q| reserved(q, "total") == 3000).await?;
    s.create(s.job("second").cpu("2")).await?;
    let waiting = s.pending("second").await?;
    let expected = format!("insufficient unused quota for cpu in flavor {}, 1 more needed", s.name("flavor"));
    ensure!(message(&waiting).contains(&expected), "message: {:?}", message(&waiting));
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "one waits", |q| q["status"]["pendingWorkloads"] == json!(1)).await?;
    s.stays_pending("second").await?;
    s.remove("first").await?;
    s.admitted("second").await?;
    s.finished("second").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("cq"), "nothing reserved", |q| reserved(q, "total") == 0).await?;
    s.conclude().await
}

pub(crate) async fn borrowing_and_lending(stage: &Stage) -> Result<()> {
    let s = stage.scenario("borrowing").await?;
    s.apply(&flavor(&s.name("flavor"), &[])).await?;
    queue(&s, "a", "cohort", quota("cpu", "4").borrowing("2")).await?;
    queue(&s, "b", "cohort", quota("cpu", "6").lending("3")).await?;
    queue(&s, "c", "cohort", quota("cpu", "0")).await?;
    // Queue a uses 4 cpus of its own and 2 borrowed cpus, as many as its borrowing limit allows.
    s.create(job(&s, "a-six", "a", "6")).await?;
    s.admitted("a-six").await?;
    s.object_is(CLUSTER_QUEUE, &s.name("a"), "6 reserved, 2 borrowed", |q| total_and_borrowed(q) == (6000, 2000))
        .await?;
    s.create(job(&s, "a-more", "a", "1")).await?;
    s.pending("a-more").await?;
    // Queue c has no quota of its own: of the 3 cpus that queue b lends, 1 is left for c.
    s.create(job(&s, "c-two", "c", "2")).await?;
    s.pending("c-two").await?;
    s.create(job(&s, "c-one", "c", "1")).await?;
    s.admitted("c-one").await?;
    // Queue b may always use the 3 cpus that it does not lend, and at present no more than these.
    s.create(job(&s, "b-three", "b", "3")).await?;
    s.admitted("b-three").await?;
    s.create(job(&s, "b-more", "b", "1")).await?;
    s.pending("b-more").await?;
    s.stays_pending("a-more").await?;
    s.stays_pending("c-two").await?;
    // Waiting jobs get the borrowed quota that queue a gives back.
    s.remove("a-six").await?;
    s.admitted("a-more").await?;
    s.admitted("b-more").await?;
    s.admitted("c-two").await?;
    s.conclude().await
}

pub(crate) async fn three_levels(stage: &Stage) -> Result<()> {
    let s = stage.scenario("three-levels").await?;
    let shared = s.name("flavor");
    s.apply(&flavor(&shared, &[])).await?;
    s.apply(&cohort(&s.name("root"), "", &[group(&[(&shared, &[quota("cpu", "2")])])])).await?;
    s.apply(&cohort(&s.name("left"), &s.name("root"), &[])).await?;
    s.apply(&cohort(&s.name("right"), &s.name("root"), &[])).await?;
    queue(&s, "x", "left", quota("cpu", "2")).await?;
    queue(&s, "y", "right", quota("cpu", "4")).await?;
    s.create(job(&s, "too-big", "x", "9")).await?;
    // Berth may see the job before it sees the complete cohort tree, and the message then is about the part of the tree that Berth knows.
    s.workload("too-big", "told that the tree is too small", |w| message(w).contains("> maximum capacity (8)")).await?;
    s.pending("too-big").await?;
    // The job uses 2 cpus of its own queue, 2 of the root cohort and 4 of the other branch.
    s.create(job(&s, "whole-tree", "x", "8")).await?;
    s.admitted("whole-tree").await?;
    s.create(job(&s, "other-branch", "y", "1")).await?;
    s.pending("other-branch").await?;
    s.stays_pending("other-branch").await?;
    s.remove("whole-tree").await?;
    s.admitted("other-branch").await?;
    s.stays_pending("too-big").await?;
    s.conclude().await
}

pub(crate) async fn cut_below_usage(stage: &Stage) -> Result<()> {
    let s = stage.scenario("quota-cut").await?;
    s.simple_queue("4", &json!({})).await?;
    s.create(s.job("running").cpu("3").endless()).await?;
    s.admitted("running").await?;
    let spec = |cpu: &str| json!({"resourceGroups": [group(&[(&s.name("flavor"), &[quota("cpu", cpu)])])]});
    s.edit_queue(&s.name("cq"), &spec("2")).await?;
    s.create(s.job("late").cpu("1").endless()).await?;
    s.pending("late").await?;
    s.stays_pending("late").await?;
    let running = s.get_job("running").await?;
    ensure!(running["spec"]["suspend"] == json!(false), "a cut alone stops nothing");
    s.edit_queue(&s.name("cq"), &spec("4")).await?;
    s.admitted("late").await?;
    s.conclude().await
}

pub(crate) async fn edit_wakes(stage: &Stage) -> Result<()> {
    let s = stage.scenario("edit-wakes").await?;
    s.simple_queue("4", &json!({})).await?;
    s.create(s.job("big").cpu("5").endless()).await?;
    s.pending("big").await?;
    let groups = |cpu: &str| json!({"resourceGroups": [group(&[(&s.name("flavor"), &[quota("cpu", cpu)])])]});
    s.edit_queue(&s.name("cq"), &groups("6")).await?;
    s.admitted("big").await?;
    // The job requests a resource that the ClusterQueue does not cover yet.
    s.create(s.job("memory").requests(&[("cpu", "1"), ("memory", "1Gi")]).endless()).await?;
    let waiting = s.pending("memory").await?;
    ensure!(
        message(&waiting).contains("resource memory unavailable in ClusterQueue"),
        "message: {:?}",
        message(&waiting)
    );
    let both = [quota("cpu", "6"), quota("memory", "2Gi")];
    s.edit_queue(&s.name("cq"), &json!({"resourceGroups": [group(&[(&s.name("flavor"), &both)])]})).await?;
    let workload = s.admitted("memory").await?;
    ensure!(condition(&workload, "QuotaReserved") == "True", "{}", kinds::key(&workload));
    s.conclude().await
}
