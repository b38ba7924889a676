//! Nodes from a short description, with the labels and taints that the clouds give them.

use anyhow::Result;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};

use crate::kinds::{self, NODE};
use crate::wait::{self, Seen};

/// The way in which the capacity of a pool is bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// A named reservation.
    Reserved(String),
    /// On demand.
    OnDemand,
    /// Spot capacity, which is cheap and which the cloud takes away without asking.
    Spot,
}

/// The devices of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// A node without accelerators: cores and GiB of memory.
    Cpu {
        /// Cores.
        cores: u32,
        /// Memory in GiB.
        memory: u32,
    },
    /// A TPU node: accelerator type, topology of the slice, and number of chips of one node.
    Tpu {
        /// Value of the node's accelerator label, for example `tpu-v5-lite-podslice`.
        accelerator: String,
        /// Value of the node's topology label, for example `2x4`.
        topology: String,
        /// Chips of one node.
        chips: u32,
    },
    /// A GPU node: accelerator type and number of devices of one node.
    Gpu {
        /// Value of the node's accelerator label, for example `nvidia-h100-80gb`.
        accelerator: String,
        /// Devices of one node.
        count: u32,
    },
}

/// A pool of `count` equal nodes with the names `<name>-0`, `<name>-1`, and so on.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// Number of nodes.
    pub count: u32,
    /// Tier.
    pub tier: Tier,
    /// Machine.
    pub machine: Machine,
    /// Further labels.
    pub labels: Vec<(String, String)>,
    /// Further resources of each node of the pool, with their amounts.
    pub offers: Vec<(String, String)>,
}

impl Pool {
    /// A pool of TPU v5e hosts with 4 chips each.
    pub fn tpu(name: &str, count: u32, tier: Tier) -> Pool {
        let machine =
            Machine::Tpu { accelerator: "tpu-v5-lite-podslice".to_owned(), topology: "2x4".to_owned(), chips: 4 };
        Pool { name: name.to_owned(), count, tier, machine, labels: Vec::new(), offers: Vec::new() }
    }

    /// A pool of H100 hosts with 8 devices each.
    pub fn gpu(name: &str, count: u32, tier: Tier) -> Pool {
        let machine = Machine::Gpu { accelerator: "nvidia-h100-80gb".to_owned(), count: 8 };
        Pool { name: name.to_owned(), count, tier, machine, labels: Vec::new(), offers: Vec::new() }
    }

    /// A pool of CPU hosts with 32 cores each.
    pub fn cpu(name: &str, count: u32, tier: Tier) -> Pool {
        let machine = Machine::Cpu { cores: 32, memory: 128 };
        Pool { name: name.to_owned(), count, tier, machine, labels: Vec::new(), offers: Vec::new() }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Pool {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds a resource.
    #[must_use]
    pub fn offers(mut self, resource: &str, amount: &str) -> Pool {
        self.offers.push((resource.to_owned(), amount.to_owned()));
        self
    }

    /// Manifest of node number `index`.
    pub fn node(&self, index: u32) -> Value {
        let name = format!("{}-{index}", self.name);
        let mut labels = Map::new();
        let mut taints = Vec::new();
        let mut put = |key: &str, value: &str| {
            labels.insert(key.to_owned(), Value::from(value));
        };
        put("kubernetes.io/hostname", &name);
        put("kubernetes.io/arch", "amd64");
        put("kubernetes.io/os", "linux");
        put("topology.kubernetes.io/region", "us-central1");
        put("topology.kubernetes.io/zone", "us-central1-a");
        put("cloud.google.com/gke-nodepool", &self.name);
        match &self.tier {
            Tier::Reserved(reservation) => {
                put("cloud.google.com/gke-provisioning", "standard");
                put("cloud.google.com/reservation-name", reservation);
                taints.push(taint("cloud.google.com/reservation-name", reservation));
            }
            Tier::OnDemand => put("cloud.google.com/gke-provisioning", "standard"),
            Tier::Spot => {
                put("cloud.google.com/gke-provisioning", "spot");
                put("cloud.google.com/gke-spot", "true");
                taints.push(taint("cloud.google.com/gke-spot", "true"));
            }
        }
        let mut capacity = Map::new();
        match &self.machine {
            Machine::Cpu { cores, memory } => {
                put("node.kubernetes.io/instance-type", &format!("n2-standard-{cores}"));
                resources(&mut capacity, *cores, *memory);
            }
            Machine::Tpu { accelerator, topology, chips } => {
                put("node.kubernetes.io/instance-type", &format!("ct5lp-hightpu-{chips}t"));
                put("cloud.google.com/gke-tpu-accelerator", accelerator);
                put("cloud.google.com/gke-tpu-topology", topology);
                taints.push(taint("google.com/tpu", "present"));
                resources(&mut capacity, 112, 192);
                capacity.insert("google.com/tpu".to_owned(), Value::from(chips.to_string()));
            }
            Machine::Gpu { accelerator, count } => {
                put("node.kubernetes.io/instance-type", &format!("a3-highgpu-{count}g"));
                put("cloud.google.com/gke-accelerator", accelerator);
                put("cloud.google.com/gke-gpu", "true");
                taints.push(taint("nvidia.com/gpu", "present"));
                resources(&mut capacity, 208, 1872);
                capacity.insert("nvidia.com/gpu".to_owned(), Value::from(count.to_string()));
            }
        }
        for (resource, amount) in &self.offers {
            capacity.insert(resource.clone(), Value::from(amount.as_str()));
        }
        for (key, value) in &self.labels {
            labels.insert(key.clone(), Value::from(value.as_str()));
        }
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"capacity": capacity, "allocatable": capacity},
        })
    }
}

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

