"""Streams one way: `[streams]` of plan.toml.

Channels may be fixed or found, with several clients at once or another program beside.

    seconds, auto_seconds   whole seconds: the length of a stream with a fixed number of
                            channels, and of one that finds it ("auto")
    from_s, auto_from_s     from when on its rate is taken
    repeats                 how often each is measured
    quick                   values of these in a quick run, and the `channels`, `sizes` and
                            `clients` that it keeps
    [[streams.line]]        name; strategy, or program = "iperf3"; channels; optional: sizes,
                            clients, beside = true (one connection of iperf3 at the same time),
                            networks, repeats, seconds, auto_seconds

Streams of one network are measured one after the other, number by number, so that lines of one
number follow each other. The order rotates with each repeat.
"""

import contextlib
import json
import re
import subprocess
import time
from typing import NamedTuple

from multirail_experiments.host import Cpu, is_limit
from multirail_experiments.plan import size_bytes

AUTO = "auto"
IPERF3, IPERF3_PORT = "iperf3", 7815
IPERF3_BEGIN_S, IPERF3_INTERVAL_S = 1, 0.25
# Connections through windows of one packet take seconds to set up and to drain.
SLACK_S = 40
# A connection that carries less is a session's control connection.
DATA_BYTES = 50_000


class Setting(NamedTuple):
    """What is measured at once."""

    line: str
    strategy: str
    channels: int | str
    message_bytes: int
    clients: int
    beside: bool
    seconds: int
    from_s: float
    repeats: int

    @property
    def key(self):
        """The fields that identify this setting in a row."""
        return {
            "line": self.line,
            "channels": self.channels,
            "message_bytes": self.message_bytes,
            "clients": self.clients,
            "beside": self.beside,
            "seconds": self.seconds,
            "from_s": self.from_s,
        }


def settings(plan, network, quick):
    """All settings of a network, number by number."""
    table = plan.table.get("streams")
    if table is None:
        return []
    kept = table.get("quick", {}) if quick else {}
    found = []
    for line in table["line"]:
        if network["name"] not in line.get("networks", [network["name"]]):
            continue

        def value(key, line=line):
            return kept.get(key, line.get(key, table.get(key)))

        for number, size, clients in (
            (n, s, c)
            for n in line["channels"]
            for s in line.get("sizes", ["64k"])
            for c in line.get("clients", [1])
        ):
            if any(
                kept and wanted not in kept.get(key, [wanted])
                for key, wanted in (("channels", number), ("sizes", size), ("clients", clients))
            ):
                continue
            prefix = "auto_" if number == AUTO else ""
            found.append(
                Setting(
                    line["name"],
                    line.get("program") or line["strategy"],
                    number,
                    size_bytes(size),
                    clients,
                    line.get("beside", False),
                    value(f"{prefix}seconds"),
                    value(f"{prefix}from_s"),
                    value("repeats"),
                )
            )
    # The sort is stable, so lines of one number stay in the plan's order.
    return sorted(
        found, key=lambda one: (one.clients, 99 if one.channels == AUTO else one.channels)
    )


def rows(plan, lab, network, quick):
    """A row for each setting with a list of its repeats, or with the reason of a failure."""
    wanted = settings(plan, network, quick)
    measured, failed = {one: [] for one in wanted}, {}
    most = max((one.repeats for one in wanted), default=0)
    for repeat in range(most):
        turn = repeat * len(wanted) // most
        for one in wanted[turn:] + wanted[:turn]:
            if repeat < one.repeats and one not in failed:
                try:
                    measured[one].append(measure(lab, one))
                except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                    failed[one] = str(error)
    for one, repeats in measured.items():
        if one in failed:
            yield {
                "kind": "skipped",
                **one.key,
                "reason": f"{one.channels} channels: {failed[one]}",
            }
        else:
            idle_share = sum(repeat["cpu_idle_share"] for repeat in repeats) / len(repeats)
            yield {
                "kind": "stream",
                **one.key,
                "repeats": repeats,
                "cpu_was_limit": is_limit(idle_share),
            }


