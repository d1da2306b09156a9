"""The measurements. Each group of ratios comes from one test network.

A group returns samples by the name of the ratio, and the median of the samples counts. Every ratio
is larger when multirail is better: our rate over the peer's, or the peer's time over ours.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

from lab import Failed, Lab, finish

K, M = 1 << 10, 1 << 20
# A rail's rate counts whole Ethernet frames; this share of it is TCP payload.
PAYLOAD_SHARE = 0.956
# The address of host b on the first rail.
SERVER = "10.77.0.2"
TWO_HOSTS = ("a", "b")


class Skipped(Exception):
    """This machine cannot run a group of ratios."""


def rails(multirail, rates):
    return Lab(multirail, TWO_HOSTS, "--hosts", "a,b", "--rails", ",".join(rates))


def json_rows(output):
    return [json.loads(line) for line in output.splitlines()]


def write_random(path, size):
    with open(path, "wb") as file:
        for start in range(0, size, M):
            file.write(os.urandom(min(M, size - start)))


# Small messages are measured in several sessions, because what a session believes of its rails
# decides how soon they arrive, and differs from session to session.
SMALL_SESSIONS, LARGE_REPEATS = 9, 3


def striping(multirail, rates_mbit_s):
    """Ping-pongs of `adaptive` over those of plain TCP on the best rail, and over the oracle's."""
    with rails(multirail, [f"{rate}mbit" for rate in rates_mbit_s]) as lab:
        with lab.serve("b", lab.work):
            small = [messages(lab, rates_mbit_s, "1k", "tcp,adaptive", 1)
                     for _ in range(SMALL_SESSIONS)]
            large = messages(lab, rates_mbit_s, "4m", "tcp,oracle,adaptive", LARGE_REPEATS)
    adaptive, tcp = (statistics.median(rows[line]["effective_mbit_s"] for rows in small)
                     for line in ("adaptive", "tcp"))
    return {
        "1KiB/tcp": [adaptive / tcp],
        "4MiB/tcp": [large["adaptive"]["ratio_to_tcp"]],
        "4MiB/oracle": [large["adaptive"]["ratio_to_oracle"]],
    }


def messages(lab, rates_mbit_s, size, strategies, repeats):
    """The rows of one session's ping-pongs, by strategy."""
    output = lab.run("a", lab.multirail, "--json", "bench", SERVER, "--token-file", lab.token_file,
                     "--sizes", size, "--strategies", strategies, "--repeat", repeats,
                     "--oracle-rates", ",".join(map(str, rates_mbit_s)))
    return {row["strategy"]: row for row in json_rows(output)}


CUT_BYTES, CUT_AFTER_S, CUT_REPEATS = 32 * M, 0.7, 3


def cut(multirail):
    """A copy during which one of two like rails is cut silently.

    The ideal knows of the cut at once and sends the rest over the other rail. It follows from
    undisturbed copies: what those have left at the moment of the cut takes twice as long.
    """
    undisturbed_s, disturbed = [], []
    with rails(multirail, ["100mbit", "100mbit"]) as lab:
        source, served = lab.work / "source", lab.work / "served"
        write_random(source, CUT_BYTES)
        served.mkdir()
        command = [multirail, "cp", "--token-file", lab.token_file, source, f"mr://{SERVER}/copy"]
        with lab.serve("b", served):
            lab.run("a", *command)
            for _ in range(CUT_REPEATS):
                # An unchanged file would not be copied again.
                (served / "copy").unlink()
                undisturbed_s.append(lab.timed("a", *command))
                (served / "copy").unlink()
                began = time.monotonic()
                with lab.started("a", *command) as copy:
                    time.sleep(CUT_AFTER_S)
                    lab.set("1", "--cut")
                    cut_s = time.monotonic() - began
                    finish(copy)
                    took_s = time.monotonic() - began
                lab.set("1", "--up")
                disturbed.append((cut_s, took_s))
    whole_s = statistics.median(undisturbed_s)
    return {"ideal": [(2 * whole_s - cut_s) / took_s for cut_s, took_s in disturbed]}


BCAST_BYTES, BCAST_MBIT_S, BCAST_REPEATS = 16 * M, 80, 3
CLUSTERS = {"a": ["10.80.0.2", "10.80.0.3"], "b": ["10.81.0.2", "10.81.0.3"]}


