"""Messages of collective operations: a header that both sides compare, and the bytes of tensors."""

import ctypes
import struct
import time
from collections.abc import Callable
from typing import Any

import torch

import multirail as mr
from multirail._mesh import COLLECTIVES, Mesh
from multirail._multirail import exchange

# Tensors of up to this length are sent together with the header. The session copies a message of
# up to 64 KiB and returns, so that two ranks can send to each other without waiting.
SMALL_BYTES = (64 << 10) - 64

# Operation, type of elements, reduction, nothing, root, sequence number, length in bytes.
HEADER = struct.Struct("<BBBBIQQ")

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
OPERATIONS = [
    "barrier", "broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter",
    "all_to_all", "gather", "scatter",
]  # fmt: skip
REDUCTIONS = ["none", "sum", "avg", "product", "min", "max", "band", "bor", "bxor"]
_CODE_OF_DTYPE = {dtype: code for code, dtype in enumerate(DTYPES)}

_from_memory: Callable[..., memoryview] = ctypes.pythonapi.PyMemoryView_FromMemory
_from_memory.restype = ctypes.py_object  # type: ignore[attr-defined]
_from_memory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]  # type: ignore[attr-defined]
_WRITABLE = 0x200
_EMPTY = memoryview(bytearray())


def memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor, which must live as long as they are used."""
    length = tensor.numel() * tensor.element_size()
    return _from_memory(tensor.data_ptr(), length, _WRITABLE) if length else _EMPTY


def code_of(dtype: torch.dtype) -> int:
    code = _CODE_OF_DTYPE.get(dtype)
    if code is None:
        raise TypeError(f"tensors of {dtype} are not supported by the backend multirail")
    return code


class Transfers:
    """The transfers of one process group. Only one thread uses it at a time."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.rank = mesh.rank
        self.size = mesh.size
        self._out = bytearray(HEADER.size + SMALL_BYTES)
        self._in = bytearray(HEADER.size + SMALL_BYTES)
        self._out_view = memoryview(self._out)
        self._in_view = memoryview(self._in)
        self._sequence = 0
        self._end = 0.0
        self._head = (0, 0, 0, 0)

    def begin(
        self, operation: str, dtype: torch.dtype | None, timeout_s: float,
        *, root: int = 0, reduction: str = "none",
    ) -> None:  # fmt: skip
        """An operation begins, and must be over within a time."""
        self.mesh.check()
        self._sequence += 1
        code = 255 if dtype is None else code_of(dtype)
        self._head = (OPERATIONS.index(operation), code, REDUCTIONS.index(reduction), root)
        self._end = time.monotonic() + timeout_s

    def _header(self, length: int) -> bytes:
        operation, dtype, reduction, root = self._head
        return HEADER.pack(operation, dtype, reduction, 0, root, self._sequence, length)

    def _exchange(self, to: int | None, message: Any, source: int | None, buffer: Any) -> int:
        sessions = self.mesh._sessions
        try:
            return exchange(
                None if to is None else sessions[COLLECTIVES, to],
                message,
                None if source is None else sessions[COLLECTIVES, source],
                buffer,
                max(0.0, self._end - time.monotonic()),
            )
        except mr.MultirailError as error:
            raise self.mesh.blame(error, source, to) from None
        except KeyboardInterrupt:
            self.mesh.fail(mr.Lost(f"{self.mesh.name(self.rank)} was interrupted"))
            raise

    def swap(
        self, to: int | None, message: memoryview, source: int | None, buffer: memoryview,
        *, said: int | None = None,
    ) -> None:  # fmt: skip
        """Send to one rank, and receive from another, at the same time.

        The first message of an operation to a rank is sent with this, as it has the header. `said`
        is the length that the headers have instead of that of the messages.
        """
        header = self._header(len(message) if said is None else said)
        expected = self._header(len(buffer) if said is None else said)
        is_small_out = len(message) <= SMALL_BYTES
        is_small_in = len(buffer) <= SMALL_BYTES
        end = HEADER.size + (len(message) if is_small_out else 0)
        self._out[: HEADER.size] = header
        if is_small_out:
            self._out_view[HEADER.size : end] = message
        length = self._exchange(to, self._out_view[:end], source, self._in_view)
        if source is not None:
            self._compare(source, expected, length - HEADER.size, len(buffer) if is_small_in else 0)
            if is_small_in:
                buffer[:] = self._in_view[HEADER.size : length]
        if not (is_small_out and is_small_in):
            self.swap_more(
                None if is_small_out else to, message, None if is_small_in else source, buffer
            )

    def swap_more(
        self, to: int | None, message: memoryview, source: int | None, buffer: memoryview
    ) -> None:
        """As `swap`, without headers, between ranks that have compared them."""
        length = self._exchange(to, message, source, buffer)
        if source is not None and length != len(buffer):
            self._fail(source, f"has sent {length} bytes instead of {len(buffer)}")

    def _compare(self, source: int, expected: bytes, length: int, expected_length: int) -> None:
        got = self._in[: HEADER.size]
        if got == expected and length == expected_length:
            return
        if length < 0:
            self._fail(source, "has sent a message without a header")
        theirs, own = HEADER.unpack(got), HEADER.unpack(expected)
        self._fail(
            source,
            f"does {describe(theirs)}, and rank {self.rank} does {describe(own)}; all ranks must "
            "call the same operations in the same order, with the same shapes and dtypes",
        )

    def _fail(self, source: int, text: str) -> None:
        error = mr.MultirailError(f"{self.mesh.name(source)} {text}", self.mesh.host(source))
        raise self.mesh.fail(error)


def describe(header: tuple[int, ...]) -> str:
    """What a header says, for people."""
    operation, dtype, reduction, _, root, sequence, length = header

    def of(names: list[Any], code: int) -> str:
        return str(names[code]) if code < len(names) else str(code)

    parts = [f"operation {sequence}: {of(OPERATIONS, operation)}"]
    if reduction:
        parts.append(of(REDUCTIONS, reduction))
    if dtype != 255:
        parts.append(f"of {length} bytes of {of(DTYPES, dtype)}")
    if OPERATIONS[operation : operation + 1] in (
        ["broadcast"],
        ["reduce"],
        ["gather"],
        ["scatter"],
    ):
        parts.append(f"with root {root}")
    return " ".join(parts)
