"""Starting workers, processes that run one copy of a filter each: children, and those of a host."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import spawn
from typing import Any, Protocol

from multirail import _multirail
from multirail._child import MAX_FUNCTION_BYTES, MAX_REQUEST_BYTES, VERSIONS
from multirail.errors import FilterFailed, MultirailError

# The name of the driver's host.
LOCAL = "local"
# Where hosts listen for drivers.
PORT = 7718
CONNECT_TIMEOUT_S = 10.0


class Worker(Protocol):
    """A process that runs one copy of a filter. The address is that of its server."""

    host: str
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
    secret: str = field(repr=False)
    # What only some ways of starting workers know.
    options: dict[str, Any]

    def request(self, listen: str, **more: Any) -> dict[str, Any]:
        return {
            "versions": VERSIONS,
            "stream": self.is_stream,
            "secret": self.secret,
            "listen": listen,
            **more,
        }

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
        return _checked(job, made), {"path": sys.path if is_here else []}
    if not is_here:
        raise TypeError(
            f"the function of filter {job.filter!r} is of the program's main module, which "
            f"{job.host} does not have; move it to a module that is there, or install cloudpickle"
        )
    preparation = spawn.get_preparation_data("multirail")
    del preparation["authkey"]
    return _checked(job, made), {"preparation": preparation}


def _checked(job: Job, made: bytes) -> bytes:
    if len(made) > MAX_FUNCTION_BYTES:
        raise TypeError(
            f"the function of filter {job.filter!r} has {len(made)} bytes with what it refers to; "
            f"the most are {MAX_FUNCTION_BYTES}"
        )
    return made


class Child:
    """A worker that is a child of this process, and ends with it."""

    def __init__(self, request: dict[str, Any], function: bytes) -> None:
        # In a process group of its own, it gets no Ctrl-C of the terminal.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", "from multirail._child import main; main()"],
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

    def answer(self) -> dict[str, str]:
        """The address or the error. It waits for the child."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if line:
            return json.loads(line)
        return {"error": f"its process has ended with status {self._child.wait()}"}

    def wait(self) -> None:
        """Wait until the child has ended."""
        assert self._child.stdout is not None
        self._child.stdout.read()
        self._child.wait()

    def is_alive(self) -> bool:
        return self._child.poll() is None

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _environment() -> dict[str, str]:
    """A child finds this package, also if the program has found it by sys.path alone."""
    environment = dict(os.environ)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment["PYTHONPATH"] = os.pathsep.join([*paths, package])
    return environment


class LocalWorker:
    """A worker of the driver's host. Other hosts reach it at `reachable`, if there are others."""

    host = LOCAL
    address: str

    def __init__(self, job: Job, reachable: str | None) -> None:
        function, more = pickled(job, is_here=True)
        listen = "127.0.0.1:0" if reachable is None else ":0"
        self._child = Child(job.request(listen, **more), function)
        self._job = job
        self._reachable = reachable

    def wait_until_ready(self) -> None:
        address = checked_address(self._job, self._child.answer())
        self.address = address if self._reachable is None else _at(self._reachable, address)

    def is_alive(self) -> bool:
        return self._child.is_alive()

    def stop(self) -> None:
        self._child.stop()


class RemoteWorker:
    """A worker of a host that runs `python -m multirail.worker`. It ends with the session."""

    address: str

    def __init__(self, job: Job, host: str, token: _multirail.Token) -> None:
        function, more = pickled(job, is_here=False)
        self._job = job
        self.host = host
        self._session = _multirail.connect(host, token=token, timeout=CONNECT_TIMEOUT_S)
        self._local = next(rail.local for rail in self._session.rails() if rail.local is not None)
        self._session.send(json.dumps(job.request(":0", **more)).encode())
        self._session.send(function)
        self._is_lost = threading.Event()

    def local_address(self) -> str:
        """The address of this host in the network of the other one."""
        return self._local

    def wait_until_ready(self) -> None:
        answer = json.loads(self._session.recv(MAX_REQUEST_BYTES))
        self.address = _at(self.host, checked_address(self._job, answer))
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            self._session.recv(0)
        except MultirailError:
            self._is_lost.set()

    def is_alive(self) -> bool:
        return not self._is_lost.is_set()

    def stop(self) -> None:
        self._session.abandon()


def _at(host: str, address: str) -> str:
    """The port of the second address at the host of the first one."""
    return f"{host.rpartition(':')[0]}:{address.rpartition(':')[2]}"


def checked_address(job: Job, answer: dict[str, str]) -> str:
    if error := answer.get("error"):
        raise job.failed(error)
    return answer["address"]


def start(
    jobs: list[Job],
    running: Iterable[Worker],
    addresses: dict[str, str],
    token: _multirail.Token | None,
) -> list[LocalWorker | RemoteWorker]:
    """Start workers on this host and others, all at once.

    `running` are those that run already, and `addresses` those of hosts with short names.
    """
    started: list[tuple[int, LocalWorker | RemoteWorker]] = []
    remote = (worker for worker in running if isinstance(worker, RemoteWorker))
    reachable = next((worker.local_address() for worker in remote), None)
    try:
        for number, job in enumerate(jobs):
            if job.host == LOCAL:
                continue
            if token is None:
                raise ValueError(f"a filter is to run on {job.host}; pass token=… to Pipeline")
            worker = RemoteWorker(job, _with_port(addresses.get(job.host, job.host)), token)
            reachable = reachable or worker.local_address()
            started.append((number, worker))
        for number, job in enumerate(jobs):
            if job.host == LOCAL:
                started.append((number, LocalWorker(job, reachable)))
        for _, worker in started:
            worker.wait_until_ready()
    except BaseException:
        for _, worker in started:
            worker.stop()
        raise
    return [worker for _, worker in sorted(started, key=lambda one: one[0])]


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{PORT}"
