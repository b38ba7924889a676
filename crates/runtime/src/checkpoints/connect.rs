//! Connections to checkpoint stores: endpoint, credentials and certificates from the spec of a CheckpointStore. All connections to checkpoint stores use
//! `ring`, the only cryptography provider in the process.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use berth_api::berth::CheckpointStoreSpec;
use http::Uri;
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::client::Client;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value};

use super::error::{SpecError, StoreError};

const REGION: &str = "us-east-1";
/// Time limit of one request to a checkpoint store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit for opening a connection to a checkpoint store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest accepted answer of a store in bytes, which is far above the size of a page of a list.
const MOST_ANSWER: usize = 32 << 20;

/// Opens a connection to a checkpoint store. The credentials are read from the Secret in `namespace` that the store's spec names, if it names one.
pub(super) async fn open(
    client: &Client,
    namespace: Option<&str>,
    spec: &CheckpointStoreSpec,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let secret = match &spec.credentials_secret {
        Some(name) => Some(secret(client, namespace, name).await?),
        None => None,
    };
    let own = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let connector = Connector::new(spec.ca_bundle.as_deref())?;
    let store: Result<Arc<dyn ObjectStore>, object_store::Error> = if spec.s3.is_some() {
        s3(spec, secret.as_ref(), &own)?.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
    } else if spec.gcs.is_some() {
        gcs(spec, secret.as_ref())?.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
    } else {
        azure(spec, secret.as_ref(), &own)?.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
    };
    Ok(store?)
}

fn retry() -> RetryConfig {
    let retry_timeout = Duration::from_secs(6);
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 2, retry_timeout }
}

/// Environment variables with a pod's AWS identity: roles of service accounts, and EKS Pod Identity.
const AWS_IDENTITY: [&str; 7] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// Environment variables with a pod's Azure identity: workload identity.
const AZURE_IDENTITY: [&str; 4] =
    ["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST", "AZURE_FEDERATED_TOKEN_FILE"];

/// Function that returns the value of an environment variable.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment variables of the pod's cloud identity. Environment variables other than the cloud identity's are ignored, because they could redirect a
/// store to another endpoint.
fn identity<K: FromStr>(names: &'static [&str], own: Environment<'_>) -> impl Iterator<Item = (K, String)> {
    names.iter().filter_map(move |name| Some((name.to_ascii_lowercase().parse().ok()?, own(name)?)))
}

fn s3(
    spec: &CheckpointStoreSpec,
    secret: Option<&Credentials>,
    own: Environment<'_>,
) -> Result<AmazonS3Builder, SpecError> {
    let wanted = spec.s3.clone().unwrap_or_default();
    let region = wanted.region.as_deref().unwrap_or(REGION);
    let mut builder = AmazonS3Builder::new().with_bucket_name(wanted.bucket).with_region(region).with_retry(retry());
    if let Some(text) = wanted.endpoint {
        let endpoint = endpoint("spec.s3.endpoint", text)?;
        builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
    }
    let Some(secret) = secret else {
        return Ok(identity(&AWS_IDENTITY, own).fold(builder, |builder, (key, value)| builder.with_config(key, value)));
    };
    builder =
        builder.with_access_key_id(secret.get("accessKeyId")?).with_secret_access_key(secret.get("secretAccessKey")?);
    Ok(match secret.find("sessionToken")? {
        Some(token) => builder.with_token(token),
        None => builder,
    })
}

fn gcs(spec: &CheckpointStoreSpec, secret: Option<&Credentials>) -> Result<GoogleCloudStorageBuilder, SpecError> {
    let wanted = spec.gcs.clone().unwrap_or_default();
    let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(wanted.bucket).with_retry(retry());
    if let Some(text) = wanted.endpoint {
        // object_store's client for Google Cloud Storage puts a slash between the base URL and a path, so the base URL ends without a slash.
        builder = builder.with_base_url(endpoint("spec.gcs.endpoint", text)?.trim_end_matches('/'));
    }
    Ok(match secret {
        Some(secret) => builder.with_service_account_key(secret.service_account("serviceAccountKey")?),
        None => builder,
    })
}

fn azure(
    spec: &CheckpointStoreSpec,
    secret: Option<&Credentials>,
    own: Environment<'_>,
) -> Result<MicrosoftAzureBuilder, SpecError> {
    let wanted = spec.azure.clone().unwrap_or_default();
    let mut builder = MicrosoftAzureBuilder::new()
        .with_account(wanted.account)
        .with_container_name(wanted.container)
        .with_retry(retry());
    if let Some(text) = wanted.endpoint {
        let endpoint = endpoint("spec.azure.endpoint", text)?;
        // object_store's client for Azure puts a slash between the endpoint and a path, so the endpoint ends without a slash.
        let root = endpoint.trim_end_matches('/').to_owned();
        builder = builder.with_allow_http(root.starts_with("http://")).with_endpoint(root);
    }
    Ok(match secret {
        Some(secret) => builder.with_access_key(secret.get("accountKey")?),
        None => identity(&AZURE_IDENTITY, own).fold(builder, |builder, (key, value)| builder.with_config(key, value)),
    })
}

