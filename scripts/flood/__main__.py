"""Measures how long a client waits for a server that is flooded with connections. Needs root.

    scripts/flood target/release/multirail target/release/examples/flood

The client has a round trip of 100 ms to the server. The flood comes from one other address, without a
delay. A copy of a small file is timed from the start of the command to its end, which takes several
round trips also when nothing disturbs it.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

from lab import SERVER_PORT, Lab, finish

COPIES = 6
HALF_OPEN = 1000
FLOOD_S = 20
# What getting in may take in addition, and what a connection may take of the server's memory.
MOST_MORE_S, MOST_CONNECTION_BYTES = 1.0, 16 << 10
SETTLE_S = 1.5
CLIENT, SERVER, FLOODER = "a0", "b0", "b1"
# Each copy gets a name of its own, so that none is found there already.
_numbers = itertools.count()


def main():
    parser = argparse.ArgumentParser(prog="scripts/flood", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("multirail", type=pathlib.Path, help="the command to measure")
    parser.add_argument("flood", type=pathlib.Path, help="the program that opens connections")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("this makes network namespaces, which needs root")
    missed = list(measure(args.multirail.resolve(), args.flood.resolve()))
    if missed:
        raise SystemExit("\n".join(f"scripts/flood: {problem}" for problem in missed))


def measure(multirail, flood):
    """Prints what was measured, and returns what is not as it should be."""
    flags = ("--clusters", "a=1,b=2", "--link", "a-b=1gbit,delay=50ms")
    with Lab(multirail, (CLIENT, SERVER, FLOODER), *flags) as lab:
        address = address_of(lab, SERVER)
        served = lab.work / "served"
        served.mkdir()
        command = (lab.multirail, "serve", "--root", served, "--token-file", lab.token_file)
        with lab.server(SERVER, SERVER_PORT, *command) as server:
            copies(lab, address)
            idle = copies(lab, address)
            tell("idle", idle)
            for what, load in (("half-open", ("hold", HALF_OPEN)), ("flood", ("flood",))):
                before_bytes = resident_bytes(server.pid)
                with lab.started(FLOODER, flood, f"{address}:{SERVER_PORT}", *load, FLOOD_S) as flooder:
                    time.sleep(SETTLE_S)
                    each_bytes = (resident_bytes(server.pid) - before_bytes) / HALF_OPEN
                    times = copies(lab, address)
                    told = json.loads(finish(flooder))
                tell(what, times)
                print(f"{what}: {told['opened'] / told['seconds']:.0f} connections a second, "
                      f"{told['failed']} not opened", flush=True)
                if what == "half-open":
                    print(f"{what}: {each_bytes / 1024:.1f} KiB of the server for each", flush=True)
                    if each_bytes > MOST_CONNECTION_BYTES:
                        yield f"{each_bytes:.0f} bytes for each connection"
                late = [taken_s for taken_s in times if taken_s > max(idle) + MOST_MORE_S]
                if late:
                    yield f"{what}: {len(late)} of {COPIES} copies took more than {MOST_MORE_S} s longer: {late}"


def copies(lab, address):
    """How long each of some copies takes, in seconds."""
    file = lab.work / "file"
    file.write_bytes(b"x" * 1024)
    command = (lab.multirail, "cp", "--token-file", lab.token_file, file)
    return [lab.timed(CLIENT, *command, f"mr://{address}/{next(_numbers)}") for _ in range(COPIES)]


def tell(what, times):
    print(f"{what}: {len(times)} of {COPIES} copies, median {statistics.median(times):.2f} s "
          f"({min(times):.2f} to {max(times):.2f})", flush=True)


def address_of(lab, host):
    shown = lab.run(host, "ip", "-json", "-4", "address", "show", "scope", "global")
    return next(info["local"] for port in json.loads(shown) for info in port["addr_info"])


def resident_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


main()
