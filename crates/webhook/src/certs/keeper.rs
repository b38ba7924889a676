//! The keeper of certificates and webhook configurations: it writes them as the modules `rotate` and `inject` decide, and loads the certificate that
//! the server shows.

use super::inject::{BundleHolder, Wanted, bundles, configuration_patch, conversion_patch};
use super::issue::{self, Pair, is_signed_by_one_of, validity};
use super::rotate::{self, Policy, Step};
use super::served::Served;
use super::store::Stored;
use crate::{ClusterFacts, Meter};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, GetParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, Request};
use kube::{Api, Client, Resource};
use serde_json::Value;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Field manager of the keeper's writes.
const MANAGER: &str = "berth-webhook";
/// Pause between two checks of the certificates while no change is seen.
const PERIOD: Duration = Duration::from_secs(60);
/// Pause between two checks of the certificates while a certificate or configuration is not as it should be.
const HURRY: Duration = Duration::from_secs(1);
/// Time within which several observed changes are handled by one check of the certificates.
const SETTLE: Duration = Duration::from_millis(50);
/// Largest number of steps in one check of the certificates, in case another writer of the same Secret always writes first.
const STEPS: usize = 8;

/// Source of the server's certificates.
#[derive(Clone, Debug)]
pub enum Source {
    /// Certificates that Berth creates and keeps in a Secret.
    Own {
        /// Name of the Secret.
        secret: String,
        /// Lifetimes and names of the certificates.
        policy: Policy,
    },
    /// A folder with `tls.crt` and `tls.key` from an administrator, who also puts the authority into the webhook configurations.
    Folder(PathBuf),
}

