//! The chart under the real Helm: the effect of its values, its equality with the plain manifests, and the life of a release on a real
//! control plane. Helm 4; `BERTH_HELM=3` takes Helm 3.

mod applied;
mod image;
mod manifests;
mod release;
mod render;
