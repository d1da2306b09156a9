"""Measures multirail beside plain TCP, the ideal split and iperf3 on test networks.

Writes JSON lines: first the host, then one object a result, with its network and the share of idle
CPU time. scripts/bench-report makes tables and a figure from them. It needs root, iperf3, and a
machine that does nothing else.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from multirail_experiments.host import Cpu, describe, is_limit, process_cpu_s
from multirail_experiments.lab import Lab

PAPERS = "tcp,oracle,single,equal-partition,shared-counter,two-ended,adaptive"
SHORT = "tcp,oracle,two-ended,adaptive"
# Network, rates of its rails in Mbit/s, strategies, sizes of many repeats, and sizes of few
# repeats, which take seconds each.
NETWORKS = [
    ("100+100", [100, 100], PAPERS, "1,1k,8k,16k,64k,512k", "2m,4m"),
    ("100+25", [100, 25], PAPERS, "1k,8k,16k,64k,128k,512k", "4m"),
    ("100+10", [100, 10], SHORT, "1k,8k,64k,512k", ""),
    ("100+1", [100, 1], SHORT, "1k,8k,64k,512k", ""),
    ("4x100", [100] * 4, SHORT, "64k,128k,512k", "4m"),
    ("three unequal", [100, 50, 25], SHORT, "", "8m"),
    ("five unequal", [100, 80, 50, 25, 10], SHORT, "", "8m"),
    ("seven unequal", [100, 80, 60, 50, 40, 25, 10], SHORT, "", "8m"),
    ("unshaped", [None, None], SHORT, "1,64k,4m", ""),
]


class Run:
    """One benchmark: where results go, how long to measure, and what is running."""

    def __init__(self, multirail, out, quick, work):
        self.multirail, self.out, self.quick, self.work = multirail, out, quick, work
        self.repeats, self.few_repeats = (1, 1) if quick else (5, 3)
        self.cpu = Cpu()
        # The lab that is up.
        self.net = None

    def emit(self, result):
        print(json.dumps(result), file=self.out, flush=True)

    def idle(self):
        """The share of idle CPU time since the last call or reset."""
        share = self.cpu.take()["cpu_idle_share"]
        return {"cpu_idle_share": share, "cpu_was_limit": is_limit(share)}

    @contextlib.contextmanager
    def lab(self, rates):
        """A lab with a rail for each rate; None is as fast as the machine."""
        rails = ["-" if rate is None else f"{rate}mbit" for rate in rates]
        with Lab(self.multirail, {"rails": rails}) as self.net:
            yield

    def messages(self, network, rates, strategies, sizes, repeats):
        """Runs `multirail bench`. Rows arrive size by size, so CPU use is known by size."""
        net = self.net
        command = net.on(
            "a",
            self.multirail,
            "--json",
            "bench",
            net.address("b", 0),
            "--token-file",
            net.token_file,
            "--sizes",
            sizes,
            "--strategies",
            strategies,
            "--repeat",
            repeats,
            "--oracle-rates",
            ",".join(str(rate or 1000) for rate in rates),
        )
        self.cpu.reset()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        message_bytes, idle = None, {}
        for line in process.stdout:
            row = json.loads(line)
            if row["message_bytes"] != message_bytes:
                message_bytes, idle = row["message_bytes"], self.idle()
            self.emit({"kind": "message", "network": network, **row, **idle})
        if process.wait() != 0:
            raise SystemExit(f"multirail bench failed on {network}")

    def iperf3(self, pairs):
        """Runs one iperf3 client and server for each `(rail, streams)`, all at once."""
        seconds = 2 if self.quick else 5
        servers = [
            subprocess.Popen(
                self.net.on("b", "iperf3", "-s", "-1", "-p", 5201 + rail), stdout=subprocess.DEVNULL
            )
            for rail, _ in pairs
        ]
        time.sleep(0.5)
        self.cpu.reset()
        clients = [
            subprocess.Popen(
                self.net.on(
                    "a",
                    "iperf3",
                    "-J",
                    "-c",
                    self.net.address("b", rail),
                    "-B",
                    self.net.address("a", rail),
                    "-p",
                    5201 + rail,
                    "-P",
                    streams,
                    "-t",
                    seconds,
                ),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rail, streams in pairs
        ]
        ends = [json.loads(client.communicate()[0])["end"] for client in clients]
        idle = self.idle()
        for server in servers:
            server.wait()
        moved = sum(end["sum_received"]["bytes"] for end in ends)
        cpu_percent = ("host_total", "remote_total")
        cpu_s = sum(
            end["cpu_utilization_percent"][side] / 100 * end["sum_sent"]["seconds"]
            for end in ends
            for side in cpu_percent
        )
        self.emit(
            {
                "kind": "iperf3",
                "network": "unshaped",
                "rails": len(pairs),
                "streams": sum(streams for _, streams in pairs),
                "rate_mbit_s": sum(end["sum_received"]["bits_per_second"] for end in ends) / 1e6,
                "cpu_s_per_gib": cpu_s / (moved / 2**30),
                **idle,
            }
        )

    def copy(self, file_bytes):
        """Copies one file from memory to memory with `multirail cp`.

        The server runs for this copy only, so its CPU time is that of the copy.
        """
        source, served = self.work / "source", self.work / "served"
        served.mkdir(exist_ok=True)
        if not source.exists():
            with open(source, "wb") as file:
                for _ in range(file_bytes >> 20):
                    file.write(os.urandom(1 << 20))
        with self.net.serve(served) as server:
            self.cpu.reset()
            command = self.net.on(
                "a",
                self.multirail,
                "--json",
                "cp",
                "--token-file",
                self.net.token_file,
                source,
                f"mr://{self.net.address('b', 0)}/copy",
            )
            client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            summary = json.loads(client.stdout.read().splitlines()[-1])
            _, status, used = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
            if client.returncode != 0:
                raise SystemExit("multirail cp failed")
            idle = self.idle()
            cpu_s = used.ru_utime + used.ru_stime + process_cpu_s(server.pid)
        (served / "copy").unlink()
        self.emit(
            {
                "kind": "cp",
                "network": "unshaped",
                "rails": 2,
                "file_bytes": file_bytes,
                "rate_mbit_s": summary["rate_mbit_s"],
                "cpu_s_per_gib": cpu_s / (file_bytes / 2**30),
                **idle,
            }
        )

    def events(self):
        """Measures what happens when a rail changes during a message; it makes its own labs."""
        example = pathlib.Path(self.multirail).parent / "examples/events"
        self.cpu.reset()
        output = subprocess.run(
            [example, str(self.few_repeats)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        idle = self.idle()
        for line in output.splitlines():
            self.emit({"kind": "event", "network": "100+100", **json.loads(line), **idle})


def measure(run, only):
    for network, rates, strategies, sizes, long_sizes in NETWORKS:
        if only and network not in only:
            continue
        started = time.monotonic()
        strategies = SHORT if run.quick else strategies
        with run.lab(rates):
            with run.net.serve(run.work):
                for group, repeats in ((sizes, run.repeats), (long_sizes, run.few_repeats)):
                    if group:
                        run.messages(network, rates, strategies, group, repeats)
            if network == "unshaped":
                for _ in range(run.few_repeats):
                    run.iperf3([(0, 1), (1, 1)])
                    run.iperf3([(0, 2)])
                    run.copy((256 if run.quick else 1024) << 20)
        print(f"{network}: {time.monotonic() - started:.0f} s", flush=True)
    if not only or "events" in only:
        started = time.monotonic()
        run.events()
        print(f"events: {time.monotonic() - started:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("multirail", help="the command to measure; examples/events is beside it")
    parser.add_argument("results", type=pathlib.Path, help="where the JSON lines go")
    parser.add_argument("--quick", action="store_true", help="one repeat, fewer strategies")
    parser.add_argument(
        "--network", action="append", help="only this one, or `events`; can be repeated"
    )
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit(
            "the benchmark makes network namespaces, which needs root: sudo make bench"
        )
    multirail = str(pathlib.Path(args.multirail).resolve())
    # The folder is in memory, so that no disk is measured. Results replace earlier ones only when
    # all are complete.
    work = pathlib.Path(tempfile.mkdtemp(prefix="multirail-bench-", dir="/dev/shm"))
    try:
        results = work / "results.jsonl"
        with open(results, "w") as out:
            run = Run(multirail, out, args.quick, work)
            run.emit({**describe(multirail), "quick": args.quick})
            measure(run, args.network)
        args.results.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(results, args.results)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
