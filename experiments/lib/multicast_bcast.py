"""`multirail bcast` from the first host, to `multirail serve` on all others."""

import contextlib
import json
import statistics
import subprocess
import time

PORT = 7840
# Of what servers say on stderr, the last of it stands in errors.
LISTENS = "listening"
TARGET = "received"


def available(net):
    done = subprocess.run([net.multirail, "bcast", "--help"], capture_output=True)
    return None if done.returncode == 0 else "this multirail has no `bcast`"


@contextlib.contextmanager
def session(net, line):
    def command_of(host):
        return [net.multirail, "serve", "--root", net.folder(host), "--insecure-no-token", "--listen", f"{host.address}:{PORT}"]

    setup = time.monotonic()
    others = [host for host in net.hosts if host is not net.root]
    with net.peers(command_of, others) as servers:
        wait_until_they_listen(net, others)
        yield Group(net, line, servers, time.monotonic() - setup)


def wait_until_they_listen(net, hosts):
    for host in hosts:
        ready = net.listens(host.name, PORT)
        until = time.monotonic() + 30
        while not ready():
            if time.monotonic() > until:
                raise RuntimeError(f"the server on {host.name} does not listen")
            time.sleep(0.02)


class Group:
    """Servers that stay for all broadcasts."""

    def __init__(self, net, line, servers, setup_s):
        self.net, self.line, self.servers, self.setup_s = net, line, servers, setup_s

    def clusters(self):
        """The root's cluster first, which may have nobody else; the root itself is not named."""
        return ";".join(",".join(host.address for host in self.net.hosts if host.cluster == cluster) for cluster in self.net.clusters)

    def command(self, file):
        net = self.net
        hosts = ",".join(f"{host.address}:{PORT}" for host in net.hosts if host is not net.root)
        words = [net.multirail, "--json", "bcast", file, "--to", TARGET, "--hosts", hosts, "--clusters", self.clusters(),
                 "--method", self.line["method"], "--insecure-no-token"]
        return words + [str(word) for word in self.line.get("options", [])]

    def broadcast(self, file, begin, limit_s):
        self.servers.reset_cpu()
        with open(self.net.work / "bcast.log", "w+") as log:
            began = begin()
            done = self.net.run(self.net.root.name, *self.command(file), check=False, timeout=limit_s, stderr=log)
            ended = time.monotonic()
            log.seek(0)
            if done.returncode != 0:
                raise RuntimeError(f"bcast ended with {done.returncode}: {log.read().strip()[-300:]}")
        said = [json.loads(row) for row in done.stdout.splitlines()]
        summary = next(row for row in reversed(said) if "elapsed_s" in row)
        return {"seconds": summary["elapsed_s"], "setup_s": self.setup_s + (ended - began) - summary["elapsed_s"],
                "peers_cpu_s": self.servers.cpu_s(),
                "memory_peak_mib": round(statistics.median(self.servers.memory_peak_bytes().values()) / (1 << 20), 1),
                "received": [self.net.folder(host) / TARGET for host in self.net.hosts if host is not self.net.root]}
