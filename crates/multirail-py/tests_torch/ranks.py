"""Runs a function in several processes, each a rank of a process group."""

import importlib
import os
import subprocess
import sys
import tempfile

# Seconds that the processes may take; the tests fail instead of standing still.
LIMIT_S = 120
TOKEN = "a secret for these tests"


def run(call, size, *arguments, timeout_s=60, failing=()):
    """What each rank printed. Ranks in `failing` may end with any status; others must succeed.

    `call` is a function of a module of the tests; it gets the rank, the size and the arguments.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "MULTIRAIL_TOKEN": TOKEN,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.path.dirname(os.path.abspath(__file__)),
        }
        where = [call.__module__, call.__name__, os.path.join(folder, "store")]
        processes = [
            subprocess.Popen(
                [sys.executable, "-B", os.path.abspath(__file__), *where]
                + [str(each) for each in (rank, size, timeout_s, *arguments)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            ended = [process.communicate(timeout=LIMIT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
        bad = [
            f"rank {rank}: status {process.returncode}\n{said}{errors}"
            for rank, (process, (said, errors)) in enumerate(zip(processes, ended, strict=True))
            if process.returncode and rank not in failing
        ]
        if bad:
            raise AssertionError("\n".join(bad))
        return [said for said, _ in ended]


def main():
    import datetime

    import torch.distributed as dist

    module, name, path, rank, size, timeout_s, *arguments = sys.argv[1:]
    rank, size = int(rank), int(size)
    store = dist.FileStore(path, size)
    dist.init_process_group(
        "multirail",
        store=store,
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=float(timeout_s)),
    )
    getattr(importlib.import_module(module), name)(rank, size, *arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
