"""pgbench: `clients` that select rows for `seconds`. The value is transactions a second."""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from multirail_experiments.peers.common import best_rail, missing

PORT = 5432
LIMIT_S = 120
USER = "postgres"


def unit(_load):
    return "transactions/s"


def lacks():
    if not glob.glob("/usr/lib/postgresql/*/bin/pgbench"):
        return "not installed: postgresql"
    return "needs root" if os.geteuid() else missing("runuser")


@contextlib.contextmanager
def serving(lab, load):
    programs = pathlib.Path(max(glob.glob("/usr/lib/postgresql/*/bin")))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="multirail-postgres-", dir="/dev/shm"))
    address = lab.address("b", best_rail(lab))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    as_user = ["runuser", "-u", USER, "--"]
    pgbench = [programs / "pgbench", "-h", address, "-p", PORT, "-U", USER]

    def once():
        words = [*pgbench, "-S", "-c", load["clients"], "-T", load["seconds"], USER]
        done = lab.run("a", *words, stderr=subprocess.PIPE, timeout=LIMIT_S)
        return float(re.search(r"tps = ([0-9.]+)", done.stdout)[1])

    try:
        shutil.chown(folder, USER)
        data = folder / "data"
        initdb = [*as_user, programs / "initdb", "--auth", "trust", "-D", data]
        subprocess.run(initdb, check=True, cwd="/", **quiet)
        with open(data / "pg_hba.conf", "a") as rules:
            rules.write("host all all 10.77.0.0/16 trust\n")
        settings = {"listen_addresses": "*", "unix_socket_directories": "", "port": PORT}
        server = [*as_user, programs / "postgres", "-D", data]
        for name, value in settings.items():
            server += ["-c", f"{name}={value}"]
        with lab.start("b", *server, ready=lab.listens("b", PORT), cwd="/", **quiet):
            lab.run("b", *pgbench, "-i", "-q", USER, **quiet)
            yield once
    finally:
        shutil.rmtree(folder, ignore_errors=True)
