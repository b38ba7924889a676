//! Resources of the API whose objects cannot be listed, because Berth's ClusterRole lacks a rule or the conversion of the objects fails. The view cannot show
//! whether an object of a kind that cannot be listed exists and runs. A Workload whose owner is of a kind that cannot be listed keeps its quota and is not
//! changed if it holds quota, and gets a status that names the cause if it waits; all other kinds go on.

use crate::View;
use crate::object::Kind;

impl View {
    /// Whether objects of a kind, or resources that belong to them, cannot be listed.
    pub fn is_unlisted(&self, kind: Kind) -> bool {
        self.unlisted().keys().any(|(of, _)| *of == kind)
    }
}