def bcast(multirail):
    """A broadcast to 2+2 hosts; the bound is the time of one copy over the link between them."""
    hosts = ("a0", "a1", "b0", "b1")
    bound_s = BCAST_BYTES * 8e-6 / (BCAST_MBIT_S * PAYLOAD_SHARE)
    clusters = ";".join(f"{name}={','.join(members)}" for name, members in CLUSTERS.items())
    addresses = [address for members in CLUSTERS.values() for address in members]
    given, found = [], []
    flags = ["--clusters", "a=2,b=2", "--link", f"a-b={BCAST_MBIT_S}mbit"]
    with Lab(multirail, hosts, *flags) as lab, contextlib.ExitStack() as servers:
        source = lab.work / "source"
        write_random(source, BCAST_BYTES)
        folders = [lab.work / host for host in hosts[1:]]
        for host, folder in zip(hosts[1:], folders):
            folder.mkdir()
            servers.enter_context(lab.serve(host, folder))
        command = [multirail, "bcast", source, "--to", "copy", "--token-file", lab.token_file]
        for _ in range(BCAST_REPEATS):
            for samples, flags in (
                (given, ["--hosts", ",".join(addresses), "--clusters", clusters]),
                (found, ["--hosts", ",".join(addresses[1:])]),
            ):
                samples.append(bound_s / lab.timed("a0", *command, *flags))
                for folder in folders:
                    if (folder / "copy").stat().st_size != BCAST_BYTES:
                        raise Failed("a host is incomplete after the broadcast")
                    (folder / "copy").unlink()
    return {"clusters-given/bound": given, "clusters-found/bound": found}


KERNEL_TYPES = pathlib.Path("/sys/kernel/btf/vmlinux")
PLACE_HOSTS = ("h1", "h2", "h3", "h4")
PLACE_PORTS, PLACE_MBIT_S = 4, 50
STREAM_REPEATS, PING_REPEATS = 2, 4
IPERF3_PORT = 5201
STREAM_S, STREAM_WARM_UP_S = 1.5, 1
# A ping-pong beside bulk streams.
PING = (sys.executable, "-B", pathlib.Path(__file__).parent / "ping.py")
PING_PORT, PING_S, BESIDE_STREAMS, BESIDE_WARM_UP_S = 7841, 1, 3, 0.7


def place_address(host):
    return f"10.90.0.{PLACE_HOSTS.index(host) + 1}"


def place(multirail):
    """Streams of unchanged programs over four ports, against the rate of all ports; and a ping
    beside bulk, against the ping where all share the first port."""
    if not KERNEL_TYPES.exists():
        raise Skipped(f"the kernel has no type information for BPF: {KERNEL_TYPES}")
    ideal_mbit_s = PLACE_PORTS * PLACE_MBIT_S * PAYLOAD_SHARE
    one_to_one, many_to_one = [], []
    with Lab(multirail, PLACE_HOSTS, "--hosts", "4", "--ports", PLACE_PORTS,
             "--rate", f"{PLACE_MBIT_S}mbit") as lab:
        pings_of_one_port = [ping_beside_bulk_us(lab) for _ in range(PING_REPEATS)]
        with placed(lab):
            for _ in range(STREAM_REPEATS):
                one_to_one.append(streams_mbit_s(lab, [("h1", "h2", 2)]) / ideal_mbit_s)
                senders = [(host, "h1", 1) for host in PLACE_HOSTS[1:]]
                many_to_one.append(streams_mbit_s(lab, senders) / ideal_mbit_s)
            pings = [ping_beside_bulk_us(lab) for _ in range(PING_REPEATS)]
    one_port_us = statistics.median(pings_of_one_port)
    return {
        "one-to-one/ports": one_to_one,
        "many-to-one/ports": many_to_one,
        "ping-beside-bulk/one-port": [one_port_us / ping_us for ping_us in pings],
    }


@contextlib.contextmanager
def placed(lab):
    """Placement on all hosts, which have found each other, while the block runs."""
    ports = ",".join(f"eth{number}" for number in range(PLACE_PORTS))
    up = [lab.multirail, "place", "up", "--ports", ports, "--token-file", lab.token_file]
    try:
        # All at once, since each waits until it has heard of the others.
        with contextlib.ExitStack() as stack:
            for running in [stack.enter_context(lab.started(host, *up)) for host in lab.hosts]:
                finish(running)
        yield
    finally:
        for host in lab.hosts:
            lab.run(host, lab.multirail, "place", "down")


@contextlib.contextmanager
def bulk(lab, streams, seconds, warm_up_s):
    """iperf3 streams (from, to, count), all at once; gives the clients."""
    with contextlib.ExitStack() as processes:
        clients = []
        for number, (source, target, count) in enumerate(streams):
            port = IPERF3_PORT + number
            processes.enter_context(lab.server(target, port, "iperf3", "-s", "-1", "-p", port))
            command = ["iperf3", "-J", "-c", place_address(target), "-p", port, "-P", count,
                       "-t", seconds, "-O", warm_up_s]
            clients.append((source, command))
        yield [processes.enter_context(lab.started(host, *command)) for host, command in clients]


