"""Reports results of scripts/bench: a verdict on every floor, and the tables and the figure of
docs/benchmarks.md.
"""

import argparse
import json
import math
import pathlib
import statistics

from multirail_experiments.paths import ROOT
from multirail_experiments.plan import K, M, size_name
from multirail_experiments.report.page import outdated

PAGE = ROOT / "docs/benchmarks.md"
FIGURE = ROOT / "docs/bench/effective-bandwidth.svg"
# A shaped rail lets one packet pass free after a pause, so smaller messages show more than a wire.
LEAST_FIGURE_BYTES = 16 * K
UNEQUAL = ["three unequal", "five unequal", "seven unequal"]

# Each floor: network, message bytes, strategy, reference, least ratio.
FLOORS = [
    *(
        ("100+100", size, "adaptive", "tcp", least)
        for size, least in [
            (K, 1.0),
            (8 * K, 1.2),
            (16 * K, 1.6),
            (64 * K, 1.9),
            (512 * K, 1.97),
            (4 * M, 1.97),
        ]
    ),
    *(("100+100", size, "adaptive", "oracle", 0.95) for size in (64 * K, 512 * K, 2 * M, 4 * M)),
    *(
        ("100+100", size, "two-ended", "tcp", least)
        for size, least in [(8 * K, 1.21), (64 * K, 1.86), (2 * M, 1.98)]
    ),
    *(
        ("100+25", size, "adaptive", "tcp", 0.98)
        for size in (K, 8 * K, 16 * K, 64 * K, 128 * K, 512 * K, 4 * M)
    ),
    *(
        ("100+25", size, "adaptive", "oracle", least)
        for size, least in [(64 * K, 0.85), (512 * K, 0.93), (4 * M, 0.93)]
    ),
    *(
        (network, size, "adaptive", "tcp", 0.98)
        for network in ("100+10", "100+1")
        for size in (K, 8 * K, 64 * K, 512 * K)
    ),
    *(("4x100", size, "adaptive", "oracle", 0.93) for size in (128 * K, 512 * K, 4 * M)),
    *((network, 8 * M, "adaptive", "oracle", 0.93) for network in UNEQUAL),
]


class Results:
    def __init__(self, path):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        self.host, self.rows = rows[0], rows[1:]
        self.messages = {
            (r["network"], r["message_bytes"], r["strategy"]): r
            for r in self.rows
            if r["kind"] == "message"
        }

    def ratio(self, network, size, strategy, against):
        """The ratio of effective bandwidths, which `multirail bench` takes repeat by repeat."""
        row = self.messages.get((network, size, strategy))
        if row is None or (network, size, against) not in self.messages:
            return None
        return row[f"ratio_to_{against}"]

    def several(self, field, **wanted):
        """One field of all results of one kind."""
        return [
            r[field] for r in self.rows if all(r.get(key) == value for key, value in wanted.items())
        ]

    def median(self, field, **wanted):
        found = self.several(field, **wanted)
        return statistics.median(found) if found else None

    def events(self):
        """The results of each event."""
        rows = [r for r in self.rows if r["kind"] == "event"]
        return [
            [r for r in rows if r["event"] == name]
            for name in dict.fromkeys(r["event"] for r in rows)
        ]

    def busy(self, network, size):
        return any(
            r["cpu_was_limit"]
            for r in self.rows
            if r["network"] == network and r.get("message_bytes") == size
        )


def verdict(results):
    """Yields network, what, floor, measured (None: not measured), and whether it is reached."""
    for network, size, strategy, against, least in FLOORS:
        measured = results.ratio(network, size, strategy, against)
        yield (
            network,
            f"{strategy} / {against}, {size_name(size)}",
            f"≥ {least:.2f}",
            measured,
            measured is not None and measured >= least,
        )
    both = {"kind": "iperf3", "rails": 2}
    iperf3 = results.median("rate_mbit_s", **both)
    large, byte = (
        {"kind": "message", "network": "unshaped", "message_bytes": size} for size in (4 * M, 1)
    )
    pairs = [
        (
            "cp (writes a file) / iperf3 (writes nothing), rate",
            0.9,
            results.median("rate_mbit_s", kind="cp"),
            iperf3,
        ),
        (
            "adaptive 4 MiB / iperf3 on both rails, rate",
            0.9,
            results.median("effective_mbit_s", strategy="adaptive", **large),
            iperf3,
        ),
        (
            "adaptive / tcp 4 MiB, CPU time",
            -1.1,
            results.median("cpu_s_per_gib", strategy="adaptive", **large),
            results.median("cpu_s_per_gib", strategy="tcp", **large),
        ),
        (
            "cp (writes a file) / iperf3 (writes nothing), CPU time",
            -1.1,
            results.median("cpu_s_per_gib", kind="cp"),
            results.median("cpu_s_per_gib", **both),
        ),
        (
            "adaptive / tcp 1 B, round trip",
            -1.1,
            results.median("rtt_us_mean", strategy="adaptive", **byte),
            results.median("rtt_us_mean", strategy="tcp", **byte),
        ),
    ]
    for what, floor, ours, theirs in pairs:
        measured = ours / theirs if ours and theirs else None
        # A negative floor is a ceiling.
        text = f"≥ {floor:.2f}" if floor > 0 else f"≤ {-floor:.2f}"
        reached = measured is not None and (measured >= floor if floor > 0 else measured <= -floor)
        yield "unshaped", what, text, measured, reached
    for row in results.events():
        if "demanded_s" in row[0]:
            slowest = max(r["seconds"] for r in row)
            yield (
                "100+100",
                f"{row[0]['event']}, s",
                f"≤ {row[0]['demanded_s']:.2f}",
                slowest,
                slowest <= row[0]["demanded_s"],
            )
            continue
        # A rail that only gets slower is allowed 5 % over the ideal. A rail that fails is allowed
        # 10 % and the time of detection.
        limit = 1.05 if row[0]["detection_s"] == 0 else 1.10
        ratio = statistics.median((r["seconds"] - r["detection_s"]) / r["ideal_s"] for r in row)
        yield (
            "100+100",
            f"{row[0]['event']}: (took - detection) / ideal",
            f"≤ {limit:.2f}",
            ratio,
            ratio <= limit,
        )


