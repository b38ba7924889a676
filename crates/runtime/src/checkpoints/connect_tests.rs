//! Tests of connections to checkpoint stores, from specs of CheckpointStores.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use futures::TryStreamExt;
use k8s_openapi::ByteString;
use kube::client::Body;
use serde_json::json;
use std::collections::BTreeMap;

fn keys(data: &[(&str, &[u8])]) -> Secret {
    let data: BTreeMap<String, ByteString> =
        data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
    Secret { data: Some(data), ..Secret::default() }
}

fn credentials(data: &[(&str, &[u8])]) -> Credentials {
    Credentials { name: "keys".to_owned(), secret: keys(data) }
}

#[test]
fn credential_trailing_whitespace_is_trimmed_and_errors_hide_the_value() {
    let good = credentials(&[("a", b"AKIA\n"), ("b", b"s+e/c=r et \r\n")]);
    assert_eq!(good.get("a").as_deref(), Ok("AKIA"));
    assert_eq!(good.get("b").as_deref(), Ok("s+e/c=r et"));
    assert_eq!(good.find("c"), Ok(None));
    assert!(good.get("c").unwrap_err().to_string().contains("has no key c"));
    for bad in [&b"hid\nden"[..], b"hid\x00den", b"hid\x7fden", "hid\u{e9}den".as_bytes(), b"hid\xffden", b" \n", b""] {
        for error in
            [credentials(&[("a", bad)]).get("a").unwrap_err(), credentials(&[("a", bad)]).find("a").unwrap_err()]
        {
            let error = error.to_string();
            let named = error.contains("spec.credentialsSecret: key a of Secret \"keys\"");
            assert!(named && !error.contains("hid"), "{bad:?}: {error}");
        }
    }
}

#[test]
fn service_account_key_may_be_multiline_and_errors_hide_content() {
    let file =
        "{\n  \"private_key\": \"-----BEGIN\\n\",\n\t\"private_key_id\": \"1\",\r\n  \"client_email\": \"a@b\"\n}\n";
    assert_eq!(credentials(&[("k", file.as_bytes())]).service_account("k").as_deref(), Ok(file.trim_end()));
    let elsewhere = |root: &str| {
        json!({"private_key": "hidden", "private_key_id": "1", "client_email": "a@b", "gcs_base_url": root}).to_string()
    };
    let text = elsewhere("http://127.0.0.1:4443");
    assert_eq!(credentials(&[("k", text.as_bytes())]).service_account("k"), Ok(text));
    for bad in [
        "\"hidden\"",
        "hidden",
        "{\"private_key\": \"hidden\"}",
        "{\"private_key\": \"hidden\n\"}",
        "[\"hidden\"]",
        &elsewhere("http://hidden:99999"),
        &elsewhere("hidden"),
        &elsewhere("http://hidden").replace("\"http://hidden\"", "5"),
    ] {
        let error = credentials(&[("k", bad.as_bytes())]).service_account("k").unwrap_err().to_string();
        assert!(error.contains("key k of Secret \"keys\"") && !error.contains("hidden"), "{bad}: {error}");
    }
}

#[test]
fn endpoint_that_is_no_url_is_refused_with_its_field() {
    let good = ["https://minio.storage:9000", "http://127.0.0.1:9000/s3/", "https://[::1]:9000", "https://a_b.c"];
    for text in good {
        assert_eq!(endpoint("spec.s3.endpoint", text.to_owned()).as_deref(), Ok(text));
    }
    for text in [
        "https://minio:99999",
        "https://minio:port",
        "https://:9000",
        "https://1.2.3.999",
        "https://[::1",
        "https://a b",
        "https://min\u{ef}o",
        "https://minio\n",
        "ftp://minio",
        "minio:9000",
        "",
    ] {
        let error = endpoint("spec.s3.endpoint", text.to_owned()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.s3.endpoint {text:?}: ")), "{text:?}: {error}");
    }
    for (kind, spec) in [
        ("s3", json!({"s3": {"bucket": "b", "endpoint": "https://minio:99999"}})),
        ("gcs", json!({"gcs": {"bucket": "b", "endpoint": "https://minio:99999"}})),
        ("azure", json!({"azure": {"account": "a", "container": "c", "endpoint": "https://minio:99999"}})),
    ] {
        let spec: CheckpointStoreSpec = serde_json::from_value(spec).unwrap();
        let error = match kind {
            "s3" => s3(&spec, None, &|_| None).err(),
            "gcs" => gcs(&spec, None).err(),
            _ => azure(&spec, None, &|_| None).err(),
        };
        assert!(
            error.unwrap().to_string().starts_with(&format!("spec.{kind}.endpoint \"https://minio:99999\"")),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn credentials_with_trailing_newlines_allow_a_store_request() {
    let secret = keys(&[("accessKeyId", b"AKIA\n"), ("secretAccessKey", b"secret\n"), ("sessionToken", b"token\n")]);
    let answer = serde_json::to_vec(&secret).unwrap();
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = answer.clone();
        async move { Ok::<_, kube::Error>(http::Response::builder().body(Body::from(answer)).unwrap()) }
    });
    let client = Client::new(service, "default");
    // No server listens at the store's endpoint: the test only shows that a request is sent.
    let spec = json!({"s3": {"bucket": "b", "endpoint": "http://127.0.0.1:1"}, "credentialsSecret": "keys"});
    let spec: CheckpointStoreSpec = serde_json::from_value(spec).unwrap();
    let store = open(&client, Some("berth"), &spec).await.unwrap();
    let error = store.list(None).try_next().await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1"), "{error}");
}

#[test]
fn store_without_secret_uses_pod_identity_and_ignores_other_environment() {
    let own = |name: &str| {
        let value = match name {
            "AWS_ROLE_ARN" => "arn:aws:iam::1:role/berth",
            "AWS_WEB_IDENTITY_TOKEN_FILE" | "AZURE_FEDERATED_TOKEN_FILE" => "/var/run/token",
            "AZURE_CLIENT_ID" => "client",
            _ => "elsewhere",
        };
        Some(value.to_owned())
    };
    let spec = |value: Value| serde_json::from_value::<CheckpointStoreSpec>(value).unwrap();
    let of_s3 = spec(json!({"s3": {"bucket": "b", "endpoint": "https://s3.example.com"}}));
    let found = s3(&of_s3, None, &own).unwrap();
    let reported_by = |key: &str| found.get_config_value(&key.parse().unwrap());
    assert_eq!(reported_by("aws_role_arn").as_deref(), Some("arn:aws:iam::1:role/berth"));
    assert_eq!(reported_by("aws_web_identity_token_file").as_deref(), Some("/var/run/token"));
    assert_eq!(reported_by("aws_endpoint").as_deref(), Some("https://s3.example.com"));
    assert_eq!((reported_by("aws_bucket").as_deref(), reported_by("aws_access_key_id")), (Some("b"), None));
    let keys = credentials(&[("accessKeyId", b"id"), ("secretAccessKey", b"key")]);
    let with_keys = s3(&of_s3, Some(&keys), &own).unwrap();
    assert_eq!(with_keys.get_config_value(&"aws_role_arn".parse().unwrap()), None);
    let of_azure = spec(json!({"azure": {"account": "a", "container": "c"}}));
    let found = azure(&of_azure, None, &own).unwrap();
    let reported_by = |key: &str| found.get_config_value(&key.parse().unwrap());
    assert_eq!(reported_by("azure_federated_token_file").as_deref(), Some("/var/run/token"));
    assert_eq!(
        (reported_by("azure_client_id").as_deref(), reported_by("account_name").as_deref()),
        (Some("client"), Some("a"))
    );
}
