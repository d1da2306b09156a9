"""Communication patterns of parallel programs, by Open MPI over TCP.

The program is experiments/c/mpi_exchange.c, with several ranks on each host.

    [exchange]   kernels (those of the program), ranks (on each host), seconds

A row's `streams` are the ranks on each host. Its rate is the payload between ranks, including ranks
of one host.
"""

import contextlib
import shlex
import subprocess

from multirail_experiments.host import Cpu
from multirail_experiments.peers.common import Client, missing, program
from multirail_experiments.peers.openmpi import remote_shell, renamed

SECONDS, QUICK_SECONDS = 1.5, 0.3


def available(_net):
    return missing("mpirun", "mpicc", "orted", "unshare")


def rows(net, loads, table, quick):
    reason = available(net)
    if loads.options:
        # Some processes that Open MPI starts could not be made to ask for MPTCP.
        reason = "Open MPI does not ask for MPTCP"
    if reason:
        raise RuntimeError(reason)
    seconds = QUICK_SECONDS if quick else table.get("seconds", SECONDS)
    for ranks in table["ranks"]:
        with session(net, loads, ranks) as client:
            for kernel in table["kernels"]:
                cpu = Cpu()
                said = client.ask(f"{kernel} {seconds}")
                yield {
                    "pattern": kernel,
                    "streams": ranks,
                    "rate_mbit_s": round(said["bytes"] * 8 / 1e6 / said["seconds"], 2),
                    "iteration_ms": round(said["seconds"] / said["iterations"] * 1e3, 3),
                    "cpu_idle_share": cpu.take()["cpu_idle_share"],
                }


class Asked(Client):
    def ask(self, words):
        """The program's answer to a line."""
        return self.measure(words, None)[0]


@contextlib.contextmanager
def session(net, loads, ranks):
    network = loads.address(net.hosts[0]).rpartition(".")[0] + ".0/24"
    names = {loads.address(host): host.name for host in net.hosts}
    settings = {
        "plm_rsh_agent": remote_shell(net, names),
        "plm_rsh_no_tree_spawn": 1,
        "orte_tmpdir_base": net.work,
        "pml": "ob1",
        # Ranks of one host use TCP as well, as in the paper.
        "btl": "tcp,self",
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        # Open MPI spins while it waits. With few processors it is faster if it yields meanwhile.
        "mpi_yield_when_idle": 1,
    }
    words = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-np",
        str(len(net.hosts) * ranks),
        "--map-by",
        "slot",
        "--bind-to",
        "none",
        "--host",
        ",".join(f"{loads.address(host)}:{ranks}" for host in net.hosts),
    ]
    for name, value in settings.items():
        words += ["--mca", name, str(value)]
    words.append(str(program("mpi_exchange", "mpicc")))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    root = net.hosts[0].name
    with net.start(
        root, "unshare", "--uts", "sh", "-c", renamed(root, shlex.join(words)), **pipes
    ) as process:
        client = Asked(process, "mpi")
        try:
            yield client
        finally:
            client.close()
