//! Stories of jobs in a simulated cluster in memory.

mod attacks;
mod attempts;
mod checkpoints;
mod checks;
mod clocks;
mod columns;
mod comebacks;
mod contract;
mod cost_of_edits;
mod crowds;
mod edits;
mod elastic;
mod ended_pods;
mod ending_pods;
mod endings;
mod ends;
mod events;
mod faults;
mod fields;
mod followed;
mod forged;
mod forgotten;
mod gangs;
mod gates;
mod gone_jobs;
mod grace;
mod group_ends;
mod groups;
mod growth;
mod growth_restarts;
mod held_restarts;
mod history;
mod job_pods;
mod jobsets;
mod kept_quota;
mod labels;
mod large;
mod let_in;
mod life;
mod limits;
mod lost_flavors;
mod lost_owners;
mod misfits;
mod moves;
mod mutated;
mod names;
mod namespaces;
mod neighbours;
mod odd_pods;
mod overrides;
mod overruns;
mod owners;
mod partial;
mod patience;
mod placements;
mod places;
mod planning;
mod pods;
mod policies;
mod policy_fields;
mod promotions;
mod provisioning;
mod queues;
mod random;
mod reasons;
mod reclaim;
mod refusals;
mod repeated_starts;
mod requests;
mod restarts;
mod rights;
mod rows;
mod serving;
mod sets;
mod sharing;
mod stopping_edits;
mod stores;
mod suspension;
mod swings;
mod tampered;
mod tiers;
mod topologies;
mod training;
mod training_figures;
mod true_parts;
mod unlisted;
mod unsupported;
mod usage;
mod values;
mod waits;

use berth_control::write::Kind;
use berth_sim::cluster;
use cluster::{Cluster, cluster_queue, flavor, local_queue};
use serde_json::json;

fn one_queue(quota: &str) -> Cluster {
    with_queue(Cluster::new(), quota)
}

/// The cluster of [`one_queue`], with pods, Deployments and StatefulSets among the managed job kinds.
fn pod_queue(quota: &str) -> Cluster {
    let mut settings = cluster::settings();
    settings.job_kinds.extend([Kind::Pod, Kind::Deployment, Kind::StatefulSet]);
    with_queue(Cluster::with(settings), quota)
}

fn with_queue(mut cluster: Cluster, quota: &str) -> Cluster {
    cluster.put(Kind::ResourceFlavor, flavor("default", json!({"tier": "reserved"})));
    cluster.put(Kind::ClusterQueue, cluster_queue("cq", None, &[("default", quota)]));
    cluster.put(Kind::LocalQueue, local_queue("lq", "cq"));
    cluster
}
