"""Versions of a model's weights, which one program publishes and others use.

>>> import multirail as mr
>>> token = mr.Token("a secret that both hosts know")
>>> publisher = mr.weights.Publisher("127.0.0.1:0", token=token)
>>> subscriber = mr.weights.Subscriber(publisher.address, token=token)
>>> publisher.push({"bias": bytes(4)})
1
>>> version, state = subscriber.get(timeout=30)
>>> version, bytes(state["bias"])
(1, b'\\x00\\x00\\x00\\x00')
>>> subscriber.close(); publisher.close()
"""

import contextlib
import json
import threading
import time
from types import TracebackType
from typing import Any, Self

from multirail import _state
from multirail._multirail import (
    VERSION,
    Broadcaster,
    BroadcastReceiver,
    Session,
    Token,
    connect,
    listen,
)
from multirail._ranks import LOST_AFTER_S, own_host, token_of_environment
from multirail.errors import Closed, MultirailError, Timeout
from multirail.group import CONTROL_BYTES, LIMIT_BYTES

# Seconds in which a subscriber must say who it is.
HELLO_S = 10.0


class _Closing:
    """Closes itself as a context manager."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Publisher(_Closing):
    """Publishes versions, counted from 1, to the subscribers that are connected.

    A subscriber that comes between two versions gets the latest one from another subscriber, or
    from the publisher if there is none. Methods can be called by any thread, one after another.
    """

    def __init__(self, address: str = ":7717", *, token: Token | None = None) -> None:
        self._token = token or token_of_environment()
        self._lock = threading.Lock()
        self._subscribers: dict[str, Session] = {}
        self._broadcaster: Broadcaster | None = None
        self._members: list[str] = []
        self._version = 0
        self._latest: bytes | None = None
        self._listener = listen(address, token=self._token, give_up_after=LOST_AFTER_S)
        threading.Thread(target=self._accept, name="multirail-publisher", daemon=True).start()

    @property
    def address(self) -> str:
        """The address with the actual port."""
        return self._listener.address

    @property
    def subscribers(self) -> list[str]:
        """The addresses of the subscribers that are connected."""
        return list(self._subscribers)

    def push(self, state: Any) -> int:
        """Publish an array or a dictionary of arrays; return its version.

        The call returns when every subscriber that can have the version does. It may change the
        arrays then. A subscriber that is lost is left out of the next version.
        """
        with self._lock:
            version = self._version + 1
            latest = b"".join(_state.pack(state, version=version))
            self._version, self._latest = version, latest
            members = list(self._subscribers)
            if members != self._members:
                self._end_broadcaster()
            if not members:
                return version
            if self._broadcaster is None:
                self._broadcaster = Broadcaster(members, token=self._token)
                self._members = members
            outcomes = self._broadcaster.broadcast([latest])
            for address, failure in outcomes:
                if failure is not None:
                    self._drop(address)
            return version

    def _end_broadcaster(self) -> None:
        if self._broadcaster is not None:
            self._broadcaster.end()
        self._broadcaster, self._members = None, []

    def _drop(self, address: str) -> None:
        if session := self._subscribers.pop(address, None):
            session.abandon()

    def _accept(self) -> None:
        while True:
            try:
                session = self._listener.accept()
            except Closed:
                return
            except MultirailError:
                continue
            threading.Thread(target=self._serve, args=(session,), daemon=True).start()

    def _serve(self, session: Session) -> None:
        """One subscriber, until it ends."""
        address = None
        try:
            timer = threading.Timer(HELLO_S, session.abandon)
            timer.start()
            version, address, has = json.loads(session.recv(CONTROL_BYTES))
            timer.cancel()
            if version != VERSION:
                text = f"the publisher has version {VERSION} of multirail, not {version}"
                session.send(json.dumps({"error": text}).encode())
                session.close()
                return
            session.send(b"{}")
            with self._lock:
                self._subscribers[address] = session
                if self._latest is not None and has < self._version:
                    self._catch_up(address)
            while True:
                # A subscriber that could not serve another one says so.
                failed = json.loads(session.recv(CONTROL_BYTES))
                with self._lock, contextlib.suppress(MultirailError):
                    self._send_latest(failed)
        except (MultirailError, ValueError, TypeError):
            pass
        finally:
            with self._lock:
                if address is not None and self._subscribers.get(address) is session:
                    del self._subscribers[address]
            session.abandon()

    def _catch_up(self, address: str) -> None:
        """Has another subscriber send the latest version, one that got it with `push`."""
        for other in self._members:
            server = self._subscribers.get(other)
            if server is None or other == address:
                continue
            with contextlib.suppress(MultirailError):
                server.send(json.dumps({"serve": address, "version": self._version}).encode())
                return
        self._send_latest(address)

    def _send_latest(self, address: str) -> None:
        broadcaster = Broadcaster([address], token=self._token)
        try:
            broadcaster.broadcast([self._latest])
        finally:
            broadcaster.end()

    def close(self) -> None:
        """End the connections. Subscribers keep what they have, and their `get` raises `Closed`."""
        self._listener.close()
        with self._lock:
            self._end_broadcaster()
            for session in self._subscribers.values():
                session.abandon()
            self._subscribers.clear()


class Subscriber(_Closing):
    """Gets the versions of a publisher. It keeps the latest one in memory, and serves it to others.

    Methods can be called by any thread. Arrays that `get` returns share the memory of the message;
    do not write to them, since others may be served from it.
    """

    def __init__(
        self, publisher: str, *, token: Token | None = None, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._token = token or token_of_environment()
        self._changed = threading.Condition()
        self._version = 0
        self._data: Any = None
        self._ended: MultirailError | None = None
        host = publisher.rpartition(":")[0] if ":" in publisher else publisher
        own = own_host(host.strip("[]"))
        self._receiver = BroadcastReceiver(":0", token=self._token, limit_bytes=limit_bytes)
        own = f"[{own}]" if ":" in own else own
        self.address = f"{own}:{self._receiver.address.rpartition(':')[2]}"
        try:
            self._session = connect(
                publisher, token=self._token, timeout=30, give_up_after=LOST_AFTER_S
            )
            self._session.send(json.dumps([VERSION, self.address, 0]).encode())
            answer = json.loads(self._session.recv(CONTROL_BYTES))
        except BaseException:
            self._receiver.close()
            raise
        if "error" in answer:
            self.close()
            raise MultirailError(answer["error"], publisher)
        for call in (self._receive, self._serve):
            threading.Thread(target=call, name="multirail-subscriber", daemon=True).start()

    def get(self, after: int = 0, timeout: float | None = None) -> tuple[int, Any]:
        """The latest version above `after`, and its arrays. Waits for one; `Timeout` is raised
        after `timeout` seconds, and `Closed` or `Lost` when the publisher has ended."""
        version, data = self._wait(after, timeout)
        head, rest = _state.read_head(memoryview(data))
        return version, _state.unpack(head, rest, None, "the publisher")

    def get_into(self, state: Any, after: int = 0, timeout: float | None = None) -> int:
        """As `get`, into arrays of the same names, types and shapes. Returns the version.

        If something differs, MultirailError says what, and nothing is written.
        """
        version, data = self._wait(after, timeout)
        head, rest = _state.read_head(memoryview(data))
        _state.unpack(head, rest, state, "the publisher")
        return version

    def _wait(self, after: int, timeout: float | None) -> tuple[int, Any]:
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._version <= after:
                if self._ended is not None:
                    raise type(self._ended)(str(self._ended), self._ended.host)
                if end is not None and time.monotonic() >= end:
                    raise Timeout(f"no version above {after} within {timeout} s")
                # Short, so that Ctrl-C works.
                self._changed.wait(0.1)
            return self._version, self._data

    def _receive(self) -> None:
        while True:
            try:
                data = self._receiver.next()
                head, _ = _state.read_head(memoryview(data))
                version = head["version"]
            except Closed as error:
                self._end(error)
                return
            except (MultirailError, KeyError):
                continue
            with self._changed:
                if version > self._version:
                    self._version, self._data = version, data
                    self._changed.notify_all()

    def _serve(self) -> None:
        """Sends the latest version to those that the publisher names."""
        while True:
            try:
                asked = json.loads(self._session.recv(CONTROL_BYTES))
                if not self._send_latest(asked["serve"], asked["version"]):
                    self._session.send(json.dumps(asked["serve"]).encode())
            except MultirailError as error:
                self._end(error)
                return

    def _send_latest(self, address: str, version: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._version >= version or self._ended, 10)
            data = self._data
        if data is None:
            return False
        try:
            broadcaster = Broadcaster([address], token=self._token)
            try:
                ((_, failure),) = broadcaster.broadcast([data])
            finally:
                broadcaster.end()
        except MultirailError:
            return False
        return failure is None

    def _end(self, error: MultirailError) -> None:
        with self._changed:
            self._ended = self._ended or error
            self._changed.notify_all()

    def close(self) -> None:
        """End the connections. A `get` that waits raises `Closed`."""
        self._end(Closed("the subscriber was closed"))
        self._session.abandon()
        self._receiver.close()