fn resources(capacity: &mut Map<String, Value>, cores: u32, memory: u32) {
    capacity.insert("cpu".to_owned(), Value::from(cores.to_string()));
    capacity.insert("memory".to_owned(), Value::from(format!("{memory}Gi")));
    capacity.insert("ephemeral-storage".to_owned(), Value::from("100Gi"));
    capacity.insert("pods".to_owned(), Value::from("110"));
}

/// Creates the nodes of the pools and waits until kwok has made them Ready.
///
/// # Errors
/// Fails if the API server refuses a node, or if a node is not Ready in time.
pub async fn create(client: &Client, pools: &[Pool]) -> Result<()> {
    let manifests: Vec<Value> =
        pools.iter().flat_map(|pool| (0..pool.count).map(move |index| pool.node(index))).collect();
    join(client, &manifests).await
}

/// Creates nodes from manifests as [`create`] does from pools, for nodes that differ from those of GKE.
///
/// # Errors
/// Fails if the API server refuses a node, or if a node is not Ready in time.
pub async fn join(client: &Client, manifests: &[Value]) -> Result<()> {
    let api = NODE.all(client);
    let mut names = Vec::new();
    for manifest in manifests {
        let name = kinds::text(manifest, "/metadata/name").to_owned();
        let params = PostParams { field_manager: Some(kinds::USER.to_owned()), ..Default::default() };
        match api.create(&params, &serde_json::from_value(manifest.clone())?).await {
            Ok(_) => {}
            Err(kube::Error::Api(s)) if s.is_already_exists() => {}
            Err(e) => return Err(e.into()),
        }
        // A creation ignores the node's status, so the status is written separately.
        let status = json!({"status": manifest.get("status")});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        names.push(name);
    }
    wait::until(wait::STEP, "all nodes Ready and without the not-ready taint", || async {
        let nodes = NODE.list(client, "").await?;
        let missing: Vec<&str> =
            names.iter().map(String::as_str).filter(|n| !nodes.iter().any(|o| ready(o, n))).collect();
        Ok(Seen::when(missing.is_empty(), || format!("not ready: {}", missing.join(", "))))
    })
    .await
}

fn ready(node: &Value, name: &str) -> bool {
    kinds::text(node, "/metadata/name") == name
        && kinds::condition(node, "Ready") == "True"
        && !kinds::items(node, "/spec/taints").iter().any(|t| kinds::text(t, "/key").starts_with("node.kubernetes.io/"))
}
