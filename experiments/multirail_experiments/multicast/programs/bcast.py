"""`multirail bcast` from the first host, to `multirail serve` on all others.

Keys of a line: `method`; `options` of the command; `finds_clusters`, if the command is not told the
clusters; `one_rail`, if it uses the first rail only; and `kill`, hosts that die during the
broadcast, by the plan's seed: { share, returns_after_s }. Without `returns_after_s` they stay away.
"""

import contextlib
import hashlib
import json
import random
import resource
import subprocess
import threading
import time

from multirail_experiments.lab import end
from multirail_experiments.multicast import scenario
from multirail_experiments.multicast.network import memory_peak_bytes

PORT = 7717
LISTEN_S = 30
TARGET = "received"
LOOK_S = 0.05
# Methods that plan are told the initial rates between clusters, and what hosts can send.
PLANNERS = ("balanced", "fpfr")
# Hosts die at a random moment in this part of the time that a broadcast takes at the bound.
DIE_BETWEEN = (0.1, 0.9)


def available(net):
    done = subprocess.run([net.multirail, "bcast", "--help"], capture_output=True)
    return None if done.returncode == 0 else "this multirail has no `bcast`"


@contextlib.contextmanager
def session(net, line):
    def command_of(host):
        return [
            net.multirail,
            "serve",
            "--root",
            net.folder(host),
            "--listen",
            f"{'0.0.0.0' if uses_all_rails(net, line) else host.address}:{PORT}",
        ]

    setup = time.monotonic()
    hosts = serving(net, line)
    with net.peers(command_of, hosts) as servers:
        wait_until_they_listen(net, hosts)
        yield Group(net, line, servers, time.monotonic() - setup)


def serving(net, line):
    """The hosts that receive something: those that are not the only root."""
    roots = line.get("roots", [net.root.name])
    return [host for host in net.hosts if roots != [host.name]]


def uses_all_rails(net, line):
    return len(net.root.addresses) > 1 and not line.get("one_rail", False)


def wait_until_they_listen(net, hosts):
    until = time.monotonic() + LISTEN_S
    for host in hosts:
        ready = net.listens(host.name, PORT)
        while not ready():
            if time.monotonic() > until:
                raise RuntimeError(f"the server on {host.name} does not listen")
            time.sleep(LOOK_S)


def deaths(line, hosts, bound_s, seed):
    """Deaths as [(at_s, host)] in order, drawn by seed and line; the root never dies."""
    if "kill" not in line:
        return []
    draw = random.Random(
        int.from_bytes(hashlib.sha256(f"{seed} {line['name']}".encode()).digest()[:8])
    )
    left, found = list(hosts[1:]), []
    for _ in range(max(round(line["kill"]["share"] * len(left)), 1)):
        host = left.pop(int(draw.random() * len(left)))
        low, high = DIE_BETWEEN
        found.append((bound_s * (low + (high - low) * draw.random()), host))
    return sorted(found)


def planned_rates(net, rates):
    """What methods that plan are told: the rates of links, and the hosts' access rate."""
    access = [f"*={net.network['access']}"] if "access" in net.network else []
    return [*scenario.link_words(rates), *access]


