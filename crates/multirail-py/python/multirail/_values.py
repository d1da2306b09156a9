"""The values that go through a pipeline, as buffers: a tag, a header and bytes.

The tag says what the bytes are. `bytes` and arrays arrive as such, and other objects with the
buffer protocol as a memoryview. An array's header has its type and shape; nothing is pickled.
"""

import math
import struct
import sys
from typing import Any

BYTES, VIEW, ARRAY = 0x0100, 0x0101, 0x0102
MAX_DIMENSIONS = 32
# Types of one number: bool, integers, floats, complex numbers, dates and times.
_KINDS = "biufcmM"
_LENGTHS = struct.Struct("<HH")
# The header's length is a multiple of it, so that the elements are aligned.
_ALIGNMENT = 16
_MAX_TYPE_BYTES = 32


def encode(value: Any) -> tuple[int, bytes, Any]:
    """The tag, the header and the object with the bytes of a value."""
    if type(value) is bytes:
        return BYTES, b"", value
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return _encode_array(numpy, value)
    if isinstance(value, bytes):
        return BYTES, b"", value
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"a {type(value).__name__} cannot go through a pipeline; pass bytes or an array of "
            "numbers"
        ) from None
    return VIEW, b"", view if view.c_contiguous else view.tobytes()


def _encode_array(numpy: Any, value: Any) -> tuple[int, bytes, Any]:
    array = numpy.asarray(value)
    header = array_header(array.dtype, array.shape)
    # Dates have no buffer protocol.
    return ARRAY, header, numpy.ascontiguousarray(array).reshape(-1).view("u1")


def array_header(kind: Any, shape: tuple[int, ...]) -> bytes:
    """What comes before the elements of an array of this dtype and shape."""
    if kind.kind not in _KINDS:
        raise TypeError(
            f"an array of dtype {kind} cannot go through a pipeline; numbers, dates and times can"
        )
    if len(shape) > MAX_DIMENSIONS:
        raise TypeError(f"an array of {len(shape)} dimensions; the most are {MAX_DIMENSIONS}")
    name = kind.str.encode()
    header = _LENGTHS.pack(len(name), len(shape)) + name + struct.pack(f"<{len(shape)}Q", *shape)
    return header + bytes(-len(header) % _ALIGNMENT)


def decode(tag: int, buffer: Any) -> Any:
    """The value in a buffer. An array is a view of it, and may be written to."""
    if tag == BYTES:
        return bytes(buffer)
    if tag == VIEW:
        return memoryview(buffer)
    if tag != ARRAY:
        raise ValueError(f"a buffer with the unknown tag {tag}: the versions of multirail differ")
    return _decode_array(memoryview(buffer))


def _decode_array(view: memoryview) -> Any:
    import numpy

    if len(view) < _LENGTHS.size:
        raise ValueError("an array without a header")
    name_bytes, dimensions = _LENGTHS.unpack_from(view)
    end = _LENGTHS.size + name_bytes + 8 * dimensions
    if name_bytes > _MAX_TYPE_BYTES or dimensions > MAX_DIMENSIONS or end > len(view):
        raise ValueError("an array with an invalid header")
    kind = numpy.dtype(bytes(view[_LENGTHS.size : _LENGTHS.size + name_bytes]).decode("ascii"))
    shape = struct.unpack_from(f"<{dimensions}Q", view, _LENGTHS.size + name_bytes)
    start = end + -end % _ALIGNMENT
    if kind.kind not in _KINDS or math.prod(shape) * kind.itemsize != len(view) - start:
        raise ValueError(f"an array of dtype {kind} and shape {shape} in {len(view)} bytes")
    # Of bytes first: an empty buffer cannot be viewed as another type.
    return numpy.frombuffer(view[start:], "u1").view(kind).reshape(shape)
