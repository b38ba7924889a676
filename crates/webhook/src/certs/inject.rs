//! Required content of the webhook configurations and CRDs: the trusted certificate authorities, and the namespaces in which webhooks review objects
//! that name no queue. The functions are pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_api::json::to_value;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The part of a webhook configuration or of a CRD that Berth reads. The schemas of a CRD, which are half a megabyte, are not decoded.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BundleHolder {
    #[serde(default)]
    metadata: Version,
    #[serde(default)]
    webhooks: Value,
    #[serde(default)]
    spec: Conversion,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Conversion {
    #[serde(default)]
    conversion: Value,
}

impl BundleHolder {
    /// The webhook configuration or CRD as JSON, from which its CA bundles and its patch are computed.
    #[must_use]
    pub fn into_value(self) -> Value {
        to_value(&self)
    }
}

/// Part of the name of each webhook for objects that name no queue; Berth sets the namespace selectors of these webhooks.
pub const OPTED_IN: &str = "-opted-in.";

/// The content that webhook configurations and CRDs should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// Certificate authorities as PEM; `None` if an administrator maintains them.
    pub bundle: Option<&'a str>,
    /// Selectors of the namespaces that opt in, by the plural of a kind; a webhook for another kind keeps its selector.
    pub opted_in: Option<&'a BTreeMap<&'static str, Value>>,
    /// Namespace and name of Berth's Service: client configurations of webhooks and conversions that name another Service are not changed.
    pub service: (&'a str, &'a str),
}

/// The merge patch that gives a webhook configuration the wanted content; `None` if the configuration already has the content.
#[must_use]
pub fn configuration_patch(configuration: &Value, wanted: &Wanted<'_>) -> Option<Value> {
    let webhooks = configuration.get("webhooks")?.as_array()?;
    let mut new = webhooks.clone();
    for webhook in new.iter_mut().filter(|webhook| is_ours(webhook.get("clientConfig"), wanted)) {
        let name = webhook.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = webhook.pointer("/rules/0/resources/0").and_then(Value::as_str).unwrap_or_default();
        let selector = wanted.opted_in.filter(|_| name.contains(OPTED_IN)).and_then(|all| all.get(resource));
        let Some(fields) = webhook.as_object_mut() else { continue };
        if let Some(selector) = selector {
            fields.insert("namespaceSelector".to_owned(), selector.clone());
        }
        if let (Some(bundle), Some(Value::Object(client))) = (wanted.bundle, fields.get_mut("clientConfig")) {
            client.insert("caBundle".to_owned(), json!(STANDARD.encode(bundle)));
        }
    }
    (new != *webhooks).then(|| json!({"metadata": version(configuration), "webhooks": new}))
}

/// The merge patch that makes a CRD's conversion trust the bundle; `None` if the conversion trusts it already, or if Berth does not convert the CRD.
#[must_use]
pub fn conversion_patch(definition: &Value, wanted: &Wanted<'_>) -> Option<Value> {
    let client = definition.pointer("/spec/conversion/webhook/clientConfig");
    let bundle = STANDARD.encode(wanted.bundle?);
    if !is_ours(client, wanted) || client?.get("caBundle").and_then(Value::as_str) == Some(&bundle) {
        return None;
    }
    let conversion = json!({"webhook": {"clientConfig": {"caBundle": bundle}}});
    Some(json!({"metadata": version(definition), "spec": {"conversion": conversion}}))
}

/// The CA bundles, as PEM, that an object holds for Berth's webhooks. A CA bundle that cannot be read counts as empty, so the wanted CA bundle replaces it.
#[must_use]
pub fn bundles(object: &Value, wanted: &Wanted<'_>) -> Vec<String> {
    let webhooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    let clients = webhooks.filter_map(|webhook| webhook.get("clientConfig"));
    let clients = clients.chain(object.pointer("/spec/conversion/webhook/clientConfig"));
    clients
        .filter(|client| is_ours(Some(client), wanted))
        .map(|client| {
            let text = client.get("caBundle").and_then(Value::as_str).unwrap_or_default();
            STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
        })
        .collect()
}

fn version(object: &Value) -> Value {
    json!({"resourceVersion": object.pointer("/metadata/resourceVersion")})
}

