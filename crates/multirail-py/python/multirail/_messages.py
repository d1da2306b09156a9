"""Messages between two ranks, which `send` and `recv` of `torch.distributed` move.

A thread for each direction to a rank moves them, so that two ranks which send to each other before
they receive do not wait for each other.
"""

import queue
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

import multirail as mr
from multirail._mesh import MESSAGES, Mesh
from multirail._multirail import exchange
from multirail._transfers import DTYPES, SMALL_BYTES, code_of, memory

# Tag, type of elements, length in bytes.
HEADER = struct.Struct("<iIQ")
# The most bytes, and messages, whose tags no call of recv has asked for yet.
UNEXPECTED_BYTES = 256 << 20
UNEXPECTED_COUNT = 10_000

Done = Callable[[BaseException | None], None]


@dataclass
class _Wanted:
    tag: int
    tensor: torch.Tensor
    done: Done


@dataclass
class _Came:
    tag: int
    dtype: int
    length: int
    # None while the bytes are still in the session.
    data: memoryview | None


class Peer:
    """The messages to and from one rank."""

    def __init__(self, mesh: Mesh, peer: int, timeout_s: Callable[[], float]) -> None:
        self._mesh, self._peer, self._timeout_s = mesh, peer, timeout_s
        self._out: queue.SimpleQueue[tuple[torch.Tensor, int, Done]] = queue.SimpleQueue()
        self._wanted: deque[_Wanted] = deque()
        self._came: deque[_Came] = deque()
        self._changed = threading.Condition()
        self._buffer = bytearray(HEADER.size + SMALL_BYTES)
        for call in (self._send_all, self._receive_all):
            threading.Thread(target=call, name="multirail-messages", daemon=True).start()

    def send(self, tensor: torch.Tensor, tag: int, done: Done) -> None:
        self._out.put((tensor, tag, done))

    def recv(self, tensor: torch.Tensor, tag: int, done: Done) -> None:
        with self._changed:
            self._wanted.append(_Wanted(tag, tensor, done))
            self._changed.notify()

    def _session(self) -> mr.Session:
        return self._mesh.session(self._peer, MESSAGES, self._timeout_s())

    def _send_all(self) -> None:
        while True:
            tensor, tag, done = self._out.get()
            try:
                self._mesh.check()
                self._send(tensor, tag)
            except mr.MultirailError as error:
                done(self._mesh.blame(error, self._peer))
            else:
                done(None)

    def _send(self, tensor: torch.Tensor, tag: int) -> None:
        session, data = self._session(), memory(tensor)
        header = HEADER.pack(tag, code_of(tensor.dtype), len(data))
        if len(data) <= SMALL_BYTES:
            exchange(session, header + bytes(data), None, None, self._timeout_s())
        else:
            exchange(session, header, None, None, self._timeout_s())
            exchange(session, data, None, None, self._timeout_s())

    def _receive_all(self) -> None:
        while True:
            with self._changed:
                while not self._wanted:
                    self._changed.wait()
            try:
                self._mesh.check()
                if not self._deliver():
                    self._receive()
            except mr.MultirailError as error:
                failed = self._mesh.blame(error, self._peer)
                with self._changed:
                    wanted, self._wanted = self._wanted, deque()
                for want in wanted:
                    want.done(failed)

    def _deliver(self) -> bool:
        """Whether a message that has come was for a call that waits."""
        with self._changed:
            pairs = ((want, came) for want in self._wanted for came in self._came)
            pair = next(((want, came) for want, came in pairs if want.tag == came.tag), None)
            if pair is None:
                return False
            self._wanted.remove(pair[0])
        want, came = pair
        into = memory(want.tensor)
        if (came.dtype, came.length) != (code_of(want.tensor.dtype), len(into)):
            # It stays, and a call with the right tensor gets it.
            name = self._mesh.name(self._peer)
            dtype = DTYPES[came.dtype] if came.dtype < len(DTYPES) else "unknown"
            kind = mr.TooLong if came.length > len(into) else mr.MultirailError
            want.done(
                kind(
                    f"{name} has sent {came.length} bytes of {dtype}, and "
                    f"recv has a tensor of {len(into)} bytes of {want.tensor.dtype}; the message "
                    "stays for the next recv with this tag",
                    self._mesh.host(self._peer),
                )
            )
            return True
        if came.data is None:
            try:
                exchange(None, None, self._session(), into, self._timeout_s())
            except mr.MultirailError as error:
                want.done(self._mesh.blame(error, self._peer))
                raise
        else:
            into[:] = came.data
        self._came.remove(came)
        want.done(None)
        return True

    def _receive(self) -> None:
        """The next message, or its header if it is long. The one before was for no call."""
        session = self._session()
        kept = sum(came.length for came in self._came)
        if kept > UNEXPECTED_BYTES or len(self._came) > UNEXPECTED_COUNT:
            raise mr.TooLong(
                f"{len(self._came)} messages of {kept} bytes have come with tags that no recv has "
                f"asked for; the limits are {UNEXPECTED_COUNT} and {UNEXPECTED_BYTES}"
            )
        if self._came and (last := self._came[-1]).data is None:
            room = memoryview(bytearray(last.length))
            exchange(None, None, session, room, self._timeout_s())
            last.data = room
            return
        length = exchange(None, None, session, self._buffer, self._timeout_s())
        if length < HEADER.size:
            raise mr.MultirailError("a message without a header")
        tag, dtype, data_length = HEADER.unpack(self._buffer[: HEADER.size])
        if data_length <= SMALL_BYTES and length != HEADER.size + data_length:
            raise mr.MultirailError("the header of a message has another length")
        is_small = data_length <= SMALL_BYTES
        data = memoryview(bytearray(self._buffer[HEADER.size : length])) if is_small else None
        self._came.append(_Came(tag, dtype, data_length, data))
