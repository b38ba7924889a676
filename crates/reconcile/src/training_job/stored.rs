//! Listing and deletion of checkpoints in the store of a TrainingJob.

use berth_cache::Name;
use jiff::Timestamp;

use crate::context::Context;
use crate::decision::{Decision, Draft};
use crate::training_job::saves::surplus;
use crate::write::{Kind, Purpose, Query, Write, key};

/// Decides about the stored checkpoints of one TrainingJob.
pub(crate) fn decide(ctx: &Context<'_>, name: &Name, now: Timestamp) -> Decision {
    let Some(view) = ctx.view.training().get(name).filter(|view| !view.deleting) else { return Decision::Done };
    let Some(place) = ctx.place_of(name, view) else { return Decision::Done };
    let object = key(Kind::Checkpoints, name);
    if let Some(listing) = ctx.listing_of(name, view).filter(|listing| listing.fault.is_none()) {
        let ids = surplus(ctx.notes.jobs(), view, listing);
        if !ids.is_empty() {
            let write = Write::DeleteCheckpoints { place, ids };
            return Decision::write(Draft::of_any_version(Purpose::DeleteCheckpoints, object, write));
        }
    }
    match ctx.next_look(name, view, now) {
        None => Decision::Done,
        Some(due) if due > now => Decision::Wait(due),
        Some(_) => {
            let query = Query::ListCheckpoints { place };
            Decision::write(Draft::ask(Purpose::ListCheckpoints, object, query))
        }
    }
}

#[cfg(test)]
mod tests;
