"""Pipelines and large arrays on a Ray cluster: Ray decides where, multirail moves the bytes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from multirail import _child, _ray_copies, _ray_objects, pipeline
from multirail._ray_copies import Copies
from multirail._ray_objects import Ref
from multirail._start import Job, Worker, checked_address

__all__ = ["Copies", "Pipeline", "Ref", "broadcast", "get", "put", "release"]

F = TypeVar("F", bound=Callable[..., Any])
# Seconds that Ray has to start the actors, or to start one again.
START_TIMEOUT_S = 120.0


def put(value: Any) -> Ref:
    """Keep an array or bytes in this process, until `release`, for `get` in any other process.

    The value is not copied, and must not change meanwhile. The reference is small, and can be an
    argument or a result of tasks and actors. Those who have it can fetch the value.
    """
    return _ray_objects.put(value, ray.util.get_node_ip_address())


def broadcast(value: Any, *, actors: Iterable[Any] | None = None) -> Copies:
    """Copy an array, a tensor or a buffer, or a dictionary of them, to every node of the cluster.

    With `actors`, only the nodes where they are get a copy. Each copy is in shared memory, where
    `get` finds it, until `release`, or until this process ends. The call returns when all nodes
    have the value, which may change then. The nodes pass pieces on to each other.

    Raises Lost, which names the nodes that did not get the value, and then no node keeps it.
    """
    nodes = _ray_copies.all_nodes() if actors is None else _ray_copies.nodes_of(list(actors))
    if not nodes:
        raise ValueError("no actors")
    return _ray_copies.root.broadcast(value, nodes, START_TIMEOUT_S)


def get(ref: Ref | Copies) -> Any:
    """The value of `put` or `broadcast`. An array may be written to; only this process sees it.

    The value of `put` arrives in new memory. That of `broadcast` is not copied on a node that has
    it, and fetched from one on the others.

    Raises LookupError if it was released, and Lost if the processes that had it have ended.
    """
    return _ray_copies.get(ref) if isinstance(ref, Copies) else _ray_objects.get(ref)


def release(ref: Ref | Copies) -> None:
    """Let the processes that have the value forget it. Any process can say so, also twice.

    Arrays that `get` has returned stay valid.
    """
    _ray_copies.release(ref) if isinstance(ref, Copies) else _ray_objects.release(ref)


class Pipeline(pipeline.Pipeline):
    """A pipeline whose filters are actors; otherwise as `multirail.Pipeline`.

    The program that runs it must reach the nodes, and they it, as within the cluster. Actors on one
    node share memory, and other ones have sessions over all rails between their nodes.

    An actor that has died is started again by Ray, and takes part in the next run.
    """

    def __init__(self, *, limit_bytes: int = 64 << 20) -> None:
        super().__init__(limit_bytes=limit_bytes)

    def filter(
        self,
        *,
        copies: int = 1,
        stateless: bool = False,
        stream: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[F], F]:
        """Make a function a filter, of which each copy is an actor.

        `options` are those of actors, as `num_cpus`, `resources` or `scheduling_strategy`. By
        default, an actor needs one CPU, and is restarted whenever it dies (`max_restarts=-1`).
        """
        options = {"num_cpus": 1, "max_restarts": -1, **options}
        return self._define(name, copies, ["ray"], stateless, stream, options)

    def _start(self, jobs: list[Job]) -> Sequence[Worker]:
        workers: list[_ActorWorker] = []
        try:
            for job in jobs:
                workers.append(_ActorWorker(job))
            for worker in workers:
                worker.find()
        except BaseException:
            for worker in workers:
                worker.stop()
            raise
        return workers


class _Filter:
    """The actor. Ray calls the constructor again when it restarts the actor."""

    def __init__(self, request: dict[str, Any], function: bytes) -> None:
        self._answer = _child.serve(request, function)

    def answer(self) -> tuple[str, dict[str, str]]:
        return ray.util.get_node_ip_address(), self._answer


class _ActorWorker:
    host: str
    address: str

    def __init__(self, job: Job) -> None:
        self._job = job
        actor = ray.remote(_Filter).options(max_task_retries=-1, **job.options)
        self._actor = actor.remote(job.request(":0"), cloudpickle.dumps(job.function))

    def find(self) -> None:
        """Ask the actor where it is. If Ray restarts it, this waits."""
        self.host, answer = ray.get(self._actor.answer.remote(), timeout=START_TIMEOUT_S)
        port = checked_address(self._job, answer).rpartition(":")[2]
        self.address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def is_alive(self) -> bool:
        try:
            self.find()
        except ray.exceptions.RayActorError:
            return False
        return True

    def stop(self) -> None:
        if ray.is_initialized():
            ray.kill(self._actor)
