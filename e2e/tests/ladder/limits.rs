//! Limits of a QueuePolicy, and messages about policies that the API server or Berth refuses.

use anyhow::{Context, Result, ensure};
use berth_e2e::kinds::{QUEUE_POLICY, condition, condition_object, text};
use berth_e2e::manifest::{self, Job, Quota, cluster_queue, group, local_queue, merge, priority_class, quota};
use berth_e2e::quickstart::flavor_of;
use berth_e2e::scenario::{Scenario, Stage};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ladder::{POOL, TIERS, message, policy};

pub(crate) async fn named_and_kept(stage: &Stage) -> Result<()> {
    let s = stage.scenario("limits").await?;
    s.simple_queue("20", &json!({})).await?;
    s.apply(&priority_class(&s.name("high"), 1000)).await?;
    let limits = json!({"maxJobs": 2, "priorityRange": {"min": 0, "max": 100}});
    policy(&s, &json!({"admission": limits})).await?;
    s.create(s.job("high").label("kueue.x-k8s.io/priority-class", &s.name("high"))).await?;
    let waiting = s.pending("high").await?;
    let expected = format!(
        "QueuePolicy {}: spec.admission.priorityRange.max is 100, and the workload's priority is 1000",
        s.name("policy")
    );
    ensure!(message(&waiting, "QuotaReserved") == expected, "{}", message(&waiting, "QuotaReserved"));
    let reported = reason(&waiting, "QuotaReserved");
    ensure!(reported == "AdmissionLimit", "{reported}");
    for name in ["one", "two"] {
        s.create(s.job(name).endless()).await?;
        s.admitted(name).await?;
    }
    s.create(s.job("three").endless()).await?;
    let waiting = s.pending("three").await?;
    ensure!(message(&waiting, "QuotaReserved").contains("maxJobs"), "{}", message(&waiting, "QuotaReserved"));
    s.stays_pending("three").await?;
    s.remove("one").await?;
    s.admitted("three").await?;
    s.conclude().await
}

pub(crate) async fn refused_with_words(stage: &Stage) -> Result<()> {
    let s = stage.scenario("bad-policies").await?;
    let object = |spec: &Value| {
        json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": s.name("bad")},
            "spec": spec})
    };
    // A duplicate in a list of QueuePolicy has a case in this test, because server-side apply refuses it before any rule of the CRD is evaluated;
    // e2e/cases/fields has the refusals of every field.
    for (spec, words) in [
        (json!({}), "one of the fields in [clusterQueues clusterQueueSelector] must be set"),
        (json!({"clusterQueues": ["a", "a"]}), "spec.clusterQueues"),
    ] {
        let refused = s.apply(&object(&spec)).await;
        let text = refused.map_or_else(|error| format!("{error:#}"), |_| format!("accepted: {spec}"));
        ensure!(text.contains(words), "{spec}: expected {words:?}, got {text}");
    }
    s.apply(&object(&json!({"clusterQueues": ["no-such-queue"]}))).await?;
    let shown =
        s.object_is(QUEUE_POLICY, &s.name("bad"), "Active=False", |p| condition(p, "Active") == "False").await?;
    ensure!(message(&shown, "Active").contains("no-such-queue"), "{}", shown["status"]);
    ensure!(reason(&shown, "Active") == "ClusterQueueNotFound", "{}", shown["status"]);
    s.conclude().await
}

