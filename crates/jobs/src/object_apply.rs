//! Bodies of server-side applies. The body of an apply is made from the identity of its object, so that the precondition on the uid cannot be forgotten.

use serde::Serialize;
use serde_json::{Map, Value};

/// Identity of an object that was read.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Uid.
    pub uid: &'a str,
    /// Version.
    pub resource_version: &'a str,
}

/// The body of a server-side apply: complete for everything that its field manager owns. The API server refuses the apply if the object has another uid than
/// the body, or another resourceVersion than a body with a resourceVersion.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectApply {
    api_version: &'static str,
    kind: &'static str,
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
}

impl ObjectApply {
    /// An apply with the resourceVersion of the object that was read as a precondition. The parameter `kind` is the pair of the object's `apiVersion` and
    /// `kind`.
    #[must_use]
    pub fn of_version(kind: (&'static str, &'static str), identity: &Identity<'_>) -> Self {
        let mut apply = Self::of_any_version(kind, identity);
        apply.metadata.insert("resourceVersion".to_owned(), identity.resource_version.into());
        apply
    }

    /// An apply without a precondition on the resourceVersion of the object, which is only for fields that no other client writes.
    #[must_use]
    pub fn of_any_version((api_version, kind): (&'static str, &'static str), identity: &Identity<'_>) -> Self {
        let named = [("name", identity.name), ("uid", identity.uid)].into_iter();
        let namespace = (!identity.namespace.is_empty()).then_some(("namespace", identity.namespace));
        let metadata = named.chain(namespace).map(|(field, value)| (field.to_owned(), value.into())).collect();
        Self { api_version, kind, metadata, spec: None, status: None }
    }

    /// The annotations.
    #[must_use]
    pub fn annotations(mut self, annotations: Map<String, Value>) -> Self {
        self.metadata.insert("annotations".to_owned(), annotations.into());
        self
    }

    /// The spec.
    #[must_use]
    pub fn spec(mut self, spec: Value) -> Self {
        self.spec = Some(spec);
        self
    }

    /// The status.
    #[must_use]
    pub fn status(mut self, status: Value) -> Self {
        self.status = Some(status);
        self
    }

    /// The body.
    #[must_use]
    pub fn into_body(self) -> Value {
        let texts = [("apiVersion", self.api_version), ("kind", self.kind)];
        let texts = texts.map(|(field, text)| (field.to_owned(), Value::from(text)));
        let parts = [("metadata", Some(self.metadata.into())), ("spec", self.spec), ("status", self.status)];
        let parts = parts.into_iter().filter_map(|(field, part)| Some((field.to_owned(), part?)));
        Value::Object(texts.into_iter().chain(parts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn object_apply_names_object_and_version_that_was_read() {
        let pod = Identity { namespace: "n", name: "p", uid: "u", resource_version: "7" };
        let apply = ObjectApply::of_version(("v1", "Pod"), &pod).status(json!({"phase": "Failed"}));
        let metadata = json!({"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "7"});
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Failed"}});
        assert_eq!(serde_json::to_value(&apply).unwrap(), body);
        assert_eq!(apply.into_body(), body);
    }

    #[test]
    fn object_apply_of_any_version_names_the_uid_alone() {
        let node = Identity { namespace: "", name: "n", uid: "u", resource_version: "7" };
        let apply = ObjectApply::of_any_version(("v1", "Node"), &node).annotations(Map::new()).spec(json!({}));
        let metadata = json!({"name": "n", "uid": "u", "annotations": {}});
        assert_eq!(apply.into_body(), json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}));
    }
}
