//! Selectors of labels and of nodes.

/// Operators of label selectors and node selector terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectorOp {
    /// Value is one of.
    In,
    /// The label's value is none of the given values, or the label's key is absent.
    NotIn,
    /// Key present.
    Exists,
    /// Key absent.
    DoesNotExist,
    /// The label's value is an integer greater than the given integer (node affinity only).
    Gt,
    /// The label's value is an integer less than the given integer (node affinity only).
    Lt,
    /// Not an operator of Kubernetes: each value of the requirement is an error message in Kubernetes' words, which begins with the name of the invalid field.
    Illegal,
}

/// One requirement on labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Operator.
    pub op: SelectorOp,
    /// Values with which the operator compares the label's value.
    pub values: Vec<String>,
}

/// A label selector: every requirement must hold. An entry of `matchLabels` is a requirement with the operator `In` and one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(pub Vec<Requirement>);
