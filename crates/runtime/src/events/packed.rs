//! A packed event notice: thousands of notices wait while the API server is busy, and a separate text for each part would take several times the memory.

use berth_control::write::{EventType, Notice, ResourceKind};
use jiff::Timestamp;

/// An event notice with all its texts in one string.
#[derive(Debug)]
pub(super) struct Packed {
    /// Namespace, name and uid of the event's object, and the event's reason and message, joined.
    text: Box<str>,
    /// Byte offset in `text` at which each of the first four texts ends; the fifth text takes the rest.
    ends: [u32; 4],
    pub(super) kind: ResourceKind,
    pub(super) event_type: EventType,
    pub(super) explains_waiting: bool,
    pub(super) reporter: &'static str,
    /// Time at which the event was queued.
    pub(super) at: Timestamp,
}

impl Packed {
    /// Packs an event notice that was queued at the time `at`; `None` if the notice is about a key that is no object of the API.
    pub(super) fn new(notice: &Notice, at: Timestamp) -> Option<Self> {
        let kind = notice.key.kind.resource_kind()?;
        let parts = [&notice.key.namespace, &notice.key.name, &notice.uid, &notice.reason, &notice.message];
        let mut text = String::with_capacity(parts.iter().map(|part| part.len()).sum());
        let mut ends = [0; 5];
        for (part, end) in parts.into_iter().zip(&mut ends) {
            text.push_str(part);
            *end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        }
        let [namespace, name, uid, reason, _] = ends;
        Some(Self {
            text: text.into(),
            ends: [namespace, name, uid, reason],
            kind,
            event_type: notice.event_type,
            explains_waiting: notice.explains_waiting(),
            reporter: notice.reporter,
            at,
        })
    }

    fn part(&self, from: u32, to: u32) -> &str {
        self.text.get(from as usize..to as usize).unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.part(0, self.ends[0])
    }

    pub(super) fn name(&self) -> &str {
        self.part(self.ends[0], self.ends[1])
    }

    pub(super) fn uid(&self) -> &str {
        self.part(self.ends[1], self.ends[2])
    }

    pub(super) fn reason(&self) -> &str {
        self.part(self.ends[2], self.ends[3])
    }

    pub(super) fn message(&self) -> &str {
        self.text.get(self.ends[3] as usize..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_control::write::{Kind, ObjectKey};

    #[test]
    fn packed_event_returns_every_field_as_given() {
        for (namespace, message) in [("team-ä", "no quota: 3 < 4"), ("", "")] {
            let notice = Notice {
                key: ObjectKey { kind: Kind::Workload, namespace: namespace.into(), name: "job-a".into() },
                uid: "u-1".into(),
                event_type: EventType::Warning,
                reason: "Pending".into(),
                message: message.into(),
                reporter: "kueue-admission",
            };
            let packed = Packed::new(&notice, Timestamp::UNIX_EPOCH).unwrap();
            let parts = (packed.namespace(), packed.name(), packed.uid(), packed.reason(), packed.message());
            assert_eq!(parts, (namespace, "job-a", "u-1", "Pending", message));
            assert!(packed.explains_waiting && packed.kind == ResourceKind::Workload);
            let group = ObjectKey { kind: Kind::PodGroup, ..notice.key.clone() };
            assert!(Packed::new(&Notice { key: group, ..notice }, Timestamp::UNIX_EPOCH).is_none(), "no object");
        }
    }
}
