"""Broadcasts of arrays and dictionaries of arrays to all ranks of a program.

Any rank may be the root. Data goes from memory into memory, over all rails, into each cluster of
hosts once where possible, and the hosts pass it on to each other.
"""

import contextlib
import json
import os
import time
from collections.abc import Sequence
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
from multirail.errors import Closed, Lost, MultirailError, Refused

# Seconds in which all ranks must have called the constructor, or the same operation.
TIMEOUT_S = 300.0
# The most bytes of a broadcast that a rank receives, unless `limit_bytes` says otherwise.
LIMIT_BYTES = 64 << 30
# The longest message of the ranks to rank 0.
CONTROL_BYTES = 1 << 20


class Group:
    """The ranks of a program. All of them call the same operations in the same order.

    Rank 0 listens at `master`, ADDRESS:PORT; the other ranks connect to it. `clusters` has a number
    for each rank; without it, measurements find hosts that are near each other. One thread at a
    time may call. Ctrl-C ends a call; close the group then.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        master: str,
        *,
        token: Token | None = None,
        clusters: Sequence[int] | None = None,
        timeout: float = TIMEOUT_S,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is not below the size {size}")
        if clusters is not None and len(clusters) != size:
            raise ValueError(f"{len(clusters)} clusters for {size} ranks")
        self.rank, self.size = rank, size
        self._token = token or token_of_environment()
        self._clusters, self._timeout_s = clusters, timeout
        self._broadcaster: Broadcaster | None = None
        self._number = 0
        self._early: dict[int, tuple[dict[str, Any], memoryview]] = {}
        self._others: dict[int, Session] = {}
        self._master: Session | None = None
        self._receiver = BroadcastReceiver(":0", token=self._token, limit_bytes=limit_bytes)
        try:
            self._addresses = self._meet(master)
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_env(cls, *, token: Token | None = None, **options: Any) -> Self:
        """The group of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them.

        Rank 0 listens at the port MASTER_PORT + 1, or MULTIRAIL_PORT if that is set.
        MULTIRAIL_CLUSTERS has a number for each rank, with commas. `options` are those of `Group`.
        """
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        missing = [name for name in names if name not in os.environ]
        if missing:
            raise ValueError(f"{', '.join(missing)} not set: start with torchrun, or use Group(…)")
        rank, size, host, port = (os.environ[name] for name in names)
        own_port = int(os.environ.get("MULTIRAIL_PORT", int(port) + 1))
        if clusters := os.environ.get("MULTIRAIL_CLUSTERS"):
            options.setdefault("clusters", [int(number) for number in clusters.split(",")])
        host = f"[{host}]" if ":" in host else host
        return cls(int(rank), int(size), f"{host}:{own_port}", token=token, **options)

    def _meet(self, master: str) -> list[str]:
        """Rank 0 collects the addresses and versions of all, and tells them to all."""
        host, _, port = master.rpartition(":")
        own = own_host(host.strip("[]"))
        own = f"[{own}]" if ":" in own else own
        address = f"{own}:{self._receiver.address.rpartition(':')[2]}"
        hello = json.dumps([self.rank, self.size, VERSION, address]).encode()
        if self.rank:
            self._master = self._connect(master)
            self._master.send(hello)
            answer = json.loads(self._master.recv(CONTROL_BYTES))
            if isinstance(answer, str):
                raise MultirailError(answer, master)
            return answer
        said = {0: json.loads(hello)}
        end = time.monotonic() + self._timeout_s
        listener = listen(f":{port}", token=self._token, give_up_after=LOST_AFTER_S)
        with listener:
            while len(said) < self.size:
                session = listener.accept(timeout=max(0.0, end - time.monotonic()))
                other = json.loads(session.recv(CONTROL_BYTES))
                said[other[0]], self._others[other[0]] = other, session
        answer: Any = [said[rank][3] for rank in range(self.size)]
        for rank, (_, size, version, address) in said.items():
            if (size, version) != (self.size, VERSION):
                answer = (
                    f"rank {rank} ({address}) has version {version} and {size} ranks, and rank 0 "
                    f"has {VERSION} and {self.size}: install and start the same"
                )
        for session in self._others.values():
            session.send(json.dumps(answer).encode())
        if isinstance(answer, str):
            raise MultirailError(answer)
        return answer

    def _connect(self, master: str) -> Session:
        """Rank 0 may start later than the others."""
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                left = max(0.1, end - time.monotonic())
                return connect(master, token=self._token, timeout=left, give_up_after=LOST_AFTER_S)
            except Refused:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def broadcast(self, obj: Any = None, root: int = 0) -> Any:
        """Broadcast an array, a tensor or a buffer, or a dictionary of them, from the root to all.

        On the root, `obj` is the data, and is returned. On the others, `obj` has the same names,
        types and shapes, and is filled; or it is None, and new arrays are returned, which share the
        memory of the message. If a name, a type or a shape differs, MultirailError says which one,
        nothing is written, and the group goes on. If ranks do not get the data, the root raises
        `Lost`, which names them, and the others raise `Timeout`.
        """
        if not 0 <= root < self.size:
            raise ValueError(f"root {root} is not below the size {self.size}")
        number, self._number = self._number, self._number + 1
        if self.rank == root:
            self._send(_state.pack(obj, number=number, root=root))
            return obj
        head, rest = self._receive(number)
        if head["root"] != root:
            raise MultirailError(
                f"operation {number} is a broadcast of rank {head['root']} there, and of rank "
                f"{root} here",
                self._addresses[head["root"]],
            )
        return _state.unpack(head, rest, obj, f"rank {root} ({self._addresses[root]})")

    def _send(self, parts: list[Any]) -> None:
        others = [rank for rank in range(self.size) if rank != self.rank]
        if not others:
            return
        if self._broadcaster is None:
            clusters = None
            if self._clusters is not None:
                # Numbers without gaps.
                numbers = {name: n for n, name in enumerate(dict.fromkeys(self._clusters))}
                clusters = [numbers[self._clusters[rank]] for rank in (self.rank, *others)]
            hosts = [self._addresses[rank] for rank in others]
            self._broadcaster = Broadcaster(hosts, token=self._token, clusters=clusters)
        outcomes = self._broadcaster.broadcast(parts)
        failed = [
            (rank, address, why)
            for rank, (address, why) in zip(others, outcomes, strict=False)
            if why is not None
        ]
        if failed:
            text = "; ".join(f"rank {rank} ({address}): {why}" for rank, address, why in failed)
            raise Lost(text, failed[0][1])

    def _receive(self, number: int) -> tuple[dict[str, Any], memoryview]:
        """The broadcast with a number. Those of two roots may come in another order."""
        while number not in self._early:
            data = self._receiver.next(timeout=self._timeout_s)
            head, rest = _state.read_head(memoryview(data))
            self._early[head["number"]] = head, rest
        return self._early.pop(number)

    def barrier(self) -> None:
        """Wait until all ranks have called it. A rank that is lost raises `Lost` on all."""
        if self._master is not None:
            self._master.send(b"here")
            self._master.recv(CONTROL_BYTES)
            return
        for rank, session in self._others.items():
            try:
                session.recv(CONTROL_BYTES)
            except (Lost, Closed) as error:
                text = f"rank {rank} ({self._addresses[rank]}): {error}"
                self._abandon(text)
                raise Lost(text, self._addresses[rank]) from None
        for session in self._others.values():
            session.send(b"go on")

    def _abandon(self, reason: str) -> None:
        for session in (self._master, *self._others.values()):
            if session is not None:
                session.abandon(reason)

    def close(self) -> None:
        """End the connections of this rank. Call `barrier` before, so that all have the data.

        It waits until the others have received the answers of a barrier, at most 30 s.
        """
        if self._broadcaster is not None:
            self._broadcaster.end()
            self._broadcaster = None
        self._receiver.close()
        for session in (self._master, *self._others.values()):
            if session is not None:
                with contextlib.suppress(MultirailError):
                    session.close()
        self._abandon("the rank has left the group")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._abandon("the rank has failed")
        self.close()
