//! Resources that cannot be listed: Berth's role lacks a rule, or a conversion fails. The view cannot show whether an object of such a kind is there
//! and runs. A Workload of it that holds quota keeps it and is left alone, one that waits has a status that says so, and all other kinds go on.

use crate::View;
use crate::object::Kind;

impl View {
    /// Whether objects of a kind, or resources that belong to them, cannot be listed.
    pub fn is_unlisted(&self, kind: Kind) -> bool {
        self.unlisted().keys().any(|(of, _)| *of == kind)
    }
}
