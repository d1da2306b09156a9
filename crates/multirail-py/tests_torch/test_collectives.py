"""Collective operations, with those of Gloo as the truth."""

import os
import random
import unittest

import ranks
import torch
import torch.distributed as dist

ROUNDS = 60
# Elements of a tensor: nothing, one, those around the limit of small ones, and several segments.
LENGTHS = [0, 1, 3, 17, 1000, 16_000, 16_400, 70_001, 700_000]
SUMS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
BITS = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64]


def values(generator, length, dtype):
    """Numbers of which sums and products of a few are exact in every dtype."""
    made = torch.randint(-2, 3, (length,), generator=generator)
    return made.to(dtype)


def compare(rank, size, seed):
    gloo = dist.new_group(backend="gloo")
    choose, numbers = (
        random.Random(int(seed)),
        torch.Generator().manual_seed(int(seed) * 100 + rank),
    )
    for round_ in range(ROUNDS):
        name = choose.choice(sorted(OPERATIONS))
        length, dtype = choose.choice(LENGTHS), choose.choice(DTYPES)
        root, choice = choose.randrange(size), choose.random()
        case = values(numbers, length * size, dtype)
        results = []
        for group in (None, gloo):
            results.append(OPERATIONS[name](group, rank, size, case.clone(), root, choice))
        for own, truth in zip(*results, strict=True):
            if not torch.equal(own, truth):
                raise AssertionError(
                    f"round {round_}: {name} {length} {dtype} root {root}: {own} is not {truth}"
                )


def reduction(tensor, choice):
    kinds = SUMS + ([] if tensor.is_floating_point() else BITS)
    return kinds[int(choice * len(kinds))]


def all_reduce(group, rank, size, tensor, root, choice):
    works = [dist.all_reduce(tensor, reduction(tensor, choice), group, async_op=True)]
    works[0].wait()
    return [tensor]


def all_reduce_now(group, rank, size, tensor, root, choice):
    dist.all_reduce(tensor, reduction(tensor, choice), group)
    return [tensor]


def reduce(group, rank, size, tensor, root, choice):
    dist.reduce(tensor, root, reduction(tensor, choice), group)
    return [tensor] if rank == root else []


def broadcast(group, rank, size, tensor, root, choice):
    dist.broadcast(tensor, root, group)
    return [tensor]


def all_gather(group, rank, size, tensor, root, choice):
    outputs = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(outputs, tensor, group)
    return outputs


def all_gather_single(group, rank, size, tensor, root, choice):
    output = tensor.new_empty(size * tensor.numel())
    dist.all_gather_into_tensor(output, tensor, group)
    return [output]


