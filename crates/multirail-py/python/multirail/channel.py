"""Arrays between two processes of one host, in memory that both share.

>>> import multirail as mr, numpy as np
>>> channel = mr.Channel()
>>> x = channel.empty((2, 3), "f4")
>>> x[:] = 1
>>> channel.send(x)
>>> channel.recv().sum()
np.float32(6.0)
"""

import math
import secrets
from typing import Any

from multirail._multirail import Slot, Slots
from multirail._values import ARRAY, array_header, decode, encode

__all__ = ["Channel"]

# Room for a header beside the elements of an array.
HEADER_BYTES = 4096


class Channel:
    """Values from one process to another one of the same user and host.

    One process sends and one receives, each in one thread. One of them makes the channel, and the
    other one gets it by `pickle`, as an argument of a process of `multiprocessing`, while the first
    one has it. There is room for `slots` values of `value_bytes` bytes. A value needs its room
    until the receiver drops it.

    Raises Closed after the other process has closed the channel, and Lost if it has ended.
    """

    def __init__(self, *, slots: int = 8, value_bytes: int = 1 << 20) -> None:
        self._number = secrets.randbits(64)
        self._slots = Slots.create(slots, value_bytes + HEADER_BYTES, self._number)

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return _open, (self._slots.path(), self._number)

    def empty(
        self, shape: int | tuple[int, ...], dtype: Any, *, timeout: float | None = None
    ) -> Any:
        """An array in the shared memory, with unspecified elements, to be filled and sent.

        It waits until the receiver has dropped a value, at most `timeout` seconds.
        """
        import numpy

        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        header = array_header(numpy.dtype(dtype), shape)
        elements = numpy.dtype(dtype).itemsize * math.prod(shape)
        length = self._fits(len(header) + elements)
        memory = memoryview(self._slots.take(timeout))
        memory[: len(header)] = header
        return decode(ARRAY, memory[:length])

    def _fits(self, length: int) -> int:
        if length > self._slots.slot_bytes():
            raise ValueError(
                f"a value of {length} bytes, with its header, in a slot of "
                f"{self._slots.slot_bytes()}; raise value_bytes"
            )
        return length

    def send(self, value: Any, *, timeout: float | None = None) -> None:
        """Send a value.

        An array of `empty` is sent as it is, and must not be used afterwards. Anything else that
        goes through a pipeline is copied into the shared memory, once there is room.
        """
        tag, header, content = encode(value)
        view = memoryview(content).cast("B")
        length = self._fits(len(header) + len(view))
        slot = _slot_of(value)
        is_there = slot is not None and _address(view) == _address(slot) + len(header)
        if slot is None or not is_there:
            slot = self._slots.take(timeout)
            memoryview(slot)[len(header) : length] = view
        memoryview(slot)[: len(header)] = header
        self._slots.send(slot, tag, length)

    def recv(self, *, timeout: float | None = None) -> Any:
        """The next value. After `timeout` seconds, Timeout is raised.

        An array is in the shared memory, which the sender can use again once the array and its
        views are dropped.
        """
        return decode(*self._slots.receive(timeout))

    def close(self) -> None:
        """End the channel. Values that were sent can still be received."""
        self._slots.close()


def _slot_of(value: Any) -> Slot | None:
    """The slot in which an array is."""
    while hasattr(value, "__array_interface__"):
        value = value.base
    slot = value.obj if isinstance(value, memoryview) else None
    return slot if isinstance(slot, Slot) else None


def _address(memory: Any) -> int:
    import numpy

    return numpy.frombuffer(memory, "u1").__array_interface__["data"][0]


def _open(path: str, number: int) -> Channel:
    channel = Channel.__new__(Channel)
    channel._number = number
    channel._slots = Slots.open(path, number)
    return channel
