"""Sessions between all ranks of a process group, and what happens when one of them fails.

Each pair of ranks has one session for collective operations, and one more as soon as the two send
to each other with `send` and `recv`. The lower rank listens. Addresses go through the store of
`torch.distributed`, as does the reason of a failure.
"""

import atexit
import contextlib
import json
import threading
import time
from datetime import timedelta
from typing import Any

from multirail import errors
from multirail._multirail import VERSION, Session, Token, connect, listen
from multirail._ranks import LOST_AFTER_S, own_host, token_of_environment
from multirail.errors import Closed, Lost, MultirailError, Timeout

# Seconds in which the others may receive what a rank has sent before it leaves the group, or before
# its program ends without leaving it.
FLUSH_S = 30.0
EXIT_FLUSH_S = 2.0
# Seconds between looks at the store for failures of other ranks, while an operation waits.
WATCH_S = 1.0
# The longest message in which a rank says who it is.
HELLO_BYTES = 4096
FAILED = "multirail/failed"
ENDED = "multirail/ended"
COLLECTIVES = "collectives"
MESSAGES = "messages"


def master_of(store: Any) -> str | None:
    """The host that serves a store; None if it has none, as a file."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", None)


class Mesh:
    """The sessions of this rank. All methods can be called by any thread."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout_s: float, token: Token | None = None
    ) -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self.waiting = 0
        self._token = token or token_of_environment()
        self._sessions: dict[tuple[str, int], Session] = {}
        self._connecting: set[tuple[str, int]] = set()
        self._changed = threading.Condition()
        self._failed: MultirailError | None = None
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        # A thread in a call of the extension module must not see the end of the interpreter.
        atexit.register(self._exit)
        self._listener = listen(":0", token=self._token, give_up_after=LOST_AFTER_S)
        try:
            self._hosts = self._rendezvous(timeout_s)
            self._start("accept", self._accept)
            for peer in range(size):
                if peer != rank:
                    self.session(peer, COLLECTIVES, timeout_s)
            self._start("watch", self._watch)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, call: Any) -> None:
        thread = threading.Thread(target=call, name=f"multirail-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _exit(self) -> None:
        self.close(EXIT_FLUSH_S)
        for thread in self._threads:
            thread.join(1)

    def _rendezvous(self, timeout_s: float) -> list[str]:
        """The addresses of all ranks. Different versions of the package are an error."""
        port = self._listener.address.rpartition(":")[2]
        host = own_host(master_of(self.store))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        own = json.dumps([address, VERSION])
        self.store.set(f"multirail/{self.rank}", own)
        keys = [f"multirail/{peer}" for peer in range(self.size)]
        self.store.wait(keys, timedelta(seconds=timeout_s))
        said = [json.loads(self.store.get(key)) for key in keys]
        for peer, (_, version) in enumerate(said):
            if version != VERSION:
                raise MultirailError(
                    f"rank {peer} ({said[peer][0]}) has version {version} of multirail, and rank "
                    f"{self.rank} ({address}) has {VERSION}: install the same one",
                    said[peer][0],
                )
        return [address for address, _ in said]

    def name(self, peer: int) -> str:
        """How messages name a rank."""
        return f"rank {peer} ({self._hosts[peer]})"

    def host(self, peer: int) -> str:
        return self._hosts[peer]

    def session(self, peer: int, purpose: str, timeout_s: float) -> Session:
        """The session with a rank. It is made if it does not exist, which needs both ranks."""
        key = purpose, peer
        if (session := self._sessions.get(key)) is not None:
            return session
        if peer < self.rank and self._claim(key):
            try:
                session = self._connect(peer, purpose, timeout_s)
                with self._changed:
                    self._raise_if_failed()
                    self._sessions[key] = session
                return session
            finally:
                with self._changed:
                    self._connecting.discard(key)
                    self._changed.notify_all()
        end = time.monotonic() + timeout_s
        with self._changed:
            while key not in self._sessions:
                self._raise_if_failed()
                # Short, so that Ctrl-C works.
                self._changed.wait(0.1)
                if time.monotonic() > end:
                    raise Timeout(f"{self.name(peer)} has not connected in time", self.host(peer))
            return self._sessions[key]

    def _claim(self, key: tuple[str, int]) -> bool:
        """Whether the calling thread is to connect. Of two sessions the peer would end one."""
        with self._changed:
            if key in self._sessions or key in self._connecting:
                return False
            self._connecting.add(key)
            return True

    def _connect(self, peer: int, purpose: str, timeout_s: float) -> Session:
        try:
            session = connect(
                self._hosts[peer], token=self._token, timeout=timeout_s, give_up_after=LOST_AFTER_S
            )
            session.send(json.dumps([purpose, self.rank]).encode())
            return session
        except MultirailError as error:
            raise type(error)(f"{self.name(peer)}: {error}", self.host(peer)) from None

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                session = self._listener.accept()
            except Closed:
                return
            except MultirailError:
                continue
            # A peer that says nothing must not hold up the others.
            threading.Thread(target=self._greet, args=(session,), daemon=True).start()

    def _greet(self, session: Session) -> None:
        try:
            purpose, peer = json.loads(session.recv(HELLO_BYTES))
        except (MultirailError, ValueError):
            session.abandon()
            return
        with self._changed:
            if self._failed or (purpose, peer) in self._sessions:
                session.abandon()
                return
            self._sessions[purpose, peer] = session
            self._changed.notify_all()

    def _watch(self) -> None:
        """Ends operations that wait when another rank, of which they may know nothing, failed."""
        looks_down = dict.fromkeys(range(self.size), 0)
        while not self._closed.wait(WATCH_S):
            if not self.waiting:
                continue
            try:
                if self.store.check([FAILED]):
                    self.fail(Lost("the process group has failed"))
                    return
                for peer in self._down():
                    looks_down[peer] += 1
                    is_lost = looks_down[peer] > LOST_AFTER_S / WATCH_S
                    if is_lost and not self.store.check([f"{ENDED}/{peer}"]):
                        self.fail(Lost(f"{self.name(peer)}: it is gone", self.host(peer)))
                        return
            except Exception:
                # Rank 0, which may serve the store, may have ended as it should. If it has failed,
                # ranks that wait for it notice it by its session, and the others by theirs.
                return

    def _down(self) -> list[int]:
        """The ranks to which no connection is up."""
        sessions = [(peer, session) for (_, peer), session in self._sessions.items()]
        return [p for p, session in sessions if not any(r.channels for r in session.rails())]

    def _store_is_gone(self, error: Exception) -> Lost:
        return Lost(
            f"{self.name(0)}, or the program that serves its store, has ended: {error}",
            self.host(0),
        )

    def blame(self, error: MultirailError, *peers: int | None) -> MultirailError:
        """An error that names the rank with which an operation failed. The group is over then.

        `peers` are those of the operation; the host in the error says which one it was.
        """
        peers = tuple(peer for peer in peers if peer is not None)
        of_host = [
            peer
            for peer in peers
            if (session := self._sessions.get((COLLECTIVES, peer))) and session.host == error.host
        ]
        peer = (of_host or peers)[0]
        # An ended session says that the peer's program has ended or failed.
        kind = Lost if isinstance(error, Closed) else type(error)
        return self.fail(kind(f"{self.name(peer)}: {error}", self.host(peer)))

    def fail(self, error: MultirailError) -> MultirailError:
        """Ends the group on all ranks, and returns the error that was first."""
        with self._changed:
            if self._failed is not None:
                return self._failed
        own = json.dumps([type(error).__name__, str(error), error.host])
        try:
            kind, text, host = json.loads(self.store.compare_set(FAILED, "", own))
            first = getattr(errors, kind)(text, host)
        except Exception as store_error:
            is_store = error.host is None or error.host == self.host(0) or self._closed.is_set()
            first = error if is_store else self._store_is_gone(store_error)
        with self._changed:
            self._failed = self._failed or first
            self._changed.notify_all()
        # The others are waiting for this rank, or will.
        self._abandon(str(self._failed))
        return self._failed

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise type(self._failed)(str(self._failed), self._failed.host)
        if self._closed.is_set():
            raise Closed("the process group was destroyed")

    def check(self) -> None:
        """Raises what has ended the group, if something has."""
        if self._failed is not None or self._closed.is_set():
            self._raise_if_failed()

    def _abandon(self, reason: str) -> None:
        for session in list(self._sessions.values()):
            session.abandon(reason)

    def close(self, limit_s: float = FLUSH_S) -> None:
        """Ends all sessions. Waits a limited time until the others have received everything."""
        if self._failed is None and not self._closed.is_set():
            with contextlib.suppress(Exception):
                self.store.set(f"{ENDED}/{self.rank}", "")
        atexit.unregister(self._exit)
        self._closed.set()
        self._listener.close()
        if self._failed is None:
            self._flush(limit_s)
        self._abandon("the rank has left the process group")

    def _flush(self, limit_s: float) -> None:
        """Waits until the others have received what this rank has sent."""

        def close(session: Session) -> None:
            with contextlib.suppress(MultirailError):
                session.close()

        threads = [
            threading.Thread(target=close, args=(session,), daemon=True)
            for session in list(self._sessions.values())
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + limit_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
