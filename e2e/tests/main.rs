//! End-to-end tests, a module a suite: each starts a control plane or several, and the shipped binary on it.

mod admission;
mod bad_input;
mod bench;
mod crash;
mod crds;
mod demo;
mod examples;
mod failover;
mod frameworks;
mod harness;
mod helm;
mod jobset;
mod kueue;
mod ladder;
mod life;
mod many;
mod metrics;
mod migration;
mod pods;
mod preemption;
mod provisioning;
mod smoke;
mod story;
mod tenants;
mod training;
mod webhook;
