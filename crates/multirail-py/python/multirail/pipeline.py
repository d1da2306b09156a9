"""Pipelines whose filters are functions, in processes of this host and others."""

import itertools
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from multirail import _child
from multirail._filters import Source
from multirail._multirail import Run, Token, start_run
from multirail._start import LOCAL, Job, Worker, start
from multirail._values import decode
from multirail.errors import FilterFailed, Forked

__all__ = ["Pipeline"]

F = TypeVar("F", bound=Callable[..., Any])
# Seconds until a host without a connection counts as lost, and a process of this host.
HOST_TIMEOUT_S, LOCAL_TIMEOUT_S = 5.0, 1.0
# Seconds that the end of a run waits for the thread of the inputs, and that after Ctrl-C.
END_TIMEOUT_S, INTERRUPT_TIMEOUT_S = 4.0, 0.1


@dataclass
class Filter:
    """A filter as it was defined."""

    name: str
    function: Callable[..., Any]
    hosts: list[str]
    stateless: bool
    stream: bool
    options: dict[str, Any] = field(default_factory=dict)

    def worker_name(self, copy: int) -> str:
        return f"{self.name}.{copy}@{self.hosts[copy]}"


class Pipeline:
    """Filters that run at the same time, each in one or more processes.

    `limit_bytes` is the length of the longest value, with the header of an array. `token` is needed
    for hosts other than "local" only.

    A pipeline is used by one thread at a time. Its processes start with the first run, serve the
    further ones, and end with `close`, with the block of `with`, or with the program.
    """

    def __init__(self, token: Token | None = None, *, limit_bytes: int = 64 << 20) -> None:
        self._token = token
        self._limit_bytes = limit_bytes
        self._secret = secrets.token_hex(32)
        self._filters: dict[str, Filter] = {}
        self._streams: list[tuple[str, str]] = []
        self._hosts: dict[str, str] = {}
        self._workers: dict[str, Worker] = {}
        self._runs: list[Run] = []
        self._running = threading.Lock()
        self._process = os.getpid()
        # A program may end in the middle of a run, whose threads must not outlive the interpreter.
        weakref.finalize(self, _end, self._process, self._runs, self._workers)

    def filter(
        self,
        *,
        copies: int = 1,
        hosts: Iterable[str] = (LOCAL,),
        stateless: bool = False,
        stream: bool = False,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Make a function a filter.

        The function gets one value at a time, and returns one, or None for nothing, or is a
        generator of several. With `stream`, it gets an iterator of all values of a run instead, so
        that it can keep a state. It is called in `copies` processes, which are on `hosts` in turn.

        `stateless` declares that what the function makes of a value depends on that value only. If
        a process or its host ends, the other copies then take over its values.
        """
        return self._define(name, copies, hosts, stateless, stream, {})

    def _define(
        self,
        name: str | None,
        copies: int,
        hosts: Iterable[str],
        stateless: bool,
        stream: bool,
        options: dict[str, Any],
    ) -> Callable[[F], F]:
        if isinstance(hosts, str):
            raise TypeError(f'hosts={hosts!r}: write a list of hosts, as ["local", "b:7718"]')
        places = list(hosts)
        if copies < 1 or not places:
            raise ValueError("a filter needs at least one copy and one host")
        if stateless and stream:
            raise ValueError(
                "a filter that sees a stream of values is not stateless: leave out one of "
                "stream=True and stateless=True"
            )

        def define(function: F) -> F:
            called = name or getattr(function, "__name__", type(function).__name__)
            if called in self._filters or called in ("input", "output"):
                raise ValueError(f"the name {called!r} is taken; pass name=… to filter")
            placed = [places[copy % len(places)] for copy in range(copies)]
            self._filters[called] = Filter(called, function, placed, stateless, stream, options)
            return function

        return define

    def host(self, name: str, address: str) -> None:
        """Give a short name to a host that runs `python -m multirail.worker`."""
        self._hosts[name] = address

    def stream(self, *filters: Callable[..., Any] | str) -> None:
        """Join filters: what each one returns goes to the next.

        A filter that is joined to several passes each value to all of them. Without a call of this
        method, the filters form a chain in the order of their definition.
        """
        names = [self._name_of(one) for one in filters]
        if len(names) < 2:
            raise ValueError("a stream joins at least two filters")
        self._streams.extend(itertools.pairwise(names))

    def _name_of(self, one: Callable[..., Any] | str) -> str:
        for known in self._filters.values():
            if known.name == one or known.function is one:
                return known.name
        raise ValueError(f"{one!r} is no filter of this pipeline; there are {list(self._filters)}")

    def _all_streams(self) -> list[tuple[str, str]]:
        names = list(self._filters)
        joined = self._streams or list(itertools.pairwise(names))
        first = [name for name in names if all(name != to for _, to in joined)]
        last = [name for name in names if all(name != of for of, _ in joined)]
        if not first or not last:
            raise ValueError("the streams form a circle")
        return [
            *(("input", name) for name in first),
            *joined,
            *((name, "output") for name in last),
        ]

    def run(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """Pass all inputs through the filters, and yield what comes out.

        Inputs and results are `bytes`, other objects with the buffer protocol, which arrive as
        `memoryview`, or arrays of NumPy. The results come in any order if a filter has several
        copies. The inputs are taken in another thread, as fast as the filters are. The run ends
        early if the iterator is closed or dropped.

        Raises FilterFailed if a filter raises or its process ends, unless it is stateless and has
        other copies. The pipeline can be used again after that.
        """
        if _child.is_loading_main.is_set():
            raise RuntimeError(
                "a worker process has come upon run() while it loaded the main module of the "
                'program; put the call below `if __name__ == "__main__":`'
            )
        if not self._filters:
            raise ValueError("the pipeline has no filters")
        streams = self._all_streams()
        return self._results(streams, Source(inputs))

    def _results(self, streams: list[tuple[str, str]], source: Source) -> Iterator[Any]:
        if self._process != os.getpid():
            raise Forked(
                f"the pipeline was made in process {self._process}, which was forked since; make "
                "it after the fork, and use multirail there only"
            )
        if not self._running.acquire(blocking=False):
            raise RuntimeError("the pipeline runs already; make another one to run both at once")
        try:
            self._start_workers()
            run = self._start_run(streams, source)
            self._runs.append(run)
            while True:
                tag, buffer = run.next()
                if tag is None:
                    break
                yield decode(tag, buffer)
            if buffer is not None:
                raise source.error or self._failure(*buffer)
        except KeyboardInterrupt:
            for run in self._runs:
                run.close(INTERRUPT_TIMEOUT_S)
            raise
        finally:
            _end(self._process, self._runs, {})
            self._running.release()

    def _start_run(self, streams: list[tuple[str, str]], source: Source) -> Run:
        filters = []
        for one in self._filters.values():
            places = [one.worker_name(copy) for copy in range(len(one.hosts))]
            filters.append((one.name, places, one.stateless))
        is_here = all(host == LOCAL for one in self._filters.values() for host in one.hosts)
        return start_run(
            token=Token(bytes.fromhex(self._secret)),
            workers=[(name, worker.address) for name, worker in self._workers.items()],
            filters=filters,
            streams=streams,
            source=source,
            limit_bytes=self._limit_bytes,
            host_timeout=LOCAL_TIMEOUT_S if is_here else HOST_TIMEOUT_S,
        )

    def _failure(
        self, name: str | None, copy: int | None, worker: str | None, cause: str, is_lost: bool
    ) -> FilterFailed:
        if is_lost:
            cause = f"its process or its host is lost: {cause}"
        host = worker
        for one in self._filters.values():
            for number, place in enumerate(one.hosts):
                if one.worker_name(number) == worker:
                    name, copy = one.name, number
                    host = self._workers[worker].host if worker in self._workers else place
        where = f"copy {copy} of filter {name!r} on {host}" if name else host
        failed = FilterFailed(f"{where}: {cause}" if where else cause, host, name, copy)
        failed.is_lost = is_lost
        return failed

    def _jobs(self) -> dict[str, Job]:
        """The workers that do not run."""
        return {
            one.worker_name(copy): Job(
                one.name, copy, host, one.function, one.stream, self._secret, one.options
            )
            for one in self._filters.values()
            for copy, host in enumerate(one.hosts)
            if not self._is_alive(one.worker_name(copy))
        }

    def _is_alive(self, name: str) -> bool:
        return name in self._workers and self._workers[name].is_alive()

    def _start_workers(self) -> None:
        jobs = self._jobs()
        for name in jobs:
            if name in self._workers:
                self._workers.pop(name).stop()
        self._workers.update(zip(jobs, self._start(list(jobs.values())), strict=True))

    def _start(self, jobs: list[Job]) -> Sequence[Worker]:
        return start(jobs, self._workers.values(), self._hosts, self._token)

    def close(self) -> None:
        """End the run, if there is one, and the processes of the filters."""
        _end(self._process, self._runs, self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _end(process: int, runs: list[Run], workers: dict[str, Worker]) -> None:
    if process != os.getpid():
        return  # They are of the parent.
    while runs:
        runs.pop().close(END_TIMEOUT_S)
    while workers:
        workers.popitem()[1].stop()
