//! QueuePolicies with incomplete fields, and a QueuePolicy that was stored under older rules.

use berth_control::write::Kind;
use serde_json::{Value, json};

use crate::stories::cluster::{Cluster, job};
use crate::stories::policies::{policy, with_tiers};
use crate::stories::tiers::tiered_cluster;

fn status(cluster: &Cluster) -> &Value {
    &cluster.objects()[&Cluster::key(Kind::QueuePolicy, "", "p")]["status"]
}

#[test]
fn stored_policy_with_invalid_selector_selects_no_cluster_queue() {
    let term = |key: &str, operator: &str, values: &[&str]| {
        let term = json!({"key": key, "operator": operator, "values": values});
        json!({"matchExpressions": [term]})
    };
    for (selector, wrong) in [
        (term("a", "Like", &["b"]), "matchExpressions[0].operator: Invalid value: \"Like\": supported values: \"In\""),
        (term("a", "NotIn", &[]), "matchExpressions[0].values: must be specified when the operator is NotIn"),
        (term("a", "DoesNotExist", &["b"]), "matchExpressions[0].values: Invalid value: \"b\": must be empty"),
        (
            term("a b", "DoesNotExist", &[]),
            "matchExpressions[0].key: Invalid value: \"a b\": name part must consist of",
        ),
        (json!({"matchLabels": {"a": "b c"}}), "matchLabels[a]: Invalid value: \"b c\": a valid label value must"),
    ] {
        let mut cluster = tiered_cluster("4");
        let spec = json!({"clusterQueueSelector": selector, "admission": {"maxJobs": 0}});
        cluster.put(Kind::QueuePolicy, policy("p", spec));
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(6);
        let condition = &status(&cluster)["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InvalidSelector")));
        let message = condition["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("spec.clusterQueueSelector.{wrong}")), "{message}");
        assert!(cluster.is("a", "Admitted"), "the queue has no limit");
    }
}

#[test]
fn unset_stock_out_backoff_bound_yields_to_the_set_one() {
    for (backoff, seconds) in [
        (json!({}), 300),
        (json!({"initial": "10m"}), 600),
        (json!({"max": "2m"}), 120),
        (json!({"initial": "3h"}), 10_800),
    ] {
        let mut cluster = tiered_cluster("4");
        cluster.put(Kind::QueuePolicy, with_tiers(json!({"backoff": backoff})));
        cluster.without_nodes = vec!["reserved"];
        cluster.put(Kind::JOB, job("a", "lq", "1", true));
        cluster.pass(80);
        let shown = &status(&cluster)["backoffs"][0];
        let at = |field: &str| shown[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
        assert_eq!(at("until") - at("lastFailureTime"), seconds, "{backoff}");
    }
}
