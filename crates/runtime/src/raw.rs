//! An undecoded object from the API server.
//!
//! kube decodes a list at once, so that one bad object would hide all others. A [`Raw`] keeps the object's text and reads only the fields that a watch needs,
//! so that each object decodes or fails alone. The type [`Raw`] also avoids compiling a watcher for each kind.

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The text of an object, with its name and version.
#[derive(Clone, Debug)]
pub struct Raw {
    /// Metadata of the object with name, namespace, uid and resourceVersion only.
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl Raw {
    /// The object's JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get()
    }

    /// The fault of the object's resourceVersion; `None` if the resourceVersion is a decimal number or absent. Control compares the resourceVersions of an
    /// object as numbers.
    pub(crate) fn version_fault(&self) -> Option<String> {
        let version = self.metadata.resource_version.as_deref().filter(|version| !version.is_empty())?;
        let fault = || format!("metadata.resourceVersion: {version:?}: only a decimal number is allowed");
        version.parse::<u64>().is_err().then(fault)
    }

    /// The object reduced to the metadata that identifies it, for the report that an undecodable object was deleted.
    #[must_use]
    pub fn head(&self) -> Self {
        let text = serde_json::value::to_raw_value(&serde_json::json!({"metadata": self.metadata}));
        Self { metadata: self.metadata.clone(), text: text.unwrap_or_else(|_| self.text.clone()) }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: HeadMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        // An object without readable metadata gets an empty name, and the error is reported when the object is decoded.
        let Head { metadata: head } = serde_json::from_str(text.get()).unwrap_or_default();
        let metadata = ObjectMeta {
            name: head.name,
            namespace: head.namespace,
            uid: head.uid,
            resource_version: head.resource_version,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, text })
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};

    #[test]
    fn list_with_an_undecodable_item_keeps_all_items() {
        let list = serde_json::json!({
            "apiVersion": "batch/v1", "kind": "JobList", "metadata": {"resourceVersion": "7"},
            "items": [
                {"metadata": {"name": "good", "namespace": "a", "resourceVersion": "1"}},
                {"metadata": {"name": "bad", "namespace": "a", "resourceVersion": "2"}, "spec": {"parallelism": "many"}},
            ],
        });
        let list: ObjectList<Raw> = serde_json::from_str(&list.to_string()).unwrap();
        let read: Vec<_> = list.items.iter().map(|i| (i.name_any(), i.resource_version().unwrap())).collect();
        assert_eq!(read, [("good".into(), "1".into()), ("bad".into(), "2".into())]);
        assert!(list.items[1].text().contains("many"));
    }

    #[test]
    fn version_without_number_is_a_fault_that_names_it() {
        for (metadata, fault) in [
            (serde_json::json!({"name": "a"}), None),
            (serde_json::json!({"name": "a", "resourceVersion": "7"}), None),
            (
                serde_json::json!({"name": "a", "resourceVersion": "7-b"}),
                Some("metadata.resourceVersion: \"7-b\": only a decimal number is allowed"),
            ),
        ] {
            let raw: Raw = serde_json::from_value(serde_json::json!({"metadata": metadata})).unwrap();
            assert_eq!(raw.version_fault().as_deref(), fault, "{metadata}");
        }
    }

    #[test]
    fn undecodable_object_is_still_identified_by_its_metadata() {
        fn check<K: Resource<DynamicType = ()> + serde::de::DeserializeOwned>() {
            let text =
                r#"{"metadata": {"name": "bad", "uid": "u"}, "spec": "text", "value": "text", "status": "text"}"#;
            let raw: Raw = serde_json::from_str(text).unwrap();
            assert!(berth_api::lean::decode::<K>(raw.text()).is_err());
            assert_eq!(berth_api::lean::decode::<K>(raw.head().text()).unwrap().name_any(), "bad");
        }
        check::<k8s_openapi::api::batch::v1::Job>();
        check::<berth_api::Workload>();
        check::<berth_api::ClusterQueue>();
        check::<berth_api::LocalQueue>();
        check::<berth_api::Cohort>();
        check::<berth_api::ResourceFlavor>();
        check::<berth_api::WorkloadPriorityClass>();
    }

    #[test]
    fn watch_event_keeps_the_text_of_its_object() {
        let line = r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"3"},"x":[1, 2]}}"#;
        let WatchEvent::Added(raw) = serde_json::from_str::<WatchEvent<Raw>>(line).unwrap() else { panic!("{line}") };
        assert_eq!(raw.text(), r#"{"metadata":{"name":"a","resourceVersion":"3"},"x":[1, 2]}"#);
        assert_eq!(raw.resource_version().as_deref(), Some("3"));
    }
}
