"""One host of a broadcast: `weights gloo|ray|multirail BYTES`.

It prints `ready` when a small array has arrived, waits for a line, and prints `done` with the time
at which the array was there; the root's time is that at which it began. With Ray, the root alone
runs, and prints the time between both. Hosts of one machine have the same clock.
"""

import os
import sys
import time

import numpy as np

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SMALL_BYTES = 1 << 20
# 16 nodes of Ray share two processors when they start.
READY_S = 300


def with_gloo(size):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    small, tensor = (
        torch.full((count,), RANK + 1, dtype=torch.uint8) for count in (SMALL_BYTES, size)
    )
    dist.broadcast(small, 0)
    run(lambda: dist.broadcast(tensor, 0), tensor.numpy)


def with_multirail(size):
    import multirail as mr

    token = mr.Token.from_file(os.environ["MULTIRAIL_TOKEN_FILE"])
    with mr.Group.from_env(token=token) as group:
        small, array = (np.full(count, RANK + 1, "u1") for count in (SMALL_BYTES, size))
        group.broadcast(small, root=0)
        run(lambda: group.broadcast(array, root=0), lambda: array)


def with_ray(size):
    """Only on the root: the other hosts are nodes of its cluster, which RAY_ADDRESS names."""
    import ray

    ray.init(logging_level="ERROR", log_to_driver=False)
    until = time.monotonic() + READY_S
    while sum(node["Alive"] for node in ray.nodes()) < WORLD_SIZE:
        if time.monotonic() > until:
            sys.exit(f"only {len(ray.nodes())} of {WORLD_SIZE} nodes after {READY_S} s")
        time.sleep(1)

    @ray.remote(num_cpus=1)
    class Worker:
        def take(self, array):
            return time.time(), array.nbytes, int(array[0]), int(array[-1])

    # A node has one CPU.
    workers = [Worker.remote() for _ in range(WORLD_SIZE)]
    small, array = (np.full(count, 1, "u1") for count in (SMALL_BYTES, size))
    ray.get([worker.take.remote(ray.put(small)) for worker in workers])
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    ref = ray.put(array)
    found = ray.get([worker.take.remote(ref) for worker in workers])
    if any(of_worker[1:] != (size, 1, 1) for of_worker in found):
        sys.exit(f"a worker has another array: {found}")
    print("done", max(at for at, *_ in found) - began, flush=True)
    sys.stdin.readline()


def run(broadcast, result):
    """Waits for the word, broadcasts and checks."""
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    broadcast()
    at = time.time()
    found = result()
    if found[0] != 1 or found[-1] != 1:
        sys.exit(f"rank {RANK} has {found[0]} and {found[-1]}")
    print("done", began if RANK == 0 else at, flush=True)
    # Others may still be served by this host.
    sys.stdin.readline()


if __name__ == "__main__":
    {"gloo": with_gloo, "multirail": with_multirail, "ray": with_ray}[sys.argv[1]](int(sys.argv[2]))
