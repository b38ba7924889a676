//! Tests of the chart under the real Helm: the effect of its values, its equality with the plain manifests, and the life of a release on a real
//! control plane. The tests use Helm 4; with `BERTH_HELM=3` they use Helm 3.

mod applied;
mod image;
mod manifests;
mod release;
mod render;
