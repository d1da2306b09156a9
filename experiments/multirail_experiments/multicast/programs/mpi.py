"""Open MPI's MPI_Bcast over TCP: experiments/c/mpi_bcast.c, a rank on each host.

As in peers/openmpi.py, mpirun starts processes through a small script instead of ssh, and each rank
has its own host name.
"""

import contextlib
import json
import shlex
import time

from multirail_experiments.peers.common import missing, program
from multirail_experiments.peers.openmpi import remote_shell, renamed

WARM_UP_BYTES = 1 << 20
# Of labs with clusters, from network.FIRST_NETWORK on, and of those with rails.
NETWORKS = "10.64.0.0/10"


def available(_net):
    return missing("mpirun", "mpicc", "orted", "unshare")


@contextlib.contextmanager
def session(net, line):
    names = {host.address: host.name for host in net.hosts}
    settings = {
        "plm_rsh_agent": remote_shell(net, names),
        "plm_rsh_no_tree_spawn": 1,
        "orte_tmpdir_base": net.work,
        "pml": "ob1",
        "btl": "tcp,self",
        # All ports, so that messages are striped over all rails.
        "btl_tcp_if_include": NETWORKS,
        "oob_tcp_if_include": NETWORKS,
        # Open MPI spins while it waits. With few processors it is faster if it yields meanwhile.
        "mpi_yield_when_idle": 1,
        **line.get("settings", {}),
    }
    words = [
        "mpirun",
        "--allow-run-as-root",
        "-np",
        str(len(net.hosts)),
        "--map-by",
        "node",
        "--bind-to",
        "none",
        "--host",
        ",".join(f"{host.address}:1" for host in net.hosts),
    ]
    for name, value in settings.items():
        words += ["--mca", name, str(value)]
    words.append(str(program("mpi_bcast", "mpicc")))
    command = ["unshare", "--uts", "sh", "-c", renamed(net.root.name, shlex.join(words))]
    setup = time.monotonic()
    with net.peers(lambda _host: command, [net.root], ready="ready") as mpirun:
        yield Ranks(mpirun, time.monotonic() - setup)
        # mpirun takes long to end after a signal, so it is asked to finish.
        mpirun.finish()


class Ranks:
    """Ranks that stay for all broadcasts.

    Messages are filled by rank 0 and compared by all ranks; no files are written.
    """

    def __init__(self, mpirun, setup_s):
        self.mpirun, self.setup_s = mpirun, setup_s

    def broadcast(self, file, begin, limit_s, _point):
        size_bytes = file.stat().st_size
        if size_bytes <= WARM_UP_BYTES:
            # The first message between two ranks also connects them.
            self.mpirun.tell(f"{size_bytes}w")
        self.mpirun.tell(size_bytes)
        self.mpirun.wait_for("armed", 1, limit_s)
        begin()
        self.mpirun.tell("go")
        until = time.monotonic() + limit_s
        text = ""
        while not text.startswith("{"):
            _, text = self.mpirun.next(until)
        said = json.loads(text)
        if not said["is_equal"]:
            raise RuntimeError("ranks got something else than rank 0 sent")
        return {
            "seconds": said["seconds"],
            "setup_s": self.setup_s,
            "before_s": self.setup_s,
            "received": [],
        }
