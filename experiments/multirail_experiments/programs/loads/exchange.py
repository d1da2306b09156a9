"""What parallel programs exchange, by Open MPI over UCX: `kernel`, `seconds`.

The program is experiments/c/mpi_exchange.c, with a rank on each host. Open MPI's own TCP (`btl
tcp`) compares addresses, which `multirail run` changes; UCX does not. The rate is the bytes from
rank to rank, in both directions together.
"""

import contextlib
import json
import shlex
import subprocess

from multirail_experiments.peers.common import best_rail, missing, program
from multirail_experiments.peers.openmpi import remote_shell, renamed

LIMIT_S = 60
COMMON = {"stdout": subprocess.PIPE, "text": True, "check": True, "start_new_session": True}


def unit(_load):
    return "Mbit/s"


def lacks():
    return missing("mpirun.openmpi", "mpicc.openmpi", "orted", "unshare")


@contextlib.contextmanager
def serving(lab, load):
    rail = best_rail(lab)
    hosts = [lab.address(host, rail) for host in ("a", "b")]
    settings = {
        "plm_rsh_agent": remote_shell(lab.bare, {hosts[1]: "b"}),
        "orte_tmpdir_base": lab.work,
        "pml": "ucx",
        "pml_ucx_tls": "any",
        "pml_ucx_devices": "any",
        "oob_tcp_if_include": lab.port(rail),
        # Ranks spin while they wait. With few processors it is faster if they yield meanwhile.
        "mpi_yield_when_idle": 1,
    }
    words = ["mpirun.openmpi", "--allow-run-as-root", "-np", "2", "--map-by", "node"]
    words += ["--bind-to", "none", "--host", ",".join(f"{host}:1" for host in hosts)]
    for name, value in settings.items():
        words += ["--mca", name, str(value)]
    words += ["-x", "UCX_TLS=tcp,self", "-x", f"UCX_NET_DEVICES={lab.port(rail)}"]
    words += [*map(str, lab.words.get("a", ())), str(program("mpi_exchange", "mpicc.openmpi"))]
    root = ["unshare", "--uts", "sh", "-c", renamed("a", shlex.join(words))]

    def once():
        asked = f"{load['kernel']} {load['seconds']}\n"
        pipes = {"input": asked, "stderr": subprocess.PIPE, "timeout": LIMIT_S}
        said = json.loads(subprocess.run(lab.bare.on("a", *root), **COMMON, **pipes).stdout)
        return 8e-6 * said["bytes"] / said["seconds"]

    yield once
