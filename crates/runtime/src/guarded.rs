//! An object that may fail to decode without failing the list it came in.
//!
//! kube decodes a list as a whole: one bad item hides all others. A [`Guarded`] keeps the item's metadata and the
//! error instead. It decodes through a JSON tree and so costs twice the time: watches use it only after a failure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;

/// An object, or why it could not be decoded.
#[derive(Clone, Debug)]
pub struct Guarded<K> {
    /// Metadata of an object that failed to decode; name, namespace and version at least. Empty for a good one.
    pub metadata: ObjectMeta,
    /// The object or the text of the error.
    pub object: Result<Box<K>, String>,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let metadata = metadata_of(&value);
        let object = serde_json::from_value(value).map(Box::new).map_err(|error| error.to_string());
        Ok(Self { metadata, object })
    }
}

/// Metadata as far as it can be read.
fn metadata_of(value: &Value) -> ObjectMeta {
    let meta = value.get("metadata");
    let text = |key: &str| meta.and_then(|meta| meta.get(key)?.as_str().map(str::to_owned));
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

impl<K: Resource> Guarded<K> {
    /// A decoded object.
    pub fn good(object: K) -> Self {
        Self { metadata: ObjectMeta::default(), object: Ok(Box::new(object)) }
    }
}

impl<K: DeserializeOwned> Guarded<K> {
    /// The object that has ended; of one that does not decode, what says which one it was.
    #[must_use]
    pub fn ended(self) -> Option<Box<K>> {
        self.object.ok().or_else(|| serde_json::from_value(serde_json::json!({"metadata": self.metadata})).ok())
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.object {
            Ok(object) => object.meta(),
            Err(_) => &self.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.object {
            Ok(object) => object.meta_mut(),
            Err(_) => &mut self.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::batch::v1::Job;
    use kube::ResourceExt;
    use kube::core::ObjectList;

    #[test]
    fn the_end_of_a_bad_object_is_told() {
        fn check<K: Resource<DynamicType = ()> + DeserializeOwned>() {
            let object = serde_json::json!({"metadata": {"name": "bad", "uid": "u"}, "spec": "text", "value": "text",
                "status": "text", "handler": 1, "data": 1});
            let ended = serde_json::from_value::<Guarded<K>>(object).unwrap().ended();
            assert_eq!(ended.unwrap_or_else(|| panic!("{}", K::kind(&()))).name_any(), "bad");
        }
        check::<Job>();
        check::<berth_api::Workload>();
        check::<berth_api::ClusterQueue>();
        check::<berth_api::LocalQueue>();
        check::<berth_api::Cohort>();
        check::<berth_api::ResourceFlavor>();
        check::<berth_api::WorkloadPriorityClass>();
    }

    #[test]
    fn one_bad_item_does_not_hide_the_others() {
        let list = serde_json::json!({
            "apiVersion": "batch/v1", "kind": "JobList", "metadata": {"resourceVersion": "7"},
            "items": [
                {"metadata": {"name": "good", "namespace": "a", "resourceVersion": "1"}},
                {"metadata": {"name": "bad", "namespace": "a", "resourceVersion": "2"}, "spec": {"parallelism": "many"}},
            ],
        });
        let text = list.to_string();
        assert!(serde_json::from_str::<ObjectList<Job>>(&text).is_err());
        let guarded: ObjectList<Guarded<Job>> = serde_json::from_str(&text).unwrap();
        let read: Vec<_> = guarded
            .items
            .iter()
            .map(|item| (item.name_any(), item.resource_version().unwrap(), item.object.is_ok()))
            .collect();
        assert_eq!(read, [("good".into(), "1".into(), true), ("bad".into(), "2".into(), false)]);
    }
}
