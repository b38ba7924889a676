//! What is read and deleted in the store of a TrainingJob's checkpoints, and when.

use jiff::Timestamp;

use crate::core::{Control, key};
use crate::flight::{Decision, Draft};
use crate::view::Name;
use crate::write::{Kind, Purpose, Request};

/// Decides about the checkpoints of one TrainingJob.
pub(crate) fn decide(control: &Control, name: &Name, now: Timestamp) -> Decision {
    let Some(view) = control.view.training.get(name).filter(|view| !view.deleting) else { return Decision::Done };
    let Some(place) = control.place_of(name, view) else { return Decision::Done };
    let draft =
        |purpose, request| Decision::write(Draft::of_any_version(purpose, key(Kind::Checkpoints, name), request));
    if let Some(book) = control.book_of(name, view).filter(|book| book.fault.is_none()) {
        let ids = control.surplus(view, book);
        if !ids.is_empty() {
            return draft(Purpose::DeleteCheckpoints, Request::DeleteCheckpoints { place, ids });
        }
    }
    match control.next_look(name, view, now) {
        None => Decision::Done,
        Some(due) if due > now => Decision::Wait(due),
        Some(_) => draft(Purpose::ListCheckpoints, Request::ListCheckpoints { place }),
    }
}
