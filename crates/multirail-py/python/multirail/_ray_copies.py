"""Copies of a value in shared memory of the nodes of a Ray cluster, made by one broadcast."""

import contextlib
import itertools
import mmap
import os
import random
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from multirail import _ray_objects, _state
from multirail._multirail import Broadcaster, BroadcastReceiver, Token
from multirail._ray_objects import Ref
from multirail.errors import Lost, MultirailError
from multirail.group import LIMIT_BYTES, TIMEOUT_S


@dataclass(frozen=True)
class Copy:
    """Where a node has its copy."""

    # The shared memory, for processes of the node. Its inode tells it from later memory there.
    path: str
    inode: int
    # The copy for all others.
    ref: Ref


@dataclass(frozen=True)
class Copies:
    """A value of which nodes have copies. It can be pickled, as `Ref`."""

    # By the ID of the node.
    copies: dict[str, Copy] = field(repr=False)

    @property
    def nodes(self) -> list[str]:
        """The IDs of the nodes."""
        return list(self.copies)


class _Memory(mmap.mmap):
    """A mapping of memory without a name, which others can open as long as this has its file."""

    file: Any

    @classmethod
    def of(cls, data: Any) -> "_Memory":
        with contextlib.ExitStack() as undo:
            file = undo.enter_context(os.fdopen(os.memfd_create("multirail copy"), "w+b"))
            file.write(data)
            file.flush()
            memory = cls(file.fileno(), 0, access=mmap.ACCESS_READ)
            memory.file = file
            undo.pop_all()
        return memory


class _Keeper:
    """The actor that has the copies of a node, for the process that broadcasts."""

    def __init__(self, secret: str) -> None:
        token = Token(bytes.fromhex(secret))
        self._receiver = BroadcastReceiver(":0", token=token, limit_bytes=LIMIT_BYTES)
        self._host = ray.util.get_node_ip_address()

    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._receiver.address.rpartition(':')[2]}"

    def keep(self, number: int) -> Copy:
        """Put the broadcast with a number, which has arrived, into shared memory."""
        while True:
            data = memoryview(self._receiver.next(timeout=TIMEOUT_S))
            # An earlier one may have arrived after the root had given up this node.
            if _state.read_head(data)[0]["number"] == number:
                break
        memory = _Memory.of(data)
        descriptor = memory.file.fileno()
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        return Copy(path, os.fstat(descriptor).st_ino, _ray_objects.put(memory, self._host))


class _Root:
    """The keepers of the broadcasts of this process, and its connections to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secret = secrets.token_hex(32)
        self._numbers = itertools.count()
        self._job: str | None = None
        self._keepers: dict[str, Any] = {}
        self._broadcaster: Broadcaster | None = None
        self._addresses: dict[str, str] = {}

    def broadcast(self, value: Any, nodes: list[str], start_timeout_s: float) -> Copies:
        with self._lock:
            job = ray.get_runtime_context().get_job_id()
            if job != self._job:
                # The actors of an earlier ray.init have ended with it.
                self._job, self._keepers = job, {}
            number = next(self._numbers)
            parts = _state.pack(value, number=number)
            addresses = self._start(nodes, start_timeout_s)
            try:
                outcomes = self._connected(addresses).broadcast(parts)
                copies, failed = self._kept(number, dict(zip(nodes, outcomes, strict=True)))
                if failed:
                    release(copies)
                    text = "; ".join(
                        f"node {node} ({addresses[node]}): {why}" for node, why in failed.items()
                    )
                    raise Lost(text, addresses[next(iter(failed))])
            except BaseException:
                # A node that was lost would get nothing more over these connections.
                self._disconnect()
                raise
            return copies

    def _kept(
        self, number: int, outcomes: dict[str, tuple[str, str | None]]
    ) -> tuple[Copies, dict[str, str]]:
        """The copies, and why other nodes have none."""
        failed = {node: why for node, (_, why) in outcomes.items() if why is not None}
        copies = {}
        asked = {
            node: self._keepers[node].keep.remote(number) for node in outcomes if node not in failed
        }
        for node, answer in asked.items():
            try:
                copies[node] = ray.get(answer)
            except ray.exceptions.RayError as error:
                failed[node] = str(error)
        return Copies(copies), failed

    def _start(self, nodes: list[str], timeout_s: float) -> dict[str, str]:
        """The addresses of the keepers. One that has ended is started again."""
        found: dict[str, str] = {}
        for is_last in (False, True):
            missing = [node for node in nodes if node not in found]
            asked = {node: self._keeper(node).address.remote() for node in missing}
            for node, answer in asked.items():
                try:
                    found[node] = ray.get(answer, timeout=timeout_s)
                except ray.exceptions.RayError as error:
                    del self._keepers[node]
                    if is_last:
                        raise Lost(f"node {node}: no actor could be started: {error}") from error
        return {node: found[node] for node in nodes}

    def _keeper(self, node: str) -> Any:
        if node not in self._keepers:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            actor = ray.remote(_Keeper).options(num_cpus=0, scheduling_strategy=where)
            self._keepers[node] = actor.remote(self._secret)
        return self._keepers[node]

    def _connected(self, addresses: dict[str, str]) -> Broadcaster:
        if self._broadcaster is None or addresses != self._addresses:
            self._disconnect()
            token = Token(bytes.fromhex(self._secret))
            self._broadcaster = Broadcaster(list(addresses.values()), token=token)
            self._addresses = addresses
        return self._broadcaster

    def _disconnect(self) -> None:
        if self._broadcaster is not None:
            self._broadcaster.end()
            self._broadcaster = None


root = _Root()


def all_nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def nodes_of(actors: list[Any]) -> list[str]:
    """The nodes where actors are, each once."""
    asked = [
        actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        for actor in actors
    ]
    return list(dict.fromkeys(ray.get(asked)))


def get(copies: Copies) -> Any:
    """The value, in the shared memory of this node, or else fetched from one that has it."""
    own = copies.copies.get(ray.get_runtime_context().get_node_id())
    message = own and _mapped(own)
    if message is None:
        message = _fetched(copies)
    head, rest = _state.read_head(memoryview(message))
    return _state.unpack(head, rest, None, repr(copies))


def _mapped(copy: Copy) -> mmap.mmap | None:
    """The memory of a copy of this node. What this process writes to it, only it sees."""
    with contextlib.suppress(OSError):
        if os.stat(copy.path).st_ino == copy.inode:
            with open(copy.path, "rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return None


def _fetched(copies: Copies) -> Any:
    # In any order, so that many nodes that fetch do not ask the same one.
    choices = random.sample(list(copies.copies.values()), len(copies.copies))
    for copy in choices[:-1]:
        with contextlib.suppress(Lost):
            return _ray_objects.get(copy.ref)
    return _ray_objects.get(choices[-1].ref)


def release(copies: Copies) -> None:
    for copy in copies.copies.values():
        # A process that has ended has released its copy, too.
        with contextlib.suppress(MultirailError):
            _ray_objects.release(copy.ref)
