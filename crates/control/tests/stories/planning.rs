//! When a plan is made.

use berth_control::Step;
use berth_control::write::{Kind, Purpose, Write};
use jiff::SignedDuration;
use serde_json::json;

use crate::stories::cluster::{Cluster, made_before, settings};
use crate::stories::with_queue;

/// Goes on until nothing is decided any more; reservations are held back, and counted.
fn reservations(cluster: &mut Cluster, held: &mut Vec<Write>) -> usize {
    let before = held.len();
    loop {
        let step = cluster.control.step(cluster.now);
        if step.writes.is_empty() {
            return held.len() - before;
        }
        let (reserve, others): (Vec<Write>, Vec<Write>) =
            step.writes.into_iter().partition(|write| write.purpose == Purpose::ReserveQuota);
        held.extend(reserve);
        cluster.take(Step { writes: others, ..step });
    }
}

#[test]
fn plan_waits_while_too_many_admissions_are_under_way() {
    let mut settings = settings();
    settings.max_unacknowledged = 8;
    let mut cluster = with_queue(Cluster::with(settings), "20");
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    for number in 0..20 {
        let mut workload = made_before(&template);
        workload["metadata"]["name"] = json!(format!("w{number:02}"));
        cluster.put(Kind::Workload, workload);
    }
    let mut held = Vec::new();
    assert_eq!(reservations(&mut cluster, &mut held), 8, "no more may be under way");
    let acknowledge = |cluster: &mut Cluster, held: &mut Vec<Write>| {
        let writes = vec![held.remove(0)];
        cluster.take(Step { writes, ..Step::default() });
    };
    acknowledge(&mut cluster, &mut held);
    assert_eq!(reservations(&mut cluster, &mut held), 0, "a plan for one looks at as many heads as one for all");
    acknowledge(&mut cluster, &mut held);
    assert_eq!(reservations(&mut cluster, &mut held), 2, "a quarter is free");
    // Where acknowledgements are slow, nobody waits for longer than a second.
    acknowledge(&mut cluster, &mut held);
    assert_eq!(reservations(&mut cluster, &mut held), 0);
    let wake = cluster.control.step(cluster.now).wake_at.expect("it comes back by itself");
    let latest = cluster.now.checked_add(SignedDuration::from_secs(1)).unwrap();
    assert!(wake <= latest, "{wake}");
    cluster.now = latest;
    assert_eq!(reservations(&mut cluster, &mut held), 1);
}
