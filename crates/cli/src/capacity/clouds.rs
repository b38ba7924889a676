//! The tiers of each cloud: the labels and taints of their nodes, as docs/capacity documents them and examples/capacity-tiers uses them.

use super::table::{Taint, Toleration};
use berth_api::CapacityTier::{self, OnDemand, Reserved, Spot};
use std::collections::BTreeMap;

/// Placeholder for the name of a reservation in node labels, taints and tolerations.
pub(crate) const RESERVATION: &str = "{reservation}";

/// The cloud that provides the nodes, or the owner of bare-metal nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cloud {
    /// Node pools on GKE, of TPUs or GPUs.
    Gke,
    /// Managed node groups on EKS: on-demand and spot only.
    Eks,
    /// Nodes that Karpenter makes.
    Karpenter,
    /// Node pools on AKS.
    Aks,
    /// Machines of your own.
    BareMetal,
}

/// Labels and taints of the nodes of a tier, and scheduling fields of the pods of the tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Nodes {
    /// Labels of the tier's nodes.
    pub(crate) labels: BTreeMap<String, String>,
    /// Taints of the tier's nodes.
    pub(crate) taints: Vec<Taint>,
    /// Tolerations of the tier's pods.
    pub(crate) tolerations: Vec<Toleration>,
    /// Labels of nodes that the tier's pods avoid.
    pub(crate) forbidden: Vec<String>,
}

impl Nodes {
    /// Nodes with one label and no taints.
    fn labelled(key: &str, value: &str) -> Self {
        Self { labels: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..Self::default() }
    }

    /// Nodes with a label and a taint of equal key and value; the pods tolerate the taint.
    fn tainted(key: &str, value: &str) -> Self {
        let (owned, effect) = (|text: &str| Some(text.to_owned()), "NoSchedule");
        Self {
            taints: vec![Taint { key: key.to_owned(), value: owned(value), effect: effect.to_owned() }],
            tolerations: vec![Toleration {
                key: owned(key),
                operator: owned("Equal"),
                value: owned(value),
                effect: owned(effect),
                toleration_seconds: None,
            }],
            ..Self::labelled(key, value)
        }
    }

    /// The nodes of a tier whose pods avoid nodes with one of these labels.
    fn avoiding(self, labels: &[&str]) -> Self {
        Self { forbidden: labels.iter().map(|label| (*label).to_owned()).collect(), ..self }
    }

    /// Whether a label of the tier's nodes contains the placeholder for a reservation's name.
    pub(crate) fn are_of_a_named_reservation(&self) -> bool {
        self.labels.values().any(|value| value.contains(RESERVATION))
    }
}

impl Cloud {
    /// All clouds with a preset of tiers.
    const ALL: [Self; 5] = [Self::Gke, Self::Eks, Self::Karpenter, Self::Aks, Self::BareMetal];

    /// The word for the cloud in capacity tables and flags.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Gke => "gke",
            Self::Eks => "eks",
            Self::Karpenter => "karpenter",
            Self::Aks => "aks",
            Self::BareMetal => "bare-metal",
        }
    }

    /// The cloud that a word stands for in capacity tables and flags.
    ///
    /// # Errors
    /// The error names the word and the allowed words.
    pub(crate) fn named(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|cloud| cloud.as_str() == word);
        let allowed = Self::ALL.map(Self::as_str).join(", ");
        found.ok_or_else(|| format!("{word:?} is no cloud that is known; allowed are {allowed}"))
    }

    /// Tiers of the cloud, best first. `capacity_label` is the node label in which the owner of the nodes stores the tier.
    ///
    /// # Errors
    /// The label is missing for nodes that only their owner labels, or is given for a cloud that sets its own labels.
    pub(crate) fn tiers(self, capacity_label: Option<&str>) -> Result<Vec<(CapacityTier, Nodes)>, String> {
        if capacity_label.is_some() && !matches!(self, Self::Aks | Self::BareMetal) {
            return Err(format!("{} labels its nodes itself; it is for aks and bare-metal only", self.as_str()));
        }
        Ok(match self {
            Self::Gke => {
                let (reservation, spot) = ("cloud.google.com/reservation-name", "cloud.google.com/gke-spot");
                let on_demand = Nodes::labelled("cloud.google.com/gke-provisioning", "standard");
                vec![
                    (Reserved, Nodes::tainted(reservation, RESERVATION).avoiding(&[spot])),
                    // Nodes of a GKE reservation have the label of on-demand nodes, too, so on-demand pods avoid the reservation label.
                    (OnDemand, on_demand.avoiding(&[reservation, spot])),
                    (Spot, Nodes::tainted(spot, "true").avoiding(&[reservation])),
                ]
            }
            Self::Eks => [(OnDemand, "ON_DEMAND"), (Spot, "SPOT")]
                .map(|(tier, value)| (tier, Nodes::labelled("eks.amazonaws.com/capacityType", value)))
                .to_vec(),
            Self::Karpenter => CapacityTier::ALL
                .map(|tier| (tier, Nodes::labelled("karpenter.sh/capacity-type", tier.as_str())))
                .to_vec(),
            Self::Aks => {
                let (label, spot) = (capacity_label.unwrap_or("capacity"), "kubernetes.azure.com/scalesetpriority");
                let is_spot = format!("{spot}=spot");
                let regular =
                    |tier: CapacityTier| (tier, Nodes::labelled(label, tier.as_str()).avoiding(&[is_spot.as_str()]));
                vec![regular(Reserved), regular(OnDemand), (Spot, Nodes::tainted(spot, "spot"))]
            }
            Self::BareMetal => {
                let missing = "is missing: name the node label by which your tiers are told apart, such as \
                               example.com/capacity with the values owned, lent and recallable";
                let label = capacity_label.ok_or(missing)?;
                vec![
                    (Reserved, Nodes::labelled(label, "owned")),
                    (OnDemand, Nodes::labelled(label, "lent")),
                    (Spot, Nodes::tainted(label, "recallable")),
                ]
            }
        })
    }
}
