"""Arrays, tensors and dictionaries of them as one row of bytes with a head of JSON."""

import json
import math
import struct
import sys
from typing import Any

from multirail.errors import MultirailError

_LENGTH = struct.Struct("<Q")
# The longest head that is read: some 100 bytes for each array.
HEAD_BYTES = 64 << 20
# The arrays begin at a multiple of it, which suits all types of elements.
_ALIGNMENT = 64
# NumPy's names of types, and the bytes of an element. bfloat16 is of PyTorch only.
_WIDTHS = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


def _is_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _describe(array: Any) -> tuple[str, str, list[int]]:
    """What an array is: of which library, its type, its shape."""
    if _is_tensor(array):
        return "torch", str(array.dtype).removeprefix("torch."), list(array.shape)
    if hasattr(array, "dtype") and hasattr(array, "shape"):
        return "numpy", str(array.dtype), list(array.shape)
    return "bytes", "uint8", [memoryview(array).nbytes]


def _bytes(array: Any) -> Any:
    """The memory of an array, for reading and writing."""
    if _is_tensor(array):
        from multirail._transfers import memory

        if array.device.type != "cpu" or not array.is_contiguous():
            raise BufferError("tensors must be contiguous and in the memory of the processor")
        return memory(array)
    view = memoryview(array)
    if not view.c_contiguous:
        raise BufferError("the array is not contiguous; pass a copy, as ascontiguousarray makes")
    return view.cast("B") if view.nbytes else b""


def pack(state: Any, **extra: Any) -> list[Any]:
    """The parts of a message: the head, and the memory of each array without a copy."""
    is_dictionary = isinstance(state, dict)
    arrays = state if is_dictionary else {"": state}
    head = {
        **extra,
        "is_dictionary": is_dictionary,
        "arrays": [[str(name), *_describe(array)] for name, array in arrays.items()],
    }
    for name, _, dtype, _ in head["arrays"]:
        if dtype not in _WIDTHS:
            raise TypeError(f"{name or 'the array'}: elements of {dtype} cannot be sent")
    text = json.dumps(head).encode()
    text += b" " * (-(_LENGTH.size + len(text)) % _ALIGNMENT)
    return [_LENGTH.pack(len(text)), text, *map(_bytes, arrays.values())]


def read_head(message: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The head of a message, and the bytes after it. Lengths are compared with the message."""
    try:
        (length,) = _LENGTH.unpack(message[: _LENGTH.size])
        if length > min(HEAD_BYTES, len(message)):
            raise ValueError("the head is longer than the message")
        head = json.loads(bytes(message[_LENGTH.size : _LENGTH.size + length]))
        rest = message[_LENGTH.size + length :]
        total = sum(_WIDTHS[dtype] * math.prod(shape) for _, _, dtype, shape in head["arrays"])
        if total != len(rest):
            raise ValueError(f"{len(rest)} bytes instead of {total}")
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise MultirailError(f"a message that cannot be read: {error}") from None
    return head, rest


def unpack(head: dict[str, Any], rest: memoryview, into: Any, sender: str) -> Any:
    """Fills `into`; without it, makes arrays that share the memory of the message."""
    arrays = None
    if into is not None:
        arrays = into if isinstance(into, dict) else {"": into}
        _compare(head, arrays, isinstance(into, dict), sender)
        arrays = {str(name): array for name, array in arrays.items()}
    made, start = {}, 0
    for name, library, dtype, shape in head["arrays"]:
        data = rest[start : start + _WIDTHS[dtype] * math.prod(shape)]
        start += len(data)
        if arrays is None:
            made[name] = _make(data, library, dtype, shape)
        elif len(data):
            _bytes(arrays[name])[:] = data
    if into is not None:
        return into
    return made if head["is_dictionary"] else made[""]


def _compare(
    head: dict[str, Any], arrays: dict[str, Any], is_dictionary: bool, sender: str
) -> None:
    """Everything is compared before anything is written."""
    if head["is_dictionary"] != is_dictionary:
        kinds = ("one array", "a dictionary")
        raise MultirailError(
            f"{sender} sends {kinds[head['is_dictionary']]}, and here is {kinds[is_dictionary]}"
        )
    theirs = {name: (dtype, shape) for name, _, dtype, shape in head["arrays"]}
    own = {str(name): tuple(_describe(array)[1:]) for name, array in arrays.items()}
    for name in theirs | own:
        label = name or "the array"
        if name not in own or name not in theirs:
            where = "here" if name not in own else f"at {sender}"
            raise MultirailError(f"{label} is missing {where}")
        if theirs[name] != own[name]:
            (dtype, shape), (own_dtype, own_shape) = theirs[name], own[name]
            raise MultirailError(
                f"{label} is {dtype} of shape {tuple(shape)} at {sender}, and {own_dtype} of shape "
                f"{tuple(own_shape)} here"
            )


def _make(data: memoryview, library: str, dtype: str, shape: list[int]) -> Any:
    if library == "bytes":
        return data
    if library == "numpy":
        import numpy

        return numpy.frombuffer(data, dtype).reshape(shape)
    import torch

    if not len(data):
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(data, dtype=getattr(torch, dtype)).view(shape)
