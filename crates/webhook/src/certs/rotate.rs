//! The next step of the rotation of certificates: a pure function of the stored certificates, of whether the API server knows them, and of the time.
//!
//! ```text
//! a new authority:            stored as next -> published to the API server -> `margin` passes -> becomes present and signs
//! the authority before it:    becomes previous -> `linger` passes -> is removed
//! a new server certificate:   signed by the present authority, which the API server knows
//! ```
//! At every time, each server certificate that a replica may show is signed by an authority that the API server knows.

use super::issue::{self, Pair, Validity, authority_validity, leaf_validity, validity};
use super::store::Stored;
use jiff::{SignedDuration, Timestamp};

/// Lifetimes of certificates, and pauses of their rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Lifetime of a certificate authority.
    pub ca_life: SignedDuration,
    /// Lifetime of a server certificate.
    pub leaf_life: SignedDuration,
    /// Time from the publication of an authority to its first signature: every API server must have read the authority within this time.
    pub margin: SignedDuration,
    /// Time from the first signature of an authority to the removal of the previous authority: every replica must have loaded the new server
    /// certificate within this time.
    pub linger: SignedDuration,
    /// Names for which a server certificate is valid.
    pub names: Vec<String>,
}

impl Policy {
    /// A policy with authorities for ten years and server certificates for one year; both are renewed after two thirds of their lifetimes.
    #[must_use]
    pub fn new(names: Vec<String>, margin: SignedDuration) -> Self {
        Self {
            ca_life: SignedDuration::from_hours(24 * 3650),
            leaf_life: SignedDuration::from_hours(24 * 365),
            margin,
            linger: margin * 10,
            names,
        }
    }
}

/// The next step of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No step of the rotation is due before this time.
    Rest(Timestamp),
    /// The rotation waits until the API server knows the bundle.
    Publish,
    /// No authority can sign: a new authority is created, and signs at once.
    Begin,
    /// The present authority signs a new server certificate.
    Leaf,
    /// A new authority is created, and does not sign yet.
    Next,
    /// The API server knows the next authority from now on.
    Published,
    /// The next authority becomes the present one, and signs.
    Switch,
    /// The previous authority is removed.
    Forget,
}

/// Decides the next step of the rotation. The parameter `is_published` is true if the API server knows the complete bundle of authorities.
#[must_use]
pub fn next(stored: &Stored, is_published: bool, policy: &Policy, now: Timestamp) -> Step {
    let sound = |pair: &Option<Pair>| pair.as_ref().and_then(authority_validity).filter(|valid| valid.holds(now));
    let Some(ca) = sound(&stored.ca) else { return Step::Begin };
    let Some(leaf) = leaf_of(stored, policy).filter(|valid| valid.holds(now)) else { return Step::Leaf };
    if stored.next.is_some() {
        return if sound(&stored.next).is_none() {
            Step::Next
        } else {
            towards_switch(stored, is_published, policy, now)
        };
    }
    if stored.asked || ca.due() <= now {
        return Step::Next;
    }
    if leaf.due() <= now {
        return Step::Leaf;
    }
    let again = leaf.due().min(ca.due());
    match &stored.previous {
        None if is_published => Step::Rest(again),
        None => Step::Publish,
        Some(_) => {
            let end = end_of_previous(stored, policy, now);
            match (end <= now, is_published) {
                (true, _) => Step::Forget,
                (false, true) => Step::Rest(end.min(again)),
                (false, false) => Step::Publish,
            }
        }
    }
}

fn leaf_of(stored: &Stored, policy: &Policy) -> Option<Validity> {
    leaf_validity(stored.leaf.as_ref()?, &stored.ca.as_ref()?.certificate, &policy.names)
}

/// The time until which a replica may show a server certificate of the previous authority.
fn end_of_previous(stored: &Stored, policy: &Policy, now: Timestamp) -> Timestamp {
    stored.switched_at.and_then(|at| at.checked_add(policy.linger).ok()).unwrap_or(now)
}

fn towards_switch(stored: &Stored, is_published: bool, policy: &Policy, now: Timestamp) -> Step {
    match (stored.published_at, is_published) {
        (_, false) => Step::Publish,
        (None, true) => Step::Published,
        (Some(at), true) => match at.checked_add(policy.margin) {
            Ok(end) if end > now => Step::Rest(end),
            // There is room for only one previous authority: if a rotation is requested soon after another, the switch waits until the previous
            // authority is not needed any more.
            _ if stored.previous.is_some() => match end_of_previous(stored, policy, now) {
                end if end > now => Step::Rest(end),
                _ => Step::Forget,
            },
            _ => Step::Switch,
        },
    }
}

/// The certificates to store after a step; `None` if the step stores nothing.
///
/// # Errors
/// Fails if a certificate cannot be created.
pub fn after(stored: &Stored, step: Step, policy: &Policy, now: Timestamp) -> Result<Option<Stored>, issue::Error> {
    let mut new = stored.clone();
    match step {
        Step::Rest(_) | Step::Publish => return Ok(None),
        Step::Begin => {
            let ca = issue::authority(now, policy.ca_life)?;
            new.leaf = Some(issue::leaf(&ca, &policy.names, now, policy.leaf_life)?);
            // If the old authority is still valid, replicas may show its server certificate for a moment, so it stays trusted as the previous one.
            let old = new.ca.take().map(|pair| pair.certificate);
            new.previous = old.filter(|text| validity(text).is_some_and(|valid| valid.holds(now)));
            new = Stored { ca: Some(ca), next: None, published_at: None, switched_at: Some(now), asked: false, ..new };
        }
        Step::Leaf => {
            if let Some(ca) = &new.ca {
                new.leaf = Some(issue::leaf(ca, &policy.names, now, policy.leaf_life)?);
            }
        }
        Step::Next => {
            new.next = Some(issue::authority(now, policy.ca_life)?);
            new.published_at = None;
        }
        Step::Published => new.published_at = Some(now),
        Step::Switch => {
            if let Some(next) = new.next.take() {
                new.leaf = Some(issue::leaf(&next, &policy.names, now, policy.leaf_life)?);
                new.previous = new.ca.take().map(|pair| pair.certificate);
                new = Stored { ca: Some(next), published_at: None, switched_at: Some(now), asked: false, ..new };
            }
        }
        Step::Forget => new = Stored { previous: None, switched_at: None, ..new },
    }
    Ok(Some(new))
}

#[cfg(test)]
mod tests;
