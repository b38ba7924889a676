//! The versions of the group.

/// A version of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The older version of Kueue's API.
    V1beta1,
    /// The version that the API server stores.
    V1beta2,
}

impl Version {
    /// The version that an `apiVersion` names, when it is one of this group.
    pub fn of(api_version: &str) -> Option<Self> {
        match api_version {
            crate::v1beta1::API_VERSION => Some(Self::V1beta1),
            crate::API_VERSION => Some(Self::V1beta2),
            _ => None,
        }
    }

    /// The text of `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1beta1 => crate::v1beta1::API_VERSION,
            Self::V1beta2 => crate::API_VERSION,
        }
    }
}

/// The names of the versions, for messages.
pub(super) fn both() -> String {
    format!("{} or {}", crate::v1beta1::API_VERSION, crate::API_VERSION)
}
