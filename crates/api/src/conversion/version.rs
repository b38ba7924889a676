//! The versions of Kueue's API group.

/// A version of Kueue's API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The older version of Kueue's API.
    V1beta1,
    /// The version of Kueue's API that the API server stores.
    V1beta2,
}

impl Version {
    /// The version that an `apiVersion` names; `None` if the `apiVersion` is of another group or version.
    pub fn of(api_version: &str) -> Option<Self> {
        match api_version {
            crate::v1beta1::API_VERSION => Some(Self::V1beta1),
            crate::API_VERSION => Some(Self::V1beta2),
            _ => None,
        }
    }

    /// The `apiVersion` of objects of the version.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1beta1 => crate::v1beta1::API_VERSION,
            Self::V1beta2 => crate::API_VERSION,
        }
    }
}

/// The `apiVersion` of both versions, for messages.
pub(super) fn both() -> String {
    format!("{} or {}", crate::v1beta1::API_VERSION, crate::API_VERSION)
}
