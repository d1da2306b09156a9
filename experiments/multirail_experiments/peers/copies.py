"""Figures and tables of copies by several programs: rates by program and network, and CPU time."""

import dataclasses
import statistics

from multirail_experiments import drawing
from multirail_experiments.host import BUSY_IDLE_SHARE

OURS = "multirail cp"
COLUMNS = 2


@dataclasses.dataclass
class Copy:
    """Copies of a load by one line on a network, as medians of repeats."""

    network: str
    load: str
    line: str
    files: int
    seconds: float
    mbit_s: float
    cpu_s: float
    cpu_s_per_gib: float
    cpu_was_limit: bool
    runs: int

    @classmethod
    def of(cls, row):
        cpu_s = statistics.median(row["cpu_s"])
        return cls(
            row["network"],
            row["load"],
            row["line"],
            row["files"],
            statistics.median(row["seconds"]),
            statistics.median(row["mbit_s"]),
            cpu_s,
            cpu_s / (row["bytes"] / (1 << 30)),
            row["cpu_idle_share"] < BUSY_IDLE_SHARE,
            len(row["seconds"]),
        )


def dagger(cpu_was_limit):
    return " †" if cpu_was_limit else ""


def panels(rows):
    """Copies of the same load on the same network, in the order of measuring."""
    found = {}
    for row in rows:
        if row["kind"] == "copy":
            found.setdefault((row["network"], row["load"]), []).append(Copy.of(row))
    return found


def figures(rows, out_dir):
    found = panels(rows)
    for name, title, is_one in (
        ("one-file", "One file", True),
        ("many-files", "Many files", False),
    ):
        chosen = {
            where: copies for where, copies in found.items() if (copies[0].files == 1) == is_one
        }
        if chosen:
            bars(title, chosen, out_dir / f"{name}.png")
    (out_dir / "tables.md").write_text("\n".join(tables(rows, found)) + "\n")


def bars(title, chosen, path):
    lines = list(dict.fromkeys(copy.line for copies in chosen.values() for copy in copies))
    color = {
        line: drawing.style_of("adaptive" if line == OURS else line, lines)[0] for line in lines
    }
    grid = -(-len(chosen) // COLUMNS)
    figure, axes = drawing.plt.subplots(
        grid,
        min(COLUMNS, len(chosen)),
        figsize=(5.2 * min(COLUMNS, len(chosen)), 2.3 * grid),
        squeeze=False,
    )
    places = [place for row in axes for place in row]
    for place in places[len(chosen) :]:
        place.axis("off")
    for place, ((network, load), copies) in zip(places, chosen.items()):
        copies = list(reversed(copies))
        drawn = place.barh(
            [copy.line for copy in copies],
            [copy.mbit_s for copy in copies],
            color=[color[copy.line] for copy in copies],
        )
        place.bar_label(
            drawn,
            [f" {copy.mbit_s:.0f}{dagger(copy.cpu_was_limit)}" for copy in copies],
            fontsize=8,
        )
        place.set_title(f"{network}: {load}", fontsize=10)
        place.margins(x=0.15)
        place.tick_params(labelsize=8)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    figure.suptitle(f"{title}: Mbit/s (†: the CPU was the limit)", fontsize=11)
    figure.set_layout_engine("constrained")
    # The file has no date or version, so that the same rows give the same file.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    drawing.plt.close(figure)


def tables(rows, found):
    yield "# Copies from host b to host a"
    for (network, load), copies in found.items():
        best = max(copy.mbit_s for copy in copies)
        header = "| line | seconds | Mbit/s | of the best | CPU s | CPU s/GiB |"
        yield from ("", f"## {network}: {load}", "", header, "|" + " --- |" * 6)
        for copy in copies:
            cells = [
                copy.line + dagger(copy.cpu_was_limit),
                f"{copy.seconds:.2f}",
                f"{copy.mbit_s:.1f}",
                f"{copy.mbit_s / best:.3f}",
                f"{copy.cpu_s:.2f}",
                f"{copy.cpu_s_per_gib:.2f}",
            ]
            yield "| " + " | ".join(cells) + " |"
    yield from (
        "",
        "†: the CPU was the limit. CPU time is that of the whole machine, with both hosts.",
    )
    for row in rows:
        if row["kind"] == "skipped":
            yield f"\nNot measured: {row['line']} on {row['network']}: {row['reason']}"