/// A label value without a priority class stops no job, and the job gets a message about it. If two policies name one queue, the younger policy
/// reports the section that does not count.
pub(crate) async fn labels_and_conflicts_are_reported(stage: &Stage) -> Result<()> {
    let s = stage.scenario("policy-warnings").await?;
    s.simple_queue("20", &json!({})).await?;
    let (high, gone) = (s.name("high"), s.name("gone"));
    s.apply(&priority_class(&high, 1000)).await?;
    let classes = json!([
        {"value": "1", "workloadPriorityClass": high}, {"value": "2", "workloadPriorityClass": gone},
    ]);
    policy(&s, &json!({"priorityFromLabel": {"label": "job-priority", "classes": classes}})).await?;
    let own = s.name("policy");
    for (name, value, priority) in [("known", "1", 1000), ("odd", "7", 0), ("lost", "2", 0)] {
        s.create(s.job(name).endless().pod_label("job-priority", value)).await?;
        let admitted = s.admitted(name).await?;
        ensure!(admitted["spec"]["priority"] == json!(priority), "{name}: {}", admitted["spec"]);
    }
    s.warned("odd", "PriorityLabelUnknown", &["job-priority: \"7\"", &own, "which has 1, 2"]).await?;
    let words = format!("{gone:?} in QueuePolicy {own}, which does not exist");
    s.warned("lost", "WorkloadPriorityClassNotFound", &["job-priority: \"2\"", &words]).await?;

    let rival = s.name("rival");
    s.apply(&json!({"apiVersion": "berth.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": rival},
        "spec": {"clusterQueues": [s.name("cq")], "admission": {"maxJobs": 1},
            "priorityFromLabel": {"label": "another", "classes": []}}}))
        .await?;
    let shown = s.object_is(QUEUE_POLICY, &rival, "in conflict", |p| reason(p, "Active") == "Conflict").await?;
    let words = format!("ClusterQueue {}: spec.priorityFromLabel gives way to that of QueuePolicy {own}", s.name("cq"));
    ensure!(message(&shown, "Active").contains(&words), "{}", shown["status"]);
    ensure!(condition(&shown, "Active") == "False", "{}", shown["status"]);
    // The section `spec.admission`, which only the younger QueuePolicy has, applies to the queue.
    s.create(s.job("one-more").endless()).await?;
    let limit = format!("QueuePolicy {rival}: spec.admission.maxJobs");
    s.workload("one-more", "the limit", |w| message(w, "QuotaReserved").contains(&limit)).await?;
    let shown = s.object_is(QUEUE_POLICY, &own, "active", |p| condition(p, "Active") == "True").await?;
    ensure!(reason(&shown, "Active") == "Active", "{}", shown["status"]);
    QUEUE_POLICY.delete(&s.client, "", &rival).await?;
    s.admitted("one-more").await?;
    s.conclude().await
}

fn reason(object: &Value, kind: &str) -> String {
    condition_object(object, kind).map(|c| text(c, "/reason").to_owned()).unwrap_or_default()
}

pub(crate) async fn preemption_is_bounded(stage: &Stage) -> Result<()> {
    let s = stage.scenario("bounds").await?;
    s.simple_queue("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await?;
    for (name, value) in [("near", 9), ("far", 10)] {
        s.apply(&priority_class(&s.name(name), value)).await?;
    }
    policy(&s, &json!({"preemption": {"minPriorityDifference": 10, "protectedRunningTime": "6s"}})).await?;
    s.create(s.job("low").endless()).await?;
    let low = s.admitted("low").await?;
    let begun = since(&low, "QuotaReserved")?;
    for name in ["near", "far"] {
        s.create(s.job(name).endless().label("kueue.x-k8s.io/priority-class", &s.name(name))).await?;
        s.pending(name).await?;
    }
    // The job `far` is admitted by preemption as soon as the job `low` has run for its protected time, although no object changes then.
    s.admitted("far").await?;
    let low = s.workload("low", "preempted", |w| condition(w, "Preempted") == "True").await?;
    // Both condition times are rounded down to whole seconds, so the difference of six full seconds is never measured too short.
    let ran = since(&low, "Preempted")?.duration_since(begun);
    ensure!(ran >= SignedDuration::from_secs(6), "preempted after {ran}: {}", low["status"]);
    ensure!(message(&low, "Preempted").contains("prioritization in the ClusterQueue"), "{}", low["status"]);
    s.stays_pending("near").await?;
    s.conclude().await
}

/// Time of the last transition of the condition `kind` of an object.
fn since(object: &Value, kind: &str) -> Result<Timestamp> {
    let condition = condition_object(object, kind).with_context(|| format!("no condition {kind}: {object}"))?;
    Ok(text(condition, "/lastTransitionTime").parse()?)
}

/// A queue for the pool `stable` with a flavor and a LocalQueue of its own; `more` is merged into its spec. Returns the name of the ResourceFlavor that it
/// creates for the queue.
async fn stable_queue(s: &Scenario<'_>, name: &str, quotas: &[Quota<'_>], more: &Value) -> Result<String> {
    let (flavor, full) = (s.name(&format!("{name}-flavor")), s.name(name));
    s.apply(&manifest::flavor(&flavor, &[(POOL, "stable")])).await?;
    s.apply(&cluster_queue(&full, &[group(&[(&flavor, quotas)])], more)).await?;
    s.apply(&local_queue(&s.namespace, name, &full)).await?;
    Ok(flavor)
}

/// Writes the QueuePolicy of one of the scenario's queues, and waits until Berth has read it.
async fn governed(s: &Scenario<'_>, queue: &str, spec: &Value) -> Result<()> {
    crate::ladder::governed(s, queue, &format!("{queue}-policy"), spec).await
}

