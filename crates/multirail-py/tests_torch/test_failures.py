"""Ranks that die, hang, or call something else; and messages that do not fit."""

import os
import signal
import time
import unittest

import multirail as mr
import ranks
import torch
import torch.distributed as dist
from multirail import _mesh


def dies(rank, size, length):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.ones(int(length))
    try:
        for _ in range(100):
            dist.all_reduce(tensor)
    except mr.MultirailError as error:
        print(f"{type(error).__name__}: {error}")
        # The rank that serves the store ends last.
        time.sleep(1)
        return
    raise AssertionError("no exception")


def stuck(rank, size):
    """Rank 2 waits for rank 0, which is busy elsewhere; rank 1 dies."""
    dist.barrier()
    if rank == 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        if rank == 0:
            dist.recv(torch.ones(3), 1)
        else:
            dist.broadcast(torch.ones(3), 0)
    except mr.Lost as error:
        print(error)
        return
    raise AssertionError("no exception")


def hangs(rank, size):
    if rank == 1:
        time.sleep(8)
        return
    try:
        dist.all_reduce(torch.ones(3))
    except mr.Timeout as error:
        print(error)
        return
    raise AssertionError("no exception")


def differ(rank, size, what):
    if what == "dtype":
        given = torch.ones(3, dtype=torch.float64 if rank == 1 else torch.int64)
    else:
        given = torch.ones(100_000 if rank == 1 else 99_999)
    try:
        dist.all_reduce(given)
    except mr.MultirailError as error:
        print(error)
        return
    raise AssertionError("no exception")


def messages(rank, size):
    peer = 1 - rank
    # Both send long messages before they receive.
    out, into = torch.full((300_000,), float(rank)), torch.empty(300_000)
    works = [dist.isend(out, peer, tag=1), dist.irecv(into, peer, tag=1)]
    for work in works:
        work.wait()
    if into[-1] != peer:
        raise AssertionError(f"{into}")
    if rank == 0:
        dist.send(torch.ones(3), 1, tag=7)
        dist.send(torch.full((100_000,), 2.0), 1, tag=8)
        return
    second, first = torch.empty(100_000), torch.empty(3)
    dist.recv(second, 0, tag=8)
    try:
        dist.recv(torch.empty(2), 0, tag=7)
    except mr.TooLong as error:
        print(error)
    dist.recv(first, 0, tag=7)
    if first.tolist() != [1, 1, 1] or second[-1] != 2:
        raise AssertionError(f"{first} {second}")


def versions(rank, size):
    _mesh.VERSION = f"{rank}.0"
    try:
        dist.new_group(backend="multirail")
    except mr.MultirailError as error:
        print(error)
        return
    raise AssertionError("no exception")


class Failures(unittest.TestCase):
    def test_a_rank_that_dies_is_named(self):
        for length in (5, 2_000_000):
            with self.subTest(length=length):
                said = ranks.run(dies, 3, length, failing=[1])
                for rank in (0, 2):
                    self.assertRegex(said[rank], r"rank 1 \(")

    def test_a_rank_that_waits_for_another_one_raises(self):
        said = ranks.run(stuck, 3, failing=[1])
        for rank in (0, 2):
            self.assertRegex(said[rank], r"rank 1 \(")

    def test_the_timeout_of_the_group(self):
        self.assertRegex(ranks.run(hangs, 2, timeout_s=3)[0], r"rank 1 \(.*in time")

    def test_different_tensors_are_named(self):
        self.assertRegex("".join(ranks.run(differ, 2, "dtype")), "float64.*int64|int64.*float64")
        self.assertRegex(
            "".join(ranks.run(differ, 2, "length")), "400000 bytes.*399996|399996.*400000"
        )

    def test_different_versions_are_named(self):
        said = "".join(ranks.run(versions, 2))
        self.assertRegex(said, r"rank 1 \(.*version 1.0 .* rank 0 .*0.0")

    def test_messages_and_their_tags(self):
        said = ranks.run(messages, 2)
        self.assertRegex(said[1], r"rank 0 \(.*12 bytes .*8 bytes")


if __name__ == "__main__":
    unittest.main()
