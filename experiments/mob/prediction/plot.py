"""The simulator's prediction of a broadcast's time, over the measured time of real hosts."""

import statistics

from multirail_experiments import drawing
from multirail_experiments.claims import demanded
from multirail_experiments.drawing import plt
from multirail_experiments.multicast import drawing as multicast_drawing
from multirail_experiments.multicast.results import Broadcasts

SCENARIO = "fast"
MEASURED, PREDICTED = "adaptive, measured", "adaptive, predicted"
# The most that a prediction may be wrong.
MOST_ERROR = 0.15


def times(found, network, has_setup=True):
    """The measured seconds of each repeat, with the command's set-up or without."""
    row = found.row(network, SCENARIO, MEASURED)
    if row is None:
        return []
    setup_s = [0.0 if has_setup else one for one in row["command_setup_s"]]
    return [seconds - before for seconds, before in zip(row["seconds"], setup_s)]


def predicted_s(found, network):
    return found.median(network, SCENARIO, PREDICTED, field="seconds")


def ratio(found, network, has_setup):
    """Predicted over measured time; None if one is missing."""
    took, wanted = times(found, network, has_setup), predicted_s(found, network)
    return wanted / statistics.median(took) if took and wanted else None


def figures(rows, folder):
    found = Broadcasts(rows)
    figure, axes = plt.subplots(figsize=(max(5.0, 1.5 * len(found.networks)), 4.2))
    width, label = 0.36, {}
    for place, network in enumerate(found.networks):
        took, moving = times(found, network), times(found, network, has_setup=False)
        if took:
            all_s, moving_s = statistics.median(took), statistics.median(moving)
            spread = [[all_s - min(took)], [max(took) - all_s]]
            color = multicast_drawing.color("adaptive")
            axes.bar(place - width / 2, moving_s, width, color=color)
            axes.bar(place - width / 2, all_s - moving_s, width, bottom=moving_s, color="#9ecae1")
            axes.errorbar(place - width / 2, all_s, spread, color="black", linewidth=0.8)
            label |= {"measured: after the set-up": color, "measured: set-up": "#9ecae1"}
        if predicted_s(found, network):
            axes.bar(place + width / 2, predicted_s(found, network), width, color="#d98200")
            label["predicted"] = "#d98200"
        bound = found.bound_mb_s(network, SCENARIO)
        least_s = found.rows[0]["file_bytes"] / 1e6 / bound
        name = "bound" if place == 0 else None
        axes.hlines(least_s, place - 0.45, place + 0.45, label=name, **multicast_drawing.BOUND)
    for name, color in label.items():
        axes.bar(0, 0, color=color, label=name)
    axes.set_xticks(
        range(len(found.networks)), [name.replace(", ", "\n") for name in found.networks]
    )
    axes.set_ylabel("seconds to the last host")
    axes.set_title("One file to all hosts of four clusters", fontsize=11)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawing.frame(axes)
    multicast_drawing.finish(figure, folder / "prediction.png")
    multicast_drawing.write_tables(found, folder)


def claims(rows):
    found = Broadcasts(rows)
    for network in found.networks:
        row = found.row(network, SCENARIO, MEASURED)
        hosts = f"{row['hosts']} hosts" if row else "not measured"
        for has_setup, what in ((False, "after the set-up"), (True, "from the command's start")):
            of = ratio(found, network, has_setup)
            took = times(found, network, has_setup)
            note = ""
            if of is not None:
                note = (
                    f"predicted {predicted_s(found, network):.2f} s, "
                    f"measured {min(took):.2f} to {max(took):.2f} s, ratio {of:.3f}"
                    f"{found.dagger(network, SCENARIO, MEASURED)}"
                )
            yield demanded(
                f"{network}: {hosts}",
                f"error of the predicted time, {what}",
                of and abs(of - 1),
                most=MOST_ERROR,
                digits=3,
                note=note,
                runs=found.runs(network, SCENARIO, MEASURED),
            )
        copies, measured = (
            found.median(network, SCENARIO, line, field="wan_copies")
            for line in (PREDICTED, MEASURED)
        )
        if copies and measured:
            yield demanded(
                f"{network}: {hosts}",
                "error of the predicted bytes between clusters",
                abs(copies / measured - 1),
                most=MOST_ERROR,
                digits=3,
                note=f"predicted {copies:.2f} copies in frames, measured {measured:.2f}",
                runs=found.runs(network, SCENARIO, MEASURED),
            )
