//! Input and output of the election: requests about the Lease, and publication of the leadership state.

use crate::leadership::State;
use crate::options::Election;
use berth_api::labels::PODS_SINCE;
use berth_control::write::Term;
use berth_lease::{Action, Candidate, Record, Timing};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use std::future::Future;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// The identity of this process: a unique name that is readable in `kubectl get lease`.
#[must_use]
pub fn identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok().map(|name| name.trim().to_owned()))
        .unwrap_or_else(|| "berth".to_owned());
    let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_or_else(
        |_| format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond()),
        |uuid| uuid.trim().to_owned(),
    );
    format!("{host}_{unique}")
}

/// The elector: takes part in the election until it is asked to stop.
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    counts_pods: bool,
    origin: Instant,
    lease: Option<Lease>,
    state: watch::Sender<State>,
}

/// Handles of a running elector.
pub struct Handle {
    /// A message on this channel makes the elector stop leading; the elector still holds the Lease afterwards.
    pub resign: oneshot::Sender<()>,
    /// A message on this channel makes the elector release the Lease and end.
    pub release: oneshot::Sender<()>,
    /// The task of the elector.
    pub task: tokio::task::JoinHandle<()>,
}

impl Elector {
    /// Starts an elector.
    #[must_use]
    pub fn spawn(client: Client, election: &Election, identity: String, state: watch::Sender<State>) -> Handle {
        let elector = Self {
            leases: Api::namespaced(client, &election.namespace),
            name: election.name.clone(),
            identity,
            timing: Timing {
                lease_duration: election.lease_duration,
                renew_deadline: election.renew_deadline,
                retry_period: election.retry_period,
            },
            counts_pods: election.counts_pods,
            origin: Instant::now(),
            lease: None,
            state,
        };
        let (resign, resigned) = oneshot::channel();
        let (release, released) = oneshot::channel();
        let task = tokio::spawn(elector.run(resigned, released));
        Handle { resign, release, task }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    async fn run(mut self, mut resigned: oneshot::Receiver<()>, mut released: oneshot::Receiver<()>) {
        let mut candidate = Candidate::new(self.identity.clone(), self.timing);
        let mut leads = true;
        loop {
            let pause = self.act(&mut candidate).await;
            self.publish(if leads { candidate.leading() } else { None });
            tokio::select! {
                biased;
                _ = &mut released => break,
                _ = &mut resigned, if leads => {
                    leads = false;
                    self.publish(None);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.publish(None);
        if candidate.leading().is_some() {
            self.give_back().await;
        }
    }

    /// Performs the next action of the election's state machine, and returns the pause before the following action.
    async fn act(&mut self, candidate: &mut Candidate) -> Duration {
        let began = self.now();
        let action = candidate.next(began);
        let written = match action {
            Action::Wait(pause) => return pause,
            Action::StepDown => {
                tracing::warn!("leadership lost");
                candidate.step_down(began);
                return Duration::ZERO;
            }
            Action::Read => {
                match self.bounded(self.leases.get_opt(&self.name)).await {
                    Ok(lease) => {
                        candidate.observe(lease.as_ref().map(record_of), self.now());
                        self.lease = lease;
                    }
                    Err(failure) => {
                        tracing::warn!(error = failure.text, "reading the lease failed");
                        candidate.failed(false, self.now());
                    }
                }
                return Duration::ZERO;
            }
            Action::Create => {
                let lease = self.desired(None, 0, true);
                self.bounded(self.leases.create(&PostParams::default(), &lease)).await
            }
            Action::Claim { version, transitions } => {
                let lease = self.desired(Some(version), transitions, true);
                self.bounded(self.leases.replace(&self.name, &PostParams::default(), &lease)).await
            }
            Action::Renew { version } => {
                let transitions = self.lease.as_ref().map_or(0, |lease| record_of(lease).transitions);
                let lease = self.desired(Some(version), transitions, false);
                self.bounded(self.leases.replace(&self.name, &PostParams::default(), &lease)).await
            }
        };
        match written {
            Ok(lease) => {
                let fresh = candidate.leading().is_none();
                candidate.written(record_of(&lease), began);
                self.lease = Some(lease);
                if let Some((Term(term), _)) = candidate.leading().filter(|_| fresh) {
                    tracing::info!(identity = self.identity, term, "lease taken");
                }
            }
            Err(failure) => {
                tracing::warn!(error = failure.text, "writing the lease failed");
                candidate.failed(failure.conflict, self.now());
            }
        }
        Duration::ZERO
    }

    /// The Lease that the elector writes; labels and annotations of other clients are kept.
    fn desired(&self, version: Option<String>, transitions: i32, acquire: bool) -> Lease {
        let now = MicroTime(Timestamp::now());
        let old = self.lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let mut metadata = match (&self.lease, version) {
            (Some(lease), Some(version)) => {
                ObjectMeta { managed_fields: None, resource_version: Some(version), ..lease.metadata.clone() }
            }
            _ => ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
        };
        note_pods(&mut metadata, self.counts_pods, now.0);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(
                    i32::try_from(self.timing.lease_duration.as_secs()).unwrap_or(i32::MAX).max(1),
                ),
                acquire_time: if acquire { Some(now.clone()) } else { old.acquire_time },
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Empties the Lease, so that another process can claim it without waiting.
    async fn give_back(&self) {
        let Some(mut lease) = self.lease.clone() else { return };
        lease.metadata.managed_fields = None;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        match self.bounded(self.leases.replace(&self.name, &PostParams::default(), &lease)).await {
            Ok(_) => tracing::info!("lease released"),
            Err(failure) => tracing::warn!(error = failure.text, "releasing the lease failed"),
        }
    }

    /// Limits the time of a call about the Lease to half the renew deadline, so that a second attempt fits before the leader steps down.
    async fn bounded<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        match tokio::time::timeout(self.timing.renew_deadline / 2, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) => Err(Failure {
                conflict: status.is_conflict() || status.is_already_exists(),
                text: status.message.clone(),
            }),
            Ok(Err(error)) => Err(Failure { conflict: false, text: error.to_string() }),
            Err(_) => Err(Failure { conflict: false, text: "no answer in time".to_owned() }),
        }
    }

    fn publish(&self, leading: Option<(Term, Duration)>) {
        let new = State {
            term: leading.map(|(term, _)| term),
            until: leading.map(|(_, until)| self.origin + until),
            pods_since: self.lease.as_ref().filter(|_| self.counts_pods).and_then(|lease| pods_since(&lease.metadata)),
        };
        self.state.send_if_modified(|state| std::mem::replace(state, new) != new);
    }
}

/// The creation time in a Lease's annotation from which on Berth counts pods without the label of managed pods.
fn pods_since(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.annotations.as_ref()?.get(PODS_SINCE)?.parse().ok()
}

/// Sets the Lease's annotation with the creation time from which on Berth counts pods, and keeps this time as long as Berth counts pods. Berth did not gate
/// older pods, so Berth does not manage older pods.
fn note_pods(metadata: &mut ObjectMeta, counts_pods: bool, now: Timestamp) {
    if !counts_pods {
        if let Some(annotations) = &mut metadata.annotations {
            annotations.remove(PODS_SINCE);
        }
    } else if pods_since(metadata).is_none() {
        metadata.annotations.get_or_insert_default().insert(PODS_SINCE.to_owned(), now.to_string());
    }
}

struct Failure {
    conflict: bool,
    text: String,
}

fn record_of(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0)),
        transitions: spec.lease_transitions.unwrap_or(0),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn lease_keeps_start_time_of_pod_counting_until_disabled() {
        let (first, later) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let mut metadata = ObjectMeta::default();
        note_pods(&mut metadata, true, first);
        note_pods(&mut metadata, true, later);
        assert_eq!(pods_since(&metadata), Some(first));
        // After the management of pods was switched off and on again, the time in the Lease's annotation is new, because pods that were created meanwhile have
        // no gate.
        note_pods(&mut metadata, false, later);
        assert_eq!(pods_since(&metadata), None);
        note_pods(&mut metadata, true, later);
        assert_eq!(pods_since(&metadata), Some(later));
    }

    #[test]
    fn lease_with_unreadable_pod_counting_time_gets_current_time() {
        let annotations = Some([(PODS_SINCE.to_owned(), "long ago".to_owned())].into());
        let mut metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        let now = at("2026-01-01T00:00:00Z");
        note_pods(&mut metadata, true, now);
        assert_eq!(pods_since(&metadata), Some(now));
    }
}
