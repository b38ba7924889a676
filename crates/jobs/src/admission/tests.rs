use super::*;
use crate::BatchJob;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

const QUEUE: &str = labels::QUEUE_NAME;

fn job(labels: Value, annotations: Value, spec: Value) -> Job {
    let mut whole = json!({"template": {"spec": {"containers": [{"name": "c"}]}}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let object = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": whole});
    serde_json::from_value(object).unwrap()
}

fn template(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}})
}

fn fields(errors: Vec<FieldError>) -> Vec<String> {
    errors.into_iter().map(|error| error.field).collect()
}

#[test]
fn defaults_of_a_new_job() {
    let here = Facts { managed_namespace: true, ..Facts::default() };
    let defaults = |labels: Value, suspend: bool, facts: Facts| {
        let got = job_defaults::<BatchJob>(&job(labels, json!({}), json!({"suspend": suspend})), facts);
        (got.queue_name, got.priority_class, got.suspend)
    };
    let queued = json!({QUEUE: "q"});
    assert_eq!(defaults(queued.clone(), false, here), (false, false, true));
    assert_eq!(defaults(queued.clone(), true, here), (false, false, false));
    assert_eq!(defaults(json!({}), false, here), (false, false, false));
    let with_queue = Facts { default_queue: true, ..here };
    assert_eq!(defaults(json!({}), false, with_queue), (true, false, true));
    assert_eq!(defaults(json!({}), true, with_queue), (true, false, false));
    assert_eq!(defaults(queued.clone(), false, with_queue), (false, false, true));
    let with_class = Facts { default_priority_class: true, ..with_queue };
    assert_eq!(defaults(json!({}), false, with_class), (true, true, true));
    assert_eq!(defaults(json!({labels::PRIORITY_CLASS: "p"}), false, with_class), (true, false, true));
    assert_eq!(defaults(json!({}), false, Facts { default_queue: false, ..with_class }), (false, false, false));
    assert_eq!(defaults(json!({}), false, Facts { without_queue_name: true, ..here }), (false, false, true));
    // Neither where nothing is managed, nor what somebody else starts and stops.
    let nowhere = Facts { managed_namespace: false, ..with_class };
    assert_eq!(defaults(queued.clone(), false, nowhere), (false, false, false));
    assert_eq!(defaults(queued, false, Facts { governed: true, ..with_class }), (false, false, false));
}

#[test]
fn what_a_job_may_say() {
    let check = |labels: Value, annotations: Value, spec: Value, expected: &[&str]| {
        assert_eq!(fields(validate_job::<BatchJob>(&job(labels, annotations, spec))), expected);
    };
    let none = || json!({});
    check(json!({QUEUE: "a.b-c", labels::MAX_EXEC_TIME_SECONDS: "5"}), none(), none(), &[]);
    check(json!({QUEUE: "A_b"}), none(), none(), &["metadata.labels[kueue.x-k8s.io/queue-name]"]);
    for bad in ["0", "-1", "1.5", "soon", "9999999999"] {
        let path = "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]";
        check(json!({labels::MAX_EXEC_TIME_SECONDS: bad}), none(), none(), &[path]);
    }
    let gated = json!({labels::ADMISSION_GATED_BY: "plain"});
    check(none(), gated, none(), &["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"]);

    let least = "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]";
    for (text, good) in [("1", true), ("4", true), ("5", false), ("0", false), ("-2", false), ("x", false)] {
        let expected: &[&str] = if good { &[] } else { &[least] };
        check(
            none(),
            json!({labels::JOB_MIN_PARALLELISM: text}),
            json!({"parallelism": 5, "completions": 5}),
            expected,
        );
    }
    let follow = "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]";
    let key = labels::JOB_COMPLETIONS_EQUAL_PARALLELISM;
    let indexed = json!({"parallelism": 5, "completions": 5, "completionMode": "Indexed"});
    check(none(), json!({key: "true"}), indexed, &[]);
    check(none(), json!({key: "true"}), json!({"parallelism": 5, "completions": 5}), &[follow]);
    let unequal = json!({"parallelism": 4, "completions": 5, "completionMode": "Indexed"});
    check(none(), json!({key: "true"}), unequal.clone(), &["spec.completions"]);
    check(none(), json!({key: "True"}), unequal.clone(), &["spec.completions"]);
    check(none(), json!({key: "0"}), unequal.clone(), &[]);
    check(none(), json!({key: "false"}), unequal, &[]);
    check(none(), json!({key: "perhaps"}), none(), &[follow]);
}

