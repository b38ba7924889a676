//! The state that decisions read.

use crate::cache::View;
use crate::capacity::Ladder;
use crate::controller::flight::Flights;
use crate::controller::state::{Quota, Reports, Session, Trainings};
use crate::job::remains::Remains;
use crate::settings::Settings;

/// State of [`crate::Control`], to be read. Decisions get it in place of `Control` itself, so that a decision changes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) session: &'a Session,
    pub(crate) view: &'a View,
    pub(crate) quota: &'a Quota,
    pub(crate) flights: &'a Flights,
    pub(crate) remains: &'a Remains,
    pub(crate) reports: &'a Reports,
    pub(crate) training: &'a Trainings,
    pub(crate) capacity: &'a Ladder,
}
