//! Rendezvous of MPI: a launcher starts processes over SSH on the workers that a host file lists.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, KeyToPath, ProjectedVolumeSource, SecretProjection, Volume, VolumeMount, VolumeProjection,
};
use serde_json::{Value, json};

use super::party::{Party, Variables};
use crate::training::role::{LAUNCHER, Role, WORKER};

/// File name of the host list for Open MPI.
const HOST_FILE: &str = "hostfile";
/// File name of the host list for Hydra, the process manager of MPICH and Intel MPI.
const MACHINE_FILE: &str = "machinefile";
const HOST_FOLDER: &str = "/etc/mpi";
const HOST_VOLUME: &str = "berth-mpi-hosts";
const SSH_VOLUME: &str = "berth-mpi-ssh";
/// File mode of a private SSH key, which ssh requires: only the owner may read.
const SSH_MODE: i32 = 0o400;
/// File names of OpenSSH for the keys of a Secret of the type `kubernetes.io/ssh-auth`, and of Kubeflow's Secret with its public key.
const SSH_FILES: [(&str, &str); 3] =
    [("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"), ("ssh-publickey", "authorized_keys")];

/// The host files: one line per worker with its number of process slots.
pub(super) fn host_file(party: &Party<'_>) -> Value {
    let given = party.job.spec.mpi.as_ref().and_then(|mpi| mpi.slots_per_worker);
    let slots = given.unwrap_or_else(|| party.gpus.max(1));
    let lines = |between: &str| -> String {
        party.hosts(WORKER).into_iter().map(|host| format!("{host}{between}{slots}\n")).collect()
    };
    json!({HOST_FILE: lines(" slots="), MACHINE_FILE: lines(":")})
}

/// Arguments that Open MPI passes to ssh.
const SSH_ARGUMENTS: &str = "-o ConnectionAttempts=10 -o StrictHostKeyChecking=no";

/// Variables with the host files for Open MPI, Intel MPI and MPICH, which only the launcher needs.
///
/// Open MPI 4 reads the variables of ORTE, and Open MPI 5 reads those of PRRTE; each ignores the other's. PRRTE calls a host by its name up to the first dot,
/// which is the pod's host name, and passes the full name to ssh, so `prte_keep_fqdn_hostnames` keeps its default.
pub(super) fn variables(role: &str) -> Variables {
    if role != LAUNCHER {
        return Vec::new();
    }
    let (file, machines) = (format!("{HOST_FOLDER}/{HOST_FILE}"), format!("{HOST_FOLDER}/{MACHINE_FILE}"));
    vec![
        ("OMPI_MCA_orte_default_hostfile", file.clone()),
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "true".to_owned()),
        ("OMPI_MCA_plm_rsh_args", SSH_ARGUMENTS.to_owned()),
        ("PRTE_MCA_prte_default_hostfile", file),
        ("PRTE_MCA_plm_ssh_args", SSH_ARGUMENTS.to_owned()),
        // Without this variable, PRRTE would let workers start other workers if there are more than 64, and would then pass neither full host names nor
        // arguments with a `=`.
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "true".to_owned()),
        ("I_MPI_HYDRA_HOST_FILE", machines.clone()),
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh".to_owned()),
        ("HYDRA_HOST_FILE", machines),
    ]
}

/// The Secret's keys under the file names of OpenSSH, as far as the Secret has them, and its other entries unchanged.
fn ssh_files(secret: &str) -> ProjectedVolumeSource {
    let source = |items: Option<Vec<KeyToPath>>, optional: bool| VolumeProjection {
        secret: Some(SecretProjection { name: secret.to_owned(), items, optional: Some(optional) }),
        ..VolumeProjection::default()
    };
    let named = SSH_FILES.map(|(key, path)| KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: None });
    let sources = vec![source(Some(named.to_vec()), true), source(None, false)];
    ProjectedVolumeSource { default_mode: Some(SSH_MODE), sources: Some(sources) }
}

/// Mounts the host file and the SSH keys; a worker without a command of its own runs an SSH server.
pub(super) fn mount(party: &Party<'_>, role: &mut Role) {
    let spec = role.template.spec.get_or_insert_default();
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    let mut put = |volume: Volume, path: &str| {
        let name = volume.name.clone();
        mounts.push(VolumeMount { name, mount_path: path.to_owned(), read_only: Some(true), ..VolumeMount::default() });
        volumes.push(volume);
    };
    if role.name == LAUNCHER {
        let source = ConfigMapVolumeSource { name: party.host_map(), ..ConfigMapVolumeSource::default() };
        let volume = Volume { name: HOST_VOLUME.to_owned(), config_map: Some(source), ..Volume::default() };
        put(volume, HOST_FOLDER);
    }
    let mpi = party.job.spec.mpi.clone().unwrap_or_default();
    if let (Some(secret), Some(path)) = (mpi.ssh_auth_secret, mpi.ssh_auth_mount_path) {
        put(Volume { name: SSH_VOLUME.to_owned(), projected: Some(ssh_files(&secret)), ..Volume::default() }, &path);
    }
    if !volumes.is_empty() {
        spec.volumes.get_or_insert_default().append(&mut volumes);
    }
    if let Some((main, _)) = spec.containers.split_first_mut() {
        if !mounts.is_empty() {
            main.volume_mounts.get_or_insert_default().append(&mut mounts);
        }
        let idle = main.command.as_ref().is_none_or(Vec::is_empty) && main.args.as_ref().is_none_or(Vec::is_empty);
        if role.name == WORKER && idle {
            main.command = Some(vec!["/usr/sbin/sshd".to_owned(), "-De".to_owned()]);
        }
    }
}