#[test]
fn topology_annotations() {
    let check = |annotations: Value, expected: &[&str]| {
        let spec = json!({"parallelism": 8, "template": template(annotations)});
        let paths: Vec<String> =
            expected.iter().map(|key| format!("spec.template.metadata.annotations[{key}]")).collect();
        assert_eq!(fields(validate_job::<BatchJob>(&job(json!({}), json!({}), spec))), paths);
    };
    let (required, preferred) = (labels::POD_SET_REQUIRED_TOPOLOGY, labels::POD_SET_PREFERRED_TOPOLOGY);
    let (slice, size) = (labels::POD_SET_SLICE_REQUIRED_TOPOLOGY, labels::POD_SET_SLICE_SIZE);
    check(json!({required: "cloud.provider.com/rack"}), &[]);
    check(json!({required: "a b"}), &[required]);
    check(json!({required: "a", preferred: "b"}), &[preferred]);
    check(json!({labels::POD_SET_UNCONSTRAINED_TOPOLOGY: "maybe"}), &[labels::POD_SET_UNCONSTRAINED_TOPOLOGY]);
    check(json!({slice: "rack", size: "4"}), &[]);
    check(json!({slice: "rack"}), &[size]);
    check(json!({size: "4"}), &[size]);
    for bad in ["0", "9", "x"] {
        check(json!({slice: "rack", size: bad}), &[size]);
    }
    let layers = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
    check(json!({layers: r#"[{"topology":"a","size":8},{"topology":"b","size":4}]"#}), &[]);
    for bad in [
        "[]",
        "text",
        r#"[{"topology":"a","size":8},{"topology":"b","size":3}]"#,
        r#"[{"topology":"a","size":0}]"#,
        r#"[{"topology":"a b","size":1}]"#,
        r#"[{"topology":"a","size":8},{"topology":"a","size":4}]"#,
        r#"[{"topology":"a","size":16},{"topology":"b","size":4}]"#,
        r#"[{"topology":"a","size":8},{"topology":"a","size":8},{"topology":"a","size":8},{"topology":"a","size":8}]"#,
    ] {
        check(json!({layers: bad}), &[layers]);
    }
    check(json!({layers: r#"[{"topology":"a","size":8}]"#, slice: "rack", size: "4"}), &[layers]);
    check(json!({labels::POD_SET_GROUP_NAME: "g", required: "rack"}), &[labels::POD_SET_GROUP_NAME]);
}

#[test]
fn what_may_change_and_when() {
    let check = |old: (Value, Value), new: (Value, Value), suspended: bool, expected: &[&str]| {
        let of = |(labels, annotations): (Value, Value)| job(labels, annotations, json!({"suspend": suspended}));
        let found = fields(validate_job_update::<BatchJob>(&of(old), &of(new), false));
        let paths: Vec<String> = expected.iter().map(|key| format!("metadata.{key}")).collect();
        assert_eq!(found, paths);
    };
    let none = || json!({});
    let with = |key: &str, value: &str| (json!({key: value}), json!({}));
    let noted = |key: &str, value: &str| (json!({}), json!({key: value}));
    for key in [QUEUE, labels::PREBUILT_WORKLOAD_NAME] {
        let path = format!("labels[{key}]");
        check(with(key, "a"), with(key, "b"), false, &[&path]);
        check(with(key, "a"), (none(), none()), false, &[&path]);
        check((none(), none()), with(key, "a"), false, &[&path]);
        check(with(key, "a"), with(key, "b"), true, &[]);
        check(with(key, "a"), with(key, "a"), false, &[]);
    }
    let (time, class) = (labels::MAX_EXEC_TIME_SECONDS, labels::PRIORITY_CLASS);
    check(with(time, "5"), with(time, "6"), false, &[&format!("labels[{time}]")]);
    check(with(time, "5"), with(time, "6"), true, &[]);
    let path = format!("labels[{class}]");
    check(with(class, "a"), with(class, "b"), false, &[]);
    check(with(class, "a"), (none(), none()), true, &[&path]);
    check((none(), none()), with(class, "a"), false, &[&path]);
    check((none(), none()), with(class, "a"), true, &[]);
    let elastic = labels::ELASTIC_JOB;
    check(noted(elastic, "true"), (none(), none()), true, &[&format!("annotations[{elastic}]")]);
    let gated = labels::ADMISSION_GATED_BY;
    check((none(), none()), noted(gated, "a.io/b"), true, &[&format!("annotations[{gated}]")]);
    check(noted(gated, "a.io/b"), (none(), none()), true, &[]);
    // What was wrong before is no reason to refuse another change.
    check(with(QUEUE, "A"), (json!({QUEUE: "A", "other": "x"}), none()), true, &[]);
}

#[test]
fn a_queue_is_not_taken_away_where_there_is_a_default_one() {
    let suspended = |labels: Value| job(labels, json!({}), json!({"suspend": true}));
    let (old, new) = (suspended(json!({QUEUE: "a"})), suspended(json!({})));
    assert!(validate_job_update::<BatchJob>(&old, &new, false).is_empty());
    let found = fields(validate_job_update::<BatchJob>(&old, &new, true));
    assert_eq!(found, ["metadata.labels[kueue.x-k8s.io/queue-name]"]);
}

#[test]
fn a_running_job_keeps_its_number_of_pods_where_it_may_get_fewer() {
    let of = |least: &str, parallelism: i32, suspended: bool| {
        let spec = json!({"suspend": suspended, "parallelism": parallelism, "completions": 9});
        job(json!({}), json!({labels::JOB_MIN_PARALLELISM: least}), spec)
    };
    let check = |old: &Job, new: &Job| fields(validate_job_update::<BatchJob>(old, new, false));
    assert_eq!(check(&of("2", 5, false), &of("2", 6, false)), ["spec.parallelism"]);
    assert_eq!(check(&of("2", 5, true), &of("2", 6, true)), [""; 0]);
    assert_eq!(check(&of("2", 5, false), &of("3", 5, false)), [""; 0], "as in Kueue");
    assert_eq!(check(&of("2", 5, true), &of("3", 5, true)), [""; 0]);
    let follows = |suspended: bool, text: &str| {
        let spec = json!({"suspend": suspended, "parallelism": 5, "completions": 5, "completionMode": "Indexed"});
        job(json!({}), json!({labels::JOB_COMPLETIONS_EQUAL_PARALLELISM: text}), spec)
    };
    let path = "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]";
    assert_eq!(check(&follows(false, "true"), &follows(false, "false")), [path]);
    assert_eq!(check(&follows(false, "true"), &follows(false, "T")), [""; 0], "that is true, too");
    assert_eq!(check(&follows(true, "true"), &follows(true, "false")), [""; 0]);
}