def measure(lab, setting):
    """Measures all clients of a setting at once, and the program beside them."""
    with contextlib.ExitStack() as stack:
        commands = [bench_command(lab, setting)] * setting.clients
        if setting.strategy == IPERF3:
            commands = [
                iperf3_command(lab, stack, setting.channels, setting.seconds, IPERF3_BEGIN_S)
            ]
        if setting.beside:
            commands.append(iperf3_command(lab, stack, 1, setting.seconds, 0))
        before, cpu = counters(lab), Cpu()
        processes = [
            stack.enter_context(
                lab.start("a", *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            )
            for command in commands
        ]
        time.sleep(setting.seconds / 2)
        sockets = look(lab)
        said = [answer(process, setting.seconds + SLACK_S) for process in processes]
        busy = cpu.take()
        after = counters(lab)
    flows = [iperf3_flow(one) if "end" in one else bench_flow(one) for one in said]
    beside = {"beside": flows.pop()} if setting.beside else {}
    return {
        "flows": flows,
        **beside,
        **busy,
        **sockets,
        **{name: after[name] - before[name] for name in after},
    }


def bench_command(lab, setting):
    return [
        lab.multirail,
        "--json",
        "bench",
        lab.address("b", 0),
        "--token-file",
        lab.token_file,
        "--pattern",
        "stream",
        "--seconds",
        setting.seconds,
        "--sizes",
        setting.message_bytes,
        "--strategies",
        setting.strategy,
        "--channels",
        setting.channels,
        "--repeat",
        1,
    ]


def bench_flow(said):
    return {
        key: said[key]
        for key in ("rate_mbit_s", "interval_s", "cpu_s_per_gib", "interval_channels")
    } | {"interval_mbit_s": [round(rate, 2) for rate in said["interval_mbit_s"]]}


def iperf3_command(lab, stack, connections, seconds, omitted_s):
    """The command of an iperf3 client; its server runs until `stack` ends."""
    stack.enter_context(
        lab.start(
            "b",
            "iperf3",
            "-s",
            "-1",
            "-p",
            IPERF3_PORT,
            ready=lab.listens("b", IPERF3_PORT),
            stderr=subprocess.DEVNULL,
        )
    )
    return [
        "iperf3",
        "-J",
        "-c",
        lab.address("b", 0),
        "-B",
        lab.address("a", 0),
        "-p",
        IPERF3_PORT,
        "-P",
        connections,
        "-t",
        seconds,
        "-O",
        omitted_s,
        "-i",
        IPERF3_INTERVAL_S,
    ]


def iperf3_flow(said):
    """The rate at the receiver, and intervals at the sender without those it omits."""
    received, busy_percent = said["end"]["sum_received"], said["end"]["cpu_utilization_percent"]
    cpu_s = (busy_percent["host_total"] + busy_percent["remote_total"]) / 100 * received["seconds"]
    return {
        "rate_mbit_s": received["bits_per_second"] / 1e6,
        "interval_s": IPERF3_INTERVAL_S,
        "cpu_s_per_gib": cpu_s / (received["bytes"] / (1 << 30)),
        "interval_mbit_s": [
            round(interval["sum"]["bits_per_second"] / 1e6, 2)
            for interval in said["intervals"]
            if not interval["sum"]["omitted"]
        ],
    }


def answer(process, limit_s):
    out, errors = process.communicate(timeout=limit_s)
    if process.returncode != 0:
        reason = json.loads(out).get("error") if out.startswith("{") else errors.strip()
        raise RuntimeError(f"ended with {process.returncode}: {reason}")
    return json.loads(out)


def counters(lab):
    """Counters of host a's segments, and of its rail's packets."""
    lines = [
        line.split()
        for line in lab.run("a", "cat", "/proc/net/snmp").stdout.splitlines()
        if line.startswith("Tcp:")
    ]
    tcp = dict(zip(*lines))
    rail = {
        name: lab.counters(0).get(name)
        for name in ("arrived_packets", "dropped_packets", "lost_packets")
    }
    return {
        "sent_segments": int(tcp["OutSegs"]),
        "resent_segments": int(tcp["RetransSegs"]),
        **{name: count for name, count in rail.items() if count is not None},
    }


def look(lab):
    """The sockets that send: number, congestion control, largest window, round trip."""
    listed = lab.run("a", "ss", "-tinOH", "state", "established").stdout.splitlines()
    sending = [
        line
        for line in listed
        if int((re.search(r"bytes_sent:(\d+)", line) or [0, 0])[1]) > DATA_BYTES
    ]
    controls = sorted(
        {
            control
            for line in sending
            for control in ("cubic", "bbr", "reno")
            if f" {control} " in line
        }
    )
    wanted = lab.network.get("congestion")
    if wanted and controls not in ([], [wanted]):
        raise RuntimeError(
            f"sockets have {', '.join(controls)} and not {wanted}: {sending[0][:120]}"
        )
    windows = [int(found[1]) for line in sending if (found := re.search(r"snd_wnd:(\d+)", line))]
    round_trips = [
        float(found[1]) for line in sending if (found := re.search(r" rtt:([\d.]+)", line))
    ]
    return {
        "sockets": len(sending),
        "congestion": controls,
        "window_bytes": max(windows, default=None),
        "rtt_ms": round(sum(round_trips) / len(round_trips), 1) if round_trips else None,
    }
