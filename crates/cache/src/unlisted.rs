//! Resources that cannot be listed: Berth's role lacks a rule, or a conversion fails. The view cannot show whether an object of such a kind is there
//! and runs. A Workload of it that holds quota keeps it and is left alone, one that waits has a status that says so, and all other kinds go on.

use crate::View;
use crate::event::Unlisted;
use crate::object::Kind;

impl View {
    /// Records that a resource cannot be listed, or can be listed again; true if this has changed.
    pub fn put_unlisted(&mut self, Unlisted { resource, kind, why }: Unlisted) -> bool {
        let Some(kind) = kind else { return false };
        let entry = (kind, resource);
        match why {
            Some(why) => self.unlisted.insert(entry, why.clone()) != Some(why),
            None => self.unlisted.remove(&entry).is_some(),
        }
    }

    /// Whether objects of a kind, or resources that belong to them, cannot be listed.
    pub fn is_unlisted(&self, kind: Kind) -> bool {
        self.unlisted.keys().any(|(of, _)| *of == kind)
    }
}
