# The launcher of an MPIJob: `mpirun`, with what it takes that workers are hosts of this machine.
set -e
PATH="$PATH:/usr/sbin:/sbin"
# Daemons of Open MPI do not talk to each other over the loopback.
ip link add pods0 type veth peer name pods1
ip address add 10.97.0.1/24 dev pods0
ip link set pods0 up
ip link set pods1 up
export PRTE_MCA_plm_ssh_agent="sh mpi_ssh.sh"
# Each daemon has one child, as some have where workers are more than 64.
export PRTE_MCA_rml_base_radix=1
exec mpirun --allow-run-as-root python mpi_allreduce.py
