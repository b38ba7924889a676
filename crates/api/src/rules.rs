//! Patterns and CEL rules that several kinds share in their schemas.

use serde_json::{Value, json};

/// RFC 1123 subdomain, the shape of most object names.
pub(crate) const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// RFC 1123 label.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// RFC 1035-like label in any case, the shape of a kind.
pub(crate) const KIND: &str = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$";
/// Qualified name: optional subdomain prefix, slash, name.
pub(crate) const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// `x-kubernetes-validations` from (rule, message) pairs.
pub(crate) fn rules(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// The value may never change.
pub(crate) fn immutable() -> Value {
    rules(&[("self == oldSelf", "field is immutable")])
}

/// Entries of a scalar list are unique.
pub(crate) fn unique() -> Value {
    rules(&[("self.all(a, self.exists_one(b, a == b))", "must be unique")])
}

/// Exactly one of two fields is present.
pub(crate) fn one_of(first: &str, second: &str) -> Value {
    rules(&[(
        &format!("has(self.{first}) ? !has(self.{second}) : has(self.{second})"),
        &format!("exactly one of the fields in [{first} {second}] must be set"),
    )])
}

/// What makes a list of tolerations legal.
pub(crate) fn tolerations() -> Value {
    rules(&[
        (
            "self.all(t, has(t.key) || (has(t.operator) && t.operator == 'Exists'))",
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        ),
        (
            "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        ),
        (
            "self.all(t, !has(t.operator) || t.operator == 'Equal' || t.operator == 'Exists')",
            "supported toleration values: 'Equal'(default), 'Exists'",
        ),
        (
            "self.all(t, !has(t.value) || !has(t.operator) || t.operator != 'Exists')",
            "a value must be empty when 'operator' is 'Exists'",
        ),
        ("self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])", TAINT_EFFECTS),
    ])
}

/// What makes a list of taints legal.
pub(crate) fn taints() -> Value {
    rules(&[("self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])", TAINT_EFFECTS)])
}

const TAINT_EFFECTS: &str = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'";