/// Whether a client configuration leads to Berth's Service, or to a URL (for a manager outside of the cluster).
fn is_ours(client: Option<&Value>, wanted: &Wanted<'_>) -> bool {
    let Some(client) = client else { return false };
    let of = |field: &str| client.pointer(field).and_then(Value::as_str);
    (of("/service/namespace"), of("/service/name")) == (Some(wanted.service.0), Some(wanted.service.1))
        || of("/url").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(bundle: &str, service: &str) -> Value {
        let client = json!({"service": {"namespace": "ns", "name": service, "path": "/p"}, "caBundle": bundle});
        let other = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        json!({"metadata": {"resourceVersion": "7"}, "webhooks": [
            {"name": "mjob.berth.dev", "clientConfig": client, "namespaceSelector": other},
            {"name": "mjob-opted-in.berth.dev", "clientConfig": client, "rules": rules("jobs")},
        ]})
    }

    fn rules(resource: &str) -> Value {
        json!([{"apiGroups": ["x"], "resources": [resource]}])
    }

    fn in_namespace(name: &str) -> Value {
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [name]}]})
    }

    #[test]
    fn webhook_configuration_gets_bundle_and_namespaces_once() {
        let namespaces = BTreeMap::from([("jobs", in_namespace("team"))]);
        let wanted = Wanted { bundle: Some("PEM"), opted_in: Some(&namespaces), service: ("ns", "berth") };
        let patch = configuration_patch(&configuration("", "berth"), &wanted).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], json!("7"));
        assert_eq!(patch["webhooks"][0]["clientConfig"]["caBundle"], json!("UEVN"));
        assert_eq!(patch["webhooks"][0]["clientConfig"]["service"]["path"], json!("/p"));
        assert_eq!(patch["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["key"], json!("a"));
        assert_eq!(patch["webhooks"][1]["namespaceSelector"], in_namespace("team"));
        let after = json!({"metadata": {}, "webhooks": patch["webhooks"]});
        assert_eq!(configuration_patch(&after, &wanted), None);
        assert_eq!(bundles(&after, &wanted), ["PEM", "PEM"]);
        // If the wanted content has no CA bundle, the patch keeps the administrator's CA bundles, but sets the namespace selectors.
        let theirs = Wanted { bundle: None, ..wanted.clone() };
        let patch = configuration_patch(&configuration("eA==", "berth"), &theirs).unwrap();
        assert_eq!(patch["webhooks"][1]["clientConfig"]["caBundle"], json!("eA=="));
    }

    #[test]
    fn opted_in_webhook_of_each_kind_gets_its_own_namespaces() {
        let client = json!({"service": {"namespace": "ns", "name": "berth", "path": "/p"}});
        let of = |name: &str, resource: &str| json!({"name": name, "clientConfig": client, "rules": rules(resource), "namespaceSelector": in_namespace("none")});
        let configuration = json!({"metadata": {}, "webhooks": [
            of("mjob-opted-in.berth.dev", "jobs"), of("mpod-opted-in.berth.dev", "pods"), of("mpod.berth.dev", "pods"),
            of("mother-opted-in.berth.dev", "others")]});
        let namespaces = BTreeMap::from([("jobs", in_namespace("a")), ("pods", in_namespace("b"))]);
        let wanted = Wanted { bundle: None, opted_in: Some(&namespaces), service: ("ns", "berth") };
        let patch = configuration_patch(&configuration, &wanted).unwrap();
        let selectors =
            patch["webhooks"].as_array().unwrap().iter().map(|webhook| webhook["namespaceSelector"].clone());
        assert_eq!(selectors.collect::<Vec<_>>(), ["a", "b", "none", "none"].map(in_namespace));
    }

    #[test]
    fn webhook_or_conversion_of_another_service_is_left_alone() {
        let namespaces = BTreeMap::from([("jobs", json!({}))]);
        let wanted = Wanted { bundle: Some("PEM"), opted_in: Some(&namespaces), service: ("ns", "berth") };
        assert_eq!(configuration_patch(&configuration("", "kueue-webhook-service"), &wanted), None);
        assert!(bundles(&configuration("", "kueue-webhook-service"), &wanted).is_empty());
        assert_eq!(configuration_patch(&json!({"webhooks": "text"}), &wanted), None);
        let conversion = |name: &str| {
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"service": {"namespace": "ns", "name": name}}}}}})
        };
        assert_eq!(conversion_patch(&conversion("kueue-webhook-service"), &wanted), None);
        assert_eq!(conversion_patch(&json!({"spec": {"conversion": {"strategy": "None"}}}), &wanted), None);
        let patch = conversion_patch(&conversion("berth"), &wanted).unwrap();
        assert_eq!(patch["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], json!("UEVN"));
    }
}
