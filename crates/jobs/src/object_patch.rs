//! Bodies of merge patches. The body of a merge patch is made from uid and resourceVersion, which the API server compares with those of the object, so that
//! neither can be forgotten.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

/// The merge patch (RFC 7386) of an object, field by field. The API server applies the patch only to the object with the patch's uid and, if the patch was
/// derived from a version, only to that version.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectPatch {
    metadata: Map<String, Value>,
    spec: Map<String, Value>,
    status: Option<Value>,
}

impl ObjectPatch {
    /// A patch of an object as it was read: the object's uid and version are preconditions.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self::with([
            ("uid", metadata.uid.clone().into()),
            ("resourceVersion", metadata.resource_version.clone().into()),
        ])
    }

    /// A patch of the object with this uid and version.
    #[must_use]
    pub fn of_version(uid: &str, version: impl Into<String>) -> Self {
        Self::with([("uid", uid.into()), ("resourceVersion", version.into().into())])
    }

    /// A patch of any version of the object with this uid: only for fields that no other client writes.
    #[must_use]
    pub fn of_any_version(uid: Option<&str>) -> Self {
        Self::with([("uid", uid.into())])
    }

    fn with<const N: usize>(preconditions: [(&str, Value); N]) -> Self {
        let metadata = preconditions.map(|(field, value)| (field.to_owned(), value));
        Self { metadata: Map::from_iter(metadata), spec: Map::new(), status: None }
    }

    fn metadata(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(field.to_owned(), value.into());
        self
    }

    /// Sets one annotation; `None` removes the annotation.
    #[must_use]
    pub fn annotation(self, name: &str, value: Option<&str>) -> Self {
        self.annotations([(name, value)])
    }

    /// Sets annotations; null removes an annotation. Annotations that the patch sets already under other keys stay in the patch.
    #[must_use]
    pub fn annotations<K: Into<String>, V: Into<Value>>(self, values: impl IntoIterator<Item = (K, V)>) -> Self {
        self.entries("annotations", values)
    }

    /// Sets labels; null removes a label.
    #[must_use]
    pub fn labels<K: Into<String>, V: Into<Value>>(self, values: impl IntoIterator<Item = (K, V)>) -> Self {
        self.entries("labels", values)
    }

    fn entries<K: Into<String>, V: Into<Value>>(
        mut self,
        field: &str,
        values: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let known = self.metadata.entry(field).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(known) = known {
            known.extend(values.into_iter().map(|(key, value)| (key.into(), value.into())));
        }
        self
    }

    /// Sets the complete list of finalizers.
    #[must_use]
    pub fn finalizers<T: AsRef<str>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(|name| Value::from(name.as_ref()));
        self.metadata("finalizers", names.collect::<Vec<_>>())
    }

    /// Sets the complete list of owner references.
    #[must_use]
    pub fn owner_references(self, references: Vec<Value>) -> Self {
        self.metadata("ownerReferences", references)
    }

    /// Adds the differences of an object in labels, annotations and spec, as [`crate::merge_diff`] gives them. The preconditions stay.
    #[must_use]
    pub(crate) fn differences(mut self, patch: Value) -> Self {
        let Value::Object(parts) = patch else { return self };
        for (part, fields) in parts {
            let Value::Object(fields) = fields else { continue };
            match part.as_str() {
                "metadata" => {
                    for (field, value) in fields {
                        self.metadata.entry(field).or_insert(value);
                    }
                }
                "spec" => self.spec.extend(fields),
                _ => {}
            }
        }
        self
    }

    /// Sets a field of the spec; null removes the field.
    #[must_use]
    pub fn spec(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.spec.insert(field.to_owned(), value.into());
        self
    }

    /// Removes a field of the spec from the patch.
    #[must_use]
    pub fn without_spec(mut self, field: &str) -> Self {
        self.spec.remove(field);
        self
    }

    /// Adds changes of several spec fields to the patch.
    #[must_use]
    pub fn spec_fields(mut self, fields: Map<String, Value>) -> Self {
        self.spec.extend(fields);
        self
    }

    /// Sets the change that the patch makes to the object's status.
    #[must_use]
    pub fn status(mut self, status: Value) -> Self {
        self.status = Some(status);
        self
    }

    /// Whether the patch changes the status, which has its own URL.
    #[must_use]
    pub const fn is_of_status(&self) -> bool {
        self.status.is_some()
    }

    /// The body of the patch. The body has no `spec` or `status` if the patch does not change it.
    #[must_use]
    pub fn into_body(self) -> Value {
        let mut body = Map::from_iter([("metadata".to_owned(), Value::Object(self.metadata))]);
        if !self.spec.is_empty() {
            body.insert("spec".to_owned(), Value::Object(self.spec));
        }
        body.extend(self.status.map(|status| ("status".to_owned(), status)));
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn object_patch_names_uid_and_version_without_empty_parts() {
        let metadata =
            ObjectMeta { uid: Some("u".into()), resource_version: Some("7".into()), ..ObjectMeta::default() };
        let identity = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
        assert_eq!(ObjectPatch::of(&metadata).into_body(), identity);
        assert_eq!(ObjectPatch::of_version("u", "7").into_body(), identity);
        assert_eq!(ObjectPatch::of_any_version(Some("u")).into_body(), json!({"metadata": {"uid": "u"}}));
    }

    #[test]
    fn object_patch_holds_each_field_where_the_object_has_it() {
        let patch = ObjectPatch::of_version("u", "7")
            .annotations([("a", "1")])
            .annotation("b", None)
            .labels([("l", "x")])
            .finalizers(["f"])
            .owner_references(vec![json!({"name": "o"})])
            .spec("suspend", true)
            .status(json!({"phase": "Done"}));
        let metadata = json!({"uid": "u", "resourceVersion": "7", "annotations": {"a": "1", "b": null},
            "labels": {"l": "x"}, "finalizers": ["f"], "ownerReferences": [{"name": "o"}]});
        let body = json!({"metadata": metadata, "spec": {"suspend": true}, "status": {"phase": "Done"}});
        assert_eq!(patch.into_body(), body);
    }
}
