//! Tests of the module `kueue_fields`: every rule has a case, and the generator of cases and the function `judge` do as their comments say.

use super::asked::holds;
use super::*;

#[test]
fn rule_of_every_field_has_a_case() {
    let (mut gaps, mut count) = (Vec::new(), 0);
    for (plural, version) in PLURALS.iter().flat_map(|plural| VERSIONS.map(|version| (plural, version))) {
        let subject = Subject::read(plural, version).unwrap();
        let cases = subject.cases().unwrap();
        count += cases.len();
        gaps.extend(uncovered(&subject, &cases));
    }
    assert!(gaps.is_empty(), "{} gaps:\n{}", gaps.len(), gaps.join("\n"));
    assert!(count > 1_000, "{count} cases");
}

fn subject(schema: Value, groups: Value) -> Subject {
    let groups = serde_json::from_value(groups).unwrap();
    Subject { kind: "Thing".to_owned(), version: "v1".to_owned(), base: "/things".to_owned(), schema, groups }
}

fn schema() -> Value {
    json!({"properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1},
        "word": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "list": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}]}}})
}

#[test]
fn rule_is_broken_in_good_object_that_has_the_field() {
    let good = json!([{"good": {"spec": {"size": 3, "word": "b", "list": [{"name": "x"}]}},
        "refused": [{"field": "spec", "says": "field is immutable", "change": {"spec.size": 4}, "of": {}}]}]);
    let subject = subject(schema(), good);
    let cases = subject.cases().unwrap();
    let asked: Vec<String> =
        cases.iter().map(|case| format!("{:?} {} {}", case.expected, case.field, json!(case.change))).collect();
    assert_eq!(
        asked,
        [
            r#"Refused spec [["spec","text"]]"#,
            r#"Refused spec.list [["spec.list","text"]]"#,
            r#"Refused spec.list [["spec.list",[{"name":"n0"},{"name":"n1"},{"name":"n2"}]]]"#,
            r#"Kept spec.list [["spec.list",[{"name":"n0"},{"name":"n1"}]]]"#,
            r#"Refused spec.list[1] [["spec.list[1]",{"name":"x"}]]"#,
            r#"Refused spec.list[0] [["spec.list[0]","text"]]"#,
            r#"Refused spec.list[0].name [["spec.list[0].name",5]]"#,
            r#"Refused spec.size [["spec.size",null]]"#,
            r#"Refused spec.size [["spec.size","text"]]"#,
            r#"Refused spec.size [["spec.size",0]]"#,
            r#"Kept spec.size [["spec.size",1]]"#,
            r#"Refused spec.word [["spec.word",5]]"#,
            r#"Refused spec.word [["spec.word","no-such-word"]]"#,
            r#"Kept spec.word [["spec.word","a"]]"#,
            r#"Kept spec.word [["spec.word","b"]]"#,
            r#"Filled(String("a")) spec.word [["spec.word",null]]"#,
            r#"Refused spec [["spec.size",4]]"#,
        ]
    );
    assert_eq!(uncovered(&subject, &cases), [""; 0]);
    let object = subject.object(0, "n", &cases[7].change).unwrap();
    assert_eq!(object["spec"], json!({"word": "b", "list": [{"name": "x"}]}));
}

#[test]
fn rule_without_a_good_object_or_case_is_named() {
    let subject = subject(
        schema(),
        json!([{"good": {"spec": {"size": 3, "list": []}},
        "refused": [{"field": "spec.list[0].name", "says": "is ugly", "change": {"spec.list[0].name": "x"}}]}]),
    );
    let gaps = uncovered(&subject, &subject.cases().unwrap());
    assert_eq!(
        gaps,
        [
            "no case of Thing v1 \"spec\": field is immutable",
            "no case of Thing v1 \"spec.list[]\": Duplicate value",
            "no case of Thing v1 \"spec.list[]\": must be of type object",
            "no case of Thing v1 \"spec.list[].name\": must be of type string",
            "no case of Thing v1 \"spec.word\": default \"a\"",
            "no case of Thing v1 \"spec.word\": must be of type string",
            "no case of Thing v1 \"spec.word\": supported values: \"a\", \"b\"",
            "the schema has no rule Thing v1 \"spec.list[].name\": is ugly",
        ]
    );
}

#[test]
fn api_server_answer_is_judged_by_the_expected_outcome() {
    let case = |expected: Expected| Case {
        field: "spec.size".to_owned(),
        place: "spec.size".to_owned(),
        says: "should be greater than or equal to 1".to_owned(),
        expected,
        group: 0,
        change: Vec::new(),
        of: None,
    };
    let (refused, kept) = (case(Expected::Refused), case(Expected::Kept));
    let reported_by =
        |field: &str, message: &str| Err(json!({"details": {"causes": [{"field": field, "message": message}]}}));
    let right = reported_by("spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1");
    let accepted = |size: i64| Ok(json!({"spec": {"size": size}}));
    assert_eq!(judge(&refused, &right), Ok(()));
    assert_eq!(judge(&refused, &accepted(5)), Err("accepted".to_owned()));
    for wrong in
        [reported_by("spec", "should be greater than or equal to 1"), reported_by("spec.size", "Required value")]
    {
        assert!(judge(&refused, &wrong).is_err(), "{wrong:?}");
        assert_eq!(judge(&kept, &wrong), Ok(()), "another rule may refuse it");
    }
    assert!(judge(&kept, &right).is_err());
    assert_eq!(judge(&kept, &accepted(1)), Ok(()));
    let allowed = case(Expected::Accepted);
    assert_eq!(judge(&allowed, &accepted(1)), Ok(()));
    assert!(judge(&allowed, &reported_by("spec", "Required value")).is_err(), "whatever rule refuses it");
    let filled = case(Expected::Filled(json!(5)));
    assert_eq!(judge(&filled, &accepted(5)), Ok(()));
    assert!(judge(&filled, &accepted(6)).is_err() && judge(&filled, &right).is_err());
    assert!(judge(&filled, &Ok(json!({"spec": {}}))).is_err());
    let by_key = Case { field: "spec.nodeLabels[a]".to_owned(), ..case(Expected::Refused) };
    for (field, is_right) in [("spec.nodeLabels.a", true), ("spec.nodeLabels[a]", true), ("spec.nodeLabels[0]", false)]
    {
        assert_eq!(judge(&by_key, &reported_by(field, &by_key.says)).is_ok(), is_right, "{field}");
    }
    assert!(holds(&json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": 1}})) && !holds(&json!({}), &json!({"a": 1})));
    assert_eq!((place("spec.a[0].b[x].c[1]"), place("<nil>")), ("spec.a[].b{}.c[]".to_owned(), String::new()));
}
