"""Runs functions as filters: what the worker processes and the sources do."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import Any

from multirail._multirail import Streams
from multirail._values import decode, encode

# The longest text of a failure. It goes to the driver in a message.
MAX_TEXT = 32 << 10


def _read(streams: Streams) -> Iterator[Any]:
    while (buffer := streams.read()) is not None:
        yield decode(*buffer)
        # The memory can be reused as soon as the filter has no reference.
        del buffer


def _write(streams: Streams, value: Any) -> None:
    streams.write(*encode(value))


def _write_all(streams: Streams, result: Any) -> None:
    if result is None:
        return
    if isinstance(result, GeneratorType):
        for value in result:
            _write(streams, value)
    else:
        _write(streams, result)


def of_function(function: Callable[[Any], Any], is_stream: bool) -> Callable[[Streams], str | None]:
    """What a worker calls for each run."""

    def work(streams: Streams) -> str | None:
        try:
            if is_stream:
                _write_all(streams, function(_read(streams)))
            else:
                for value in _read(streams):
                    _write_all(streams, function(value))
        except Exception as error:
            return text_of(error)
        return None

    return work


class Source:
    """Writes the elements of an iterable. It keeps the exception of the iterable."""

    def __init__(self, inputs: Iterable[Any]) -> None:
        self._inputs = inputs
        self.error: Exception | None = None

    def __call__(self, streams: Streams) -> str | None:
        try:
            for value in self._inputs:
                _write(streams, value)
        except Exception as error:
            self.error = error
            return text_of(error)
        return None


def text_of(error: BaseException) -> str:
    """The exception with its traceback, of which the end is kept."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return text if len(text) <= MAX_TEXT else "…" + text[-MAX_TEXT:]