/// Checks the endpoint of a store, because object_store assumes that the URL of each request can be parsed.
fn endpoint(field: &str, text: String) -> Result<String, SpecError> {
    let bad = |fault: String| SpecError::Field { field: field.to_owned(), value: text.clone(), fault };
    let uri = text.parse::<Uri>().map_err(|error| bad(error.to_string()))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("must begin with http:// or https://".to_owned()));
    }
    // The crate object_store does not export its type of URLs, so the check names a function that takes this type.
    parses(&text, ObjectStoreScheme::parse).map_err(|error| bad(error.to_string()))?;
    Ok(text)
}

/// Checks that a text parses as the parameter type of a function.
fn parses<T: FromStr, R>(text: &str, _taken_by: fn(&T) -> R) -> Result<(), T::Err> {
    text.parse::<T>().map(drop)
}

/// The Secret with a store's credentials, whose values are never part of a message.
struct Credentials {
    name: String,
    secret: Secret,
}

impl Credentials {
    /// The value of a key in the Secret, without the final newline that files and `echo` have; `None` if there is no such key.
    fn text(&self, key: &str) -> Result<Option<String>, SpecError> {
        let Some(value) = self.secret.data.as_ref().and_then(|data| data.get(key)) else { return Ok(None) };
        let text = std::str::from_utf8(&value.0).map_err(|_| self.bad(key, "is no text"))?.trim_end();
        if text.is_empty() {
            return Err(self.bad(key, "is empty"));
        }
        Ok(Some(text.to_owned()))
    }

    /// A credential of a store in one line of ASCII, because object_store writes a credential into HTTP headers without a check.
    fn find(&self, key: &str) -> Result<Option<String>, SpecError> {
        let text = self.text(key)?;
        let fits = |letter: char| letter == ' ' || letter.is_ascii_graphic();
        if text.as_deref().is_some_and(|text| !text.chars().all(fits)) {
            return Err(self.bad(key, "has control characters in it, or others that are not ASCII"));
        }
        Ok(text)
    }

    fn get(&self, key: &str) -> Result<String, SpecError> {
        self.find(key)?.ok_or_else(|| self.missing(key))
    }

    /// A key file of a Google service account, which has many lines. This function checks the key file, because messages of object_store about a bad key file
    /// quote the file.
    fn service_account(&self, key: &str) -> Result<String, SpecError> {
        let text = self.text(key)?.ok_or_else(|| self.missing(key))?;
        let file: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
            let what = format!("is no JSON object: line {}, column {}", error.line(), error.column());
            self.bad(key, &what)
        })?;
        for field in ["private_key", "private_key_id", "client_email"] {
            if !file.get(field).is_some_and(Value::is_string) {
                return Err(self.bad(key, &format!("has no {field}")));
            }
        }
        // Emulators set their URL in the key file, and object_store parses this URL without a check.
        let root = file.get("gcs_base_url").filter(|root| !root.is_null());
        let is_url = |root: &Value| root.as_str().is_some_and(|root| endpoint(key, root.to_owned()).is_ok());
        if root.is_some_and(|root| !is_url(root)) {
            return Err(self.bad(key, "has a gcs_base_url that is no URL of http or https"));
        }
        Ok(text)
    }

    fn missing(&self, key: &str) -> SpecError {
        SpecError::NoKey { secret: self.name.clone(), key: key.to_owned() }
    }

    fn bad(&self, key: &str, fault: &str) -> SpecError {
        SpecError::Key { secret: self.name.clone(), key: key.to_owned(), fault: fault.to_owned() }
    }
}

async fn secret(client: &Client, namespace: Option<&str>, name: &str) -> Result<Credentials, SpecError> {
    let namespace = namespace.ok_or(SpecError::NoNamespace)?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match secrets.get(name).await {
        Ok(secret) => Ok(Credentials { name: name.to_owned(), secret }),
        Err(error) => Err(SpecError::Secret {
            namespace: namespace.to_owned(),
            secret: name.to_owned(),
            fault: error.to_string(),
        }),
    }
}

type Tls = hyper_rustls::HttpsConnector<Tcp>;

/// Maker of HTTP clients for object_store, with Berth's TLS configuration.
#[derive(Debug)]
struct Connector(Http<Tls, HttpRequestBody>);

impl Connector {
    fn new(ca_bundle: Option<&str>) -> Result<Self, StoreError> {
        let mut roots = rustls::RootCertStore::empty();
        // Certificates of the system that cannot be read are left out of the trusted certificates of stores.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for certificate in CertificateDer::pem_slice_iter(ca_bundle.unwrap_or_default().as_bytes()) {
            let added = certificate.map_err(|error| error.to_string());
            let added = added.and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
            added.map_err(SpecError::CaBundle)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let tls = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let mut http = Http::builder(TokioExecutor::new());
        http.timer(TokioTimer::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(30));
        Ok(Self(http.build(tls)))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.clone())))
    }
}

#[derive(Debug)]
struct Service(Http<Tls, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let exchange = async {
            let response = self.0.request(request).await;
            let response = response.map_err(|error| {
                let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
                HttpError::new(kind, error)
            })?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MOST_ANSWER).collect().await;
            let body = body.map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?;
            Ok(HttpResponse::from_parts(parts, body.to_bytes().into()))
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(late) => Err(HttpError::new(HttpErrorKind::Timeout, late)),
        }
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
