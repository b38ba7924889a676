"""Adds up the ranks of all processes; how they find each other is what the environment says."""

import os

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
)

import jax.numpy as jnp  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

ranks = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1]))
print(f"rank {jax.process_index()} of {jax.process_count()}: sum {int(ranks.sum())}", flush=True)
jax.distributed.shutdown()
