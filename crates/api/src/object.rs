//! The macro `root_object`, which defines a root object: metadata, spec, status, and the `Resource` identity.
//!
//! The macro exists because Kueue's kinds accept an object without `spec`, which kube's derive macro cannot read.

/// Defines a root kind with `metadata`, `spec` and, when given, `status`.
macro_rules! root_object {
    ($(#[$doc:meta])* $name:ident, $plural:literal, $scope:ident, spec: $spec:ty $(, status: $status:ty)?) => {
        root_object! { @in (crate) $(#[$doc])* $name, $plural, $scope, spec: $spec $(, status: $status)? }
    };
    // The group of the kind is the one whose constants are in the module `$home`.
    (
        @in ($($home:tt)+)
        $(#[$doc:meta])* $name:ident, $plural:literal, $scope:ident, spec: $spec:ty $(, status: $status:ty)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Standard object metadata.
            pub metadata: kube_core::ObjectMeta,
            /// Desired state; the default value if the stored object has no spec.
            pub spec: $spec,
            $(
                /// Observed state.
                pub status: Option<$status>,
            )?
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut out = serializer.serialize_struct(stringify!($name), 5)?;
                out.serialize_field("apiVersion", $($home)+::API_VERSION)?;
                out.serialize_field("kind", stringify!($name))?;
                out.serialize_field("metadata", &self.metadata)?;
                out.serialize_field("spec", &self.spec)?;
                $(
                    let status: &Option<$status> = &self.status;
                    if let Some(status) = status {
                        out.serialize_field("status", status)?;
                    }
                )?
                out.end()
            }
        }

        resource_identity!(@in ($($home)+) $name, $plural, $scope);
    };
}

/// Implements `kube_core::Resource` for a root kind of the group `kueue.x-k8s.io`, or of the group of the module `$home`.
macro_rules! resource_identity {
    ($name:ident, $plural:literal, $scope:ident) => {
        resource_identity!(@in (crate) $name, $plural, $scope);
    };
    (@in ($($home:tt)+) $name:ident, $plural:literal, $scope:ident) => {
        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $($home)+::GROUP.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $($home)+::VERSION.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube_core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube_core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl $name {
            /// Name of the object (`metadata.name`); empty while the API server has not assigned a name.
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// UID of the object (`metadata.uid`); empty before the object is created.
            pub fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }

            /// Namespace of the object (`metadata.namespace`); empty for objects of cluster-scoped kinds.
            pub fn namespace(&self) -> &str {
                self.metadata.namespace.as_deref().unwrap_or_default()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use kube_core::Resource;
    use serde_json::json;

    use crate::*;

    #[test]
    fn objects_without_spec_and_with_unknown_values_decode() {
        let queue: ClusterQueue = serde_json::from_value(
            json!({"apiVersion": API_VERSION, "kind": "ClusterQueue", "metadata": {"name": "a"}}),
        )
        .unwrap();
        assert_eq!((queue.name(), &queue.spec), ("a", &ClusterQueueSpec::default()));
        let odd: Workload = serde_json::from_value(json!({
            "metadata": {}, "spec": {"queueName": "q", "fromTheFuture": 1},
            "status": {"admissionChecks": [{"name": "c", "state": "Someday"}], "conditions": []},
        }))
        .unwrap();
        assert_eq!(odd.status.unwrap_or_default().admission_checks.first().map(|c| c.state.as_str()), Some("Someday"));
    }

    #[test]
    fn nominal_quota_written_as_integer_is_read_as_quantity() {
        let quota: ResourceQuota = serde_json::from_value(json!({"name": "cpu", "nominalQuota": 9})).unwrap();
        assert_eq!(quota.nominal_quota.0, "9");
    }

    #[test]
    fn serialized_object_has_api_version_kind_and_no_unset_fields() {
        let class = WorkloadPriorityClass { value: 7, ..Default::default() };
        assert_eq!(
            serde_json::to_value(&class).unwrap(),
            json!({"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {}, "value": 7})
        );
        let flavor = ResourceFlavor::default();
        assert_eq!(
            serde_json::to_value(&flavor).unwrap(),
            json!({"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {}, "spec": {}})
        );
        assert_eq!(Workload::url_path(&(), Some("n")), "/apis/kueue.x-k8s.io/v1beta2/namespaces/n/workloads");
        assert_eq!(Topology::url_path(&(), None), "/apis/kueue.x-k8s.io/v1beta2/topologies");
    }
}
