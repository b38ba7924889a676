//! CheckpointStore: a place where trainings keep their checkpoints, declared by the administrator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{NAME, Text};
use crate::rules::rules_with_value;

root_object! {
    @in (crate::berth)
    /// A CheckpointStore declares where TrainingJobs keep their checkpoints. Each TrainingJob that names the store uses the folder
    /// `<prefix>/<namespace>/<name of the TrainingJob>`.
    CheckpointStore, "checkpointstores", ClusterResourceScope, spec: CheckpointStoreSpec
}

/// Rule for the address (`endpoint`) of a CheckpointStore.
const ENDPOINT: Text = Text {
    what: "an address",
    size: (1, 512),
    shape: "http:// or https://, a host, and perhaps a port and a path, as in https://minio.example.com:9000",
    pattern: "^https?://[^/?#@ ]+(/[^?# ]*)?$",
};
/// Rule for the path prefix of a CheckpointStore, of which no segment begins with a dot.
const PREFIX: Text = Text {
    what: "a path",
    size: (1, 512),
    shape: "letters, digits, -, _ and ., in parts with slashes between them, each beginning with a letter, a digit or _",
    pattern: "^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$",
};
/// Name of a bucket or container.
const BUCKET: Text = Text {
    what: "a name",
    size: (3, 63),
    shape: "lower case letters, digits, -, _ and ., beginning and ending with a letter or digit",
    pattern: "^[a-z0-9][a-z0-9._-]*[a-z0-9]$",
};
/// Name of a bucket of Google Cloud Storage.
const GCS_BUCKET: Text = Text { size: (3, 222), ..BUCKET };
/// Name of a region.
const REGION: Text = Text { what: "a name", size: (1, 63), shape: "letters, digits and -", pattern: "^[A-Za-z0-9-]+$" };
/// Name of a storage account.
const ACCOUNT: Text =
    Text { what: "a name", size: (3, 24), shape: "lower case letters and digits", pattern: "^[a-z0-9]+$" };
/// A folder.
const FOLDER: Text = Text {
    what: "a path",
    size: (2, 1024),
    shape: "it begins with a slash, and does not end with one",
    pattern: "^/.*[^/]$",
};
/// Certificates as PEM.
const CERTIFICATES: Text = Text {
    what: "a text",
    size: (1, 65536),
    shape: "certificates as PEM, each after a line -----BEGIN CERTIFICATE-----",
    pattern: "-----BEGIN CERTIFICATE-----",
};

/// Desired state of a CheckpointStore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = rules_with_value(&[
    [
        "[has(self.s3), has(self.gcs), has(self.azure), has(self.fileSystem)].filter(has, has).size() == 1",
        "",
        "exactly one of the fields in [s3 gcs azure fileSystem] must be set",
        ", and these are:' + (has(self.s3) ? ' s3' : '') + (has(self.gcs) ? ' gcs' : '') + (has(self.azure) ? ' azure' : '') \
         + (has(self.fileSystem) ? ' fileSystem' : '') \
         + (has(self.s3) || has(self.gcs) || has(self.azure) || has(self.fileSystem) ? '' : ' none')",
    ],
    [
        "!has(self.fileSystem) || !has(self.credentialsSecret)",
        ".credentialsSecret",
        "a fileSystem has none",
        ", so not ' + self.credentialsSecret",
    ],
    // The message of the rule that a store with `fileSystem` has no `caBundle` does not repeat the certificates, because they are long and a message has one
    // line.
    [
        "!has(self.fileSystem) || !has(self.caBundle)",
        ".caBundle",
        "a fileSystem has none",
        ", so not these of %d characters'.format([self.caBundle.size()])",
    ],
])))]
pub struct CheckpointStoreSpec {
    /// Bucket of S3, or of another server that implements the S3 API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
    /// Bucket of Google Cloud Storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsStore>,
    /// Container of Azure Blob Storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureStore>,
    /// Folder that is mounted into Berth's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystemStore>,
    /// Prefix of the path of every checkpoint; the namespace and the name of the TrainingJob follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = PREFIX.bound(), "x-kubernetes-validations" = PREFIX.rule()))]
    pub prefix: Option<String>,
    /// Name of a Secret in Berth's own namespace, with the keys `accessKeyId`, `secretAccessKey` and optionally `sessionToken` for S3,
    /// `serviceAccountKey` for GCS, `accountKey` for Azure. Without this Secret, Berth uses the identity of its own pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = NAME.bound(), "x-kubernetes-validations" = NAME.rule()))]
    pub credentials_secret: Option<String>,
    /// PEM certificates of the authorities that Berth trusts for the endpoint, in addition to the public ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = CERTIFICATES.bound(), "x-kubernetes-validations" = CERTIFICATES.rule()))]
    pub ca_bundle: Option<String>,
}

