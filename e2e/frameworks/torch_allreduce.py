"""Adds up the ranks of all workers; how they find each other is what the environment says, by torchrun or without it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {total.item()}", flush=True)
dist.destroy_process_group()
