"""Sessions for asyncio.

Each call is a coroutine. Several can wait at once: one that receives and one that sends do not hold
up each other.

If a call is cancelled, so is its work. A call that has not begun to move its message leaves the
session as it was. A call that was cancelled in the middle of a message ends the session, since the
peer would wait for the rest of it; further calls raise `Lost`.
"""

import asyncio
import itertools
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from multirail import _multirail, files
from multirail._multirail import Rail, Stats, Token
from multirail.progress import Tell, shown

__all__ = ["Listener", "Session", "bcast", "connect", "cp", "listen"]

# Seconds between two calls of a function that is told the progress.
_TELL_EVERY_S = 0.05


class _Waiting:
    """The operations of an event loop that wait. The loop watches one descriptor for all."""

    _of_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting]" = (
        weakref.WeakKeyDictionary()
    )

    @classmethod
    def of_loop(cls, loop: asyncio.AbstractEventLoop) -> "_Waiting":
        waiting = cls._of_loops.get(loop)
        if waiting is None:
            waiting = cls._of_loops[loop] = cls()
        return waiting

    def __init__(self) -> None:
        self.wakeups = _multirail.Wakeups()
        self.futures: dict[int, asyncio.Future[None]] = {}
        self._numbers = itertools.count()

    async def result_of(self, operation: "_multirail.Operation") -> Any:
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        if not self.futures:
            loop.add_reader(self.wakeups.fileno(), self._wake)
        try:
            # Before the first poll: what it waits for may be there at once.
            self.futures[number] = loop.create_future()
            while (done := operation.poll(self.wakeups, number)) is None:
                await self.futures[number]
                self.futures[number] = loop.create_future()
            return done[0]
        finally:
            operation.cancel()
            del self.futures[number]
            if not self.futures:
                loop.remove_reader(self.wakeups.fileno())

    def _wake(self) -> None:
        for number in self.wakeups.take():
            future = self.futures.get(number)
            if future is not None and not future.done():
                future.set_result(None)


async def _result_of(operation: "_multirail.Operation") -> Any:
    return await _Waiting.of_loop(asyncio.get_running_loop()).result_of(operation)


class Session:
    """A session whose calls are coroutines; otherwise as `multirail.Session`."""

    def __init__(self, session: _multirail.Session) -> None:
        self._session = session

    @property
    def host(self) -> str:
        """The host as it was given to `connect`, or the address of the peer that was accepted."""
        return self._session.host

    async def send(self, message: Any) -> None:
        """Send the bytes of an object as one message, without a copy.

        The object must not change until the call has returned.
        """
        await _result_of(self._session.start_send(message))

    async def recv(self, max_bytes: int = 1 << 30) -> bytes:
        """Receive the next message.

        One of more than `max_bytes` raises `TooLong` and stays where it is.
        """
        return await _result_of(self._session.start_recv(max_bytes))

    async def recv_into(self, buffer: Any) -> int:
        """Receive the next message into the memory of an object, and return its length in bytes.

        A message that does not fit raises `TooLong` and stays where it is.
        """
        return await _result_of(self._session.start_recv_into(buffer))

    def rails(self) -> list[Rail]:
        """The state of each rail."""
        return self._session.rails()

    def stats(self) -> Stats:
        """What the session has moved so far."""
        return self._session.stats()

    async def close(self) -> None:
        """Wait until the peer has received everything, at most 30 s, then end the session."""
        await _result_of(self._session.start_close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self._session.abandon()

    def __repr__(self) -> str:
        return f"<multirail.aio.Session with {self.host}>"


class Listener:
    """A listener whose calls are coroutines; otherwise as `multirail.Listener`."""

    def __init__(self, listener: _multirail.Listener) -> None:
        self._listener = listener

    @property
    def address(self) -> str:
        """The address with the actual port."""
        return self._listener.address

    async def accept(self, *, timeout: float | None = None) -> Session:
        """The next session of a host that knows the token.

        After `timeout` seconds, `Timeout` is raised.
        """
        return Session(await _result_of(self._listener.start_accept(timeout=timeout)))

    async def close(self) -> None:
        """Stop listening. Sessions that were accepted go on."""
        await _result_of(self._listener.start_close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<multirail.aio.Listener on {self.address}>"


class _Connecting:
    """What `connect` returns: it can be awaited, and is a context manager."""

    def __init__(self, operation: "_multirail.Operation") -> None:
        self._operation = operation

    async def _connect(self) -> Session:
        return Session(await _result_of(self._operation))

    def __await__(self) -> Any:
        return self._connect().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._connect()
        return self._session

    async def __aexit__(self, *exception: Any) -> None:
        await self._session.__aexit__(*exception)


def connect(
    host: str, *, token: Token, rails: str = "", timeout: float | None = None
) -> _Connecting:
    """Connect to a host that listens, over all rails.

    It is used as `async with connect(…) as session` or `await connect(…)`.
    """
    return _Connecting(_multirail.start_connect(host, token=token, rails=rails, timeout=timeout))


def listen(address: str = ":7717", *, token: Token, rails: str = "") -> Listener:
    """Listen for hosts that know the token. It waits for nothing, and so is no coroutine."""
    return Listener(_multirail.listen(address, token=token, rails=rails))


async def cp(
    source: files.Path | Iterable[files.Path],
    destination: files.Path,
    *,
    token: Token,
    recursive: bool = False,
    checksum: bool = False,
    rails: str = "",
    progress: bool | Tell | None = None,
) -> files.Report:
    """As `multirail.cp`. The copy runs in a thread of its own, and ends if the call is cancelled.

    A function that is given as `progress` is called in the thread of the event loop.
    """
    asked = files.copy_of(source, destination, token, recursive, checksum, rails)
    with shown(progress, "cp") as tell:
        return files.report_of(await _counted(*_multirail.start_copy(asked), tell))


async def bcast(
    source: files.Path,
    to: str,
    hosts: Iterable[str],
    *,
    token: Token,
    recursive: bool = False,
    rails: str = "",
    progress: bool | Tell | None = None,
) -> files.Summary:
    """As `multirail.bcast`, in the way of `cp`."""
    asked = files.broadcast_of(source, to, hosts, token, recursive, rails)
    with shown(progress, "bcast") as tell:
        return files.summary_of(await _counted(*_multirail.start_broadcast(asked), tell))


async def _counted(
    operation: "_multirail.Operation", counters: "_multirail.Counters", tell: Tell | None
) -> Any:
    if tell is None:
        return await _result_of(operation)
    waiting = asyncio.ensure_future(_result_of(operation))
    try:
        while not (await asyncio.wait([waiting], timeout=_TELL_EVERY_S))[0]:
            tell(*counters.read())
        done = waiting.result()
        tell(*counters.read())
        return done
    finally:
        waiting.cancel()
