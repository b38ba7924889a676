//! Node taints, and tolerations of them.

/// Effect of a taint; a taint with the effect `PreferNoSchedule` never rules a flavor out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// `NoSchedule`.
    NoSchedule,
    /// `PreferNoSchedule`.
    PreferNoSchedule,
    /// `NoExecute`.
    NoExecute,
}

/// A node taint declared by a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Taint key.
    pub key: String,
    /// Taint value, empty when absent.
    pub value: String,
    /// Taint effect.
    pub effect: TaintEffect,
}

/// Relation between the value of a taint and the value of a toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum TolerationOp {
    /// The values are equal.
    #[default]
    Equal,
    /// The toleration applies to every value of the taint.
    Exists,
    /// The taint's value is an integer larger than the toleration's value.
    Gt,
    /// The taint's value is an integer smaller than the toleration's value.
    Lt,
    /// The operator or the effect is unknown: the toleration tolerates nothing.
    Illegal,
}

/// A toleration of a pod or flavor. A toleration with an empty `key` and the operator `Exists` tolerates every taint.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash)]
pub struct Toleration {
    /// Key of the taint; an empty key matches every key.
    pub key: String,
    /// Operator.
    pub op: TolerationOp,
    /// Value of the toleration, which the operator compares with the taint's value.
    pub value: String,
    /// Effect of the taint; `None` matches every effect.
    pub effect: Option<TaintEffect>,
}