def print_verdict(results):
    reached = total = 0
    for network, what, floor, measured, is_reached in verdict(results):
        total, reached = total + 1, reached + is_reached
        shown = "   -" if measured is None else f"{measured:4.2f}"
        word = "not measured" if measured is None else "reached" if is_reached else "MISSED"
        print(f"{network:14} {what:45} {floor:>7} {shown:>6}  {word}")
    print(f"{reached} of {total} floors reached")


def table(header, rows):
    return [
        "| " + " | ".join(header) + " |",
        "|" + "|".join(" --- " if i < 2 else " ---: " for i in range(len(header))) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def results_table(results):
    """Effective bandwidths with the best line in bold; the oracle does not compete."""
    columns = ["tcp", "equal-partition", "shared-counter", "two-ended", "adaptive"]
    for network, size in dict.fromkeys((n, s) for n, s, _ in results.messages):
        cells = {c: results.messages.get((network, size, c)) for c in [*columns, "oracle"]}
        if not cells["tcp"] or not cells["adaptive"]:
            continue
        best = max(columns, key=lambda c: cells[c]["effective_mbit_s"] if cells[c] else 0)
        digits = 1 if cells["tcp"]["effective_mbit_s"] < 1000 else 0

        def cell(name):
            row = cells[name]
            if row is None:
                return ""
            text = f"{row['effective_mbit_s']:.{digits}f}"
            return f"**{text}**" if name == best else text

        ratios = [cells["adaptive"].get(f"ratio_to_{name}") for name in ("tcp", "oracle")]
        low, high = (cells["adaptive"][f"effective_mbit_s_{end}"] for end in ("min", "max"))
        yield [
            network,
            size_name(size) + (" †" if results.busy(network, size) else ""),
            *map(cell, columns),
            f"{low:.{digits}f}–{high:.{digits}f}",
            cell("oracle"),
            *("" if r is None else f"{r:.2f}" for r in ratios),
        ]


def stream_table(results):
    kinds = [
        ("iperf3, one connection on each rail", {"kind": "iperf3", "rails": 2}),
        ("iperf3, two connections on one rail", {"kind": "iperf3", "rails": 1}),
        ("`multirail cp`, memory to memory", {"kind": "cp"}),
    ]
    for name, wanted in kinds:
        rates = results.several("rate_mbit_s", **wanted)
        if rates:
            yield [
                "unshaped",
                name,
                f"{statistics.median(rates):.0f}",
                f"{min(rates):.0f}–{max(rates):.0f}",
                f"{results.median('cpu_s_per_gib', **wanted):.2f}",
            ]


def event_table(results):
    def middle(rows, field, digits=2):
        return f"{statistics.median(r[field] for r in rows):.{digits}f}" if field in rows[0] else ""

    for rows in results.events():
        yield [
            "100+100",
            rows[0]["event"],
            *(middle(rows, field) for field in ("seconds", "ideal_s", "detection_s")),
        ]


def busy_anywhere(results):
    return any(results.busy(network, size) for network, size, _ in results.messages)


def page(results):
    host = results.host
    old = outdated(host)
    lines = [
        f"Measured on {host['date']} with version {host['version']} ({host['commit']}): "
        f"{host['cores']} cores of {host['cpu']}, {host['memory_gib']} GiB, "
        f"Linux {host['kernel']}, {host['congestion_control']}. "
        "Both hosts are namespaces of that one machine."
        + (" A quick run: everything was measured once." if host["quick"] else "")
        + (f" **{old[0].upper()}{old[1:]}.**" if old else ""),
        "",
        "Effective bandwidth of a ping-pong in Mbit/s (message bits over half the round trip), as "
        "medians; the best is bold. The oracle is told the rails' rates beforehand. Shaped rails "
        "carry 95.6 % of their rate as payload. They let one packet pass free after a pause, so "
        "values up to 8 KiB are above the rate of a wire."
        + (" †: the CPU was the limit." if busy_anywhere(results) else ""),
        "",
        *table(
            [
                "network",
                "message",
                "plain TCP",
                "equal-partition",
                "shared-counter",
                "two-ended",
                "adaptive",
                "adaptive min–max",
                "oracle",
                "adaptive / TCP",
                "adaptive / oracle",
            ],
            results_table(results),
        ),
    ]
    streams = list(stream_table(results))
    if streams:
        lines += [
            "",
            "Streams over two rails without a rate, where the CPU is the limit:",
            "",
            *table(["network", "what", "Mbit/s", "min–max", "CPU s/GiB"], streams),
        ]
    events = list(event_table(results))
    if events:
        lines += [
            "",
            "A message of 64 MiB during which one rail changes; medians in seconds. The ideal "
            "knows at once. A rail that fails silently is detected by missing acknowledgements:",
            "",
            *table(["network", "event", "took", "ideal", "detection takes"], events),
        ]
    floors = list(verdict(results))
    missed = [row for row in floors if not row[4]]
    lines += [
        "",
        f"Of the {len(floors)} floors that the project sets itself, "
        f"{len(floors) - len(missed)} are reached" + (":" if not missed else "; these are not:"),
    ]
    if missed:
        lines += [
            "",
            *table(
                ["network", "what", "floor", "measured"],
                [[n, w, f, "-" if m is None else f"{m:.2f}"] for n, w, f, m, _ in missed],
            ),
        ]
    else:
        lines[-1] = lines[-1].rstrip(":") + "."
    return "\n".join(lines)


def write_page(results):
    before, rest = PAGE.read_text().split("<!-- bench:begin -->")
    _, after = rest.split("<!-- bench:end -->")
    PAGE.write_text(f"{before}<!-- bench:begin -->\n{page(results)}\n<!-- bench:end -->{after}")


def figure(results):
    """Draws two panels of effective bandwidth over message size."""
    width, height, left, top, gap, right = 380, 230, 56, 44, 50, 24
    lines = [
        ("oracle", "oracle (told the rates)", "#999999", "4 3"),
        ("tcp", "plain TCP, best network", "#c0392b", ""),
        ("adaptive", "multirail", "#1f6fb2", ""),
    ]
    total = 2 * (left + width) + gap + right
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {total} {top + height + 76}" '
        f'font-family="sans-serif" font-size="12" role="img">'
        "<title>Effective bandwidth over message size</title>"
        f'<rect width="100%" height="100%" fill="white"/>'
    ]

    def text(x, y, words, anchor="middle", extra=""):
        svg.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{words}</text>')

    for panel, network in enumerate(("100+100", "100+25")):
        origin = left + panel * (left + width + gap)
        sizes = sorted(
            {s for n, s, _ in results.messages if n == network and s >= LEAST_FIGURE_BYTES}
        )
        if not sizes:
            continue
        first, last = math.log2(sizes[0]), math.log2(sizes[-1])
        most = max(
            r["effective_mbit_s"]
            for (n, s, c), r in results.messages.items()
            if n == network and s >= LEAST_FIGURE_BYTES and c in [line[0] for line in lines]
        )
        most = math.ceil(most / 50) * 50

        def place(size, rate, origin=origin, first=first, last=last, most=most):
            return origin + width * (math.log2(size) - first) / max(
                last - first, 1
            ), top + height * (1 - rate / most)

        text(
            origin + width / 2,
            top - 16,
            network.replace("+", " + ") + " Mbit/s",
            extra='font-weight="bold"',
        )
        for tick in range(0, most + 1, 50):
            y = place(sizes[0], tick)[1]
            svg.append(f'<path d="M{origin} {y:.1f}h{width}" stroke="#dddddd"/>')
            text(origin - 6, y + 4, tick, "end")
        for size in sizes:
            text(
                place(size, 0)[0],
                top + height + 16,
                size_name(size).replace(" KiB", "k").replace(" MiB", "M"),
            )
        for strategy, _, color, dash in lines:
            points = [
                place(s, results.messages[network, s, strategy]["effective_mbit_s"])
                for s in sizes
                if (network, s, strategy) in results.messages
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            svg.append(
                f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" '
                f'stroke-dasharray="{dash}"/>'
            )
    for index, (_, name, color, dash) in enumerate(lines):
        x, y = left + index * 210, top + height + 52
        svg.append(
            f'<path d="M{x} {y}h28" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        text(x + 34, y + 4, name, "start")
    text(total - right, top + height + 56, "Mbit/s over message size", "end", 'fill="#555555"')
    return "\n".join([*svg, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument(
        "--verdict-only", action="store_true", help="leave the page and the figure as they are"
    )
    args = parser.parse_args()
    results = Results(args.results)
    if not args.verdict_only:
        write_page(results)
        FIGURE.write_text(figure(results))
    print_verdict(results)


if __name__ == "__main__":
    main()
