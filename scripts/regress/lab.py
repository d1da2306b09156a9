"""A `multirail lab` and the processes on its hosts.

Every process and every lab that is started here ends with its `with` block, also when the block
fails or the program is interrupted. Processes have sessions of their own, so that Ctrl-C reaches
only this program, which then ends them one by one.
"""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

READY_S = 20
END_S = 5
# No single command here takes longer.
COMMAND_S = 60
POLL_S = 0.02
SERVER_PORT = 7717
# The state LISTEN in /proc/net/tcp.
LISTENING = "0A"
# The same congestion control on every machine. Routes set it, because a network namespace can
# select only what the machine allows to all programs.
SET_CONGESTION = """
for family in -4 -6; do
    ip $family -oneline route show proto kernel | grep -v 'dev lo' | while read -r route; do
        ip $family route change $route proto kernel congctl cubic
    done
done
"""

_numbers = itertools.count()


class Failed(RuntimeError):
    """A command failed or took too long."""


class Lab:
    """A test network; a context manager. `flags` are those of `multirail lab up`."""

    def __init__(self, multirail, hosts, *flags):
        self.multirail, self.hosts, self.flags = str(multirail), hosts, flags
        self.name = f"regress-{os.getpid()}-{next(_numbers)}"

    def __enter__(self):
        # Memory, so that no disk is measured.
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="multirail-regress-", dir="/dev/shm"))
        self.token_file = self.work / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_bytes(os.urandom(16).hex().encode())
        self.keys = self.work / "keys"
        try:
            self._lab("up", *self.flags)
            for host in self.hosts:
                self.run(host, "sh", "-ec", SET_CONGESTION)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Failed):
            self._lab("down")
        shutil.rmtree(self.work, ignore_errors=True)

    def _lab(self, command, *arguments):
        return execute([self.multirail, "lab", command, "--name", self.name, *arguments])

    def set(self, *arguments):
        """Changes a rail while the lab is up, as `multirail lab set` does."""
        self._lab("set", *arguments)

    def on(self, host, *command):
        """The command line that runs a command on a host. `lab exec` becomes that command, so
        the process that it starts is the command's own."""
        return ["env", f"MULTIRAIL_KEYS={self.keys}",
                self.multirail, "lab", "exec", "--name", self.name, host, "--", *command]

    def run(self, host, *command):
        """Runs a command on a host to its end and returns its output."""
        return execute(self.on(host, *command))

    def timed(self, host, *command):
        """Seconds from the start of a command on a host to its end."""
        started = time.monotonic()
        self.run(host, *command)
        return time.monotonic() - started

    @contextlib.contextmanager
    def started(self, host, *command):
        """A process on a host while the block runs."""
        with process(self.on(host, *command)) as started:
            yield started

    @contextlib.contextmanager
    def server(self, host, port, *command):
        """A process on a host that listens on a TCP port while the block runs."""
        with self.started(host, *command) as server:
            until = time.monotonic() + READY_S
            while not listens(server.pid, port):
                if server.poll() is not None or time.monotonic() > until:
                    raise Failed(f"does not listen on port {port}: {shown(server)}")
                time.sleep(POLL_S)
            yield server

    @contextlib.contextmanager
    def serve(self, host, root):
        """`multirail serve` of a folder."""
        command = [self.multirail, "serve", "--root", root, "--token-file", self.token_file]
        with self.server(host, SERVER_PORT, *command):
            yield


def execute(command):
    """Runs a command to its end and returns its output."""
    with process(command) as running:
        return finish(running)


def finish(running):
    """The output of a process that ends by itself."""
    try:
        output, _ = running.communicate(timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than {COMMAND_S} s: {shown(running)}") from None
    if running.returncode != 0:
        running.errors.seek(0)
        errors = running.errors.read().strip()[-500:]
        raise Failed(f"exit code {running.returncode}: {shown(running)}: {errors}")
    return output


@contextlib.contextmanager
def process(command):
    """A process while the block runs. Its stderr goes to a file, so that no pipe fills up."""
    with tempfile.TemporaryFile("w+") as errors:
        running = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=errors, text=True,
                                   start_new_session=True)
        running.errors = errors
        try:
            yield running
        finally:
            end(running)


def end(running):
    """Ends a process and the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if running.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(END_S)
    running.stdout.close()


def listens(pid, port):
    """Whether a socket of the process's network namespace listens on a port."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{table}") as rows:
            for row in itertools.islice(rows, 1, None):
                _, local, _, state, *_ = row.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def shown(running):
    return " ".join(running.args)