/// Everything that the keeper of certificates needs.
pub struct Keeper {
    /// Client for requests that end, which excludes watches.
    pub client: Client,
    /// Namespace of the Secret and the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Names of Berth's MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration.
    pub configurations: [&'static str; 2],
    /// Source of the serving certificates.
    pub source: Source,
    /// The certificate that is served.
    pub served: Arc<Served>,
    /// Facts about the cluster.
    pub cluster_facts: Arc<dyn ClusterFacts>,
    /// Receiver of the metrics.
    pub meter: Arc<dyn Meter>,
    /// Notified after this replica's `ClusterFacts` have changed, so that the keeper writes the namespace selectors of the webhook configurations again.
    pub changed: Arc<Notify>,
    /// Names of the CRDs whose objects Berth converts.
    pub converted: Vec<String>,
}

/// Reason why a check of the certificates and webhook configurations failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}: {1}")]
    Api(String, #[source] kube::Error),
    #[error(transparent)]
    Issue(#[from] issue::Error),
    #[error("certificate: {0}")]
    Load(#[from] rustls::Error),
    #[error("{0}: {1}")]
    File(String, #[source] std::io::Error),
    #[error("the Secret changes under every write")]
    Quarrel,
}

/// Result of writing the webhook configurations and CRDs.
#[derive(Default)]
struct Written {
    /// The CA bundles that the webhook configurations and CRDs have now.
    bundles: Vec<String>,
    /// True if no write of a webhook configuration or CRD had a conflict, so that all have the wanted content.
    complete: bool,
}

impl Keeper {
    /// Checks and renews the certificates and webhook configurations again and again, until the future is dropped.
    pub async fn run(self) {
        let stirred = Arc::new(Notify::new());
        let mut watching = JoinSet::new();
        for (resource, name) in self.watched() {
            let api = if resource.plural == "secrets" {
                Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
            } else {
                Api::all_with(self.client.clone(), &resource)
            };
            watching.spawn(follow(api, name, Arc::clone(&stirred)));
        }
        let mut failing = false;
        // The webhooks' namespace selectors are written after this replica's `ClusterFacts` have changed, and every `PERIOD`, but not after another replica has
        // written other selectors: two replicas with different facts would otherwise overwrite each other's selectors for ever.
        let mut namespaces = true;
        loop {
            let pause = match self.look(namespaces).await {
                Ok((pause, complete)) => {
                    failing = false;
                    namespaces &= !complete;
                    if complete { pause } else { pause.min(HURRY) }
                }
                Err(error) => {
                    if !failing {
                        tracing::error!(%error, "keeping the webhooks' certificates and configurations failed");
                    }
                    failing = true;
                    HURRY * 5
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => namespaces |= pause == PERIOD,
                () = stirred.notified() => tokio::time::sleep(SETTLE).await,
                () = self.changed.notified() => {
                    namespaces = true;
                    tokio::time::sleep(SETTLE).await;
                }
            }
        }
    }

    fn watched(&self) -> Vec<(ApiResource, String)> {
        let [mutating, validating] = configurations();
        let names = self.configurations.map(str::to_owned);
        let mut all: Vec<(ApiResource, String)> = [mutating, validating].into_iter().zip(names).collect();
        if let Source::Own { secret, .. } = &self.source {
            all.push((ApiResource::erase::<Secret>(&()), secret.clone()));
            all.extend(self.converted.iter().map(|name| (definitions(), name.clone())));
        }
        all
    }

    /// Checks the certificates and configurations once, and writes what must change. Returns the pause until the next check of the certificates, and true if
    /// all webhook configurations and CRDs have the wanted content.
    async fn look(&self, namespaces: bool) -> Result<(Duration, bool), Error> {
        match &self.source {
            Source::Own { secret, policy } => {
                for _ in 0..STEPS {
                    let found = self.secret(secret).await?;
                    let stored = found.as_ref().map(Stored::read).unwrap_or_default();
                    let now = Timestamp::now();
                    let served = stored.leaf.as_ref().is_some_and(|leaf| self.load(leaf).is_ok());
                    let bundle = stored.bundle();
                    let written =
                        if served { self.write_bundle(Some(&bundle), namespaces).await? } else { Written::default() };
                    let all_match = written.bundles.iter().all(|known| *known == bundle);
                    let step = rotate::next(&stored, all_match, policy, now);
                    let Some(new) = rotate::after(&stored, step, policy, now)? else {
                        self.judge(&written.bundles);
                        return Ok((pause(step, now, self.served.trouble().is_some()), written.complete));
                    };
                    tracing::info!(?step, "certificates of the webhooks");
                    self.store(secret, found, &new).await?;
                }
                Err(Error::Quarrel)
            }
            Source::Folder(folder) => {
                let read = |name: &str| {
                    let path = folder.join(name);
                    std::fs::read_to_string(&path).map_err(|error| Error::File(path.display().to_string(), error))
                };
                self.load(&Pair { certificate: read("tls.crt")?, key: read("tls.key")? })?;
                let written = self.write_bundle(None, namespaces).await?;
                self.judge(&written.bundles);
                Ok((PERIOD, written.complete))
            }
        }
    }

    fn load(&self, leaf: &Pair) -> Result<(), rustls::Error> {
        if self.served.load(leaf)? {
            tracing::info!("a new certificate is served to the API server");
        }
        if let Some(valid) = validity(&leaf.certificate) {
            self.meter.expires(valid.until.as_second());
        }
        Ok(())
    }

    /// Sets whether reviews can arrive: each configuration that leads to Berth must trust the served certificate.
    fn judge(&self, written: &[String]) {
        let trouble = match self.served.pair() {
            None => Some("the webhooks have no certificate yet".to_owned()),
            Some(pair) => written
                .iter()
                .any(|bundle| !is_signed_by_one_of(&pair.certificate, bundle))
                .then(|| "the API server does not trust the webhooks' certificate yet".to_owned()),
        };
        // An administrator must repair a configuration that he maintains: a wrong authority in it does not make this replica less ready.
        let external = matches!(self.source, Source::Folder(_));
        self.served.set_trouble(trouble.filter(|_| !external || self.served.pair().is_none()));
    }

    async fn secret(&self, name: &str) -> Result<Option<Secret>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        api.get_opt(name).await.map_err(|error| Error::Api(format!("reading Secret {}/{name}", self.namespace), error))
    }

    /// Writes the Secret with certificates if it has not changed since it was read; otherwise the next step reads its new content.
    async fn store(&self, name: &str, found: Option<Secret>, stored: &Stored) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let there = found.is_some();
        let mut secret = found.unwrap_or_default();
        stored.write(&mut secret);
        secret.metadata.name = Some(name.to_owned());
        let written =
            if there { api.replace(name, &params, &secret).await } else { api.create(&params, &secret).await };
        match written {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => {
                other.map(drop).map_err(|error| Error::Api(format!("writing Secret {}/{name}", self.namespace), error))
            }
        }
    }

    /// Writes the wanted CA bundles and namespace selectors into every webhook configuration and CRD that exists.
    async fn write_bundle(&self, bundle: Option<&str>, namespaces: bool) -> Result<Written, Error> {
        let opted_in = if namespaces { self.cluster_facts.opted_in() } else { None };
        let wanted = Wanted { bundle, opted_in: opted_in.as_ref(), service: (&self.namespace, &self.service) };
        let mut written = Written { bundles: Vec::new(), complete: true };
        for (resource, name) in configurations().into_iter().zip(self.configurations) {
            self.amend(&resource, name, &wanted, configuration_patch, &mut written).await?;
        }
        let definitions = definitions();
        for name in self.converted.iter().filter(|_| bundle.is_some()) {
            self.amend(&definitions, name, &wanted, conversion_patch, &mut written).await?;
        }
        Ok(written)
    }

    async fn amend(
        &self,
        resource: &ApiResource,
        name: &str,
        wanted: &Wanted<'_>,
        patch: fn(&Value, &Wanted<'_>) -> Option<Value>,
        written: &mut Written,
    ) -> Result<(), Error> {
        let path = Request::new(DynamicObject::url_path(resource, None));
        let failed = |what: &str, error| Error::Api(format!("{what} {} {name}", resource.kind), error);
        let read = path
            .get(name, &GetParams::default())
            .map_err(|error| failed("reading", kube::Error::BuildRequest(error)))?;
        let read_object = match self.client.request::<BundleHolder>(read).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            read_object => read_object.map_err(|error| failed("reading", error))?.into_value(),
        };
        let Some(body) = patch(&read_object, wanted) else {
            written.bundles.extend(bundles(&read_object, wanted));
            return Ok(());
        };
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let write = path
            .patch(name, &params, &Patch::Merge(&body))
            .map_err(|e| failed("patching", kube::Error::BuildRequest(e)))?;
        match self.client.request::<BundleHolder>(write).await {
            Ok(object) => {
                tracing::info!(kind = resource.kind, name, "told the API server whom to trust and where to ask");
                written.bundles.extend(bundles(&object.into_value(), wanted));
            }
            // After a conflict, the webhook configuration or CRD is checked again soon, because the other writer, perhaps another replica, may not have written
            // the wanted content.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                written.bundles.extend(bundles(&read_object, wanted));
                written.complete = false;
            }
            Err(error) => return Err(failed("patching", error)),
        }
        Ok(())
    }
}

/// Pause until the next step of the rotation of certificates.
fn pause(step: Step, now: Timestamp, trouble: bool) -> Duration {
    match step {
        Step::Rest(until) if !trouble => {
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            left.clamp(Duration::from_millis(100), PERIOD)
        }
        _ => HURRY,
    }
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    let kind = kube::core::GroupVersionKind::gvk(group, "v1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

fn definitions() -> ApiResource {
    resource("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
}

fn configurations() -> [ApiResource; 2] {
    let group = "admissionregistration.k8s.io";
    [
        resource(group, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        resource(group, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ]
}

/// Notifies `changed` of every change of one object, and never returns.
async fn follow(api: Api<DynamicObject>, name: String, changed: Arc<Notify>) {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
    loop {
        // A watch from version "0" begins with the present state from the API server's cache. The watch reads only metadata, because the schemas of a
        // CRD are half a megabyte.
        match api.watch_metadata(&params, "0").await {
            Ok(events) => {
                let mut events = pin!(events);
                while let Some(Ok(event)) = events.next().await {
                    if matches!(event, WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)) {
                        changed.notify_one();
                    }
                }
            }
            Err(error) => tracing::debug!(name, %error, "watch failed"),
        }
        tokio::time::sleep(HURRY * 2).await;
    }
}

#[cfg(test)]
mod tests;
