"""Adds up the ranks of all processes; Open MPI starts them where the host file says."""

import socket

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank() + 1)
print(f"rank {world.Get_rank()} of {world.Get_size()}: sum {total} on {socket.gethostname()}", flush=True)
