"""One rank: `collectives BACKEND OPERATION BYTES COUNT` prints {"ms": …} on rank 0.

BYTES is the size of the tensor that every rank ends up with: of all ranks together with all_gather.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

backend, operation, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group(backend)
rank, world = dist.get_rank(), dist.get_world_size()
tensor = torch.full((size // 4,), float(rank + 1))
part = tensor[: size // 4 // world].clone()


def once():
    match operation:
        case "all_reduce":
            dist.all_reduce(tensor)
        case "broadcast":
            dist.broadcast(tensor, 0)
        case "all_gather":
            dist.all_gather_into_tensor(tensor, part)


once()
first = {"all_reduce": world * (world + 1) / 2, "broadcast": 1.0, "all_gather": 1.0}[operation]
if tensor[0] != first:
    sys.exit(f"rank {rank}: the result is {tensor[0]} instead of {first}")
tensor.zero_()
times = []
for _ in range(count):
    dist.barrier()
    began = time.perf_counter()
    once()
    times.append(time.perf_counter() - began)
# A rank may leave an operation before others have finished: all wait for the slowest.
longest = torch.tensor(times)
dist.all_reduce(longest, dist.ReduceOp.MAX)
if rank == 0:
    print(json.dumps({"ms": 1e3 * longest.mean().item()}))
dist.barrier()
dist.destroy_process_group()
