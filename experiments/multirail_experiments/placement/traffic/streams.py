"""Bandwidth of streams between hosts with several ports, by pattern and number of streams.

    [patterns]  names, streams, seconds, warm_up_s, and `program_time = true` to have the kernel
                count how long the program of `place` takes

Patterns are those of the paper: `one-to-one`, `both-ways`, `one-to-many`, `many-to-one`,
`many-to-many`. A share is that of the rate of all ports that the pattern can fill, headers
included, so 0.956 is the most that TCP can carry.
"""

import contextlib
import json
import pathlib
import subprocess

from multirail_experiments.placement.network import Stream

COUNTS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")

SECONDS, WARM_UP_S = 3.0, 0.5
QUICK_SECONDS, QUICK_WARM_UP_S = 0.5, 0.3


def pairs(pattern, hosts):
    """Pairs of hosts, sender first."""
    first, *others = hosts
    return {
        "one-to-one": [(first, others[0])],
        "both-ways": [(first, others[0]), (others[0], first)],
        "one-to-many": [(first, other) for other in others],
        "many-to-one": [(other, first) for other in others],
        "many-to-many": [(one, other) for one in hosts for other in hosts if one != other],
    }[pattern]


def capacity_mbit_s(pattern, net):
    """The rate of all ports that the pattern can fill, on the narrower side."""
    every = pairs(pattern, net.hosts)
    sides = (len({source for source, _ in every}), len({target for _, target in every}))
    return min(sides) * sum(net.port_rates_mbit_s)


def rows(net, loads, table, quick):
    """A row for each pattern and number of streams."""
    seconds, warm_up_s = (
        (QUICK_SECONDS, QUICK_WARM_UP_S)
        if quick
        else (table.get("seconds", SECONDS), table.get("warm_up_s", WARM_UP_S))
    )
    for pattern in table["names"]:
        every = pairs(pattern, net.hosts)
        for count in table["streams"]:
            wanted = [Stream(source, target, count) for source, target in every]
            if not table.get("program_time"):
                run, _ = loads.run(wanted, warm_up_s, seconds)
                yield {"pattern": pattern, "streams": count, **described(run, every, pattern, net)}
                continue
            with kernel_counts_programs():
                run, _ = loads.run(wanted, warm_up_s, seconds)
                yield {
                    "pattern": pattern,
                    "streams": count,
                    **described(run, every, pattern, net),
                    "program_ns": program_ns(net, every[0][0]),
                }


@contextlib.contextmanager
def kernel_counts_programs():
    """Has the kernel count during the block; the setting is the machine's and costs time."""
    before = COUNTS.read_text()
    try:
        COUNTS.write_text("1")
        yield
    finally:
        COUNTS.write_text(before)


def program_ns(net, host):
    """Mean time for a packet since a host's program was loaded; None without a program."""
    done = net.run(
        host.name,
        net.multirail,
        "--json",
        "place",
        "status",
        check=False,
        stderr=subprocess.DEVNULL,
    )
    found = json.loads(done.stdout)["program_ns_per_packet"] if done.returncode == 0 else None
    return found and round(found, 1)


def described(run, every, pattern, net):
    rates = run.rates_mbit_s()
    total = sum(rates)
    sources, targets = (sorted({pair[side] for pair in every}) for side in (0, 1))
    segments = max(run.counter("OutSegs"), 1)
    return {
        "rate_mbit_s": round(total, 2),
        "share": round(total / capacity_mbit_s(pattern, net), 4)
        if None not in net.port_rates_mbit_s
        else None,
        "slowest_share": round(min(rates) * len(rates) / total, 3) if total else 0.0,
        "jain": round(total**2 / (len(rates) * sum(rate**2 for rate in rates)), 3)
        if total
        else 0.0,
        # Values of the host where they are worst, and of the first host port by port.
        "sent_balance": max(balance(run.port_bytes(host, "sent"), net) for host in sources),
        "received_balance": max(balance(run.port_bytes(host, "received"), net) for host in targets),
        "sent_ports": shares(run.port_bytes(sources[0], "sent")),
        "received_ports": shares(run.port_bytes(targets[0], "received")),
        "resent_share": round(run.counter("RetransSegs") / segments, 5),
        "duplicate_share": round(run.counter("TCPDSACKRecv", "TCPDSACKOfoRecv") / segments, 5),
        "out_of_order_share": round(run.counter("TCPOFOQueue") / segments, 5),
        "reorder_share": round(run.counter("TCPSACKReorder") / segments, 5),
        "segments": segments,
        "packets": run.packets(),
        "cpu_idle_share": run.cpu_idle_share,
        "cpu_s_per_gib": round(run.cpu_s / max(total * run.seconds / 8 * 1e6 / (1 << 30), 1e-9), 3),
    }


def shares(counts):
    total = max(sum(counts), 1)
    return [round(count / total, 4) for count in counts]


def balance(counts, net):
    """The busiest port over the mean, each relative to its rate; 1 if all are equally busy."""
    rates = [rate or 1 for rate in net.port_rates_mbit_s]
    busy = [count / rate for count, rate in zip(counts, rates)]
    return round(max(busy) * sum(rates) / max(sum(counts), 1), 3)
