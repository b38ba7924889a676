//! Tests of the module `bad_fields`: every rule has a case, and the function `judge` notices each missing part of the API server's answer.

use super::*;

#[test]
fn rule_of_every_field_has_a_case() {
    for kind in KINDS {
        let cases = cases(kind, &groups(kind).unwrap()).unwrap();
        let gaps = uncovered(&schema(kind).unwrap(), &cases);
        assert!(gaps.is_empty(), "{}: {} rules without a case:\n{}", kind.kind, gaps.len(), gaps.join("\n"));
    }
}

fn case(field: &str, value: Value, words: &str) -> Case {
    let (field, words) = (field.to_owned(), words.to_owned());
    Case { field, value, object: Value::Null, change: false, words, value_in_message: ValueInMessage::AsIs }
}

#[test]
fn rule_without_case_and_case_without_field_are_named() {
    let schema = json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "tiers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "enum": ["a", "b"]}},
        "patience": {"type": "object", "additionalProperties": {"pattern": "^s$"}},
        "template": {"type": "object", "properties": {"spec": {"type": "object"}}},
        "kind": {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "must stay"}]},
        "range": {"x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "message": "min must not be greater", "fieldPath": ".min"},
            {"rule": "self == oldSelf", "message": "must stay"},
        ], "properties": {"min": {"multipleOf": 5}, "max": {"format": "int32", "maximum": 5}}},
    }});
    let cases = [
        case("spec", json!("x"), "must be of type object"),
        case("spec.size", json!("x"), "must be of type integer"),
        case("spec.size", json!(0), "should be greater than or equal to 1"),
        case("spec.tiers[0]", json!(1), "must be of type string"),
        case("spec.tiers[1]", json!("a"), "Duplicate value"),
        case("spec.patience[spot]", json!("x"), "should match '^s$'"),
        case("spec.range.max", json!(6), "should be less than or equal to 5"),
        case("spec.range", json!({}), "must stay"),
        Case { change: true, ..case("spec.kind", json!("x"), "must stay") },
        case("spec.tiers.first", json!("x"), "must be of type string"),
        case("spec.gone", json!("x"), "must be of type string"),
    ];
    assert_eq!(
        uncovered(&schema, &cases),
        [
            "spec.tiers.first: the schema has no such field",
            "spec.gone: the schema has no such field",
            "spec.patience: no case of: must be of type object",
            "spec.range: no change of: must stay",
            "spec.range.max: no case of: an int32 without both bounds",
            "spec.range.min: no case of: min must not be greater",
            "spec.range.min: no case of: multipleOf, which this test does not know",
            "spec.size: no case of: should be less than or equal to 9",
            "spec.size: no case of: Required value",
            "spec.template: no case of: must be of type object",
            "spec.tiers: no case of: must be of type array",
            "spec.tiers[]: no case of: supported values: \"a\", \"b\"",
        ]
    );
}

#[test]
fn case_value_is_put_at_its_field_path() {
    let good = json!({"spec": {"roles": [{"name": "a"}], "mpi": {"x": 1, "y": 2}}});
    for (field, value, expected) in [
        ("spec.roles[0].name", json!(5), json!({"roles": [{"name": 5}], "mpi": {"x": 1, "y": 2}})),
        (
            "spec.roles[1]",
            json!({"name": "b"}),
            json!({"roles": [{"name": "a"}, {"name": "b"}], "mpi": {"x": 1, "y": 2}}),
        ),
        ("spec.roles[0].name", Value::Null, json!({"roles": [{}], "mpi": {"x": 1, "y": 2}})),
        ("spec.mpi", json!({"x": null, "z": 3}), json!({"roles": [{"name": "a"}], "mpi": {"y": 2, "z": 3}})),
        ("spec.mpi", json!("x"), json!({"roles": [{"name": "a"}], "mpi": "x"})),
        ("spec.tiers[0]", json!("x"), json!({"roles": [{"name": "a"}], "mpi": {"x": 1, "y": 2}, "tiers": ["x"]})),
    ] {
        let mut object = good.clone();
        put(&mut object, &steps(field), &value).unwrap();
        assert_eq!(object["spec"], expected, "{field}");
    }
    for field in ["spec.roles[2].name", "spec.roles.name", "spec.gone"] {
        assert!(put(&mut good.clone(), &steps(field), &Value::Null).is_err(), "{field}");
    }
    assert_eq!(spelled(&json!({"long": 3})), json!("aaa"));
    assert_eq!(spelled(&json!({"many": 2})), json!(["n0", "n1"]));
    assert_eq!(spelled(&json!({"entries": 2})), json!({"n0": "x", "n1": "x"}));
}