def streams_mbit_s(lab, streams):
    """What all streams' receivers got together."""
    with bulk(lab, streams, STREAM_S, STREAM_WARM_UP_S) as clients:
        ends = [json.loads(finish(client))["end"] for client in clients]
    return sum(end["sum_received"]["bits_per_second"] for end in ends) / 1e6


def ping_beside_bulk_us(lab):
    """The median round trip of a small message on a plain TCP connection beside bulk streams."""
    with bulk(lab, [("h1", "h2", BESIDE_STREAMS)], 10, 0), \
            lab.server("h2", PING_PORT, *PING, "serve", PING_PORT):
        time.sleep(BESIDE_WARM_UP_S)
        output = lab.run("h1", *PING, place_address("h2"), PING_PORT, PING_S)
    return statistics.median(json.loads(output))


SHM_REPEATS = 11


def shm(multirail):
    """An edge of shared memory beside one plain TCP connection on the loopback interface."""
    with rails(multirail, ["-"]) as lab, lab.serve("b", lab.work):
        output = lab.run("b", multirail, "--json", "bench", "127.0.0.1", "--token-file",
                         lab.token_file, "--transports", "shm", "--sizes", "64,64k",
                         "--repeat", SHM_REPEATS)
    rows = {row["message_bytes"]: row for row in json_rows(output) if row["transport"] == "shm"}
    return {
        "64B/plain-tcp": [rows[64]["latency_ratio_to_plain"]],
        "64KiB/plain-tcp": [rows[64 * K]["bandwidth_ratio_to_plain"]],
    }


# Files of 4 KiB and of 2 MiB.
TREE_SMALL, TREE_LARGE = 2000, 6
RSYNC_PORT = 7822


def copies(multirail, rates, repeats):
    """`multirail cp -r` beside rsync from its daemon, from host b to host a, turn by turn."""
    with rails(multirail, rates) as lab:
        source, target = lab.work / "tree", lab.work / "target"
        write_tree(source)
        target.mkdir()
        settings = lab.work / "rsyncd.conf"
        settings.write_text("use chroot = no\nreverse lookup = no\nlog file = /dev/null\n"
                            f"lock file = {lab.work}/rsyncd.lock\nuid = root\ngid = root\n"
                            f"[lab]\npath = {lab.work}\nread only = yes\n")
        daemon = ["rsync", "--daemon", "--no-detach", "--config", settings, "--port", RSYNC_PORT]
        rsync = ["rsync", "-a", f"rsync://{SERVER}:{RSYNC_PORT}/lab/tree", f"{target}/"]
        ours = [multirail, "cp", "-r", "--token-file", lab.token_file, f"mr://{SERVER}/tree",
                f"{target}/"]
        lines = [("rsync", rsync), ("multirail", ours)]
        found = []
        with lab.serve("b", lab.work), lab.server("b", RSYNC_PORT, *daemon):
            # The first round touches the target's memory and does not count.
            for number in range(repeats + 1):
                took_s = {}
                for line, command in lines if number % 2 else reversed(lines):
                    took_s[line] = lab.timed("a", *command)
                    check_tree(target / "tree", line)
                    shutil.rmtree(target / "tree")
                if number:
                    found.append(took_s["rsync"] / took_s["multirail"])
    return {"rsync": found}


def check_tree(root, line):
    found = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    if (found.count(4 * K), found.count(2 * M)) != (TREE_SMALL, TREE_LARGE):
        raise Failed(f"the copy of {line} is not complete")


def write_tree(root):
    for folder in range(10):
        (root / f"folder-{folder}").mkdir(parents=True)
    for number in range(TREE_SMALL):
        write_random(root / f"folder-{number % 10}" / f"small-{number}", 4 * K)
    for number in range(TREE_LARGE):
        write_random(root / f"folder-{number % 10}" / f"large-{number}", 2 * M)


# By the first part of their ratios' names.
GROUPS = {
    "striping/100+100": functools.partial(striping, rates_mbit_s=[100, 100]),
    "striping/100+25": functools.partial(striping, rates_mbit_s=[100, 25]),
    "rail-cut/100+100": cut,
    "bcast/2x2": bcast,
    "place/4-ports": place,
    "edge/shm": shm,
    "cp-tree/100+100": functools.partial(copies, rates=["100mbit", "100mbit"], repeats=4),
    "cp-tree/unshaped": functools.partial(copies, rates=["-", "-"], repeats=7),
}