def reduce_scatter(group, rank, size, tensor, root, choice):
    output = tensor.new_empty(tensor.numel() // size)
    dist.reduce_scatter(output, list(tensor.chunk(size)), reduction(tensor, choice), group) if (
        tensor.numel()
    ) else None
    return [output]


def reduce_scatter_single(group, rank, size, tensor, root, choice):
    output = tensor.new_empty(tensor.numel() // size)
    dist.reduce_scatter_tensor(output, tensor, dist.ReduceOp.SUM, group)
    return [output]


def all_to_all(group, rank, size, tensor, root, choice):
    output = torch.empty_like(tensor)
    dist.all_to_all_single(output, tensor, group=group)
    return [output]


def all_to_all_uneven(group, rank, size, tensor, root, choice):
    # Rank i sends (i + j) % size + 1 rows to rank j.
    sizes = [(rank + other) % size + 1 for other in range(size)]
    given = torch.arange(sum(sizes) * 7000).view(-1, 7000) + rank * 1000
    output = torch.empty_like(given)
    dist.all_to_all_single(output, given, sizes, sizes, group=group)
    return [output]


def gather(group, rank, size, tensor, root, choice):
    outputs = [torch.empty_like(tensor) for _ in range(size)] if rank == root else None
    dist.gather(tensor, outputs, root, group)
    return outputs or []


def scatter(group, rank, size, tensor, root, choice):
    output = tensor.new_empty(tensor.numel() // size)
    parts = [part.contiguous() for part in tensor.chunk(size)] if rank == root else None
    if tensor.numel():
        dist.scatter(output, parts, root, group)
    return [output]


def columns(group, rank, size, tensor, root, choice):
    """A tensor whose elements are not one after another."""
    column = tensor.repeat(2).view(-1, 2)[:, 0] if tensor.numel() else tensor
    column = column if group is None else column.contiguous()
    dist.all_reduce(column, group=group)
    return [column.contiguous()]


def barrier(group, rank, size, tensor, root, choice):
    dist.barrier(group)
    return []


OPERATIONS = {
    call.__name__: call
    for call in (
        all_reduce, all_reduce_now, reduce, broadcast, all_gather, all_gather_single,
        reduce_scatter, reduce_scatter_single, all_to_all, all_to_all_uneven, gather, scatter,
        columns, barrier,
    )
}  # fmt: skip


def every(rank, size, seed):
    """Each operation once with a small and once with a large tensor."""
    gloo = dist.new_group(backend="gloo")
    for length in (5, 30_000):
        numbers = torch.Generator().manual_seed(int(seed) * 100 + rank)
        case = values(numbers, length * size, torch.float32)
        for name, call in OPERATIONS.items():
            own = call(None, rank, size, case.clone(), size - 1, 0.0)
            truth = call(gloo, rank, size, case.clone(), size - 1, 0.0)
            for one, other in zip(own, truth, strict=True):
                if not torch.equal(one, other):
                    raise AssertionError(f"{name} {length}: {one} is not {other}")


def averages(rank, size):
    for length in (3, 300_000):
        tensor = torch.full((length,), float(rank))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        if not torch.equal(tensor, torch.full((length,), (size - 1) / 2)):
            raise AssertionError(f"{tensor}")


def asynchronous(rank, size):
    tensors = [torch.full((length,), rank + 1.0) for length in (10, 200_000, 1, 50_000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    doubled = [future.then(lambda done: done.value()[0] * 2) for future in futures]
    for work, tensor, double in zip(works, tensors, doubled, strict=True):
        work.wait()
        if not work.is_completed():
            raise AssertionError("an operation that was waited for is not over")
        total = size * (size + 1) / 2
        if tensor[0] != total or double.wait()[0] != 2 * total:
            raise AssertionError(f"{tensor[0]} {double.wait()[0]}")


def subgroups(rank, size):
    members = [1, size - 1]
    group = dist.new_group(members)
    tensor = torch.full((100_000,), float(rank))
    if rank in members:
        dist.all_reduce(tensor, group=group)
        if tensor[0] != sum(members):
            raise AssertionError(f"{tensor}")
        dist.broadcast(tensor, size - 1, group)
    elif tensor[0] != rank:
        raise AssertionError("a rank outside the group has another tensor")
    dist.barrier()


def coalesced(rank, size):
    tensors = [torch.full((length,), rank + 1.0) for length in (10, 200_000, 1)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        if tensor[-1] != size * (size + 1) / 2:
            raise AssertionError(f"{tensor}")


class Collectives(unittest.TestCase):
    def test_each_operation_once(self):
        for size in (1, 2, 3, 4):
            with self.subTest(size=size):
                ranks.run(every, size, 1)

    def test_random_operations(self):
        seed = int(os.environ.get("MULTIRAIL_TEST_SEED", random.randrange(1 << 20)))
        for size in (2, 3, 4):
            with self.subTest(size=size, seed=seed):
                ranks.run(compare, size, seed)

    def test_averages(self):
        ranks.run(averages, 3)

    def test_asynchronous_operations(self):
        ranks.run(asynchronous, 3)

    def test_a_group_of_some_ranks(self):
        ranks.run(subgroups, 4)

    def test_coalesced_operations(self):
        ranks.run(coalesced, 2)


if __name__ == "__main__":
    unittest.main()