/// Checks the reason and the message with which a job waits.
async fn waits(s: &Scenario<'_>, job: &str, why: &str, words: &str) -> Result<()> {
    let waiting = s.pending(job).await?;
    let text = (reason(&waiting, "QuotaReserved"), message(&waiting, "QuotaReserved"));
    ensure!(text.0 == why && text.1.starts_with(words), "{job}: expected {why}: {words}; got {text:?}");
    Ok(())
}

/// A job that requests more than its queue's policy allows waits with a message, and is admitted after the policy allows it.
pub(crate) async fn kept_out(stage: &Stage) -> Result<()> {
    let s = stage.scenario("kept-out").await?;
    futures::try_join!(too_many_gpus(&s), too_much_borrowed(&s), too_much_of_a_tier(&s))?;
    s.conclude().await
}

/// The policy's `maxGPUsPerJob` limits the GPUs of a job over all of its pods.
async fn too_many_gpus(s: &Scenario<'_>) -> Result<()> {
    const GPU: &str = "nvidia.com/gpu";
    stable_queue(s, "gpus", &[quota(GPU, "32")], &json!({})).await?;
    governed(s, "gpus", &json!({"admission": {"maxGPUsPerJob": 8}})).await?;
    let job = |name: &str, pods: u32, each: &str| {
        Job::new(&s.namespace, name, "gpus").requests(&[(GPU, each)]).pods(pods).endless()
    };
    s.create(job("greedy", 3, "3")).await?;
    let policy = s.name("gpus-policy");
    let words = format!("QueuePolicy {policy}: spec.admission.maxGPUsPerJob is 8, and the workload asks for 9");
    waits(s, "greedy", "AdmissionLimit", &words).await?;
    s.create(job("within", 2, "4")).await?;
    s.admitted("within").await?;
    s.stays_pending("greedy").await?;
    governed(s, "gpus", &json!({})).await?;
    s.admitted("greedy").await?;
    s.nodes_of("greedy", 3).await.map(drop)
}

/// The policy's `borrowingRatioPercent` lets a queue borrow half of its quota, although the cohort has more; with another value, the queue may use
/// two and a half times its quota.
async fn too_much_borrowed(s: &Scenario<'_>) -> Result<()> {
    let cohort = json!({"cohortName": s.name("cohort")});
    let flavor = stable_queue(s, "borrower", &[quota("cpu", "2")], &cohort).await?;
    let lender = cluster_queue(&s.name("lender"), &[group(&[(&flavor, &[quota("cpu", "8")])])], &cohort);
    s.apply(&lender).await?;
    governed(s, "borrower", &json!({"borrowingRatioPercent": 50})).await?;
    let job = |name: &str, cpu: &str| Job::new(&s.namespace, name, "borrower").cpu(cpu).endless();
    s.create(job("four", "4")).await?;
    let words = format!(
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor {flavor}, previously considered \
         podsets requests (0) + current podset request (4) > maximum capacity (3)"
    );
    waits(s, "four", "ExceedsMaxQuota", &words).await?;
    s.create(job("three", "3")).await?;
    s.admitted("three").await?;
    s.stays_pending("four").await?;
    governed(s, "borrower", &json!({"borrowingRatioPercent": 250})).await?;
    s.admitted("four").await.map(drop)
}

/// The policy's `maxSharePercent` limits a queue to half of the reserved capacity of its cohort, all of which is idle; with another value, to three
/// quarters.
async fn too_much_of_a_tier(s: &Scenario<'_>) -> Result<()> {
    let [reserved, demand] = ["reserved", "on-demand"].map(|tier| s.name(&format!("share-{tier}")));
    for (tier, name) in [("reserved", &reserved), ("on-demand", &demand)] {
        let mut object = manifest::flavor(name, &[(POOL, "stable")]);
        merge(&mut object["metadata"], &json!({"labels": {"berth.dev/capacity-tier": tier}}));
        s.apply(&object).await?;
    }
    let cohort = json!({"cohortName": s.name("owners")});
    let (none, two, four) = ([quota("cpu", "0")], [quota("cpu", "2")], [quota("cpu", "4")]);
    let mine = group(&[(&reserved, &none), (&demand, &two)]);
    s.apply(&cluster_queue(&s.name("share"), &[mine], &cohort)).await?;
    s.apply(&cluster_queue(&s.name("owner"), &[group(&[(&reserved, &four)])], &cohort)).await?;
    s.apply(&local_queue(&s.namespace, "share", &s.name("share"))).await?;
    let most =
        |percent: u32| json!({"capacityTiers": {"default": ["reserved"], "maxSharePercent": {"reserved": percent}}});
    governed(s, "share", &most(50)).await?;
    let job = |name: &str, cpu: &str| Job::new(&s.namespace, name, "share").cpu(cpu).endless();
    s.create(job("holds", "2")).await?;
    s.admitted("holds").await?;
    s.create(job("over", "1")).await?;
    let words = format!(
        "couldn't assign flavors to pod set main: flavor {reserved}: 1 of cpu beside 2 that the queue holds of \
         reserved capacity is more than its share of 2"
    );
    waits(s, "over", "WaitingForQuota", &words).await?;
    // The job `aside`, which accepts on-demand capacity as well, is admitted there although its queue has its full share of the reserved capacity.
    s.create(job("aside", "1").annotation(TIERS, "reserved,on-demand")).await?;
    let aside = s.admitted("aside").await?;
    ensure!(flavor_of(&aside) == demand, "{}", aside["status"]["admission"]);
    s.stays_pending("over").await?;
    governed(s, "share", &most(75)).await?;
    let over = s.admitted("over").await?;
    ensure!(flavor_of(&over) == reserved, "{}", over["status"]["admission"]);
    Ok(())
}

