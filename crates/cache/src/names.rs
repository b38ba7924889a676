//! Names of objects, and the comparison of two states of an object by metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Namespace and name of an object.
pub type Name = (String, String);

/// Namespace and name in an object's metadata; an absent part is empty.
pub fn name_of(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Whether two states of one object differ in the object's status at most: all effects of the spec and metadata have been handled already.
pub fn same_intent(known: &ObjectMeta, new: &ObjectMeta) -> bool {
    let intent = |meta: &ObjectMeta| {
        // Without `metadata.generation`, a change of an object's spec cannot be noticed.
        let generation = meta.generation.filter(|generation| *generation > 0)?;
        Some((meta.uid.clone(), generation, meta.deletion_timestamp.is_some(), meta.finalizers.clone()))
    };
    let same = intent(known).is_some_and(|known| Some(known) == intent(new));
    same && known.labels == new.labels && known.annotations == new.annotations
}