fn answer(field: &str, message: &str) -> Value {
    json!({"message": format!("X \"bad-field\" is invalid: {field}: {message}"),
        "details": {"causes": [{"field": field, "message": message}]}})
}

#[test]
fn refusal_without_field_value_or_words_is_noticed() {
    let words = "should be greater than or equal to 1";
    let given = case("spec.size", json!(0), words);
    assert_eq!(
        judge(&given, Some(&answer("spec.size", &format!("Invalid value: 0: spec.size in body {words}")))),
        Ok(())
    );
    for (field, message) in [
        ("spec", format!("Invalid value: 0: spec.size in body {words}")),
        ("spec.size", format!("Invalid value: {words}")),
        ("spec.size", format!("Invalid value: 05: spec.size in body {words}")),
        ("spec.size", "Invalid value: 0: is wrong".to_owned()),
    ] {
        assert!(judge(&given, Some(&answer(field, &message))).is_err(), "{field}: {message}");
    }
    assert_eq!(judge(&given, None), Err("accepted".to_owned()));
    let unseen =
        json!({"message": "no", "details": answer("spec.size", &format!("Invalid value: 0: {words}"))["details"]});
    assert!(judge(&given, Some(&unseen)).is_err(), "what is in the causes only is not shown");
}

#[test]
fn refusal_of_too_long_text_names_only_field_and_limit() {
    let words = "may not be more than 3 bytes";
    let given = case("spec.name", json!("aaaa"), words);
    assert_eq!(judge(&given, Some(&answer("spec.name", &format!("Too long: {words}")))), Ok(()));
    for (field, message) in [
        ("spec", format!("Too long: {words}")),
        ("spec.name", "Too long: may not be more than 30 bytes".to_owned()),
        ("spec.name", "Too long".to_owned()),
        ("spec.name", format!("Invalid value: \"aaaa\": {words}")),
    ] {
        assert!(judge(&given, Some(&answer(field, &message))).is_err(), "{field}: {message}");
    }
}

#[test]
fn value_in_words_must_follow_what_is_allowed() {
    let given = |part: &str| Case {
        value_in_message: ValueInMessage::Behind(part.to_owned()),
        ..case("spec.roles", json!([{"name": "launcher"}]), "may have the roles ps and chief")
    };
    let reported = answer("spec.roles", "Invalid value: may have the roles ps and chief, not launcher");
    assert_eq!(judge(&given("not launcher"), Some(&reported)), Ok(()));
    assert!(judge(&given("not evaluator"), Some(&reported)).is_err());
    assert!(judge(&given("ps"), Some(&reported)).is_err(), "that is allowed");
    let message = "Invalid value: \"object\": may have the roles ps and chief";
    assert!(judge(&given("object"), Some(&answer("spec.roles", message))).is_err());
}

#[test]
fn case_value_is_shown_as_is_or_in_words() {
    assert_eq!(value_in_message(&[]).unwrap(), ValueInMessage::AsIs);
    assert_eq!(value_in_message(&[json!({"tells": "not x"})]).unwrap(), ValueInMessage::Behind("not x".to_owned()));
    for how in [json!("no value"), json!({"tells": ""}), json!({"told": "x"})] {
        assert!(value_in_message(std::slice::from_ref(&how)).is_err(), "{how}");
    }
    assert!(value_in_message(&[json!({"tells": "x"}), json!({"tells": "y"})]).is_err());
}

#[test]
fn expected_value_is_printed_as_the_api_server_prints_it() {
    for (value, words, shown_as) in [
        (json!("x"), "must be of type integer", Some("\"string\"")),
        (json!(5), "must be of type string", Some("\"integer\"")),
        (json!(true), "must be of type integer,string", Some("\"boolean\"")),
        (json!("x"), "should match '^a$'", Some("\"x\"")),
        (json!(-1), "should be greater than or equal to 0", Some("-1")),
        (json!(["a", "b"]), "must have at most 1 items", Some("2")),
        (json!([]), "should have at least 1 items", Some("0")),
        (json!({"a": 1, "b": 1}), "must have at most 1 items", Some("2")),
        (json!({"name": "ps"}), "Duplicate value", Some("{\"name\":\"ps\"}")),
        (Value::Null, "Required value", None),
        (json!({"a": null, "b": null}), "one of a and b must be set", None),
        (json!({"a": null, "b": 1}), "b must not be set", Some("{\"a\":null,\"b\":1}")),
        (json!({}), "one of a and b must be set", Some("{}")),
    ] {
        assert_eq!(shown(&case("spec.x", value, words)).as_deref(), shown_as, "{words}");
    }
}
