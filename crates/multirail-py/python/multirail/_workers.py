"""Starting workers: processes that run one copy of a filter each."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from multirail._worker import MAX_FUNCTION_BYTES
from multirail.errors import FilterFailed


class Worker(Protocol):
    """A process that runs one copy of a filter."""

    address: str

    def is_alive(self) -> bool: ...

    def stop(self) -> None: ...


@dataclass
class Job:
    """What a worker is started with."""

    filter: str
    copy: int
    host: str
    function: Callable[..., Any]
    is_stream: bool
    # Of the workers of one pipeline.
    secret: str

    def request(self, listen: str, **more: Any) -> dict[str, Any]:
        return {"stream": self.is_stream, "secret": self.secret, "listen": listen, **more}

    def failed(self, why: str) -> FilterFailed:
        return FilterFailed(
            f"copy {self.copy} of filter {self.filter!r} on {self.host} cannot start: {why}",
            self.host,
            self.filter,
            self.copy,
        )


def pickled(job: Job, is_here: bool) -> tuple[bytes, dict[str, Any]]:
    """A function as bytes, and what a process on this host needs to load it."""
    try:
        import cloudpickle
    except ImportError:
        return _pickled_by_name(job, is_here)
    return _checked(job, cloudpickle.dumps(job.function)), {"path": sys.path if is_here else []}


def _pickled_by_name(job: Job, is_here: bool) -> tuple[bytes, dict[str, Any]]:
    module = getattr(job.function, "__module__", None)
    try:
        made = pickle.dumps(job.function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"the function of filter {job.filter!r} cannot be sent to another process ({error}); "
            "define it at the top of a module, or install cloudpickle"
        ) from None
    if module != "__main__":
        return made, {"path": sys.path if is_here else []}
    if not is_here:
        raise TypeError(
            f"the function of filter {job.filter!r} is of the program's main module, which "
            f"{job.host} does not have; move it to a module that is there, or install cloudpickle"
        )
    from multiprocessing import spawn

    preparation = spawn.get_preparation_data("multirail")
    del preparation["authkey"]
    return made, {"preparation": preparation}


def _checked(job: Job, made: bytes) -> bytes:
    if len(made) > MAX_FUNCTION_BYTES:
        raise TypeError(
            f"the function of filter {job.filter!r} has {len(made)} bytes with what it refers to; "
            f"the most are {MAX_FUNCTION_BYTES}"
        )
    return made


class LocalWorker:
    """A child of this process, which ends with it."""

    def __init__(self, request: dict[str, Any], function: bytes) -> None:
        # In a process group of its own, it gets no Ctrl-C of the terminal.
        self._child = subprocess.Popen(
            [sys.executable, "-c", "from multirail._worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            env=_environment(),
        )
        assert self._child.stdin is not None
        try:
            line = json.dumps({**request, "bytes": len(function)}).encode()
            self._child.stdin.write(line + b"\n" + function)
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # The answer is missing, too.

    @property
    def pid(self) -> int:
        return self._child.pid

    def answer(self) -> dict[str, str]:
        """The address or the error. It waits for the child."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if line:
            return json.loads(line)
        return {"error": f"its process has ended with status {self._child.wait()}"}

    def is_alive(self) -> bool:
        return self._child.poll() is None

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def _environment() -> dict[str, str]:
    """A child finds this package, also if the program has found it by sys.path alone."""
    environment = dict(os.environ)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment["PYTHONPATH"] = os.pathsep.join([*paths, package])
    return environment


class _Local(LocalWorker):
    """A worker of the driver's host."""

    address: str

    def __init__(self, job: Job, listen: str) -> None:
        function, more = pickled(job, is_here=True)
        super().__init__(job.request(listen, **more), function)
        self._job = job

    def wait(self) -> None:
        answer = self.answer()
        if error := answer.get("error"):
            self.stop()
            raise self._job.failed(error)
        self.address = answer["address"]


def start_local(jobs: list[Job], listen: str) -> list[_Local]:
    """Start workers on this host, all at once."""
    workers: list[_Local] = []
    try:
        for job in jobs:
            workers.append(_Local(job, listen))
        for worker in workers:
            worker.wait()
    except BaseException:
        for worker in workers:
            worker.stop()
        raise
    return workers
