//! Names of objects, and what their metadata says of a change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name.
pub(crate) type Name = (String, String);

pub(crate) fn name_of(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Whether two states of one object differ in its status at most: all effects of the rest have been handled already.
pub(crate) fn same_intent(known: &ObjectMeta, new: &ObjectMeta) -> bool {
    let intent = |meta: &ObjectMeta| {
        // Without a generation the spec may have changed unseen.
        let generation = meta.generation.filter(|generation| *generation > 0)?;
        Some((meta.uid.clone(), generation, meta.deletion_timestamp.is_some(), meta.finalizers.clone()))
    };
    let same = intent(known).is_some_and(|known| Some(known) == intent(new));
    same && known.labels == new.labels && known.annotations == new.annotations
}