class Group:
    """Servers that stay for all broadcasts."""

    def __init__(self, net, line, servers, setup_s):
        self.net, self.line, self.servers, self.setup_s = net, line, servers, setup_s

    def command(self, file, rates, to=TARGET):
        """The command of any root, since all hosts are in its list."""
        net = self.net
        members = {
            cluster: [host.address for host in net.hosts if host.cluster == cluster]
            for cluster in net.clusters
        }
        words = [
            net.multirail,
            "--json",
            "bcast",
            file,
            "--to",
            to,
            "--hosts",
            ",".join(host.address for host in net.hosts),
            "--method",
            self.line["method"],
        ]
        if not self.line.get("finds_clusters", False):
            named = (f"{cluster}={','.join(found)}" for cluster, found in members.items())
            words += ["--clusters", ";".join(named)]
        if self.line["method"] in PLANNERS:
            path = net.work / "rates"
            path.write_text("\n".join(planned_rates(net, rates)) + "\n")
            words += ["--bandwidth", path]
        if self.line.get("one_rail", False):
            words += ["--rails", net.root.address]
        return words + [str(word) for word in self.line.get("options", [])]

    def broadcast(self, file, begin, limit_s, point):
        net = self.net
        dying = deaths(self.line, net.hosts, point.bound_s(file.stat().st_size) or 0, point.seed)
        rates = point.events(file.stat().st_size)[0][1]
        self.servers.reset_cpu()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = begin()
        with dying_hosts(
            self.servers, dying, began, self.line.get("kill", {}).get("returns_after_s")
        ):
            said, errors, root_memory_bytes = self.run(self.command(file, rates), limit_s)
        took_s = time.monotonic() - began
        summary = next((row for row in reversed(said) if "prepared_seconds" in row), None)
        if summary is None:
            raise RuntimeError(f"bcast: {errors}")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        root_cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        returns = "returns_after_s" in self.line.get("kill", {})
        gone = set() if returns else {host.name for _, host in dying}
        complete = {
            row["address"].rpartition(":")[0] for row in summary["hosts"] if row["complete"]
        }
        wanted = [host for host in net.hosts[1:] if host.name not in gone]
        missing = [host.name for host in wanted if host.address not in complete]
        if missing:
            why = next((row["reason"] for row in summary["hosts"] if row["reason"]), errors)
            raise RuntimeError(
                f"{len(missing)} hosts have not the whole, {missing[0]} among them: {why}"
            )
        died = {host.address for _, host in dying}
        seconds = [
            row["seconds"]
            for row in summary["hosts"]
            if row["complete"] and row["address"].rpartition(":")[0] not in died
        ]
        memory = [*self.servers.memory_peak_bytes().values(), root_memory_bytes]
        found = {
            "seconds": max(seconds),
            "setup_s": self.setup_s + took_s - summary["seconds"],
            "prepared_s": summary["prepared_seconds"],
            "command_setup_s": summary["prepared_seconds"] + summary["setup_seconds"],
            "peers_cpu_s": self.servers.cpu_s() + root_cpu_s,
            "memory_peak_mib": round(max(memory) / (1 << 20), 1),
            "piece_bytes": summary["piece_bytes"],
            "is_told_access": self.line["method"] in PLANNERS and "access" in net.network,
            "received": [net.folder(host) / TARGET for host in wanted],
        }
        if dying:
            back = [
                row
                for row in summary["hosts"]
                if row["address"].rpartition(":")[0] in died and row["complete"]
            ]
            found |= {
                "died": [[round(at_s, 3), host.name] for at_s, host in dying],
                "returned": len(back),
                "returned_s": max((row["seconds"] for row in back), default=None),
                "resumed_bytes": sum(row["resumed_bytes"] for row in back),
            }
        return found

    def run(self, command, limit_s, root=None):
        """Runs the command on a host; returns its rows, its stderr, and its peak memory."""
        net, most_bytes = self.net, 0
        name = root or net.root.name
        said, logged = (net.work / f"bcast-{name}.{kind}" for kind in ("out", "log"))
        with open(said, "w+") as out, open(logged, "w+") as log:
            process = subprocess.Popen(
                net.on(name, *command), stdout=out, stderr=log, start_new_session=True
            )
            until = time.monotonic() + limit_s
            try:
                while process.poll() is None:
                    if time.monotonic() > until:
                        raise TimeoutError(f"took longer than {limit_s:.0f} s")
                    most_bytes = max(most_bytes, memory_peak_bytes(process.pid))
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_S)
            finally:
                end(process)
            out.seek(0)
            log.seek(0)
            return [json.loads(row) for row in out], log.read().strip()[-300:], most_bytes


@contextlib.contextmanager
def dying_hosts(servers, dying, began, returns_after_s):
    """Kills servers at their times during the block, and restarts them after a while."""
    over = threading.Event()

    def run():
        todo = [(at_s, servers.kill, host.name) for at_s, host in dying]
        if returns_after_s is not None:
            todo += [(at_s + returns_after_s, servers.start, host) for at_s, host in dying]
        for at_s, act, what in sorted(todo, key=lambda one: one[0]):
            if over.wait(max(began + at_s - time.monotonic(), 0)):
                return
            act(what)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
