"""Adds up the ranks of all workers; `paddle.distributed.launch` says how they find each other."""

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
total = paddle.to_tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {int(total.item())}", flush=True)
