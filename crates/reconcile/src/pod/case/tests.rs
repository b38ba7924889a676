use super::*;
use crate::pod::tests::case_of;
use crate::testing::objects::pod;
use crate::testing::{State, named};
use crate::write::Kind;

/// An event about a group is sent at one of its pods, so that the key may be the key of another object than the pod.
#[test]
fn event_about_pod_has_its_uid_and_reporter() {
    let state = State::managing_pods().with(pod("a"));
    let sent = |object: ObjectKey| {
        case_of(&state, "a", |case| notice(object, case.pod, EventType::Warning, "Reason", "in words".to_owned()))
    };
    for object in [named(Kind::Pod, "a"), named(Kind::PodGroup, "g")] {
        let expected = Notice {
            key: object.clone(),
            uid: "a-uid".to_owned(),
            event_type: EventType::Warning,
            reason: "Reason".to_owned(),
            message: "in words".to_owned(),
            reporter: "pod-kueue-controller",
        };
        assert_eq!(sent(object), expected);
    }
}
