"""Collective operations on contiguous tensors in the memory of the processor.

Small tensors go over few hops: recursive doubling, binomial trees, and the algorithms of Bruck and
of dissemination. Large ones go around a ring, or along a chain, in segments. Both are described in
Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH,
International Journal of High Performance Computing Applications 19 (2005).
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from multirail._transfers import Transfers, memory

# Tensors of up to this length go over few hops. Recursive doubling moves the whole tensor in each
# hop, so that rings are faster earlier.
SHORT_BYTES = 128 << 10
DOUBLING_BYTES = 48 << 10

# Rings move this much at once, so that adding and moving overlap.
SEGMENT_BYTES = 2 << 20
# Chains move a tensor in this many segments, or more: each rank waits for a whole one before it
# sends it on. Shorter ones than these would cost more calls.
CHAIN_SEGMENTS = 16
MIN_CHAIN_SEGMENT_BYTES = 64 << 10

_NOTHING = memoryview(b"")
_NO_ROOM = memoryview(bytearray())

Combine = Callable[[torch.Tensor, torch.Tensor], object]

COMBINE: dict[str, Combine] = {
    "sum": lambda into, other: into.add_(other),
    "avg": lambda into, other: into.add_(other),
    "product": lambda into, other: into.mul_(other),
    "min": lambda into, other: torch.minimum(into, other, out=into),
    "max": lambda into, other: torch.maximum(into, other, out=into),
    "band": lambda into, other: into.bitwise_and_(other),
    "bor": lambda into, other: into.bitwise_or_(other),
    "bxor": lambda into, other: into.bitwise_xor_(other),
}


class Collectives:
    """The operations of one process group, which one thread at a time calls."""

    def __init__(self, transfers: Transfers) -> None:
        self._t = transfers
        self._rank = transfers.rank
        self._size = transfers.size
        self._adding: ThreadPoolExecutor | None = None

    def close(self) -> None:
        if self._adding:
            self._adding.shutdown(wait=False)

    def barrier(self) -> None:
        """Dissemination: in round k, each rank tells the one 2^k further."""
        distance = 1
        while distance < self._size:
            to, source = (self._rank + distance) % self._size, (self._rank - distance) % self._size
            self._t.swap(to, _NOTHING, source, _NO_ROOM)
            distance *= 2

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """A binomial tree if the tensor is small, else a chain of all ranks from the root on."""
        data = memory(tensor)
        place = (self._rank - root) % self._size
        if len(data) > SHORT_BYTES:
            self._chain(data, place, root)
            return
        distance = 1
        while distance < self._size:
            if place < distance:
                if place + distance < self._size:
                    to = (self._rank + distance) % self._size
                    self._t.swap(to, data, None, _NO_ROOM)
            elif place < 2 * distance:
                self._t.swap(None, _NOTHING, (self._rank - distance) % self._size, data)
            distance *= 2

    def _chain(self, data: memoryview, place: int, root: int) -> None:
        source = (self._rank - 1) % self._size if place > 0 else None
        to = (self._rank + 1) % self._size if place < self._size - 1 else None
        self._t.swap(to, _NOTHING, source, _NO_ROOM, said=len(data))
        length = _chain_segment_bytes(len(data))
        starts = [*range(0, len(data), length)]
        # A segment is sent on while the next one comes.
        for step in range(len(starts) + 1):
            out = data[starts[step - 1] :][:length] if step > 0 else _NOTHING
            into = data[starts[step] :][:length] if step < len(starts) else _NO_ROOM
            sends, receives = to is not None and step > 0, source is not None and len(into) > 0
            if sends or receives:
                self._t.swap_more(to if sends else None, out, source if receives else None, into)

    def all_reduce(self, tensor: torch.Tensor, reduction: str) -> None:
        """Recursive doubling if the tensor is small, else a ring."""
        flat = tensor.view(-1)
        if self._size == 1 or len(memory(flat)) <= DOUBLING_BYTES:
            self._double(flat, COMBINE[reduction])
            if reduction == "avg":
                _divide(flat, self._size)
            return
        bounds = [flat.numel() * block // self._size for block in range(self._size + 1)]
        self._ring_reduce_scatter(flat, bounds, COMBINE[reduction])
        if reduction == "avg":
            _divide(flat[bounds[self._rank] : bounds[self._rank + 1]], self._size)
        data, width = memory(flat), flat.element_size()
        self._ring_all_gather(
            [data[bounds[b] * width : bounds[b + 1] * width] for b in range(self._size)]
        )

    def _double(self, flat: torch.Tensor, combine: Combine) -> None:
        """All ranks get the same bits, as both sides of a pair combine the same two numbers."""
        data, other = memory(flat), torch.empty_like(flat)
        room = memory(other)
        power = 1 << (self._size.bit_length() - 1)
        # Of the first ranks, each even one lets the next one do its part.
        pairs = self._size - power
        if self._rank < 2 * pairs:
            if self._rank % 2 == 0:
                self._t.swap(self._rank + 1, data, None, _NO_ROOM)
                self._t.swap(None, _NOTHING, self._rank + 1, data)
                return
            self._t.swap(None, _NOTHING, self._rank - 1, room)
            combine(flat, other)
        number = self._rank // 2 if self._rank < 2 * pairs else self._rank - pairs
        distance = 1
        while distance < power:
            partner = number ^ distance
            partner = partner * 2 + 1 if partner < pairs else partner + pairs
            self._t.swap(partner, data, partner, room)
            combine(flat, other)
            distance *= 2
        if self._rank < 2 * pairs:
            self._t.swap(self._rank - 1, data, None, _NO_ROOM)

    def _ring_reduce_scatter(self, flat: torch.Tensor, bounds: list[int], combine: Combine) -> None:
        """Block r of the tensor is reduced at rank r; the other blocks are overwritten."""
        size, width, data = self._size, flat.element_size(), memory(flat)
        to, source = (self._rank + 1) % size, (self._rank - 1) % size
        self._t.swap(to, _NOTHING, source, _NO_ROOM, said=len(data))
        longest = max(bounds[b + 1] - bounds[b] for b in range(size))
        pieces = max(1, -(-longest * width // SEGMENT_BYTES))
        room = flat.new_empty(2, -(-longest // pieces))

        def piece(block: int, number: int) -> tuple[int, int]:
            start, length = bounds[block], bounds[block + 1] - bounds[block]
            return start + length * number // pieces, start + length * (number + 1) // pieces

        # What was added `pieces` transfers ago is sent now. The room is used again after two.
        added: list[Future[object] | None] = []
        for step in range(size - 1):
            for number in range(pieces):
                for earlier in (len(added) - pieces, len(added) - 2):
                    if earlier >= 0 and (adding := added[earlier]) is not None:
                        adding.result()
                a, b = piece((self._rank - step - 1) % size, number)
                c, d = piece((self._rank - step - 2) % size, number)
                came = room[len(added) % 2, : d - c]
                self._t.swap_more(
                    to if b > a else None, data[a * width : b * width],
                    source if d > c else None, memory(came),
                )  # fmt: skip
                added.append(self._combine(combine, flat[c:d], came, pieces > 1))
        for adding in added[-2:]:
            if adding is not None:
                adding.result()

    def _combine(
        self, combine: Combine, into: torch.Tensor, other: torch.Tensor, in_thread: bool
    ) -> "Future[object] | None":
        if not in_thread:
            combine(into, other)
            return None
        if self._adding is None:
            self._adding = ThreadPoolExecutor(1, "multirail-add")
        return self._adding.submit(combine, into, other)

    def all_gather(self, blocks: list[memoryview]) -> None:
        """Each rank gets the blocks of all: Bruck's algorithm if they are small, else a ring."""
        length = len(blocks[self._rank])
        if self._size == 1 or length * self._size <= SHORT_BYTES:
            self._bruck(blocks, length)
        else:
            right, left = (self._rank + 1) % self._size, (self._rank - 1) % self._size
            self._t.swap(right, _NOTHING, left, _NO_ROOM, said=length)
            self._ring_all_gather(blocks)

    def _bruck(self, blocks: list[memoryview], length: int) -> None:
        """Block i of the room is that of the rank i further. The room doubles in each round."""
        room = memoryview(bytearray(length * self._size))
        room[:length] = blocks[self._rank]
        have = 1
        while have < self._size:
            count = min(have, self._size - have)
            self._t.swap(
                (self._rank - have) % self._size, room[: count * length],
                (self._rank + have) % self._size, room[have * length : (have + count) * length],
            )  # fmt: skip
            have += count
        for place in range(1, self._size):
            blocks[(self._rank + place) % self._size][:] = room[place * length :][:length]

    def _ring_all_gather(self, blocks: list[memoryview]) -> None:
        size = self._size
        to, source = (self._rank + 1) % size, (self._rank - 1) % size
        for step in range(size - 1):
            out, into = blocks[(self._rank - step) % size], blocks[(self._rank - step - 1) % size]
            if out or into:
                self._t.swap_more(to if out else None, out, source if into else None, into)

    def reduce_scatter(self, flat: torch.Tensor, reduction: str) -> torch.Tensor:
        """The part of this rank of the sum; `flat` is overwritten. All parts have one length."""
        count = flat.numel() // self._size
        if self._size == 1 or len(memory(flat)) <= DOUBLING_BYTES:
            self._double(flat, COMBINE[reduction])
        else:
            bounds = [count * block for block in range(self._size + 1)]
            self._ring_reduce_scatter(flat, bounds, COMBINE[reduction])
        own = flat[count * self._rank : count * (self._rank + 1)]
        if reduction == "avg":
            _divide(own, self._size)
        return own

    def reduce(self, tensor: torch.Tensor, root: int, reduction: str) -> None:
        """A binomial tree if the tensor is small, else a chain. Only the root's is changed."""
        flat = tensor.view(-1)
        place = (self._rank - root) % self._size
        if len(memory(flat)) <= SHORT_BYTES:
            self._tree_reduce(flat, place, COMBINE[reduction])
        else:
            self._chain_reduce(flat, place, COMBINE[reduction])
        if reduction == "avg" and place == 0:
            _divide(flat, self._size)

    def _tree_reduce(self, flat: torch.Tensor, place: int, combine: Combine) -> None:
        total = flat if place == 0 else flat.clone()
        other = torch.empty_like(flat)
        distance = 1
        while distance < self._size:
            if place & distance:
                to = (self._rank - distance) % self._size
                self._t.swap(to, memory(total), None, _NO_ROOM)
                return
            if place + distance < self._size:
                source = (self._rank + distance) % self._size
                self._t.swap(None, _NOTHING, source, memory(other))
                combine(total, other)
            distance *= 2

    def _chain_reduce(self, flat: torch.Tensor, place: int, combine: Combine) -> None:
        source = (self._rank + 1) % self._size if place < self._size - 1 else None
        to = (self._rank - 1) % self._size if place > 0 else None
        length = len(memory(flat))
        self._t.swap(to, _NOTHING, source, _NO_ROOM, said=length)
        parts = list(flat.split(max(1, _chain_segment_bytes(length) // flat.element_size())))
        room = flat.new_empty(2, parts[0].numel())
        out = _NOTHING
        for step in range(len(parts) + 1):
            came = room[step % 2, : parts[step].numel()] if step < len(parts) else None
            sends, receives = to is not None and step > 0, source is not None and came is not None
            if sends or receives:
                self._t.swap_more(
                    to if sends else None, out,
                    source if receives else None, memory(came) if receives else _NO_ROOM,
                )  # fmt: skip
            if came is None:
                return
            if source is None:
                out = memory(parts[step])
            elif to is None:
                combine(parts[step], came)
            else:
                combine(came, parts[step])
                out = memory(came)

    def all_to_all(self, blocks_out: list[memoryview], blocks_in: list[memoryview]) -> None:
        """In step i, each rank sends to the one i further, and receives from the one i before."""
        blocks_in[self._rank][:] = blocks_out[self._rank]
        for step in range(1, self._size):
            to, source = (self._rank + step) % self._size, (self._rank - step) % self._size
            self._t.swap(to, blocks_out[to], source, blocks_in[source])

    def gather(self, own: memoryview, blocks: list[memoryview], root: int) -> None:
        """The root receives from one rank after the other."""
        if self._rank != root:
            self._t.swap(root, own, None, _NO_ROOM)
            return
        for source, block in enumerate(blocks):
            if source == root:
                block[:] = own
            else:
                self._t.swap(None, _NOTHING, source, block)

    def scatter(self, own: memoryview, blocks: list[memoryview], root: int) -> None:
        """The root sends to one rank after the other."""
        if self._rank != root:
            self._t.swap(None, _NOTHING, root, own)
            return
        for to, block in enumerate(blocks):
            if to == root:
                own[:] = block
            else:
                self._t.swap(to, block, None, _NO_ROOM)


def _chain_segment_bytes(length: int) -> int:
    return min(max(MIN_CHAIN_SEGMENT_BYTES, -(-length // CHAIN_SEGMENTS)), SEGMENT_BYTES)


def _divide(tensor: torch.Tensor, by: int) -> None:
    tensor.div_(by, rounding_mode=None if tensor.is_floating_point() else "trunc")
