"""`multirail place` on every host. Keys of a line: `policy`; for `backlog` `threshold`, in
bytes.
"""

import contextlib
import subprocess

FLAGS, SYSCTL, OPTIONS = [], {}, []


def available(multirail, line):
    done = subprocess.run([multirail, "place", "up", "--help"], capture_output=True, text=True)
    if done.returncode != 0:
        return "this multirail has no `place`"
    return None if line["policy"] in done.stdout else f"`place` has no policy {line['policy']}"


@contextlib.contextmanager
def prepared(net, line):
    ports = {}
    for row in net.port_rows():
        # Real hardware reports its speed; the lab's ports all say 10 Gbit/s.
        speed = f"={row['rate_mbit_s']:g}mbit" if row["rate_mbit_s"] else ""
        ports.setdefault(row["host"], []).append(row["mac"] + speed)
    peers = net.work / "peers"
    peers.write_text("".join(" ".join(of_host) + "\n" for of_host in ports.values()))
    options = ["--threshold", str(line["threshold"])] if "threshold" in line else []
    try:
        for host in net.hosts:
            done = net.run(
                host.name,
                net.multirail,
                "place",
                "up",
                "--ports",
                ",".join(net.ports),
                "--policy",
                line["policy"],
                "--peers",
                peers,
                *options,
                check=False,
                stderr=subprocess.PIPE,
            )
            if done.returncode != 0:
                raise RuntimeError(f"multirail place up: {done.stderr.strip()}")
        yield
    finally:
        for host in net.hosts:
            net.run(
                host.name, net.multirail, "place", "down", check=False, stderr=subprocess.DEVNULL
            )


def address(net, host):
    return net.address(host)
