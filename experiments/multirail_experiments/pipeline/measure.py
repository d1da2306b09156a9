"""Measures a plan with `measures = "pipeline"`: filters on hosts that are processes.

The program is the example datacutter. Keys of a plan:

    [[job]]   name, compute_ns_per_byte, measure (as the program takes it), lines (default: all),
              peers (modules of balance/ that do the same with other programs), repeats;
              vary: values by key of `measure`. Each combination is a job, and `{key}` in the
              name is replaced by its value
    lines     transports
"""

import contextlib
import importlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

from multirail_experiments.host import Cpu, is_limit

HOSTS = 3
# A job that hangs must not stop all experiments.
JOB_LIMIT_S = 150


def measure(plan, multirail, quick, emit):
    emit({"kind": "plan", "name": plan.name, **plan.table, "quick": quick})
    program = pathlib.Path(multirail).parent / "examples/datacutter"
    if not program.exists():
        raise RuntimeError(
            f"{program} is missing: cargo build --release -p multirail --example datacutter"
        )
    with (
        tempfile.TemporaryDirectory(prefix="multirail-pipeline-") as work,
        hosts(program) as addresses,
    ):
        jobs = Jobs(program, addresses, pathlib.Path(work))
        for job in jobs_of(plan):
            if quick and not job.get("quick", True):
                continue
            for row in rows_of_job(plan, jobs, job, quick):
                emit({"kind": "pipeline", "job": job["name"], **row})


def jobs_of(plan):
    """Jobs, one for each combination of varied values."""
    for job in plan.table["job"]:
        vary = job.get("vary", {})
        for values in itertools.product(*vary.values()):
            chosen = dict(zip(vary, values))
            measure = {what: {**details, **chosen} for what, details in job["measure"].items()}
            yield {**job, "name": job["name"].format(**chosen), "measure": measure}


@contextlib.contextmanager
def hosts(program):
    """Addresses of hosts; each is a process that ends when its input is closed."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for _ in range(HOSTS):
            process = subprocess.Popen(
                [program, "host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(end, process)
            addresses.append(process.stdout.readline().strip())
        yield addresses


def end(process):
    process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class Jobs:
    def __init__(self, program, addresses, work):
        self.program, self.addresses, self.work = program, addresses, work

    def run(self, transport, job, quick):
        measure = {**job["measure"], **(job.get("quick_measure", {}) if quick else {})}
        ((what, details),) = measure.items()
        if isinstance(details, dict) and quick:
            details = {**details, **job.get("quick_details", {})}
        path = self.work / "job.json"
        path.write_text(
            json.dumps(
                {
                    "hosts": self.addresses,
                    "transport": transport,
                    "compute_ns_per_byte": job.get("compute_ns_per_byte", 0),
                    "measure": {what: details},
                }
            )
        )
        done = subprocess.run(
            [self.program, "run", path],
            capture_output=True,
            text=True,
            timeout=JOB_LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"datacutter ended with {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def rows_of_job(plan, jobs, job, quick):
    """Measures lines in an order that rotates with each repeat; a list has one value a repeat."""
    lines = list(job.get("lines", plan.table["lines"])) + list(job.get("peers", []))
    found = {}
    for repeat in range(1 if quick else job.get("repeats", plan.table.get("repeats", 3))):
        turn = repeat % len(lines)
        for line in lines[turn:] + lines[:turn]:
            cpu = Cpu()
            try:
                rows = (
                    importlib.import_module(f"multirail_experiments.pipeline.balance.{line}").run(
                        job
                    )
                    if line in job.get("peers", [])
                    else jobs.run(line, job, quick)
                )
            except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
                print(f"{plan.name}: {job['name']}, {line}: {error}", file=sys.stderr, flush=True)
                found.setdefault((line, "reason"), {"line": line, "reason": str(error)[-300:]})
                continue
            idle = cpu.take()["cpu_idle_share"]
            for row in rows:
                gather(found, row.pop("line", line), row, idle)
    return found.values()


# Fields that tell rows of one line apart.
KEYS = ("measured", "chunk_bytes", "complete_share", "buffer_bytes")


def gather(found, line, row, idle):
    key = {name: row[name] for name in KEYS if name in row}
    kept = found.setdefault((line, *key.values()), {"line": line, **key, "cpu_was_limit": False})
    for field, value in row.items():
        if field not in key:
            kept.setdefault(field, []).append(value)
    kept.setdefault("cpu_idle_share", []).append(idle)
    kept["cpu_was_limit"] |= is_limit(idle)