/// A bucket of S3, or of another server that implements the S3 API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["bucket"]))]
pub struct S3Store {
    /// Name of the bucket.
    #[schemars(extend("maxLength" = BUCKET.bound(), "x-kubernetes-validations" = BUCKET.rule()))]
    pub bucket: String,
    /// Region of the bucket; `us-east-1` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = REGION.bound(), "x-kubernetes-validations" = REGION.rule()))]
    pub region: Option<String>,
    /// URL of the server, if the bucket is not Amazon's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = ENDPOINT.bound(), "x-kubernetes-validations" = ENDPOINT.rule()))]
    pub endpoint: Option<String>,
}

/// A bucket of Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["bucket"]))]
pub struct GcsStore {
    /// Name of the bucket.
    #[schemars(extend("maxLength" = GCS_BUCKET.bound(), "x-kubernetes-validations" = GCS_BUCKET.rule()))]
    pub bucket: String,
    /// URL of the server, if the bucket is not Google's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = ENDPOINT.bound(), "x-kubernetes-validations" = ENDPOINT.rule()))]
    pub endpoint: Option<String>,
}

/// A container of Azure Blob Storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["account", "container"]))]
pub struct AzureStore {
    /// Name of the storage account.
    #[schemars(extend("maxLength" = ACCOUNT.bound(), "x-kubernetes-validations" = ACCOUNT.rule()))]
    pub account: String,
    /// Name of the container.
    #[schemars(extend("maxLength" = BUCKET.bound(), "x-kubernetes-validations" = BUCKET.rule()))]
    pub container: String,
    /// URL of the server, if the container is not in Azure's public cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = ENDPOINT.bound(), "x-kubernetes-validations" = ENDPOINT.rule()))]
    pub endpoint: Option<String>,
}

/// A folder that is mounted into Berth's pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("required" = ["path"]))]
pub struct FileSystemStore {
    /// Path of the folder in Berth's container. The pods of TrainingJobs have to mount the folder at the same path.
    #[schemars(extend("maxLength" = FOLDER.bound(), "x-kubernetes-validations" = FOLDER.rule()))]
    pub path: String,
}

impl AzureStore {
    /// Host of the storage account for an `abfss` address: in the cloud that the endpoint names, or else in Azure's public cloud.
    fn host(&self) -> String {
        let host = self.endpoint.as_deref().and_then(|endpoint| endpoint.split('/').nth(2));
        let cloud = host.and_then(|host| host.strip_prefix(self.account.as_str())?.strip_prefix(".blob."));
        format!("{}.dfs.{}", self.account, cloud.unwrap_or("core.windows.net"))
    }
}

impl CheckpointStoreSpec {
    /// The address of a TrainingJob's checkpoints, which the pods get in the environment variable `BERTH_CHECKPOINT_URI`.
    #[must_use]
    pub fn uri(&self, namespace: &str, job: &str) -> String {
        let root = match (&self.s3, &self.gcs, &self.azure, &self.file_system) {
            (Some(s3), ..) => format!("s3://{}", s3.bucket),
            (_, Some(gcs), ..) => format!("gs://{}", gcs.bucket),
            (_, _, Some(azure), _) => format!("abfss://{}@{}", azure.container, azure.host()),
            (_, _, _, Some(files)) => format!("file://{}", files.path),
            _ => String::new(),
        };
        let prefix = self.prefix.as_deref().map(|prefix| format!("/{prefix}")).unwrap_or_default();
        format!("{root}{prefix}/{namespace}/{job}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn checkpoint_store_uri_ends_with_job_namespace_and_name() {
        for (spec, uri) in [
            (json!({"s3": {"bucket": "b"}, "prefix": "x/y"}), "s3://b/x/y/team/job"),
            (json!({"gcs": {"bucket": "b"}}), "gs://b/team/job"),
            (json!({"azure": {"account": "a", "container": "c"}}), "abfss://c@a.dfs.core.windows.net/team/job"),
            (
                json!({"azure": {"account": "a", "container": "c", "endpoint": "https://a.blob.cloud.cn/"}}),
                "abfss://c@a.dfs.cloud.cn/team/job",
            ),
            (
                json!({"azure": {"account": "a", "container": "c", "endpoint": "http://azurite:10000/a"}}),
                "abfss://c@a.dfs.core.windows.net/team/job",
            ),
            (json!({"fileSystem": {"path": "/mnt/c"}, "prefix": "x"}), "file:///mnt/c/x/team/job"),
        ] {
            let spec: CheckpointStoreSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(spec.uri("team", "job"), uri);
        }
    }
}
