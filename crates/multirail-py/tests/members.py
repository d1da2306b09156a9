"""What tests of groups share: members in threads of one process."""

import socket

import multirail as mr
from hosts import LIMIT_S, TOKEN, in_thread


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(size, call, **options):
    """What `call(group)` returns for each rank."""
    master = f"127.0.0.1:{free_port()}"

    def member(rank):
        with mr.Group(rank, size, master, token=TOKEN, timeout=LIMIT_S, **options) as group:
            result = call(group)
            group.barrier()
            return result

    results = [in_thread(lambda rank=rank: member(rank)) for rank in range(size)]
    return [result() for result in results]
