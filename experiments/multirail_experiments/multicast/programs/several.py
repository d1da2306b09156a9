"""Several `multirail bcast` at the same time, each from a root of its own with a file of its own.

Keys of a line: `roots`, the hosts that send, by name; and those of bcast.py, except `kill`. Every
host runs one `multirail serve`, which takes part in all broadcasts but its own.
"""

import concurrent.futures
import contextlib
import time

from multirail_experiments.multicast.programs import bcast

available = bcast.available


@contextlib.contextmanager
def session(net, line):
    with bcast.session(net, line) as group:
        yield Several(group)


class Several:
    """Servers that stay for all broadcasts."""

    def __init__(self, group):
        self.group = group

    def broadcast(self, file, begin, limit_s, point):
        net, roots = self.group.net, self.group.line["roots"]
        size_bytes = file.stat().st_size
        files = {roots[0]: file} | {root: point.file(size_bytes, root) for root in roots[1:]}
        rates = point.events(size_bytes)[0][1]

        def run(root):
            command = self.group.command(files[root], rates, to=f"{bcast.TARGET}-{root}")
            return self.group.run(command, limit_s, root)

        self.group.servers.reset_cpu()
        began = begin()
        with concurrent.futures.ThreadPoolExecutor(len(roots)) as pool:
            said = dict(zip(roots, pool.map(run, roots)))
        took_s = time.monotonic() - began
        each_s, received = [], []
        for root, (rows, errors, _) in said.items():
            summary = next((row for row in reversed(rows) if "prepared_seconds" in row), None)
            if summary is None or summary["failed"] > 0:
                raise RuntimeError(f"bcast from {root}: {errors}")
            each_s.append(max(row["seconds"] for row in summary["hosts"]))
            received += [
                (files[root], net.folder(host) / f"{bcast.TARGET}-{root}")
                for host in net.hosts
                if host.name != root
            ]
        return {
            "seconds": max(each_s),
            "each_s": each_s,
            "setup_s": self.group.setup_s + took_s - max(each_s),
            "peers_cpu_s": self.group.servers.cpu_s(),
            "received": received,
        }
