"""One host of a broadcast: `weights gloo|ray|multirail BYTES`.

It prints `ready` when a small array has arrived, waits for a line, and prints `done` with the time
at which the array was there; the root's time is that at which it began. Hosts of one machine have
the same clock.
"""

import os
import subprocess
import sys
import time

import numpy as np

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SMALL_BYTES = 1 << 20
READY_S = 300
RAY_PORT = 6379


def with_gloo(size):
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["INTERFACE"]
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
    root = f"{os.environ['MASTER_ADDR']}:{RAY_PORT}"
    where = (
        ["--head", "--port", str(RAY_PORT), "--include-dashboard=false"]
        if RANK == 0
        else ["--address", root]
    )
    command = [
        sys.executable,
        os.path.join(os.path.dirname(sys.executable), "ray"),
        "start",
        "--block",
        *where,
    ]
    command += [
        "--node-ip-address",
        os.environ["HOST_ADDRESS"],
        "--num-cpus",
        "1",
        "--disable-usage-stats",
    ]
    command += [
        "--object-store-memory",
        str(2 * size),
        "--temp-dir",
        f"{os.environ['FOLDER']}/ray-{RANK}",
    ]
    quiet = subprocess.DEVNULL
    node = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=sys.stderr)
    try:
        if RANK == 0:
            drive_ray(root, size)
        else:
            # The root says `done` for all hosts; this one only runs a node.
            print("ready", flush=True)
            sys.stdin.readline()
            print("done 0", flush=True)
            node.wait()
    finally:
        node.terminate()


def drive_ray(root, size):
    import ray

    until = time.monotonic() + READY_S
    while True:
        try:
            ray.init(address=root, logging_level="ERROR", log_to_driver=False)
            break
        except ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(1)
    while sum(node["Alive"] for node in ray.nodes()) < WORLD_SIZE:
        if time.monotonic() > until:
            sys.exit(f"only {len(ray.nodes())} of {WORLD_SIZE} nodes after {READY_S} s")
        time.sleep(1)

    @ray.remote(num_cpus=1)
    class Worker:
        def take(self, array):
            return time.time(), array.nbytes, int(array[-1])

    workers = [Worker.options(scheduling_strategy="SPREAD").remote() for _ in range(WORLD_SIZE)]
    small, array = (np.full(count, 1, "u1") for count in (SMALL_BYTES, size))
    ray.get([worker.take.remote(ray.put(small)) for worker in workers])
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    ref = ray.put(array)
    found = ray.get([worker.take.remote(ref) for worker in workers])
    if any((count, last) != (size, 1) for _, count, last in found):
        sys.exit(f"a worker has another array: {found}")
    # As if the root had begun so much earlier.
    print("done", began - max(at for at, _, _ in found), flush=True)


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