/// Victims that are too many or too large keep their quota until the policy allows more victims; and a job gains priority by waiting.
pub(crate) async fn spared(stage: &Stage) -> Result<()> {
    let s = stage.scenario("spared").await?;
    s.apply(&priority_class(&s.name("high"), 10)).await?;
    let [one, two] = [1, 2].map(|most| json!({"preemption": {"maxVictims": most}}));
    let [less, double] = [199, 200].map(|percent| json!({"preemption": {"maxEvictedPercent": percent}}));
    futures::try_join!(
        spares(&s, "count", (&["1", "1"], "2"), [&one, &two]),
        spares(&s, "size", (&["2"], "1"), [&less, &double]),
        who_waited_goes_first(&s),
    )?;
    s.conclude().await
}

/// A running job with the requests `running` is preempted by a job with the requests `asked` under the policy `allows`, but not under the policy
/// `forbids`.
async fn spares(
    s: &Scenario<'_>,
    queue: &str,
    (running, asked): (&[&str], &str),
    [forbids, allows]: [&Value; 2],
) -> Result<()> {
    let preempting = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let flavor = stable_queue(s, queue, &[quota("cpu", "2")], &preempting).await?;
    governed(s, queue, forbids).await?;
    let job = |name: &str, cpu: &str| Job::new(&s.namespace, name, queue).cpu(cpu).endless();
    let low: Vec<String> = (0..running.len()).map(|index| format!("{queue}-low-{index}")).collect();
    for (name, cpu) in low.iter().zip(running) {
        s.create(job(name, cpu)).await?;
        s.admitted(name).await?;
    }
    let high = format!("{queue}-high");
    s.create(job(&high, asked).label("kueue.x-k8s.io/priority-class", &s.name("high"))).await?;
    let lacks = format!(
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor {flavor}, {asked} more \
         needed"
    );
    waits(s, &high, "WaitingForQuota", &lacks).await?;
    s.stays_pending(&high).await?;
    for name in &low {
        let workload = s.workload_of(name).await?.unwrap_or_default();
        let stays = condition(&workload, "Admitted") == "True" && condition(&workload, "Evicted").is_empty();
        ensure!(stays, "{name}: {}", workload["status"]);
    }
    governed(s, queue, allows).await?;
    s.admitted(&high).await?;
    for name in &low {
        s.workload(name, "preempted", |w| condition(w, "Preempted") == "True").await?;
    }
    Ok(())
}

/// The policy's `waitingTimeBonus`: a job that waits longer is admitted before a job of a higher priority, but not after the bonus is taken out of the policy.
/// In this test a second of waiting raises a job's priority by 277, and the higher priority class by 10.
async fn who_waited_goes_first(s: &Scenario<'_>) -> Result<()> {
    stable_queue(s, "patient", &[quota("cpu", "1")], &json!({})).await?;
    governed(s, "patient", &json!({"waitingTimeBonus": {"pointsPerHour": 1_000_000}})).await?;
    let job = |name: &str| Job::new(&s.namespace, name, "patient").endless();
    s.create(job("runs")).await?;
    s.admitted("runs").await?;
    for name in ["first", "second"] {
        s.create(job(name)).await?;
        s.pending(name).await?;
        s.next_second().await;
    }
    s.create(job("high").label("kueue.x-k8s.io/priority-class", &s.name("high"))).await?;
    s.pending("high").await?;
    s.remove("runs").await?;
    s.admitted("first").await?;
    s.stays_pending("high").await?;
    governed(s, "patient", &json!({})).await?;
    s.remove("first").await?;
    s.admitted("high").await?;
    s.stays_pending("second").await
}
